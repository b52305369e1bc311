"""Rules that all directories of topics fulfil, on real servers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.dev.servers import Ports
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import ConfigError, KafkaUnreachable, UnknownTopic
from sunshower.kafka.partitions import broker_metadata
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory
from sunshower.kafka.partitions.ports import Directory, Partition
from sunshower.kafka.zookeeper.options import ZooKeeperDirectory
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.kafka.topics import admin, new_topic, recreate

WITHIN_S = 120.0


class DirectoryRig(NamedTuple):
    """A directory, and the Kafka that it describes."""

    directory: Directory
    kafka: Kafka

    def create(self, count: int) -> str:
        topic = new_topic(self.kafka.bootstrap, count)
        until(lambda: topic in self.directory.topics())
        return topic

    def admin(self) -> AdminClient:
        return admin(self.kafka.bootstrap)


def until(condition: Callable[[], bool]) -> None:
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    while not condition():
        assert clock.now() < end_s
        clock.sleep(0.05)


@pytest.fixture
def by_kafka(kafka: Kafka) -> DirectoryRig:
    return DirectoryRig(KafkaDirectory({"bootstrap.servers": kafka.bootstrap}), kafka)


@pytest.fixture
def by_zookeeper(kafka_zk: Kafka, zookeeper: ZooKeeper) -> DirectoryRig:
    return DirectoryRig(ZooKeeperDirectory(ZooKeeperTree(zookeeper.connect)), kafka_zk)


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[DirectoryRig]:
    directory_rig: DirectoryRig = request.getfixturevalue(request.param)
    yield directory_rig
    directory_rig.directory.close()


every_directory = pytest.mark.parametrize(
    "rig",
    [
        pytest.param("by_kafka", marks=pytest.mark.servers),
        pytest.param("by_zookeeper", marks=pytest.mark.servers),
    ],
    indirect=True,
)


@every_directory
def test_partitions_of_a_topic_are_listed_in_order_with_their_leaders(rig: DirectoryRig) -> None:
    topic = rig.create(12)
    assert rig.directory.partitions(topic) == tuple(
        Partition(topic, number) for number in range(12)
    )
    until(lambda: None not in rig.directory.leaders(topic).values())
    assert rig.directory.bootstrap() == rig.kafka.bootstrap
    assert {*rig.directory.leaders(topic).values()} == {rig.kafka.brokers[0].address}


@every_directory
def test_added_partitions_are_listed(rig: DirectoryRig) -> None:
    topic, client = rig.create(1), rig.admin()
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(timeout=WITHIN_S)
    until(lambda: len(rig.directory.partitions(topic)) == 3)


@every_directory
def test_unknown_topic_is_an_error_and_is_not_created(rig: DirectoryRig) -> None:
    missing = f"t{uuid.uuid4().hex}"
    for ask in (rig.directory.partitions, rig.directory.leaders):
        with pytest.raises(UnknownTopic, match=missing):
            ask(missing)
    assert missing not in rig.directory.topics()


@every_directory
def test_a_topic_that_is_created_again_has_another_id(rig: DirectoryRig) -> None:
    topic, other = rig.create(1), rig.create(1)
    first = rig.directory.topic_ids([topic, other, "none"])
    assert first.keys() == {topic, other}
    assert len({*first.values()} - {""}) == 2
    recreate(rig.kafka.bootstrap, topic)
    until(lambda: rig.directory.topic_ids([topic]).get(topic) not in (None, first[topic]))
    assert rig.directory.topic_ids([other]) == {other: first[other]}
    if isinstance(rig.directory, ZooKeeperDirectory):
        by_brokers = KafkaDirectory({"bootstrap.servers": rig.kafka.bootstrap})
        assert by_brokers.topic_ids([topic, other]) == rig.directory.topic_ids([topic, other])


@every_directory
def test_internal_topics_of_kafka_are_never_listed(rig: DirectoryRig) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = rig.create(1)
    settings = {"bootstrap.servers": rig.kafka.bootstrap, "group.id": "g", "log_level": 0}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    assert "__consumer_offsets" in rig.admin().list_topics(timeout=WITHIN_S).topics
    assert "__consumer_offsets" not in rig.directory.topics()


def test_partitions_of_a_stopped_broker_are_still_listed(
    kafka_zk: Kafka, zookeeper: ZooKeeper
) -> None:
    rig = DirectoryRig(ZooKeeperDirectory(ZooKeeperTree(zookeeper.connect)), kafka_zk)
    topic = rig.create(3)
    kafka_zk.shut_down(1)
    until(lambda: {*rig.directory.leaders(topic).values()} == {None})
    assert len(rig.directory.partitions(topic)) == 3
    kafka_zk.restart(1)
    until(lambda: None not in rig.directory.leaders(topic).values())
    rig.directory.close()


def test_an_address_without_a_broker_is_an_error_within_the_time_out() -> None:
    ports = Ports()
    address = f"127.0.0.1:{ports.claim()}"
    directory = KafkaDirectory({"bootstrap.servers": address}, answer_within_s=1)
    with pytest.raises(KafkaUnreachable, match=f"the Kafka at {address} does not answer"):
        directory.partitions("t")
    ports.release()


def test_a_client_that_is_closed_while_it_is_asked_keeps_no_thread_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_metadata, "_MARGIN_S", 0.0)
    directory = KafkaDirectory({"bootstrap.servers": "localhost:1"}, answer_within_s=0.01)
    unanswered: Future[object] = Future()  # as librdkafka leaves it when its client is closed

    class Closed:
        def describe_topics(self, _: object, request_timeout: float) -> dict[str, Future[object]]:
            return {"events": unanswered}

    monkeypatch.setattr(directory, "_client", Closed())
    with pytest.raises(KafkaUnreachable, match="does not answer for topic 'events'"):
        directory.topic_ids(["events"])


def test_unknown_settings_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"invalid Kafka client settings.*bootstrap\.server"):
        KafkaDirectory({"bootstrap.server": "127.0.0.1:1"})
