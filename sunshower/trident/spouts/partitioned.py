"""What a user writes for a source with partitions: which there are, and how one is read.

A partition has a name, and with each batch metadata: plain values that say which part of it the
batch has, so that the next batch goes on after it. Each is one task's: the n-th is that of task
n modulo the tasks.

transactional   metadata are kept before rows leave; a batch that is emitted again has the same
opaque          metadata are kept in the commit phase; a batch that is emitted again may have others

Storm: org.apache.storm.trident.spout.IPartitionedTridentSpout, IOpaquePartitionedTridentSpout
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sunshower.topologies.components import Context
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import SpoutKind


class Partitioned:
    """What both kinds have in common. Instances are copied, one for each place that needs one."""

    emits: Any = None  # its record type, or the names of its fields
    parallelism_max: int | None = None
    kind: SpoutKind
    bounds = Bounds()  # of one task's share of a batch
    declared = ""  # where ends depend on when it was run: what tells this declaration from others
    run = ""  # which run of it the batch is of that is emitted now; set before each
    origin: str | None = None  # of those that begin at ends: whose beginning counts, see `added`
    added: Collection[str] = ()  # partitions that came after that beginning; set before each batch

    def open(self, context: Context) -> None:
        """Called once in each place: the coordinator's, and each task's. Connect when asked."""

    def partitions(self) -> Sequence[str]:
        """The names of all that there are now. Asked in the coordinator, for each new batch."""
        raise NotImplementedError

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        """Emit what comes after `last` (None: from the start), as much as `room` allows.

        Returns the metadata of what it emitted; `last` again if that was nothing.
        """
        raise NotImplementedError

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        """The same of all of a task's partitions together: override one of the two.

        Partitions that it returns nothing for have no rows in this batch.
        """
        found = {}
        for partition, before in last.items():
            if room.full:
                break
            found[partition] = self.emit_new(partition, before, room)
        return found

    def is_end(self, partition: str, metadata: Any) -> bool:
        """Whether nothing will ever come after that. When all are at their end, so is the stream.

        It must follow from these metadata and `run` alone, and hold for ever.
        """
        return False

    def committed(self, metadata: Mapping[str, Any]) -> None:
        """A batch is committed, after which a task's partitions are there: what was kept in order
        to emit it again can go. It may be left out, where later ones are told."""

    def figures(self) -> Mapping[str, float]:
        """As Spout.figures."""
        return {}

    def close(self) -> None:
        """Let go of what it holds."""


class PartitionedSpout(Partitioned):
    """Partitions that can be read again, exactly. Write `partitions`, `emit_new`, `emit_again`."""

    kind = SpoutKind.TRANSACTIONAL

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        """Emit the very rows of these metadata, whatever `room` says. Raise IncompleteBatch if
        some of them are gone."""
        raise NotImplementedError

    def emit_all_again(self, metadata: Mapping[str, Any], room: Room) -> None:
        """The same of all of a task's partitions together: override one of the two."""
        for partition, one in metadata.items():
            self.emit_again(partition, one, room)


class OpaquePartitionedSpout(Partitioned):
    """Partitions whose batches may be others when they are emitted again. Write `partitions` and
    `emit_new`; a row must not get lost in between, then each is in exactly one committed batch."""

    kind = SpoutKind.OPAQUE
