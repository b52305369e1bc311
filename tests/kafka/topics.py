"""Creates, fills and reads topics of a real Kafka, independently of the code under test."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import cache
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from sunshower.clock import SystemClock

WITHIN_S = 120.0
# Errors of a broker that is reconnecting to its ZooKeeper after another test killed it.
_TRANSIENT = {"UNKNOWN", "NOT_CONTROLLER", "REQUEST_TIMED_OUT", "_TIMED_OUT"}
_ATTEMPT_S = 5.0


@cache
def admin(bootstrap: str) -> AdminClient:
    """One admin client for each address."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def new_topic(
    bootstrap: str, partitions: int = 1, *, name: str | None = None, **settings: str
) -> str:
    """Create a topic with a unique name; `min_insync_replicas` stands for min.insync.replicas.

    Returns when all brokers know the topic: the controller knows it first.
    """
    topic, client = name or f"t-{uuid.uuid4().hex[:12]}", admin(bootstrap)
    config = {name.replace("_", "."): value for name, value in settings.items()}
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    while True:
        # A client that knows no controller looks for one every five minutes, or in this call.
        client.list_topics(timeout=WITHIN_S)
        wanted = [NewTopic(topic, partitions, config=config)]
        future = client.create_topics(wanted, request_timeout=_ATTEMPT_S)[topic]
        try:
            future.result(WITHIN_S)
        except KafkaException as error:
            reason = error.args[0].name()
            if reason == "TOPIC_ALREADY_EXISTS":
                break  # an attempt whose answer was lost has created it
            if reason not in _TRANSIENT or clock.now() > end_s:
                raise
            clock.sleep(0.2)
        else:
            break
    for address in bootstrap.split(","):
        client = admin(address)
        while topic not in client.list_topics(timeout=WITHIN_S).topics:
            assert clock.now() < end_s, f"{address} does not know {topic}"
            clock.sleep(0.02)
    return topic


def add_partitions(bootstrap: str, topic: str, count: int) -> None:
    """Add partitions, so that there are `count`. Returns when all brokers know them."""
    admin(bootstrap).create_partitions([NewPartitions(topic, count)])[topic].result(WITHIN_S)
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    for address in bootstrap.split(","):
        client = admin(address)
        while len(client.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions) < count:
            assert clock.now() < end_s, f"{address} does not know {count} partitions of {topic}"
            clock.sleep(0.02)


def recreate(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Delete a topic, and create it again as soon as possible, under the same name."""
    client, clock = admin(bootstrap), SystemClock()
    client.delete_topics([topic])[topic].result(WITHIN_S)
    end_s = clock.now() + WITHIN_S
    while True:
        try:
            client.create_topics([NewTopic(topic, partitions)])[topic].result(WITHIN_S)
        except KafkaException as error:  # the deletion is under way
            if clock.now() >= end_s or error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
            clock.sleep(0.05)
        else:
            return


def end_sessions_after(bootstrap: str, group: str, timeout_ms: int) -> None:
    """Let a group of the new protocol remove members that send nothing for so long."""
    entry = ConfigEntry(
        "consumer.session.timeout.ms",
        str(timeout_ms),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    admin(bootstrap).incremental_alter_configs([resource])[resource].result(WITHIN_S)


def wait_for_coordinators(bootstrap: str) -> None:
    """Wait until all coordinators of groups and of transactions answer: a new broker creates them
    at the first request, which takes seconds on a busy machine, and fails meanwhile."""
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    for name in "0123":  # the hash codes of these names select the four partitions of each kind
        settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        Producer({**settings, "transactional.id": name}).init_transactions(WITHIN_S)
        consumer = Consumer({**settings, "group.id": name, "enable.auto.commit": False})
        while True:
            try:
                consumer.committed([TopicPartition("none", 0)], WITHIN_S)
                break
            except KafkaException:
                if clock.now() > end_s:
                    raise
                clock.sleep(0.05)
        consumer.close()


def fill(bootstrap: str, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
    """Write messages into one partition, in this order."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    errors: list[Any] = []

    def delivered(error: Any, _: Message) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(WITHIN_S) == 0
    assert not errors


def remove_before(bootstrap: str, topic: str, before: int) -> None:
    """Remove all messages of partition 0 before this offset, as retention does."""
    place, client = TopicPartition(topic, 0, before), admin(bootstrap)
    client.delete_records([place])[place].result(60)


def read_all(bootstrap: str, topic: str, **settings: Any) -> list[Message]:
    """All messages up to the present end of a topic, except those of aborted transactions.

    A commit returns before its messages can be read: this waits until no transaction is open.
    """
    base = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    base |= {"enable.auto.commit": False, "auto.offset.reset": "earliest", **settings}
    ends = _ends(base, topic)
    consumer = Consumer(base)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        messages, left = list[Message](), dict(ends)
        while left:
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"{topic} does not end, or a transaction is open"
            error, partition = message.error(), message.partition() or 0
            if error is None:
                messages.append(message)
            else:
                assert error.name() == "_PARTITION_EOF", error
                if (message.offset() or 0) >= ends[partition]:
                    left.pop(partition, None)
        return messages
    finally:
        consumer.close()


def _ends(settings: dict[str, Any], topic: str) -> dict[int, int]:
    """The end of each partition, whether or not a transaction is open there."""
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        partitions = consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
        places = {number: TopicPartition(topic, number) for number in partitions}
        watermarks = {n: consumer.get_watermark_offsets(at, WITHIN_S) for n, at in places.items()}
        return {number: bounds[1] for number, bounds in watermarks.items()}
    finally:
        consumer.close()


def values_of(bootstrap: str, topic: str) -> list[str]:
    """The values of all messages, as text, sorted."""
    return sorted((message.value() or b"").decode() for message in read_all(bootstrap, topic))
