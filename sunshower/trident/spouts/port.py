"""The port of batch spouts: a coordinator that defines the batches, and emitters that read them.

The coordinator runs in the bolt `$spoutcoord-…` (one task); `is_ready` and `is_last` are called on
a separate instance in `$mastercoord-…`. The emitters run in the tasks of the spout's own bolt.
Storm: org.apache.storm.trident.spout.ITridentSpout, ICommitterTridentSpout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from enum import Enum
from typing import Any, Protocol

from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt


class SpoutKind(Enum):
    """What a spout guarantees for a txid that is emitted again."""

    TRANSACTIONAL = "transactional"  #: exactly the same rows
    OPAQUE = "opaque"  #: perhaps other rows, but each row is in one committed batch
    NON_TRANSACTIONAL = "non-transactional"  #: nothing


class Rows(Protocol):
    """Receives the rows of a batch from an emitter."""

    @property
    def records_max(self) -> int | None:
        """How many rows of a new batch are processed in time, by the time of those before; None:
        their time does not matter."""

    @property
    def is_skipped(self) -> bool:
        """Whether the batch is skipped: its rows become dead letters."""

    def emit(self, rows: Sequence[Any]) -> None:
        """Add rows of the spout's record type; any number at a time."""


class Coordinator:
    """Defines each batch; without its own methods batches may begin at any time and never end. All
    metadata are plain values that JSON can represent."""

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        """The metadata of batch `txid`. `previous` are those of the greatest smaller txid that is
        stored, `current` those of an earlier attempt of this txid; None if there are none."""
        return {"txid": txid}

    def success(self, txid: int) -> None:
        """Batch `txid` is committed and will not be repeated."""

    def is_ready(self, txid: int) -> bool:
        """Whether a new batch may begin now; called on the master's instance."""
        return True

    def is_last(self, metadata: Any) -> bool:
        """Whether there will be no rows after the batch with these metadata, which is committed:
        then the topology may end. Called on the master's instance."""
        return False

    def has_ended(self, metadata: Any, current: int) -> bool:
        """Whether it is known when the batch with these metadata begins that there will be no rows
        after it; the batches before `current` are committed. Asked if windows are downstream."""
        return self.is_last(metadata)

    def close(self) -> None:
        """Release resources."""


class Emitter:
    """Reads one task's share of each batch; only `emit_batch` must be written."""

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        """Emit this task's share of a batch. An exception fails the batch at once."""
        raise NotImplementedError

    def commit(self, attempt: Attempt) -> None:
        """Store where the next batch starts. Called in the commit phase if the spout `commits`."""

    def success(self, attempt: Attempt) -> None:
        """The batch is committed; what was stored for earlier ones can be removed."""

    def close(self) -> None:
        """Release resources."""

    def figures(self) -> Mapping[str, float]:
        """Like Spout.figures, for example the lag."""
        return {}


class TridentSpout(Protocol):
    """A source of batches: a value that can be pickled and copied, and opened in each task."""

    @property
    def emits(self) -> Any:
        """Its record type, or the names of its fields."""

    @property
    def kind(self) -> SpoutKind:
        """What it guarantees."""

    @property
    def commits(self) -> bool:
        """Whether its emitters take part in the commit phase."""

    @property
    def parallelism_max(self) -> int | None:
        """The largest number of emitter tasks; None: any."""

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        """A coordinator; it may store its own nodes below `path` (…/coordinator)."""

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        """An emitter; it stores its nodes below `path` (…/user/<partition>/<txid>)."""


# ---- batch spout ---------------------------------------------------------------------------------
# BatchSpout: the simplest source of batches, which emits each batch by its txid.
#
# Storm: org.apache.storm.trident.spout.IBatchSpout, BatchSpoutExecutor


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
