"""Commits offsets to a Kafka consumer group, and reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sunshower.errors import KafkaError, StaleGeneration
from sunshower.kafka.consuming.consumer import ANSWER_S, Consumer, targets
from sunshower.kafka.partitions.broker_metadata import as_ours
from sunshower.kafka.partitions.ports import Committed, Offsets, Partition

if TYPE_CHECKING:
    from confluent_kafka import Consumer as Client

_STALE = {
    *("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID"),
    *("_ASSIGNMENT_LOST", "_NO_OFFSET", "_STATE", "STALE_MEMBER_EPOCH", "FENCED_MEMBER_EPOCH"),
}


class KafkaOffsets(Offsets):
    """The offsets of the consumer's group. The consumer belongs to the caller."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._what = f"the offsets of group {consumer.group!r}"
        self._unanswered: deque[Future[None]] = deque()  # unanswered commits, the oldest first
        consumer.on_commit = self._on_commit

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        from confluent_kafka import KafkaException

        if not partitions:
            return {}
        try:
            found, errors = read_committed(self._consumer.client, partitions, ANSWER_S)
        except KafkaException as error:
            why = self._consumer.reason(error.args[0])
            raise as_ours(why, self._what, self._consumer.address) from error
        for refusal in errors:
            raise as_ours(refusal, self._what, self._consumer.address)
        return found

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        client = self._consumer.client
        self._commit(offsets, lambda wanted: client.commit(offsets=wanted, asynchronous=False))

    def write_soon(self, offsets: Mapping[Partition, Committed]) -> Future[None]:
        """Start an asynchronous commit; the future completes while the consumer is polled.

        A synchronous commit blocks all other calls of the client until it is answered, as long as
        an outage lasts; within a callback of the client it waits for that callback in turn, and is
        then refused. This one does neither: the client sends it before it gives partitions back.
        """
        written: Future[None] = Future()
        self._unanswered.append(written)
        try:
            client = self._consumer.client
            self._commit(offsets, lambda wanted: client.commit(offsets=wanted, asynchronous=True))
        except KafkaError as error:
            self._unanswered.pop()
            written.set_exception(error)
        return written

    def _commit(
        self, offsets: Mapping[Partition, Committed], commit: Callable[[list[Any]], Any]
    ) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [
            TopicPartition(p.topic, p.number, committed.offset, committed.metadata)
            for p, committed in offsets.items()
        ]
        try:
            errors = [one.error for one in commit(wanted) or () if one.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        except RuntimeError as error:  # the consumer is closed
            raise StaleGeneration(f"{self._what} belong to a closed consumer: {error}") from error
        self._check(errors)

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        """Complete the oldest unanswered commit."""
        if not self._unanswered:
            return  # the outcome of a synchronous commit
        written = self._unanswered.popleft()
        try:
            self._check([error] * (error is not None))
            self._check([one.error for one in partitions if one.error is not None])
        except KafkaError as refused:
            written.set_exception(refused)
        else:
            written.set_result(None)

    def _check(self, errors: Sequence[Any]) -> None:
        for refusal in errors:
            if refusal.name() in _STALE:
                raise StaleGeneration(
                    f"{self._what}: partitions were reassigned meanwhile ({refusal.str()}); "
                    "nothing is committed"
                )
            raise as_ours(refusal, self._what, self._consumer.address)


def read_committed(
    client: Client, partitions: Collection[Partition], within_s: float
) -> tuple[dict[Partition, Committed], list[Any]]:
    """The offsets that the client's group has committed, and the errors of single partitions.
    Raises KafkaException."""
    found, errors = {}, []
    for one in client.committed(targets(dict.fromkeys(sorted(partitions), 0)), within_s):
        if one.error is not None:
            errors.append(one.error)
        elif one.offset >= 0:
            partition = Partition(one.topic, one.partition)
            found[partition] = Committed(one.offset, one.metadata or "")
    return found, errors
