"""The only ZooKeeper is unavailable: it has a group, its offsets, and the counts of a bolt."""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks.outage_scenarios import _outage_watch, kafka
from benchmarks.outage_scenarios._outage_watch import (
    CAUGHT_UP_S,
    Figures,
    Numbers,
    OutageWatch,
    figures_or_failure,
)
from sunshower import Bolt, Retry, Topology, Unavailable
from sunshower.actors.cluster import RayCluster
from sunshower.actors.shipping import ship
from sunshower.codec import Codec
from sunshower.dev.kafka import Kafka
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.kafka.consuming.decoding import KafkaRecord
from sunshower.kafka.exactly_once.deduplicate import deduplicate
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.options import ByZooKeeperGroup, PlainOffsets
from sunshower.runtime.plan import Layout
from sunshower.state.zookeeper_tree import ZooKeeperTree

RATE = 200.0  # numbers a second
_KEYS = 20_000  # more than are read again after a lost session
_GROUP = "outage"
_COUNTS = "/deduplicated/outage/count/0"


class Count(Bolt[KafkaRecord, None]):
    """The number of records, and their sum."""

    def __init__(self) -> None:
        self._state = (0, 0)

    def process(self, record: KafkaRecord) -> None:
        count, total = self._state
        self._state = count + 1, total + int(record.value)

    def snapshot(self) -> tuple[int, int]:
        return self._state

    def restore(self, state: tuple[int, int]) -> None:
        self._state = state


def declare(bootstrap: str, connect: str, end: Path) -> Topology:
    """Numbers → topic "in" → each counted once, in ZooKeeper."""
    settings = {"bootstrap.servers": bootstrap}
    topology = Topology("outage", workers=2)
    retry = Retry(dead_letters=True)
    numbers = topology.spout("numbers", Numbers(RATE, end), retry=retry)
    numbers.shuffle().bolt("write", KafkaBolt(settings, "in", value="value"))
    options = KafkaOptions(
        sharing=ByZooKeeperGroup(connect, _GROUP), store=PlainOffsets(connect, _GROUP)
    )
    spout = KafkaSpout({**settings, "group.id": _GROUP}, topics=["in"], options=options)
    read = topology.spout("read", spout, 2, retry=retry)
    counted = deduplicate("value", Count(), memory=_KEYS, store=lambda: ZooKeeperTree(connect))
    read.shuffle().bolt("count", counted)
    for stream, name in ((numbers, "discard_numbers"), (read, "discard_read")):
        stream.stream("dead_letters").shuffle().bolt(name, kafka.DiscardDeadLetters)
    return topology


def _tree(watch: OutageWatch, hosts: str) -> ZooKeeperTree:
    """The tree of a server that has just restarted, and may be busy."""
    trees: list[ZooKeeperTree] = []

    def is_reached() -> bool:
        try:
            trees.append(ZooKeeperTree(hosts))
        except Unavailable:
            return False
        return True

    watch.until(is_reached, CAUGHT_UP_S)
    return trees[0]


def run(seconds: float) -> Figures:
    """One outage of that length, on a new Ray."""
    ship([_outage_watch, kafka, sys.modules[__name__]])
    with (
        tempfile.TemporaryDirectory() as folder,
        ZooKeeper() as zookeeper,
        Kafka() as broker,
        RayCluster() as cluster,
    ):
        kafka.create_topics(broker.bootstrap, "in")
        end = Path(folder) / "end"
        graph = declare(broker.bootstrap, zookeeper.connect, end).graph()
        topology = cluster.submit(graph, Layout.ISOLATE)
        watch = OutageWatch(topology, ["numbers", "read"])

        def counts(tree: ZooKeeperTree) -> tuple[int, int]:
            node = tree.get(_COUNTS)
            state: tuple[int, int] = Codec().decode(node.value)[2] if node else (0, 0)
            return state

        def scenario() -> Figures:
            watch.outage(zookeeper.kill, seconds, zookeeper.restart)
            with closing(_tree(watch, zookeeper.connect)) as tree:
                watch.catch_up(end, lambda: counts(tree)[0] >= int(watch.figures()["emitted"]))
                emitted, (count, total) = int(watch.figures()["emitted"]), counts(tree)
            right = (count, total) == (emitted, emitted * (emitted - 1) // 2)
            return {"counted": count, "lost": max(0, emitted - count), "exactly once": str(right)}

        figures = figures_or_failure(watch, scenario)
        topology.stop()
        return figures
