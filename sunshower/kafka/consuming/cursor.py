"""The consumer loop that records and batches share: positions, messages, the client's events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sunshower.errors import KafkaError
from sunshower.kafka.consuming.consumer import Consumer
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


@dataclass
class Fetched:
    """What the client returned: messages, and the events among them. Apply the events after the
    messages."""

    messages: Sequence[Message]
    ends: dict[Partition, int] = field(default_factory=dict)  # the offset of a partition's end
    lost: list[Partition] = field(default_factory=list)  # whose next offset is out of range
    refusal: Message | None = None  # the first permanent error

    @classmethod
    def of(cls, taken: Sequence[Message]) -> Fetched:
        """Separate the messages from the events."""
        from confluent_kafka import Message

        if not any(map(Message.error, taken)):
            return cls(taken)
        fetched = cls([message for message in taken if message.error() is None])
        for event in taken:
            if (error := event.error()) is None:
                continue
            if error.name() == "_PARTITION_EOF":
                fetched.ends[partition_of_message(event)] = event.offset() or 0
            elif error.name() in _OUT_OF_RANGE:
                fetched.lost.append(partition_of_message(event))
            elif error.name() not in _TEMPORARY and fetched.refusal is None:
                fetched.refusal = event
        return fetched

    def error(self, address: str) -> KafkaError:
        """The permanent error as ours, from the Kafka at `address`."""
        assert self.refusal is not None
        topic = self.refusal.topic()
        return as_ours(self.refusal.error(), f"topic {topic!r}" if topic else "the topics", address)


class Cursor:
    """A consumer with the next offset of each partition that it reads."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.at: dict[Partition, int] = {}

    def seek(self, wanted: Mapping[Partition, int], leap: int = 0) -> None:
        """Read exactly these partitions from these offsets. Positions that match are kept, and
        those that are at most `leap` before."""
        self.leave(self.at.keys() - wanted.keys())
        moved = {
            one: to for one, to in wanted.items() if not 0 <= to - self.at.get(one, to + 1) <= leap
        }
        self.leave(moved.keys() & self.at.keys())
        if moved:
            self.consumer.assign(moved)
            self.at |= moved

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these."""
        gone = [one for one in partitions if one in self.at]
        if gone:
            self.consumer.unassign(gone)  # if it raises, they are still read
            for one in gone:
                del self.at[one]
            self.discard(gone)

    def discard(self, partitions: Collection[Partition]) -> None:
        """Called with partitions that are not read any more."""


def partition_of_message(message: Message) -> Partition:
    """The partition that a message, or an event, belongs to."""
    return Partition(message.topic() or "", message.partition() or 0)
