"""Creates, fills and reads topics of a real Kafka, independently of the code under test."""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sunshower.clock import SystemClock

WITHIN_S = 60.0
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
        made = client.create_topics(wanted, request_timeout=_ATTEMPT_S)[topic]
        try:
            made.result(WITHIN_S)
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


def fill(bootstrap: str, topic: str, values: list[bytes], partition: int = 0) -> None:
    """Write messages into one partition, in this order."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=partition)
        producer.poll(0)
    assert producer.flush(WITHIN_S) == 0


def read_all(bootstrap: str, topic: str, **settings: Any) -> list[Message]:
    """All messages of a topic, except those of open and of aborted transactions."""
    base = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**base, "auto.offset.reset": "earliest", **settings})
    try:
        partitions = consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, ended = list[Message](), set[int]()
        while ended != set(partitions):
            message = consumer.poll(WITHIN_S)
            assert message is not None, f"{topic} does not end"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.name() == "_PARTITION_EOF", error
                ended.add(message.partition() or 0)
        return found
    finally:
        consumer.close()


def values_of(bootstrap: str, topic: str) -> list[str]:
    """The values of all messages, as text, sorted."""
    return sorted((message.value() or b"").decode() for message in read_all(bootstrap, topic))
