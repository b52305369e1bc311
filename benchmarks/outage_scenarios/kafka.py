"""The only broker is unavailable; numbers are written to a topic, read, and copied to another."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.outage_scenarios import _outage_watch
from benchmarks.outage_scenarios._outage_watch import (
    Figures,
    Numbers,
    OutageWatch,
    figures_or_failure,
)
from sunshower import Bolt, DeadLetter, Retry, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.shipping import ship
from sunshower.dev.kafka import Kafka
from sunshower.errors import KafkaError
from sunshower.kafka.partitions.broker_offsets import lags
from sunshower.kafka.partitions.ports import total
from sunshower.kafka.partitions.topic_ends import tails
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.spout import KafkaSpout
from sunshower.runtime.plan import Layout

RATE = 500.0  # numbers a second
_PARTITIONS = 2
_GROUP = "outage"
_ALL = 1 << 30  # messages: more than there are


def create_topics(bootstrap: str, *topics: str) -> None:
    """Create topics of two partitions."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in client.create_topics(
        [NewTopic(topic, _PARTITIONS, 1) for topic in topics]
    ).values():
        future.result(60)


def is_read(bootstrap: str, topic: str, group: str = _GROUP) -> bool:
    """Whether a group has committed all messages of a topic."""
    try:
        return total(lags({"bootstrap.servers": bootstrap}, group, [topic])) == 0
    except KafkaError:
        return False


class DiscardDeadLetters(Bolt[DeadLetter, None]):
    """Discards dead letters; the spouts count them."""

    def process(self, record: DeadLetter) -> None: ...


def declare(bootstrap: str, end: Path) -> Topology:
    """Numbers → topic "in", and topic "in" → topic "out", with dead letters."""
    settings = {"bootstrap.servers": bootstrap}
    topology = Topology("outage", workers=2)
    retry = Retry(dead_letters=True)
    numbers = topology.spout("numbers", Numbers(RATE, end), retry=retry)
    numbers.shuffle().bolt("write", KafkaBolt(settings, "in", value="value"))
    spout = KafkaSpout({**settings, "group.id": _GROUP}, topics=["in"])
    read = topology.spout("read", spout, _PARTITIONS, retry=retry)
    read.shuffle().bolt("copy", KafkaBolt(settings, "out", value="value"), parallelism=2)
    for stream, name in ((numbers, "discard_numbers"), (read, "discard_read")):
        stream.stream("dead_letters").shuffle().bolt(name, DiscardDeadLetters)
    return topology


def run(seconds: float) -> Figures:
    """One outage of that length, on a new Ray."""
    ship([_outage_watch, sys.modules[__name__]])
    with tempfile.TemporaryDirectory() as folder, Kafka() as kafka, RayCluster() as cluster:
        create_topics(kafka.bootstrap, "in", "out")
        end = Path(folder) / "end"
        graph = declare(kafka.bootstrap, end).graph()
        topology = cluster.submit(graph, Layout.ISOLATE)
        watch = OutageWatch(topology, ["numbers", "read"])

        def scenario() -> Figures:
            watch.outage(lambda: kafka.kill(1), seconds, lambda: kafka.restart(1))
            watch.catch_up(end, lambda: is_read(kafka.bootstrap, "in"))
            emitted = watch.figures()["emitted"]
            settings = {"bootstrap.servers": kafka.bootstrap}
            numbers = [int(message.value() or b"-1") for message in tails(settings, "out", _ALL)]
            lost = {*range(int(emitted))} - {*numbers}
            return {
                "arrived": len(numbers),
                "repeated": len(numbers) - len({*numbers}),
                "lost": len(lost),
            }

        figures = figures_or_failure(watch, scenario)
        topology.stop()
        return figures
