"""BatchSpout: the simplest source of batches, which emits each batch by its txid.

Storm: org.apache.storm.trident.spout.IBatchSpout, BatchSpoutExecutor
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.spouts.port import Coordinator, Emitter, Rows, SpoutKind


class BatchSpout:
    """Implement `emit_batch`. Set kind = SpoutKind.TRANSACTIONAL only if a txid always has the same
    rows, also after a restart of the task: then it is exactly once."""

    emits: Any = None  # its record type, or the names of its fields
    kind: SpoutKind = SpoutKind.NON_TRANSACTIONAL
    parallelism_max: int | None = 1  # None: any number of tasks, each emits its own share
    event_time: Any = None  # or a method, as Spout.event_time

    def open(self, context: Context) -> None:
        """Called once per task, before the first batch."""

    def emit_batch(self, txid: int, rows: Rows) -> None:
        """Emit the rows of batch `txid`, for the first time or again."""
        raise NotImplementedError

    def ack(self, txid: int) -> None:
        """Batch `txid` and all before it are committed and will not be emitted again."""

    def is_last(self, txid: int) -> bool:
        """Whether there is nothing after batch `txid`, so that the topology may end. Called on a
        separate instance that was never opened."""
        return False

    def close(self) -> None:
        """Release resources."""


class AdaptedBatchSpout:
    """Adapts a BatchSpout to the port `TridentSpout`."""

    commits = False

    def __init__(self, spout: BatchSpout) -> None:
        self._spout = spout
        self.emits, self.kind = spout.emits, spout.kind
        self.parallelism_max = spout.parallelism_max
        self.event_time = spout.event_time

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        return _Coordinator(deepcopy(self._spout))

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return _Emitter(deepcopy(self._spout), context)


class _Coordinator(Coordinator):
    def __init__(self, spout: BatchSpout) -> None:
        self._spout = spout

    def is_last(self, metadata: Any) -> bool:
        return self._spout.is_last(metadata["txid"])


class _Emitter(Emitter):
    def __init__(self, spout: BatchSpout, context: Context) -> None:
        self._spout = spout
        spout.open(context)

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        self._spout.emit_batch(attempt.txid, rows)

    def event_time(self, row: Any) -> Any:
        return self._spout.event_time(row)

    def success(self, attempt: Attempt) -> None:
        self._spout.ack(attempt.txid)

    def close(self) -> None:
        self._spout.close()
