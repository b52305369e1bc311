"""A KafkaSpout whose partitions, group and offsets are in a real ZooKeeper, also under faults."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sunshower.dev.kafka import Kafka
from sunshower.dev.servers import Ports
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.group import ZooKeeperGroup, round_robin_of_threads
from sunshower.kafka.zookeeper.options import (
    ByZooKeeperGroup,
    PlainOffsets,
    SqliteOffsets,
    StormOffsets,
    ZooKeeperBrokers,
)
from sunshower.state.zookeeper_client import Tls
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.kafka.stage import Run, running, topology
from tests.kafka.topics import add_partitions, fill, new_topic
from tests.state.session_expiry import expire

BAD_INPUT_S = 40.0


class TopicRig:
    """A topic of a Kafka that publishes itself in a ZooKeeper, and spouts of one group."""

    def __init__(self, kafka: Kafka, zookeeper: ZooKeeper, partitions: int) -> None:
        self.kafka = kafka
        self.zookeeper = zookeeper
        self.count = partitions
        self.topic = new_topic(kafka.bootstrap, partitions)
        self.group = f"g{uuid.uuid4().hex[:8]}"
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        self.sent = 0

    def spout(self, **options: Any) -> KafkaSpout:
        connect = self.zookeeper.connect
        usual = {
            "directory": ZooKeeperBrokers(connect),
            "sharing": ByZooKeeperGroup(connect, self.group, session_timeout_s=20),
            "store": StormOffsets(connect, "/storm", self.group),
            "commit_s": 0.2,
            "refresh_s": 0.5,
        }
        settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": self.group}
        chosen = KafkaOptions(**usual | options)
        return KafkaSpout(settings, topics=[self.topic], options=chosen, deployment="here")

    def send(self, each: int) -> None:
        for partition in range(self.count):
            for number in range(self.sent, self.sent + each):
                self.producer.produce(self.topic, f"{partition}:{number}", partition=partition)
        assert not self.producer.flush(60)
        self.sent += each

    def all(self) -> set[str]:
        return {f"{p}:{n}" for p in range(self.count) for n in range(self.sent)}


@pytest.fixture
def rig(kafka_zk: Kafka, zookeeper: ZooKeeper) -> TopicRig:
    return TopicRig(kafka_zk, zookeeper, 4)


def seen_values(run: Run) -> list[str]:
    opened = all(task.bolt for task in run._bolts("seen"))
    return [record.value.decode() for record in run.records()] if opened else []


def stored_offsets(rig: TopicRig) -> dict[int, int]:
    """The offsets at Storm's path, by partition."""
    tree = ZooKeeperTree(rig.zookeeper.connect)
    home = f"/storm/{rig.group}"
    nodes = [tree.get(f"{home}/{name}") for name in tree.children(home)]
    tree.close()
    records = [json.loads(node.value) for node in nodes if node]
    return {record["partition"]: record["offset"] for record in records}


def test_tasks_share_partitions_by_a_group_and_continue_at_their_offsets(rig: TopicRig) -> None:
    rig.send(10)
    with running(topology(rig.spout(), tasks=2)) as run:
        run.until(lambda: {*seen_values(run)} == rig.all())
        run.until(lambda: [len(run.spout(index).standing()) for index in range(2)] == [2, 2])
        assert len({*seen_values(run)}) == len(seen_values(run))
    assert stored_offsets(rig) == dict.fromkeys(range(4), 10)
    with running(topology(rig.spout(), tasks=2)) as run:
        rig.send(5)
        run.until(lambda: len(seen_values(run)) == 20)
        assert {*seen_values(run)} == {f"{p}:{n}" for p in range(4) for n in range(10, 15)}


def test_zookeeper_options_can_be_pickled() -> None:
    for option in (
        ZooKeeperBrokers("a:1", "/kafka", digest=("me", "secret")),
        ByZooKeeperGroup("a:1", "g", round_robin_of_threads, {"t": 2}, tls=Tls(Path("ca.pem"))),
        StormOffsets("a:1", "/kafka", "id", wildcard=True, session_timeout_s=3),
        PlainOffsets("a:1", "g"),
        SqliteOffsets("offsets.sqlite", "id"),
    ):
        assert pickle.loads(pickle.dumps(option)) == option


def test_a_spout_reads_with_round_robin_and_plain_offsets(rig: TopicRig) -> None:
    connect = rig.zookeeper.connect
    spout = rig.spout(
        sharing=ByZooKeeperGroup(connect, rig.group, round_robin_of_threads),
        store=PlainOffsets(connect, rig.group),
    )
    rig.send(3)
    with running(topology(spout, tasks=2)) as run:
        run.until(lambda: {*seen_values(run)} == rig.all())
    tree = ZooKeeperTree(connect)
    nodes = [tree.get(f"/consumers/{rig.group}/offsets/{rig.topic}/{p}") for p in range(4)]
    assert [node and node.value for node in nodes] == [b"3"] * 4
    assert not tree.children(f"/consumers/{rig.group}/ids")
    tree.close()


def test_a_spout_continues_at_the_offsets_of_a_storm_deployment(rig: TopicRig) -> None:
    rig.send(10)
    tree = ZooKeeperTree(rig.zookeeper.connect)
    theirs = {"topology": {"id": "old-1-99", "name": "old"}, "offset": 7, "partition": 2}
    tree.create(f"/storm/{rig.group}/partition_2", json.dumps(theirs).encode())
    tree.close()
    with running(topology(rig.spout())) as run:
        run.until(lambda: len(seen_values(run)) == 33)
        assert {*seen_values(run)} == rig.all() - {f"2:{n}" for n in range(7)}
        run.until(lambda: stored_offsets(rig) == dict.fromkeys(range(4), 10))


def test_a_spout_continues_at_offsets_in_a_sqlite_file(rig: TopicRig, tmp_path: Path) -> None:
    offsets = SqliteOffsets(tmp_path / "offsets.sqlite", "words")
    rig.send(4)
    with running(topology(rig.spout(store=offsets))) as run:
        run.until(lambda: {*seen_values(run)} == rig.all())
    rig.send(1)
    with running(topology(rig.spout(store=offsets))) as run:
        run.until(lambda: len(seen_values(run)) == 4)
        assert {*seen_values(run)} == {f"{p}:4" for p in range(4)}


# ---- faults -------------------------------------------------------------------------------------


def group_of(run: Run, index: int) -> ZooKeeperGroup:
    sharing = run.spout(index)._sharing
    assert isinstance(sharing, ZooKeeperGroup)
    return sharing


def test_a_session_that_expires_loses_nothing(rig: TopicRig) -> None:
    rig.send(20)
    with running(topology(rig.spout(), tasks=2)) as run:
        run.until(lambda: {*seen_values(run)} == rig.all())
        tree = group_of(run, 0)._tree
        assert isinstance(tree, ZooKeeperTree)
        before = group_of(run, 0)._name
        expire(rig.zookeeper, tree)
        rig.send(20)
        run.until(lambda: {*seen_values(run)} == rig.all())
        run.until(lambda: group_of(run, 0)._name not in ("", before))
        run.until(lambda: sum(len(run.spout(index).standing()) for index in range(2)) == 4)
        run.until(lambda: stored_offsets(rig) == dict.fromkeys(range(4), 40))
        assert not run.errors()


def test_a_zookeeper_that_is_killed_and_restarted_loses_nothing(rig: TopicRig) -> None:
    rig.send(20)
    with running(topology(rig.spout(), tasks=2)) as run:
        run.until(lambda: {*seen_values(run)} == rig.all())
        rig.zookeeper.kill()
        rig.send(5)
        run.step_for(0.5)
        rig.zookeeper.restart()
        rig.send(20)
        run.until(lambda: {*seen_values(run)} == rig.all())
        run.until(lambda: stored_offsets(rig) == dict.fromkeys(range(4), 45))


def test_a_consumer_that_joins_and_leaves_under_load_loses_nothing(rig: TopicRig) -> None:
    values_read: list[str] = []
    with running(topology(rig.spout())) as steady:
        for _ in range(3):
            with running(topology(rig.spout())) as other:
                rig.send(20)
                step_both(
                    steady, other, lambda: partition_count(steady) == partition_count(other) == 2
                )
                rig.send(20)
                step_both(
                    steady,
                    other,
                    lambda: rig.all() == {*values_read, *seen_values(steady), *seen_values(other)},
                )
                values_read.extend(seen_values(other))
            steady.until(lambda: partition_count(steady) == 4)
        steady.until(lambda: stored_offsets(rig) == dict.fromkeys(range(4), 120))
        repeats = len(values_read) + len(seen_values(steady)) - len(rig.all())
        assert 0 <= repeats <= 3 * 40, "only messages that were open in a rebalance are read twice"


def partition_count(run: Run) -> int:
    """How many partitions the spout of a run reads."""
    opened = hasattr(run.spout(), "_reader")
    return len(run.spout().standing()) if opened else 0


def step_both(run: Run, other: Run, happened: Callable[[], bool]) -> None:
    """Step both runs in turn until `happened` is true."""
    while not happened():
        run.step_for(0.02)
        other.step_for(0.02)


def test_partitions_that_are_added_are_read_from_their_start(rig: TopicRig) -> None:
    rig.send(5)
    with running(topology(rig.spout(), tasks=2)) as run:
        run.until(lambda: {*seen_values(run)} == rig.all())
        add_partitions(rig.kafka.bootstrap, rig.topic, 6)
        for partition in (4, 5):
            fill(rig.kafka.bootstrap, rig.topic, [b"%d:new" % partition], partition)
        run.until(lambda: {"4:new", "5:new"} < {*seen_values(run)})
        assert {*seen_values(run)} == rig.all() | {"4:new", "5:new"}


# ---- bad input ----------------------------------------------------------------------------------


def test_a_node_that_holds_no_offset_is_reported_with_its_path_in_time(rig: TopicRig) -> None:
    tree = ZooKeeperTree(rig.zookeeper.connect)
    tree.create(f"/storm/{rig.group}/partition_0", b"seven")
    tree.close()
    with running(topology(rig.spout())) as run:
        place = f"/storm/{rig.group}/partition_0 holds no offset"
        run.until(lambda: any(place in error for error in run.errors()), BAD_INPUT_S)


def test_an_unavailable_zookeeper_is_reported_in_time(rig: TopicRig) -> None:
    ports = Ports()
    address = f"127.0.0.1:{ports.claim()}"
    with running(topology(rig.spout(directory=ZooKeeperBrokers(address)))) as run:
        run.until(lambda: any(address in error for error in run.errors()), BAD_INPUT_S)
    ports.release()
