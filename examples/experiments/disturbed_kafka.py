"""Faults of Kafka: leaders move, brokers die, partitions are added, ZooKeeper dies.

    sunshower experiment run examples/experiments/disturbed_kafka.py --cluster ray

It needs the extras `kafka` and `servers`. Three real brokers have the numbers, with a replica of
each partition on each broker; a real ZooKeeper has the offsets, at Storm's path. Each run has one
of these faults for `away_s` seconds:

    leader      the broker that leads partition 0 is killed; another broker becomes the leader
    brokers     all three brokers are killed
    partitions  two partitions are added, with the last numbers in them
    zookeeper   no offset can be committed

Look for: all messages are completed, no tree times out, and emits continue while ZooKeeper is down.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import cache, partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from sunshower import Bolt, Context, Number, Topology
from sunshower.dev import Kafka, ZooKeeper
from sunshower.experiments import (
    AtLeastOnce,
    Experiment,
    NoPrematureAck,
    Recovers,
    Step,
    at,
    outage,
)
from sunshower.kafka import KafkaOptions, KafkaSpout, Received, StormOffsets

TOTAL, LATE = 4_000, 400
BROKERS = (1, 2, 3)
FAULTS = ("leader", "brokers", "partitions", "zookeeper")
LITTLE = {"queued.max.messages.kbytes": 16, "fetch.message.max.bytes": 8_192}


@cache
def brokers() -> Kafka:
    """Real servers, which end with this process."""
    return Kafka(len(BROKERS)).start()


@cache
def zookeeper() -> ZooKeeper:
    return ZooKeeper().start()


class Source:
    """A new topic of two partitions, with all numbers but the `late` ones."""

    def __init__(self, late: int) -> None:
        self.name, self.late = f"numbers-{uuid.uuid4().hex[:8]}", late
        self.where = {"bootstrap.servers": brokers().bootstrap, "log_level": 0}
        self.admin = AdminClient(self.where)
        topic = NewTopic(self.name, 2, replication_factor=len(BROKERS))
        self.admin.create_topics([topic])[self.name].result(60)
        self.send(0, TOTAL - late)

    def send(self, first: int, end: int, partition: int = -1) -> None:
        producer = Producer(self.where)
        for value in range(first, end):
            producer.produce(self.name, b"%0100d" % value, partition=partition)
        assert producer.flush(60) == 0, "the numbers were not delivered"

    def grow(self) -> None:
        """Add two partitions; the last one has the late numbers."""
        self.admin.create_partitions([NewPartitions(self.name, 4)])[self.name].result(60)
        self.send(TOTAL - self.late, TOTAL, 3)

    def leader(self) -> int:
        topic = self.admin.list_topics(self.name, timeout=60).topics[self.name]
        return int(topic.partitions[0].leader)


_source: list[Source] = []  # of the current run
_killed: list[int] = []  # stopped brokers


def number(message: Received) -> Number:
    return Number(int(message.value))


class Slow(Bolt[Number, None]):
    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Number) -> None:
        self.clock.sleep(0.002)


def topology(fault: str) -> Topology:
    source = Source(LATE if fault == "partitions" else 0)
    _source[:] = [source]
    offsets = StormOffsets(zookeeper().connect, "/kafka-storm", source.name)
    options = KafkaOptions(store=offsets, commit_s=0.5, refresh_s=1.0)
    settings = {**source.where, "group.id": source.name, **LITTLE}
    reads = {"topics": [source.name], "translate": number, "emits": Number, "options": options}
    topology = Topology("from-kafka", spout_pending=100)
    numbers = topology.spout("numbers", KafkaSpout(settings, **reads))
    numbers.fields("value").bolt("sink", Slow, parallelism=1)
    return topology


def begin(fault: str) -> None:
    match fault:
        case "leader":
            kill(_source[0].leader())
        case "brokers":
            kill(*BROKERS)
        case "partitions":
            _source[0].grow()
        case "zookeeper":
            zookeeper().kill()


def end(fault: str) -> None:
    if fault == "zookeeper":
        zookeeper().restart()
    elif _killed:
        brokers().restart(*_killed)
    _killed.clear()


def kill(*those: int) -> None:
    for broker in those:
        brokers().kill(broker)
        _killed.append(broker)


def plan(fault: str, away_s: float) -> Iterator[Step]:
    if fault not in FAULTS:
        raise ValueError(f"fault is {fault!r}; it must be one of {', '.join(FAULTS)}")
    yield from at(3.0, outage(fault, partial(begin, fault), partial(end, fault), for_s=away_s))


experiment = Experiment(
    name="disturbed-kafka",
    about="A topology reads from Kafka during faults of Kafka and ZooKeeper: one fault per run.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60)],
    parameters={"fault": "leader", "away_s": 4.0},
    sweep={"fault": [*FAULTS]},
    messages_max=TOTAL,
    simulated=False,
)
