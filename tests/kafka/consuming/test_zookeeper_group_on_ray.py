"""A process of a ZooKeeper group is killed: others claim its partitions, and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from sunshower import Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.dev.kafka import Kafka
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.kafka.consuming.decoding import Received
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.options import ByZooKeeperGroup, PlainOffsets
from sunshower.runtime.plan import Layout
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.actors.programs.evidence import Store, stored, submitted, worker_of
from tests.guarantee.deaths import until
from tests.kafka.topics import fill, new_topic

PARTITIONS = 4


class Group:
    """The state of a group with one topic in ZooKeeper."""

    def __init__(self, tree: ZooKeeperTree, name: str, topic: str) -> None:
        self._tree, self._home, self._topic = tree, f"/consumers/{name}", topic

    def members(self) -> set[str]:
        return {*self._tree.children(f"{self._home}/ids")}

    def owners(self) -> dict[int, str]:
        """Partition → the member that has claimed it."""
        threads = {number: value.decode() for number, value in self._values("owners").items()}
        return {number: thread.rpartition("-")[0] for number, thread in threads.items()}

    def offsets(self) -> dict[int, int]:
        return {number: int(value) for number, value in self._values("offsets").items()}

    def is_shared(self, members: int) -> bool:
        """Whether this number of members own all partitions, each at least one."""
        names, owners = self.members(), self.owners()
        return len(names) == members and len(owners) == PARTITIONS and {*owners.values()} == names

    def _values(self, what: str) -> Mapping[int, bytes]:
        path = f"{self._home}/{what}/{self._topic}"
        nodes = {int(name): self._tree.get(f"{path}/{name}") for name in self._tree.children(path)}
        return {number: node.value for number, node in nodes.items() if node}


def send(kafka: Kafka, topic: str, each: int) -> None:
    for partition in range(PARTITIONS):
        fill(kafka.bootstrap, topic, [b"x"] * each, partition)


def to_number(message: Received) -> Number:
    return Number(message.partition * 10_000 + message.offset)


@pytest.mark.long
def test_the_partitions_of_a_killed_process_are_claimed_and_nothing_is_lost(
    ray_cluster: RayCluster, kafka: Kafka, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    topic = new_topic(kafka.bootstrap, PARTITIONS)
    send(kafka, topic, 1_000)
    options = KafkaOptions(
        sharing=ByZooKeeperGroup(zookeeper.connect, topic, session_timeout_s=20),
        store=PlainOffsets(zookeeper.connect, topic),
        commit_s=0.2,
    )
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic}
    spout = KafkaSpout(settings, topics=[topic], translate=to_number, emits=Number, options=options)
    topology = Topology("shared", workers=2)
    topology.spout("in", spout, 2).shuffle().bolt("store", Store(tmp_path), parallelism=2)
    with (
        closing(ZooKeeperTree(zookeeper.connect)) as tree,
        submitted(ray_cluster, topology, layout=Layout.PACK) as run,
    ):
        group = Group(tree, topic, topic)
        until(lambda: group.is_shared(2))
        before = group.owners()
        run.kill_worker(worker_of(run, "in", 1))
        send(kafka, topic, 1_000)
        until(lambda: group.is_shared(2) and len({*before.values()} & group.members()) == 1)
        until(lambda: group.offsets() == dict.fromkeys(range(PARTITIONS), 2_000))
    sent = {
        10_000 * partition + offset for partition in range(PARTITIONS) for offset in range(2_000)
    }
    assert {*stored(tmp_path)} == sent
