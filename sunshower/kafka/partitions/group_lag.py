"""Reads a group's lag from the brokers.

It uses a consumer: the admin client of librdkafka 2.16 crashes its process (SIGSEGV in
rd_kafka_handle_OffsetFetch, which looks up a consumer group that an admin client does not have)
while a group's coordinator restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sunshower.clock import Clock, SystemClock
from sunshower.errors import KafkaError
from sunshower.kafka.consuming.consumer import targets
from sunshower.kafka.consuming.lag import Lag
from sunshower.kafka.partitions.broker_metadata import (
    KafkaDirectory,
    as_ours,
    client_errors,
    new_client,
)
from sunshower.kafka.partitions.broker_offsets import read_committed
from sunshower.kafka.partitions.ports import Committed, Partition

if TYPE_CHECKING:
    from confluent_kafka import Consumer

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
            found, errors = read_committed(client, wanted, left())
        for refusal in errors:
            raise as_ours(refusal, what, address)
        if not topics:
            wanted = {*found}
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
            committed=None if (at := found.get(partition, nothing)).offset < 0 else at.offset,
            begin=begins[partition],
            end=ends[partition],
            last_stable=stable[partition],
            metadata=at.metadata,
        )
        for partition in sorted(wanted)
    ]


def _client(settings: Mapping[str, Any], group: str, isolation: str) -> Consumer:
    """A client whose end offsets are the last stable ones, or those of the log."""
    own = {"group.id": group, "enable.auto.commit": False, "isolation.level": isolation}
    client: Consumer = new_client("Consumer", {"log_level": 0, **settings, **own})
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
    client: Consumer, partitions: Collection[Partition], time: int, left: Left
) -> dict[Partition, int]:
    from confluent_kafka import KafkaException

    wanted = targets(dict.fromkeys(sorted(partitions), time))
    found = client.offsets_for_times(wanted, left())
    for one in found:
        if one.error is not None:
            raise KafkaException(one.error)
    return {Partition(one.topic, one.partition): one.offset for one in found}
