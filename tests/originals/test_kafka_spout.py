"""Storm's first Kafka spout and ours at one path in ZooKeeper: each continues after the other."""

from __future__ import annotations

import json
import uuid

from sunshower.dev.kafka import Kafka
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.options import StormOffsets, ZooKeeperBrokers
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.kafka.stage import running, topology
from tests.kafka.topics import fill, new_topic
from tests.originals.programs import STORM_KAFKA, Program


def read_here(kafka: Kafka, zookeeper: ZooKeeper, topic: str, id: str, count: int) -> list[str]:
    """The next messages that our spout reads; it commits them all."""
    options = KafkaOptions(
        directory=ZooKeeperBrokers(zookeeper.connect),
        store=StormOffsets(zookeeper.connect, "/storm", id),
        commit_s=0.2,
    )
    spout = KafkaSpout(
        {"bootstrap.servers": kafka.bootstrap, "group.id": id}, topics=[topic], options=options
    )
    with running(topology(spout)) as run:
        run.until(lambda: len(run.records()) == count)
        return [record.value.decode() for record in run.records()]


def read_in_storm(storm: Program, count: int) -> dict[str, int]:
    """The next messages that Storm's spout emits, with their offsets."""
    read = dict[str, int]()
    while len(read) < count:
        if message := storm.ask("next"):
            read[message[0]] = message[1]
    return read


def test_each_continues_where_the_other_has_committed(
    jdk: None, kafka_zk: Kafka, zookeeper: ZooKeeper
) -> None:
    topic, id = new_topic(kafka_zk.bootstrap, 1), f"words-{uuid.uuid4().hex[:8]}"
    path = f"/storm/{id}/partition_0"
    messages = [str(number) for number in range(20)]
    fill(kafka_zk.bootstrap, topic, [message.encode() for message in messages[:5]])
    assert read_here(kafka_zk, zookeeper, topic, id, 5) == messages[:5]
    ports = [int(address.rpartition(":")[2]) for address in (zookeeper.connect, kafka_zk.bootstrap)]
    with Program("Storm1", STORM_KAFKA, *ports, topic, 0, "/storm", id, "words-1") as storm:
        stored = storm.ask("read", path)
        assert (stored["offset"], stored["partition"], stored["topic"]) == (5, 0, topic)
        assert storm.ask("open") == 5, "ours"
        fill(kafka_zk.bootstrap, topic, [message.encode() for message in messages[5:10]])
        read = read_in_storm(storm, 5)
        assert list(read) == messages[5:10]
        for message in ("5", "6", "8"):
            storm.ask("ack", read[message])
        assert storm.ask("commit") == 7, "the lowest that is not acked"
    tree = ZooKeeperTree(zookeeper.connect)
    node = tree.get(path)
    tree.close()
    assert node is not None
    assert json.loads(node.value)["topology"] == {"id": "words-1", "name": "words"}
    assert read_here(kafka_zk, zookeeper, topic, id, 3) == messages[7:10]
