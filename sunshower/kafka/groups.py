"""How far a group has read, as the brokers tell it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sunshower.clock import Clock, SystemClock
from sunshower.errors import KafkaError, KafkaUnreachable, NotAuthorised
from sunshower.kafka.lag import Lag
from sunshower.kafka.metadata import KafkaDirectory, as_ours, retire
from sunshower.kafka.partitions import Committed, Partition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

WITHIN_S = 8.0  # for all that is asked
T = TypeVar("T")
Left = Callable[[], float]  # seconds, for what is asked now


def lags(settings: Mapping[str, Any], group: str, topics: Collection[str] = ()) -> list[Lag]:
    """The lag of `group` in each partition of `topics`, in order; without topics: of all topics in
    which it has committed something.

    Raises UnknownTopic, NotAuthorised, KafkaUnreachable, and KafkaError for a group of which
    nothing is known: all within 10 s.
    """
    left = _until(WITHIN_S)
    wanted = _wanted(settings, topics, left)
    from confluent_kafka.admin import AdminClient

    address = str(settings["bootstrap.servers"])
    client = AdminClient({"log_level": 0, **settings})
    retire(client)  # when this returns
    found = _asked(lambda: _committed(client, group, left), f"group {group!r}", address)
    if not topics:
        wanted = set(found)
        if not wanted:
            raise KafkaError(
                f"group {group!r} has committed nothing in the Kafka at {address}: correct its "
                "name, or name the topics with --topic"
            )
    begins, ends = _asked(lambda: _bounds(client, wanted, left), "the ends of partitions", address)
    nothing = Committed(-1)
    return [
        Lag(
            partition,
            None if (at := found.get(partition, nothing)).offset < 0 else at.offset,
            begins[partition],
            ends[partition],
            at.metadata,
        )
        for partition in sorted(wanted)
    ]


def _until(within_s: float, clock: Clock | None = None) -> Left:
    """What is left of so many seconds from now on; a moment always is."""
    clock = clock or SystemClock()
    end_s = clock.now() + within_s
    return lambda: max(end_s - clock.now(), 0.01)


def _wanted(settings: Mapping[str, Any], topics: Collection[str], left: Left) -> set[Partition]:
    """All partitions of these topics."""
    directory = KafkaDirectory(settings)
    wanted: set[Partition] = set()
    try:
        for topic in topics:
            directory.answer_within_s = left()
            wanted.update(directory.partitions(topic))
        if not topics:
            directory.topics()  # the one who asks first is told in time what is wrong
    finally:
        directory.close()
    return wanted


def _committed(client: AdminClient, group: str, left: Left) -> dict[Partition, Committed]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    future = client.list_consumer_group_offsets(asked, request_timeout=left())[group]
    return {
        Partition(one.topic, one.partition): Committed(one.offset, one.metadata or "")
        for one in future.result(left()).topic_partitions
        if one.offset >= 0
    }


def _bounds(
    client: AdminClient, partitions: Collection[Partition], left: Left
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    def at(spec: Any) -> dict[Partition, int]:
        asked = {TopicPartition(*partition): spec for partition in partitions}
        futures = client.list_offsets(asked, request_timeout=left())
        return {
            Partition(one.topic, one.partition): future.result(left()).offset
            for one, future in futures.items()
        }

    first = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    last = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return at(first), at(last)


def _asked(ask: Callable[[], T], what: str, address: str) -> T:
    from confluent_kafka import KafkaException

    try:
        return ask()
    except TimeoutError as error:  # the client's own comes a moment later
        raise KafkaUnreachable(
            f"the Kafka at {address} has not told of {what} within {WITHIN_S:g} s: is one of its "
            "brokers away?"
        ) from error
    except KafkaException as error:
        ours = as_ours(error.args[0], what, address)
        raise (
            ours
            if isinstance(ours, NotAuthorised)
            else KafkaError(
                f"the Kafka at {address} does not tell of {what}: {error.args[0].str()}"
            )
        ) from error
