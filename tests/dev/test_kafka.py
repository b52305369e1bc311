"""A real Kafka of `sunshower dev`: it stores messages, also while one of three brokers is down."""

from __future__ import annotations

import base64
import json
import uuid
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from sunshower.dev.kafka import Kafka, brokers_seen_from, new_cluster_id
from sunshower.dev.servers import Upkeep, answers
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import ServerError
from tests.guarantee.deaths import until
from tests.kafka.topics import admin, fill, new_topic, read_all


def numbered_values(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in range(*numbers)]


def read(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [message.value() for message in read_all(kafka.bootstrap, topic)]


def test_written_messages_can_be_read(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, numbered_values(100))
    assert read(kafka, topic) == numbered_values(100)


def test_no_message_is_lost_when_one_of_three_brokers_is_killed(kafka_cluster: Kafka) -> None:
    bootstrap = kafka_cluster.bootstrap
    topic = new_topic(bootstrap)
    fill(bootstrap, topic, numbered_values(100))
    leader = admin(bootstrap).list_topics(topic, timeout=60).topics[topic].partitions[0].leader
    kafka_cluster.kill(leader)
    assert not answers(kafka_cluster.broker(leader).ports["PLAINTEXT"])
    try:
        fill(bootstrap, topic, numbered_values(100, 200))
        assert read(kafka_cluster, topic) == numbered_values(200)
    finally:
        kafka_cluster.restart(leader)
    # It is there after the start, is gone when it registers again, and is there for good then.
    until(lambda: leader in brokers_seen_from(kafka_cluster.broker(leader).address, timeout_s=60))


def test_an_older_kafka_publishes_itself_in_zookeeper(
    kafka_zk: Kafka, zookeeper: ZooKeeper
) -> None:
    topic = new_topic(kafka_zk.bootstrap, partitions=2)
    fill(kafka_zk.bootstrap, topic, numbered_values(10))
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


def test_a_listener_with_passwords_refuses_a_wrong_one(releases: None) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="secret";'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": jaas,
    }
    with Kafka(listeners={"SASL": "SASL_PLAINTEXT"}, settings=settings) as kafka:
        client = {
            "bootstrap.servers": kafka.addresses("SASL"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "log_level": 0,
        }
        right = AdminClient(client | {"sasl.password": "secret"})
        assert set(right.list_topics(timeout=60).brokers) == {1}
        with pytest.raises(KafkaException):
            AdminClient(client | {"sasl.password": "wrong"}).list_topics(timeout=3)


def test_a_folder_cannot_be_used_with_another_number_of_brokers(
    tmp_path: Path, releases: None
) -> None:
    (tmp_path / "kafka-1").mkdir()
    (tmp_path / "kafka-1" / "meta.properties").touch()
    with pytest.raises(ServerError, match="holds the data of 1 brokers, and 2 are wanted"):
        Kafka(2, Upkeep(tmp_path, keep=True)).start()


def test_a_cluster_id_never_begins_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=0xFB << 120))
    assert base64.urlsafe_b64encode(uuid.uuid4().bytes).startswith(b"-")
    assert new_cluster_id() == "S" + "w" + "A" * 20


def test_a_broker_that_does_not_exist_cannot_be_killed(kafka: Kafka) -> None:
    with pytest.raises(ServerError, match="there is no broker 2; there are 1 to 1"):
        kafka.kill(2)
