"""BatchSpout: the simplest source of batches, which is asked for each by its txid.

Storm: org.apache.storm.trident.spout.IBatchSpout, BatchSpoutExecutor
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from sunshower.stores.tree import Tree
from sunshower.topologies.components import Context
from sunshower.trident.attempts import Attempt
from sunshower.trident.spouts.port import Coordinator, Emitter, Rows, SpoutKind
from sunshower.trident.spouts.unplanned import BaseCoordinator, BaseEmitter


class BatchSpout:
    """Write `emit_batch`. Say kind = SpoutKind.TRANSACTIONAL only if a txid always gives the same
    rows, also to a task that was started again: then it is exactly once."""

    emits: Any = None  # its record type, or the names of its fields
    kind: SpoutKind = SpoutKind.NON_TRANSACTIONAL
    parallelism_max: int | None = 1  # None: each of any number of tasks emits a share of its own

    def open(self, context: Context) -> None:
        """Called once per task, before the first batch."""

    def emit_batch(self, txid: int, rows: Rows) -> None:
        """Emit what batch `txid` is made of: for the first time, or once more."""
        raise NotImplementedError

    def ack(self, txid: int) -> None:
        """Batch `txid` is committed, and with it all before; it will not be asked for again."""

    def is_last(self, txid: int) -> bool:
        """Whether there is nothing after batch `txid`, so that the topology may end.

        Asked of an instance of its own, which was never opened.
        """
        return False

    def close(self) -> None:
        """Let go of what it holds."""


class AdaptedBatchSpout:
    """See the port `TridentSpout`."""

    commits = False

    def __init__(self, spout: BatchSpout) -> None:
        self._spout = spout
        self.emits, self.kind = spout.emits, spout.kind
        self.parallelism_max = spout.parallelism_max

    def coordinator(self, tree: Tree, path: str, context: Context) -> Coordinator:
        return _Coordinator(deepcopy(self._spout))

    def emitter(self, tree: Tree, path: str, context: Context) -> Emitter:
        return _Emitter(deepcopy(self._spout), context)


class _Coordinator(BaseCoordinator):
    def __init__(self, spout: BatchSpout) -> None:
        self._spout = spout

    def is_last(self, metadata: Any) -> bool:
        return self._spout.is_last(metadata["txid"])


class _Emitter(BaseEmitter):
    def __init__(self, spout: BatchSpout, context: Context) -> None:
        self._spout = spout
        spout.open(context)

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        self._spout.emit_batch(attempt.txid, rows)

    def success(self, attempt: Attempt) -> None:
        self._spout.ack(attempt.txid)

    def close(self) -> None:
        self._spout.close()
