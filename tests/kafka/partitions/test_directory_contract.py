"""Rules that all directories of topics fulfil, on real servers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.dev.ports import Ports
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import ConfigError, KafkaUnreachable, UnknownTopic
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory
from sunshower.kafka.partitions.ports import Directory, Partition
from sunshower.kafka.zookeeper.directory import ZooKeeperDirectory
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.kafka.topics import admin, new_topic

WITHIN_S = 60.0


class Told(NamedTuple):
    """A directory, and the Kafka that it describes."""

    directory: Directory
    kafka: Kafka

    def create(self, count: int) -> str:
        topic = new_topic(self.kafka.bootstrap, count)
        until(lambda: topic in self.directory.topics())
        return topic

    def admin(self) -> AdminClient:
        return admin(self.kafka.bootstrap)


def until(true: Callable[[], bool]) -> None:
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    while not true():
        assert clock.now() < end_s
        clock.sleep(0.05)


@pytest.fixture
def by_kafka(kafka: Kafka) -> Told:
    return Told(KafkaDirectory({"bootstrap.servers": kafka.bootstrap}), kafka)


@pytest.fixture
def by_zookeeper(kafka_zk: Kafka, zookeeper: ZooKeeper) -> Told:
    return Told(ZooKeeperDirectory(ZooKeeperTree(zookeeper.connect)), kafka_zk)


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    made: Told = request.getfixturevalue(request.param)
    yield made
    made.directory.close()


every_directory = pytest.mark.parametrize(
    "told",
    [
        pytest.param("by_kafka", marks=pytest.mark.servers),
        pytest.param("by_zookeeper", marks=pytest.mark.servers),
    ],
    indirect=True,
)


@every_directory
def test_partitions_of_a_topic_are_told_in_order_with_their_leaders(told: Told) -> None:
    topic = told.create(12)
    assert told.directory.partitions(topic) == tuple(Partition(topic, one) for one in range(12))
    until(lambda: None not in told.directory.leaders(topic).values())
    assert told.directory.bootstrap() == told.kafka.bootstrap
    assert {*told.directory.leaders(topic).values()} == {told.kafka.brokers[0].address}


@every_directory
def test_partitions_that_are_added_are_seen(told: Told) -> None:
    topic, client = told.create(1), told.admin()
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(timeout=WITHIN_S)
    until(lambda: len(told.directory.partitions(topic)) == 3)


@every_directory
def test_unknown_topic_is_an_error_and_is_not_created(told: Told) -> None:
    missing = f"t{uuid.uuid4().hex}"
    for ask in (told.directory.partitions, told.directory.leaders):
        with pytest.raises(UnknownTopic, match=missing):
            ask(missing)
    assert missing not in told.directory.topics()


@every_directory
def test_topics_of_kafka_itself_are_never_told(told: Told) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = told.create(1)
    settings = {"bootstrap.servers": told.kafka.bootstrap, "group.id": "g", "log_level": 0}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    assert "__consumer_offsets" in told.admin().list_topics(timeout=WITHIN_S).topics
    assert "__consumer_offsets" not in told.directory.topics()


def test_a_broker_that_is_gone_takes_no_partition_along(
    kafka_zk: Kafka, zookeeper: ZooKeeper
) -> None:
    told = Told(ZooKeeperDirectory(ZooKeeperTree(zookeeper.connect)), kafka_zk)
    topic = told.create(3)
    kafka_zk.shut_down(1)
    until(lambda: {*told.directory.leaders(topic).values()} == {None})
    assert len(told.directory.partitions(topic)) == 3
    kafka_zk.restart(1)
    until(lambda: None not in told.directory.leaders(topic).values())
    told.directory.close()


def test_where_nobody_listens_the_error_comes_in_time() -> None:
    ports = Ports()
    address = f"127.0.0.1:{ports.claim()}"
    directory = KafkaDirectory({"bootstrap.servers": address}, answer_within_s=1)
    with pytest.raises(KafkaUnreachable, match=f"the Kafka at {address} does not answer"):
        directory.partitions("t")
    ports.release()


def test_settings_that_make_no_client_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no client of Kafka.*bootstrap\.server"):
        KafkaDirectory({"bootstrap.server": "127.0.0.1:1"})
