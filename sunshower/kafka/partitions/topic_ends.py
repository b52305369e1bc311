"""Reads the last messages of a topic's partitions, or all of them, up to its present end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from sunshower.errors import KafkaUnreachable
from sunshower.kafka.consuming.consumer import partition_of_message
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory, client_errors, new_client
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.producing.producer import Settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_WITHIN_S = 8.0  # the longest wait for a response
_TAIL = -2000  # librdkafka's RD_KAFKA_OFFSET_TAIL(n) is this minus n
_BEGINNING = -2  # its RD_KAFKA_OFFSET_BEGINNING
_OWN = {
    "group.id": "sunshower-tail",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # for partitions shorter than the tail
}


def tails(settings: Settings, topic: str, count: int) -> Iterator[Message]:
    """The last `count` messages of each partition, in order within each.

    Fewer where offsets hold none (transaction markers, compacted records). Raises UnknownTopic,
    NotAuthorised, KafkaUnreachable.
    """
    return _messages(settings, topic, _TAIL - count)


def messages(settings: Settings, topic: str) -> Iterator[Message]:
    """All messages of a topic, in order within each partition. Raises as `tails`."""
    return _messages(settings, topic, _BEGINNING)


def _messages(settings: Settings, topic: str, start: int) -> Iterator[Message]:
    with closing(KafkaDirectory(settings)) as directory:
        partitions = directory.partitions(topic)
    with (
        closing(new_client("Consumer", {"log_level": 0, **settings, **_OWN})) as consumer,
        client_errors(f"the end of topic {topic!r}", str(settings.get("bootstrap.servers"))),
    ):
        yield from _read(consumer, partitions, start)


def _read(consumer: Consumer, partitions: tuple[Partition, ...], start: int) -> Iterator[Message]:
    from confluent_kafka import KafkaException, TopicPartition

    starts = [TopicPartition(*partition, start) for partition in partitions]
    consumer.assign(starts)
    ends = {*partitions}  # ends not reached yet; the client may report an end repeatedly
    while ends:
        # First without waiting: a blocking call waits for all 10,000, or for the whole timeout.
        messages = consumer.consume(10_000, timeout=0.0) or consumer.consume(1, timeout=_WITHIN_S)
        if not messages:
            raise KafkaUnreachable(
                f"the ends of {partitions[0].topic!r} cannot be read: no answer for "
                f"{_WITHIN_S:g} s. Is a broker away that leads one of its partitions?"
            )
        for message in messages:
            error = message.error()
            if error is None:
                yield message
            elif error.name() == "_PARTITION_EOF":
                ends.discard(partition_of_message(message))
            else:
                raise KafkaException(error)
