"""How far a group has read, as the brokers tell it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sunshower.errors import KafkaError, NotAuthorised
from sunshower.kafka.lag import Lag
from sunshower.kafka.metadata import KafkaDirectory, as_ours
from sunshower.kafka.partitions import Committed, Partition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

WITHIN_S = 8.0
T = TypeVar("T")


def lags(settings: Mapping[str, Any], group: str, topics: Collection[str] = ()) -> list[Lag]:
    """The lag of `group` in each partition of `topics`, in order; without topics: of all topics in
    which it has committed something.

    Raises UnknownTopic, NotAuthorised, KafkaUnreachable, and KafkaError for a group of which
    nothing is known: all within 10 s.
    """
    directory = KafkaDirectory(settings)
    try:
        wanted = {partition for topic in topics for partition in directory.partitions(topic)}
        if not topics:
            directory.topics()  # the one who asks first is told in time what is wrong
    finally:
        directory.close()
    from confluent_kafka.admin import AdminClient

    address = str(settings["bootstrap.servers"])
    client = AdminClient({"log_level": 0, **settings})
    found = _asked(lambda: _committed(client, group), f"group {group!r}", address)
    if not topics:
        wanted = set(found)
        if not wanted:
            raise KafkaError(
                f"group {group!r} has committed nothing in the Kafka at {address}: correct its "
                "name, or name the topics with --topic"
            )
    begins, ends = _asked(lambda: _bounds(client, wanted), "the ends of partitions", address)
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


def _committed(client: AdminClient, group: str) -> dict[Partition, Committed]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    future = client.list_consumer_group_offsets(asked, request_timeout=WITHIN_S)[group]
    return {
        Partition(one.topic, one.partition): Committed(one.offset, one.metadata or "")
        for one in future.result(WITHIN_S).topic_partitions
        if one.offset >= 0
    }


def _bounds(
    client: AdminClient, partitions: Collection[Partition]
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    def at(spec: Any) -> dict[Partition, int]:
        asked = {TopicPartition(*partition): spec for partition in partitions}
        futures = client.list_offsets(asked, request_timeout=WITHIN_S)
        return {
            Partition(one.topic, one.partition): future.result(WITHIN_S).offset
            for one, future in futures.items()
        }

    first = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    last = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return at(first), at(last)


def _asked(ask: Callable[[], T], what: str, address: str) -> T:
    from confluent_kafka import KafkaException

    try:
        return ask()
    except KafkaException as error:
        ours = as_ours(error.args[0], what, address)
        raise (
            ours
            if isinstance(ours, NotAuthorised)
            else KafkaError(
                f"the Kafka at {address} does not tell of {what}: {error.args[0].str()}"
            )
        ) from error
