"""Offsets in Kafka itself, where every tool looks for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sunshower.errors import StaleGeneration
from sunshower.kafka.consumer import ANSWER_S, Consumer
from sunshower.kafka.metadata import as_ours
from sunshower.kafka.partitions import Committed, Partition

_STALE = {
    *("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID"),
    *("_ASSIGNMENT_LOST", "_NO_OFFSET", "_STATE", "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH"),
}


class KafkaOffsets:
    """See the port `Offsets`; those of the consumer's group."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._what = f"the offsets of group {consumer.group!r}"

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [TopicPartition(partition.topic, partition.number) for partition in partitions]
        if not wanted:
            return {}
        try:
            answers = self._consumer.client.committed(wanted, ANSWER_S)
        except KafkaException as error:
            why = self._consumer.reason(error.args[0])
            raise as_ours(why, self._what, self._consumer.address) from error
        found = {}
        for one in answers:
            if one.error is not None:
                raise as_ours(one.error, self._what, self._consumer.address)
            if one.offset >= 0:
                found[Partition(one.topic, one.partition)] = Committed(
                    one.offset, one.metadata or ""
                )
        return found

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [
            TopicPartition(p.topic, p.number, committed.offset, committed.metadata)
            for p, committed in offsets.items()
        ]
        try:
            answers = self._consumer.client.commit(offsets=wanted, asynchronous=False)
            errors = [one.error for one in answers or () if one.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        except RuntimeError as error:  # the consumer is closed
            raise StaleGeneration(f"{self._what} are nobody's any more: {error}") from error
        for refusal in errors:
            if refusal.name() in _STALE:
                raise StaleGeneration(
                    f"{self._what}: partitions have changed hands meanwhile ({refusal.str()}); "
                    "nothing is committed"
                )
            raise as_ours(refusal, self._what, self._consumer.address)

    def close(self) -> None:
        """The consumer is its owner's."""
