"""FeederBatchSpout: batches that a test feeds while the topology runs in its own process.

Storm: org.apache.storm.trident.testing.FeederBatchSpout
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sunshower.errors import ConfigError
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.trident.coordination.attempts import Attempt
from sunshower.trident.spouts.port import (
    BaseCoordinator,
    BaseEmitter,
    Coordinator,
    Emitter,
    Rows,
    SpoutKind,
)


class _Feed:
    """The state that all copies of a feeder share."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.ended = False
        self.planned = 0  # how many of them have been put into a batch
        self.last_txid = 0  # the last that has begun
        self.committed: list[int] = []  # txids

    def __deepcopy__(self, memo: Any) -> _Feed:
        return self

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a FeederBatchSpout cannot be shared by several processes: run it in one, as in the "
            "simulator, or take a source that all of them can read"
        )


class FeederBatchSpout:
    """Each `feed` is one batch; no batch begins without one. Copies share what is fed."""

    kind = SpoutKind.TRANSACTIONAL
    commits = False
    parallelism_max = 1

    def __init__(
        self, *, type: type[Any] | None = None, fields: Sequence[str] | None = None
    ) -> None:
        self.emits = type or fields
        self._feed = _Feed()

    def feed(self, rows: Sequence[Any]) -> None:
        """Make one batch of these rows."""
        self._feed.batches.append([*rows])

    def end(self) -> None:
        """Announce that there are no more rows, so that the topology may end."""
        self._feed.ended = True

    @property
    def committed(self) -> list[int]:
        """The txids whose success was reported, in that order."""
        return [*self._feed.committed]

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        return _Coordinator(self._feed)

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return _Emitter(self._feed)


class _Coordinator(BaseCoordinator):
    def __init__(self, feed: _Feed) -> None:
        self._feed = feed

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        self._feed.last_txid = max(self._feed.last_txid, txid)
        if current is not None:
            return current
        first = previous["end"] if previous else 0
        end = min(first + 1, len(self._feed.batches))
        self._feed.planned = max(self._feed.planned, end)
        return {"first": first, "end": end}

    def success(self, txid: int) -> None:
        self._feed.committed.append(txid)

    def is_ready(self, txid: int) -> bool:
        feed = self._feed
        return feed.ended or txid <= feed.last_txid or feed.planned < len(feed.batches)

    def is_last(self, metadata: Any) -> bool:
        return self._feed.ended and metadata["end"] >= len(self._feed.batches)


class _Emitter(BaseEmitter):
    def __init__(self, feed: _Feed) -> None:
        self._feed = feed

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        for batch in self._feed.batches[metadata["first"] : metadata["end"]]:
            rows.emit(batch)
