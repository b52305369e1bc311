"""The consumer loop of records and of batches: positions, polls of the client, and its events.

    positions ──read──▶ client ──fetch──▶ ahead: messages, in order
                                  └─────▶ ends, lost, refusals: events of partitions

`partition_reader` reads records with it, and failed ones again; `exactly_once/batch_spouts` reads
batches. They differ in who stores the positions, and in when a position may advance.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sunshower.errors import BadOffset
from sunshower.kafka.consuming.consumer import Consumer, partition_of_message
from sunshower.kafka.consuming.start_position import (
    Start,
    StartPosition,
    Where,
    check_start,
    find_start,
    writer,
)
from sunshower.kafka.partitions.broker_metadata import as_ours
from sunshower.kafka.partitions.ports import Committed, Partition, RetainedOffsets

if TYPE_CHECKING:
    from confluent_kafka import Message

_LOG = logging.getLogger("sunshower.kafka")
_SHOWN_MAX = 3  # partitions in a warning
_OUT_OF_RANGE = {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"}
_TEMPORARY = {
    *("_MAX_POLL_EXCEEDED", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"),
    *("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
    *("REQUEST_TIMED_OUT", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
}


class ConsumerLoop:
    """A consumer, the partitions that it reads, and what it has fetched of them.

    Apply an event of a partition after all of its messages that are `ahead`.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.at: dict[Partition, int] = {}  # the position of each partition that is read
        self.ahead: list[Message] = []  # fetched, not taken
        self.ends: dict[Partition, int] = {}  # the end of a partition whose messages were fetched
        self.lost: set[Partition] = set()  # partitions whose next offset is out of range
        self._refusals: list[Message] = []  # permanent errors

    # ---- positions ------------------------------------------------------------------------------

    def read(self, positions: Mapping[Partition, int]) -> None:
        """Read these partitions, too, from these offsets."""
        self.consumer.assign(positions)
        self.at |= positions

    def seek(self, wanted: Mapping[Partition, int], leap: int = 0) -> None:
        """Read exactly these partitions from these offsets. Positions that match are kept, and
        those that are at most `leap` before."""
        self.leave(self.at.keys() - wanted.keys())
        moved = {
            partition: to
            for partition, to in wanted.items()
            if not 0 <= to - self.at.get(partition, to + 1) <= leap
        }
        self.leave(moved.keys() & self.at.keys())
        if moved:
            self.read(moved)

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these."""
        leaving = [partition for partition in partitions if partition in self.at]
        if leaving:
            self.consumer.unassign(leaving)  # if it raises, they are still read
            for partition in leaving:
                del self.at[partition]
            self.discard(leaving)

    def discard(self, partitions: Collection[Partition]) -> None:
        """Forget what was fetched of these; who reads them next fetches it again."""
        self.ahead = without(self.ahead, partitions)
        self._refusals = without(self._refusals, partitions)
        self.lost -= {*partitions}
        for partition in partitions:
            self.ends.pop(partition, None)

    # ---- messages -------------------------------------------------------------------------------

    def fetch(self, limit: int, wait_s: float = 0.0) -> bool:
        """Append up to `limit` messages to `ahead`, and note events; wait for the first one. The
        client may assign and revoke partitions meanwhile. Returns whether anything arrived."""
        from confluent_kafka import Message

        # First without waiting: a blocking call waits for all, or for the whole time.
        arrived = self.consumer.consume(limit, 0.0)
        if not arrived and wait_s:
            arrived = self.consumer.consume(1, wait_s)
        if not any(map(Message.error, arrived)):
            self.ahead += arrived
            return bool(arrived)
        self.ahead += [message for message in arrived if message.error() is None]
        for event in arrived:
            if (error := event.error()) is None:
                continue
            partition = partition_of_message(event)
            if error.name() == "_PARTITION_EOF":
                if partition in self.at:
                    self.ends[partition] = event.offset() or 0
            elif error.name() in _OUT_OF_RANGE:
                self.lost |= {partition} & self.at.keys()
            elif error.name() not in _TEMPORARY:
                self._refusals.append(event)
        return True

    def raise_refusal(self) -> None:
        """Raise the oldest permanent error, once: KafkaError."""
        if self._refusals:
            refusal = self._refusals.pop(0)
            topic = refusal.topic()
            what = f"topic {topic!r}" if topic else "the topics"
            raise as_ours(refusal.error(), what, self.consumer.address)


def without(messages: Sequence[Message], partitions: Collection[Partition]) -> list[Message]:
    """The messages of other partitions than these."""
    return [message for message in messages if partition_of_message(message) not in partitions]


# ---- start positions -----------------------------------------------------------------------------


class StartFinder:
    """Finds the offsets at which a deployment begins, from the option `first`, stored offsets, and
    what the brokers have. Its methods raise BadOffset, and KafkaError without an answer."""

    def __init__(
        self, consumer: Consumer, first: Where, deployment: str, behind_max: int | None = None
    ) -> None:
        self._consumer = consumer
        self._first, self._deployment, self._behind_max = first, deployment, behind_max
        self.recreated = 0  # partitions that were begun anew
        # Partitions that an earlier start has stored: the stored position, and where it begins now.
        self._ignored: dict[Partition, tuple[int, int]] = {}
        self._reported = 0  # how many of these

    def continues(self, stored: Committed) -> bool:
        """Whether a start continues at this offset."""
        return self._first.by_anyone or writer(stored) == self._deployment

    def find(
        self,
        partition: Partition,
        stored: Committed | None,
        retained: RetainedOffsets,
        *,
        new: bool = False,
    ) -> Start:
        """Where to begin. `new`: the partition was created after the first start, so without a
        stored offset it is read from its beginning."""
        where = StartPosition.EARLIEST if new and stored is None else self._first
        stamped = self._consumer.since(partition, where)
        check_start(where, partition, stored and stored.offset, retained)
        return find_start(
            where,
            stored,
            self._deployment,
            retained,
            stamped=stamped,
            behind_max=self._behind_max,
        )

    def find_anew(
        self,
        partition: Partition,
        former: int,
        retained: RetainedOffsets,
        *,
        new: bool = False,
    ) -> Start:
        """Where to begin in a topic that was created again; `former`: where the former one was
        read. What a start at the end passes over counts as skipped."""
        if self._first is StartPosition.NONE:
            raise BadOffset(
                f"{partition}: its topic was deleted and created again, the former one was read up "
                f"to offset {former}, and first=StartPosition.NONE begins nowhere else: commit an "
                "offset for the group while nothing reads, or say where to begin, such as "
                "first=StartPosition.UNCOMMITTED_EARLIEST"
            )
        start = self.find(partition, None, retained, new=new)
        passes_over = self._first.from_end and not new and retained.earliest < start.offset
        if start.skipped is None and passes_over:
            start = Start(start.offset, (retained.earliest, start.offset))
        self.recreated += 1
        _LOG.warning(
            "%s: its topic was deleted and created again; the former one was read up to offset %d, "
            "the new one is read from %d (first=%s)",
            *(partition, former, start.offset, self._first),
        )
        return start

    def note_ignored(
        self, partition: Partition, stored: int, start: int, retained: RetainedOffsets
    ) -> None:
        """Note that a partition begins at `start`, and not where an earlier start has stored."""
        is_same = start == stored or stored < start == retained.earliest
        if not is_same and partition not in self._ignored:
            self._ignored[partition] = stored, start

    def report_ignored(self) -> None:
        """Log one warning of the positions that were noted since the last one, if there are any."""
        ignored = [*self._ignored.items()][self._reported :]
        if not ignored:
            return
        self._reported = len(self._ignored)
        shown = [
            f"{partition} begins at offset {start}, and the stored position is {stored}"
            for partition, (stored, start) in ignored[:_SHOWN_MAX]
        ]
        if len(ignored) > _SHOWN_MAX:
            shown.append(f"and {len(ignored) - _SHOWN_MAX} more partitions")
        effects = []
        if any(start < stored for _, (stored, start) in ignored):
            effects.append(
                "messages before the stored position are processed again, and results that are "
                "stored count them twice"
            )
        if any(start > stored for _, (stored, start) in ignored):
            effects.append("messages between the two are not processed")
        continuing = StartPosition.UNCOMMITTED_EARLIEST
        if self._first.from_end:
            continuing = StartPosition.UNCOMMITTED_LATEST
        _LOG.warning(
            "an earlier start of this topology has stored positions, and first=%s does not "
            "continue there: %s. So %s. To continue at each start, give first=%s",
            *(self._first, "; ".join(shown), ", and ".join(effects), continuing),
        )
