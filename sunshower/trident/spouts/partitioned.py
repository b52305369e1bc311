"""Base classes for sources with partitions: users implement how to list and read them.

A partition has a name, and metadata for each batch: plain values that describe the batch's part of
it, from which the next batch continues. Partition n belongs to task n modulo the tasks.

transactional   metadata are stored before rows are sent; a repeated batch has the same rows
opaque          metadata are stored in the commit phase; a repeated batch may have other rows

Storm: org.apache.storm.trident.spout.IPartitionedTridentSpout, IOpaquePartitionedTridentSpout
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sunshower.errors import IncompleteBatch
from sunshower.topologies.components import Context
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import SpoutKind


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
        found = {}
        for partition, before in last.items():
            if room.full:
                break
            emitted, room.partition = len(room.rows), partition
            found[partition] = self.emit_new(partition, before, room)
            if len(room.rows) > emitted:
                room.filled.add(partition)
        return found

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
        for partition, one in metadata.items():
            room.partition = partition
            try:
                self.emit_again(partition, one, room)
            except IncompleteBatch as error:
                gone.append(error)
        if gone:
            raise IncompleteBatch("; ".join(map(str, gone))) from gone[0]


class OpaquePartitionedSpout(Partitioned):
    """Partitions whose repeated batches may have other rows. Implement `partitions` and `emit_new`.
    No row may get lost in between; then each is in exactly one committed batch."""

    kind = SpoutKind.OPAQUE
