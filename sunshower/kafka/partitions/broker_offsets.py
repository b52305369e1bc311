"""Commits offsets to a Kafka consumer group, and reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sunshower.clock import Clock, SystemClock
from sunshower.errors import KafkaError, StaleGeneration
from sunshower.kafka.consuming.consumer import ANSWER_S, Consumer, targets
from sunshower.kafka.partitions.broker_metadata import (
    KafkaDirectory,
    as_ours,
    client_errors,
    new_client,
)
from sunshower.kafka.partitions.ports import Committed, Lag, Offsets, Partition

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
            committed, errors = read_committed(self._consumer.client, partitions, ANSWER_S)
        except KafkaException as error:
            why = self._consumer.reason(error.args[0])
            raise as_ours(why, self._what, self._consumer.address) from error
        for refusal in errors:
            raise as_ours(refusal, self._what, self._consumer.address)
        return committed

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
            errors = [target.error for target in commit(wanted) or () if target.error is not None]
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
            self._check([target.error for target in partitions if target.error is not None])
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
    committed, errors = {}, []
    for target in client.committed(targets(dict.fromkeys(sorted(partitions), 0)), within_s):
        if target.error is not None:
            errors.append(target.error)
        elif target.offset >= 0:
            partition = Partition(target.topic, target.partition)
            committed[partition] = Committed(target.offset, target.metadata or "")
    return committed, errors


# ---- group lag -----------------------------------------------------------------------------------
# Reads a group's lag from the brokers.
#
# It uses a consumer: the admin client of librdkafka 2.16 crashes its process (SIGSEGV in
# rd_kafka_handle_OffsetFetch, which looks up a consumer group that an admin client does not have)
# while a group's coordinator restarts.

WITHIN_S = 8.0  # for all requests together
_FIRST, _NEXT = -2, -1  # special timestamps: the earliest offset, the end offset
Left = Callable[[], float]  # the seconds left for the current request


def lags(settings: Mapping[str, Any], group: str, topics: Collection[str] = ()) -> list[Lag]:
    """The lag of `group` in each partition of `topics`, in order; without topics: in each
    partition for which it has committed an offset.

    Raises UnknownTopic, NotAuthorised, KafkaUnreachable, and KafkaError for a group without
    committed offsets: all within 10 s.
    """
    left = _until(WITHIN_S)
    wanted = _wanted(settings, topics, left)
    address = str(settings["bootstrap.servers"])
    with closing(_client(settings, group, "read_committed")) as client:
        what = f"group {group!r}"
        with client_errors(what, address):
            committed, errors = read_committed(client, wanted, left())
        for refusal in errors:
            raise as_ours(refusal, what, address)
        if not topics:
            wanted = {*committed}
            if not wanted:
                raise KafkaError(
                    f"{what} has committed nothing in the Kafka at {address}: correct its name, or "
                    "name the topics with --topic. (Batches store their offsets elsewhere: "
                    "`sunshower status NAME` shows their backlog)"
                )
        with client_errors("the ends of partitions", address):
            begins = _offsets(client, wanted, _FIRST, left)
            stable = _offsets(client, wanted, _NEXT, left)
    client = _client(settings, group, "read_uncommitted")
    with closing(client), client_errors("the ends of partitions", address):
        ends = _offsets(client, wanted, _NEXT, left)
    nothing = Committed(-1)
    return [
        Lag(
            partition=partition,
            committed=None if (at := committed.get(partition, nothing)).offset < 0 else at.offset,
            begin=begins[partition],
            end=ends[partition],
            last_stable=stable[partition],
            metadata=at.metadata,
        )
        for partition in sorted(wanted)
    ]


def _client(settings: Mapping[str, Any], group: str, isolation: str) -> Client:
    """A client whose end offsets are the last stable ones, or those of the log."""
    group_settings = {"group.id": group, "enable.auto.commit": False, "isolation.level": isolation}
    client: Client = new_client("Consumer", {"log_level": 0, **settings, **group_settings})
    return client


def _until(within_s: float, clock: Clock | None = None) -> Left:
    """A function that returns the seconds left of `within_s` from now on, at least 0.01."""
    clock = clock or SystemClock()
    end_s = clock.now() + within_s
    return lambda: max(end_s - clock.now(), 0.01)


def _wanted(settings: Mapping[str, Any], topics: Collection[str], left: Left) -> set[Partition]:
    """All partitions of these topics; without topics: all partitions."""
    directory = KafkaDirectory(settings)
    with closing(directory):
        directory.answer_within_s = left()
        if not topics:
            return directory.everything()
        wanted: set[Partition] = set()
        for topic in topics:
            directory.answer_within_s = left()
            wanted.update(directory.partitions(topic))
        return wanted


def _offsets(
    client: Client, partitions: Collection[Partition], time: int, left: Left
) -> dict[Partition, int]:
    from confluent_kafka import KafkaException

    wanted = targets(dict.fromkeys(sorted(partitions), time))
    answers = client.offsets_for_times(wanted, left())
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {Partition(answer.topic, answer.partition): answer.offset for answer in answers}
