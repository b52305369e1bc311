"""The consumer loop of records and of batches: positions, polls of the client, and its events.

    positions ──read──▶ client ──fetch──▶ ahead: messages, in order
                                  └─────▶ ends, lost, refusals: events of partitions

`partition_reader` reads records with it, and failed ones again; `exactly_once/batch_spouts` reads
batches. They differ in who stores the positions, and in when a position may advance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sunshower.kafka.consuming.consumer import Consumer, partition_of_message
from sunshower.kafka.partitions.broker_metadata import as_ours
from sunshower.kafka.partitions.ports import Partition

if TYPE_CHECKING:
    from confluent_kafka import Message

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
            elif error.name() == "_FATAL" and self.consumer.grouped:
                self.consumer.fatal = error  # the group says what to do
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
