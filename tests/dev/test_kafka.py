"""A real Kafka: it takes messages and gives them back, with one broker of three killed, too."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from sunshower.dev.answering import brokers_seen_from
from sunshower.dev.kafka import Kafka
from sunshower.dev.ports import answers
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import ServerError


def new_topic(kafka: Kafka, partitions: int = 1) -> str:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(60)
    return topic


def produce(producer: Producer, topic: str, numbers: range) -> None:
    failed: list[KafkaError] = []
    for number in numbers:
        producer.produce(
            topic, str(number), on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(120) == 0
    assert not failed


def consume(kafka: Kafka, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        found = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=60)
            assert messages, f"{len(found)} of {count} messages, and no more within a minute"
            found += [int(message.value()) for message in messages if not message.error()]
        return found
    finally:
        consumer.close()


def producer(kafka: Kafka) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})


def test_messages_go_in_and_come_out(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    produce(producer(kafka), topic, range(100))
    assert consume(kafka, topic, 100) == list(range(100))


def test_a_broker_of_three_is_killed_and_no_message_is_lost(kafka_cluster: Kafka) -> None:
    topic = new_topic(kafka_cluster)
    sender = producer(kafka_cluster)
    produce(sender, topic, range(100))
    leader = sender.list_topics(topic, timeout=60).topics[topic].partitions[0].leader
    kafka_cluster.kill(leader)
    assert not answers(kafka_cluster.broker(leader).ports["PLAINTEXT"])
    try:
        produce(sender, topic, range(100, 200))
        assert consume(kafka_cluster, topic, 200) == list(range(200))
    finally:
        kafka_cluster.restart(leader)
    assert leader in brokers_seen_from(kafka_cluster.broker(leader).address)


def test_an_older_kafka_publishes_itself_in_zookeeper(
    kafka_zk: Kafka, zookeeper: ZooKeeper
) -> None:
    topic = new_topic(kafka_zk, partitions=2)
    produce(producer(kafka_zk), topic, range(10))
    client = KazooClient(zookeeper.connect, timeout=20)
    client.start(timeout=60)
    try:
        assert client.get_children("/brokers/ids") == ["1"]
        broker = json.loads(client.get("/brokers/ids/1")[0])
        assert broker["endpoints"] == [f"PLAINTEXT://{kafka_zk.bootstrap}"]
        partitions = json.loads(client.get(f"/brokers/topics/{topic}")[0])["partitions"]
        assert partitions == {"0": [1], "1": [1]}
    finally:
        client.stop()
        client.close()


def test_a_broker_that_is_not_there_cannot_be_killed(kafka: Kafka) -> None:
    with pytest.raises(ServerError, match="there is no broker 2; there are 1 to 1"):
        kafka.kill(2)
