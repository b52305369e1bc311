"""The port of batch spouts: a coordinator that defines the batches, and emitters that read them.

The coordinator runs in `$mastercoord-…`, which has one task; the emitters run in the tasks of the
spout's own bolt.
Storm: org.apache.storm.trident.spout.ITridentSpout, ICommitterTridentSpout.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from typing import Any, Protocol

from sunshower.errors import IncompleteBatch
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.spouts.bounds import Bounds, Room


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
        """Whether a new batch may begin now."""
        return True

    def is_last(self, metadata: Any) -> bool:
        """Whether there will be no rows after the batch with these metadata, which is committed:
        then the topology may end."""
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


# ---- partitioned ---------------------------------------------------------------------------------
# Base classes for sources with partitions: users implement how to list and read them.
#
# A partition has a name, and metadata for each batch: plain values that describe the batch's part
# of it, from which the next batch continues. Partition n belongs to task n modulo the tasks.
#
# transactional   metadata are stored before rows are sent; a repeated batch has the same rows
# opaque          metadata are stored in the commit phase; a repeated batch may have other rows
#
# Storm: org.apache.storm.trident.spout.IPartitionedTridentSpout, IOpaquePartitionedTridentSpout


class Partitioned:
    """The interface of both kinds. Every coordinator and every task gets its own copy."""

    emits: Any = None  # its record type, or the names of its fields
    parallelism_max: int | None = None
    kind: SpoutKind
    bounds = Bounds()  # of one task's share of a batch
    declared = ""  # identifies the declaration, for sources whose ends depend on the start time
    origin: str | None = None  # for sources that start at their end: identifies that start
    event_time: Any = None  # or a method, as Spout.event_time

    def open(self, context: Context) -> None:
        """Called once per copy, in the coordinator and in each task. Connect lazily."""

    def partitions(self) -> Sequence[str]:
        """The names of all current partitions. The coordinator calls it for each new batch."""
        raise NotImplementedError

    def begin_batch(self, run: str, added: Collection[str]) -> None:
        """Called before a batch is emitted, and before `is_end`: `run` identifies the run that the
        batch belongs to ("" without `declared`), `added` are the partitions added since `origin`.
        """

    def begins_anew(self, stored: Mapping[str, Any]) -> None:
        """Called in the coordinator if an `origin` has its first batch, and the store has metadata
        of partitions from before: the last ones of each. It may log what that means."""

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        """Emit what follows `last` (None: the start), as far as `room` allows. Returns the metadata
        of the emitted part; `last` again, or an equal value, if nothing was emitted: then the batch
        has no rows of the partition, also when it is repeated."""
        raise NotImplementedError

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        """Emit from all partitions of a task at once: override this or `emit_new`. A partition
        without an entry in the result, or whose entry equals `last`, has no rows in this batch. For
        windows, `room.partition` is the partition of the rows that are emitted next."""
        metadata_of = {}
        for partition, before in last.items():
            if room.full:
                break
            emitted, room.partition = len(room.rows), partition
            metadata_of[partition] = self.emit_new(partition, before, room)
            if len(room.rows) > emitted:
                room.filled.add(partition)
        return metadata_of

    def partitions_at_end(self) -> Mapping[str, float] | None:
        """Return which partitions were read to their end by the last `emit_all_new`, and when that
        began: partition → seconds of `Context.clock`. Called after it if windows of event time are
        downstream.

        A partition is left out while it has rows that were not emitted, or while its source does
        not answer. With 30 s of such answers and without a row it is idle: windows do not wait for
        it. None: this spout cannot tell; then each answer counts, so rows that it reads after an
        outage of one partition may be late.
        """
        return None

    def is_end(self, partition: str, metadata: Any) -> bool:
        """Whether nothing will ever follow. When all partitions are at their end, so is the stream.
        The result must depend only on these metadata and the run, and never change."""
        return False

    def committed(self, metadata: Mapping[str, Any]) -> None:
        """A batch is committed, and these are the metadata of a task's partitions after it. What
        was kept to emit it again can be dropped. A call may be missing; later ones then cover it.
        """

    def figures(self) -> Mapping[str, float]:
        """Like Spout.figures."""
        return {}

    def close(self) -> None:
        """Release resources."""


class PartitionedSpout(Partitioned):
    """Partitions that can be re-read exactly. Implement `partitions`, `emit_new`, `emit_again`."""

    kind = SpoutKind.TRANSACTIONAL

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        """Emit exactly the rows of these metadata, whatever `room` allows. Raise IncompleteBatch if
        some of them no longer exist."""
        raise NotImplementedError

    def emit_all_again(self, metadata: Mapping[str, Any], room: Room) -> None:
        """Emit from all partitions of a task at once: override this or `emit_again`. If some are
        incomplete, emit the others before raising that."""
        gone = []
        for partition, metadata_of_partition in metadata.items():
            room.partition = partition
            try:
                self.emit_again(partition, metadata_of_partition, room)
            except IncompleteBatch as error:
                gone.append(error)
        if gone:
            raise IncompleteBatch("; ".join(map(str, gone))) from gone[0]


class OpaquePartitionedSpout(Partitioned):
    """Partitions whose repeated batches may have other rows. Implement `partitions` and `emit_new`.
    No row may get lost in between; then each is in exactly one committed batch."""

    kind = SpoutKind.OPAQUE
