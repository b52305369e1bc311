"""Batch spouts of rows in this process: given at construction, or fed while the topology runs.

Storm: org.apache.storm.trident.testing.FixedBatchSpout, FeederBatchSpout
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import chain
from typing import Any

from sunshower.arguments import COUNT, Each, Instance, checked
from sunshower.errors import ConfigError, TopologyError
from sunshower.records import copied
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.spouts.port import Coordinator, Emitter, Rows, SpoutKind

_ROWS = Each(Instance((object,), "a row"), "a list of rows")


class _RangeEmitter(Emitter):
    """Emits the rows from `first` to `end` of the metadata, which `read` returns."""

    def __init__(self, read: Callable[[int, int], list[Any]]) -> None:
        self._read = read

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        rows.emit(self._read(metadata["first"], metadata["end"]))


class FixedBatchSpout:
    """Emits `size` rows per batch: seven rows at size 3 give 3, 3, 1, then empty batches.

    `type` or `fields` declares the rows. With `cycle` it starts over after the last row: 3, 3, 1,
    3, 3, 1 … The coordinator's store holds the range of each batch, so a batch is the same in every
    attempt, also after a restart, and another run with the same store continues.
    """

    kind = SpoutKind.TRANSACTIONAL
    commits = False
    parallelism_max = 1  # as in Storm

    @checked(TopologyError, rows=_ROWS, size=COUNT)
    def __init__(
        self,
        rows: Sequence[Any],
        size: int,
        *,
        type: type[Any] | None = None,
        fields: Sequence[str] | None = None,
        cycle: bool = False,
    ) -> None:
        if cycle and not rows:
            raise TopologyError("FixedBatchSpout: it has no rows to repeat")
        self.rows = [*rows]
        self.size = size
        self.cycle = cycle
        self.emits = type or fields

    def __deepcopy__(self, memo: Any) -> FixedBatchSpout:
        spout = copy(self)
        spout.rows = copied(self.rows)
        return spout

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        return _FixedCoordinator(self)

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return _RangeEmitter(lambda first, end: self.rows[first:end])


class _FixedCoordinator(Coordinator):
    def __init__(self, spout: FixedBatchSpout) -> None:
        self._spout = spout

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        if current is not None:
            return current
        first, row_count = previous["end"] if previous else 0, len(self._spout.rows)
        if first >= row_count and self._spout.cycle:
            first = 0
        return {"first": first, "end": min(first + self._spout.size, row_count)}

    def is_last(self, metadata: Any) -> bool:
        return not self._spout.cycle and metadata["end"] >= len(self._spout.rows)


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

    @checked(TopologyError)
    def __init__(
        self, *, type: type[Any] | None = None, fields: Sequence[str] | None = None
    ) -> None:
        self.emits = type or fields
        self._feed = _Feed()

    @checked(TopologyError, "FeederBatchSpout.feed", rows=_ROWS)
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
        return _FeedCoordinator(self._feed)

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return _RangeEmitter(lambda at, end: [*chain.from_iterable(self._feed.batches[at:end])])


class _FeedCoordinator(Coordinator):
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
