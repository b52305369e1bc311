"""FixedBatchSpout: batches of rows that are given at construction.

Storm: org.apache.storm.trident.testing.FixedBatchSpout
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sunshower.arguments import COUNT, Instance
from sunshower.errors import TopologyError
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

_ROWS = Instance((Iterable,), "a list of rows")


class FixedBatchSpout:
    """Emits `size` rows per batch: seven rows at size 3 give 3, 3, 1, then empty batches.

    `type` or `fields` declares the rows. With `cycle` it starts over after the last row: 3, 3, 1,
    3, 3, 1 … The coordinator's store holds the range of each batch, so a batch is the same in every
    attempt, also after a restart, and another run with the same store continues.
    """

    kind = SpoutKind.TRANSACTIONAL
    commits = False
    parallelism_max = 1  # as in Storm

    def __init__(
        self,
        rows: Sequence[Any],
        size: int,
        *,
        type: type[Any] | None = None,
        fields: Sequence[str] | None = None,
        cycle: bool = False,
    ) -> None:
        _ROWS.check("FixedBatchSpout: rows", rows, TopologyError)
        COUNT.check("FixedBatchSpout: size", size, TopologyError)
        if cycle and not rows:
            raise TopologyError("FixedBatchSpout: there are no rows to begin with again")
        self.rows = [*rows]
        self.size = size
        self.cycle = cycle
        self.emits = type or fields

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        return _Coordinator(self)

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return _Emitter(self)


class _Coordinator(BaseCoordinator):
    def __init__(self, spout: FixedBatchSpout) -> None:
        self._spout = spout

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        if current is not None:
            return current
        first, there = previous["end"] if previous else 0, len(self._spout.rows)
        if first >= there and self._spout.cycle:
            first = 0
        return {"first": first, "end": min(first + self._spout.size, there)}

    def is_last(self, metadata: Any) -> bool:
        return not self._spout.cycle and metadata["end"] >= len(self._spout.rows)


class _Emitter(BaseEmitter):
    def __init__(self, spout: FixedBatchSpout) -> None:
        self._spout = spout

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        rows.emit(self._spout.rows[metadata["first"] : metadata["end"]])
