"""Kafka's old consumer, of Kafka 1.1, in one group in ZooKeeper with ours."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sunshower.clock import SystemClock
from sunshower.dev.jars import class_path
from sunshower.dev.kafka import Kafka
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.group import Rule, by_range_of_threads, round_robin_of_threads
from sunshower.kafka.zookeeper.options import ByZooKeeperGroup, PlainOffsets, ZooKeeperBrokers
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.kafka.stage import WITHIN_S, Run, running, topology
from tests.kafka.topics import new_topic
from tests.originals.programs import LEVEL, STORM_KAFKA

PARTITIONS = 7


class Group:
    """A group in ZooKeeper, and a topic with messages `<partition>:<number>`."""

    def __init__(
        self, kafka: Kafka, zookeeper: ZooKeeper, rule: Rule, strategy: str, folder: Path
    ) -> None:
        self.kafka, self.connect, self.rule, self.strategy = (
            kafka,
            zookeeper.connect,
            rule,
            strategy,
        )
        self.tree = ZooKeeperTree(zookeeper.connect)
        self.topic = new_topic(kafka.bootstrap, PARTITIONS)
        self.name = f"g{uuid.uuid4().hex[:8]}"
        self.output = folder / "output"
        self.output.touch()
        self.sent = 0
        self.here = list[str]()  # read by spouts that have ended

    def send(self, each: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        for partition in range(PARTITIONS):
            for number in range(self.sent, self.sent + each):
                producer.produce(self.topic, f"{partition}:{number}", partition=partition)
        assert not producer.flush(60)
        self.sent += each

    def all(self) -> list[str]:
        return sorted(f"{p}:{n}" for p in range(PARTITIONS) for n in range(self.sent))

    def spout(self) -> KafkaSpout:
        options = KafkaOptions(
            directory=ZooKeeperBrokers(self.connect),
            sharing=ByZooKeeperGroup(
                self.connect,
                self.name,
                lambda partitions, streams, _: self.rule(partitions, streams),
                data=lambda _: {"rack": "a"},  # Kafka's consumer ignores these
                session_timeout_s=20,
            ),
            store=PlainOffsets(self.connect, self.name),
            commit_s=0.2,
            refresh_s=0.5,
        )
        settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": self.name}
        return KafkaSpout(settings, topics=[self.topic], options=options)

    @contextmanager
    def old_consumer(self) -> Iterator[None]:
        """Kafka's consumer, which prints what it reads; it leaves the group at the end."""
        properties = {
            "group.id": self.name,
            "auto.commit.interval.ms": "200",
            "zookeeper.session.timeout.ms": "20000",
            "partition.assignment.strategy": self.strategy,
        }
        given = [f"--consumer-property={name}={value}" for name, value in properties.items()]
        java = ["java", "-Xmx256m", LEVEL, "-cp", class_path(STORM_KAFKA, lambda _: None)]
        program = ["kafka.tools.ConsoleConsumer", "--zookeeper", self.connect]
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [*java, *program, "--topic", self.topic, *given],
                stdout=output,
                stderr=subprocess.DEVNULL,
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    def owners(self) -> dict[int, str]:
        """Partition → the member that owns it, as ZooKeeper has it."""
        path = f"/consumers/{self.name}/owners/{self.topic}"
        nodes = {int(name): self.tree.get(f"{path}/{name}") for name in self.tree.children(path)}
        return {p: node.value.decode().rpartition("-")[0] for p, node in nodes.items() if node}

    def members(self) -> list[str]:
        return self.tree.children(f"/consumers/{self.name}/ids")

    def is_shared_by(self, members: int) -> bool:
        """Whether the group has so many members, and each owns its part of all partitions."""
        names, owners = self.members(), [*self.owners().values()]
        counts = [owners.count(name) for name in names]
        fair = len(names) == members and max(counts) - min(counts) <= 1
        return fair and sum(counts) == len(owners) == PARTITIONS

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait, without a spout of ours."""
        clock = SystemClock()
        end_s = clock.now() + WITHIN_S
        while not condition():
            assert clock.now() < end_s, (self.owners(), self.members())
            clock.sleep(0.05)

    def read(self, run: Run | None = None) -> list[str]:
        """All that both have read."""
        old = self.output.read_text().split()
        running_spout = [record.value.decode() for record in run.records()] if run else []
        return sorted([*old, *self.here, *running_spout])


@pytest.mark.parametrize(
    ("rule", "strategy"), [(by_range_of_threads, "range"), (round_robin_of_threads, "roundrobin")]
)
def test_each_message_is_read_once_by_the_two_together(
    jdk: None, kafka_zk: Kafka, zookeeper: ZooKeeper, tmp_path: Path, rule: Rule, strategy: str
) -> None:
    group = Group(kafka_zk, zookeeper, rule, strategy, tmp_path)
    group.send(20)
    with running(topology(group.spout())) as run:
        run.until(lambda: group.read(run) == group.all())
        run.step_for(0.5)  # commits
        with group.old_consumer():
            run.until(lambda: group.is_shared_by(2))
            run.step_for(1)  # both have begun to read
            group.send(30)
            run.until(lambda: group.read(run) == group.all())
            run.step_for(0.5)
        run.until(lambda: group.is_shared_by(1))
        group.send(10)
        run.until(lambda: group.read(run) == group.all())
        run.step_for(0.5)
        group.here += [record.value.decode() for record in run.records()]
    with group.old_consumer():
        group.until(lambda: group.is_shared_by(1))
        group.send(5)
        group.until(lambda: len(group.read()) >= len(group.all()))
    assert group.read() == group.all(), "it began where ours had committed"
