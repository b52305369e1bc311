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
from confluent_kafka.admin import NewPartitions

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.dev.ports import Ports
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.group import ZooKeeperGroup
from sunshower.kafka.zookeeper.options import (
    ByZooKeeperGroup,
    PlainOffsets,
    SqliteOffsets,
    StormOffsets,
    ZooKeeperBrokers,
)
from sunshower.kafka.zookeeper.thread_assignment import round_robin_of_threads
from sunshower.state.zookeeper_client import Tls
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.kafka.stage import Run, running, topology
from tests.kafka.topics import admin, fill, new_topic
from tests.state.expiring import expire

BAD_INPUT_S = 10.0


class Site:
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
def site(kafka_zk: Kafka, zookeeper: ZooKeeper) -> Site:
    return Site(kafka_zk, zookeeper, 4)


def seen(run: Run) -> list[str]:
    opened = all(task.bolt for task in run._bolts("seen"))
    return [record.value.decode() for record in run.records()] if opened else []


def stored(site: Site) -> dict[int, int]:
    """The offsets at Storm's path, by partition."""
    tree = ZooKeeperTree(site.zookeeper.connect)
    home = f"/storm/{site.group}"
    nodes = [tree.get(f"{home}/{name}") for name in tree.children(home)]
    tree.close()
    found = [json.loads(node.value) for node in nodes if node]
    return {one["partition"]: one["offset"] for one in found}


def test_tasks_share_partitions_by_a_group_and_go_on_where_they_were(site: Site) -> None:
    site.send(10)
    with running(topology(site.spout(), tasks=2)) as run:
        run.until(lambda: {*seen(run)} == site.all())
        standing = [{*run.spout(index).standing()} for index in range(2)]
        assert sorted(map(len, standing)) == [2, 2]
        assert len({*seen(run)}) == len(seen(run))
    assert stored(site) == dict.fromkeys(range(4), 10)
    with running(topology(site.spout(), tasks=2)) as run:
        site.send(5)
        run.until(lambda: len(seen(run)) == 20)
        assert {*seen(run)} == {f"{p}:{n}" for p in range(4) for n in range(10, 15)}


def test_options_go_to_other_processes() -> None:
    for option in (
        ZooKeeperBrokers("a:1", "/kafka", digest=("me", "secret")),
        ByZooKeeperGroup("a:1", "g", round_robin_of_threads, {"t": 2}, tls=Tls(Path("ca.pem"))),
        StormOffsets("a:1", "/kafka", "id", wildcard=True, session_timeout_s=3),
        PlainOffsets("a:1", "g"),
        SqliteOffsets("offsets.sqlite", "id"),
    ):
        assert pickle.loads(pickle.dumps(option)) == option


def test_round_robin_and_plain_offsets(site: Site) -> None:
    connect = site.zookeeper.connect
    spout = site.spout(
        sharing=ByZooKeeperGroup(connect, site.group, round_robin_of_threads),
        store=PlainOffsets(connect, site.group),
    )
    site.send(3)
    with running(topology(spout, tasks=2)) as run:
        run.until(lambda: {*seen(run)} == site.all())
    tree = ZooKeeperTree(connect)
    nodes = [tree.get(f"/consumers/{site.group}/offsets/{site.topic}/{p}") for p in range(4)]
    assert [node and node.value for node in nodes] == [b"3"] * 4
    assert not tree.children(f"/consumers/{site.group}/ids")
    tree.close()


def test_a_storm_deployment_is_taken_over(site: Site) -> None:
    site.send(10)
    tree = ZooKeeperTree(site.zookeeper.connect)
    theirs = {"topology": {"id": "old-1-99", "name": "old"}, "offset": 7, "partition": 2}
    tree.create(f"/storm/{site.group}/partition_2", json.dumps(theirs).encode())
    tree.close()
    with running(topology(site.spout())) as run:
        run.until(lambda: len(seen(run)) == 33)
        assert {*seen(run)} == site.all() - {f"2:{n}" for n in range(7)}
        run.until(lambda: stored(site) == dict.fromkeys(range(4), 10))


def test_offsets_in_a_file_of_sqlite(site: Site, tmp_path: Path) -> None:
    offsets = SqliteOffsets(tmp_path / "offsets.sqlite", "words")
    site.send(4)
    with running(topology(site.spout(store=offsets))) as run:
        run.until(lambda: {*seen(run)} == site.all())
    site.send(1)
    with running(topology(site.spout(store=offsets))) as run:
        run.until(lambda: len(seen(run)) == 4)
        assert {*seen(run)} == {f"{p}:4" for p in range(4)}


# ---- faults -------------------------------------------------------------------------------------


def group_of(run: Run, index: int) -> ZooKeeperGroup:
    sharing = run.spout(index)._sharing
    assert isinstance(sharing, ZooKeeperGroup)
    return sharing


def test_a_session_that_expires_loses_nothing(site: Site) -> None:
    site.send(20)
    with running(topology(site.spout(), tasks=2)) as run:
        run.until(lambda: {*seen(run)} == site.all())
        tree = group_of(run, 0)._tree
        assert isinstance(tree, ZooKeeperTree)
        before = group_of(run, 0)._name
        expire(site.zookeeper, tree)
        site.send(20)
        run.until(lambda: {*seen(run)} == site.all())
        run.until(lambda: group_of(run, 0)._name not in ("", before))
        run.until(lambda: sum(len(run.spout(index).standing()) for index in range(2)) == 4)
        run.until(lambda: stored(site) == dict.fromkeys(range(4), 40))
        assert not run.errors()


def test_a_zookeeper_that_is_killed_and_restarted_loses_nothing(site: Site) -> None:
    site.send(20)
    with running(topology(site.spout(), tasks=2)) as run:
        run.until(lambda: {*seen(run)} == site.all())
        site.zookeeper.kill()
        site.send(5)
        run.go_on(0.5)
        site.zookeeper.restart()
        site.send(20)
        run.until(lambda: {*seen(run)} == site.all())
        run.until(lambda: stored(site) == dict.fromkeys(range(4), 45))


def test_a_consumer_that_comes_and_goes_under_load_loses_nothing(site: Site) -> None:
    found: list[str] = []
    with running(topology(site.spout())) as steady:
        for _ in range(3):
            with running(topology(site.spout())) as guest:
                site.send(20)
                together(steady, guest, lambda: parts(steady) == parts(guest) == 2)
                site.send(20)
                together(steady, guest, lambda: site.all() == {*found, *seen(steady), *seen(guest)})
                found.extend(seen(guest))
            steady.until(lambda: parts(steady) == 4)
        steady.until(lambda: stored(site) == dict.fromkeys(range(4), 120))
        twice = len(found) + len(seen(steady)) - len(site.all())
        assert 0 <= twice <= 3 * 40, "only messages that were open in a rebalance are read twice"


def parts(run: Run) -> int:
    """How many partitions the spout of a run reads."""
    opened = hasattr(run.spout(), "_reader")
    return len(run.spout().standing()) if opened else 0


def together(one: Run, other: Run, happened: Callable[[], bool]) -> None:
    """Step both runs in turn until `happened` is true."""
    while not happened():
        one.go_on(0.02)
        other.go_on(0.02)


def test_partitions_that_are_added_are_read_from_their_start(site: Site) -> None:
    site.send(5)
    with running(topology(site.spout(), tasks=2)) as run:
        run.until(lambda: {*seen(run)} == site.all())
        client = admin(site.kafka.bootstrap)
        client.create_partitions([NewPartitions(site.topic, 6)])[site.topic].result(60)
        for partition in (4, 5):
            fill(site.kafka.bootstrap, site.topic, [b"%d:new" % partition], partition)
        run.until(lambda: {"4:new", "5:new"} < {*seen(run)})
        assert {*seen(run)} == site.all() | {"4:new", "5:new"}


# ---- bad input ----------------------------------------------------------------------------------


def test_an_offset_that_is_none_is_told_with_its_place_in_time(site: Site) -> None:
    tree = ZooKeeperTree(site.zookeeper.connect)
    tree.create(f"/storm/{site.group}/partition_0", b"seven")
    tree.close()
    with running(topology(site.spout())) as run:
        place = f"/storm/{site.group}/partition_0 holds no offset"
        run.until(lambda: any(place in error for error in run.errors()), BAD_INPUT_S)


def test_a_zookeeper_that_is_not_there_is_told_in_time(site: Site) -> None:
    ports = Ports()
    address = f"127.0.0.1:{ports.claim()}"
    began_s = SystemClock().now()
    with running(topology(site.spout(directory=ZooKeeperBrokers(address)))) as run:
        run.until(lambda: any(address in error for error in run.errors()), BAD_INPUT_S)
    assert SystemClock().now() - began_s < BAD_INPUT_S + 1
    ports.release()
