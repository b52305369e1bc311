"""How far the partitions of Kafka batches are in event time, over a broker in memory."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from sunshower.clock import ManualClock
from sunshower.kafka.exactly_once.batch_spouts import KafkaOpaque, KafkaRanges, KafkaTransactional
from sunshower.kafka.partitions.ports import Partition
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.topologies.operators.windows.watermarks import IDLE_S
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.spouts.bounds import Bounds
from sunshower.trident.spouts.reached_times import ReachedTimes
from tests.kafka.positions.broker import Broker, new_batches
from tests.trident.rigs.emitting import Drive

FIELDS = ("partition", "offset")  # the offset is the event time
BOTH = pytest.mark.parametrize("kind", [KafkaOpaque, KafkaTransactional])


class Job:
    """Batches of topic `a`, one a second."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: Any, broker: Broker) -> None:
        self.clock, self.txid = ManualClock(), 0
        bounds = Bounds(records=20, seconds=0.1)
        spout = new_batches(patch, kind, broker, self.clock, FIELDS, bounds=bounds)
        self.drive = Drive(spout, clock=self.clock)
        field = TimeField("end" if kind is KafkaRanges else "offset", None)
        self.times = ReachedTimes(field.reader(self.schema(spout)), self.clock, 0.0)
        self.drive.emitters[0].watch(self.times)

    @staticmethod
    def schema(spout: Any) -> Any:
        from sunshower.topologies.operators.schemas import columns_schema

        return columns_schema(spout.emits, "test")

    def batch(self) -> SourceTime:
        self.clock.advance(0.9)
        self.txid += 1
        self.times.begin(self.txid)
        self.drive.batch(self.txid)
        self.drive.tree_says(self.txid + 1)
        return self.times.total


def new_broker(*counts: int) -> Broker:
    broker = Broker()
    broker.create("a", len(counts))
    for partition, count in enumerate(counts):
        broker.fill("a", partition, [b"x"] * count)
    return broker


@BOTH
def test_the_partition_that_is_behind_decides(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    broker = new_broker(70, 4)
    job = Job(monkeypatch, kind, broker)
    times = [job.batch() for _ in range(6)]
    assert [time.reached for time in times][-1] == 3
    assert max(time.reached for time in times) == 3
    broker.fill("a", 1, [b"x"] * 8)
    assert job.batch().reached == 11
    assert job.batch()[:2] == (11, 11)


@BOTH
def test_a_silent_partition_is_passed_over_only_while_its_leader_answers(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    broker = new_broker(1, 1)
    job = Job(monkeypatch, kind, broker)
    idle = []
    for second in range(120):
        broker.fill("a", 0, [b"x"])
        broker.away = {Partition("a", 1)} if 10 <= second < 60 else set()
        time = job.batch()
        idle += [second] if time.idle else []
        if time.idle:
            assert time.earlier == time.reached - 1 >= 60
    assert len(idle) > 10, "the leaders are asked once a second"
    assert 60 + IDLE_S <= idle[0] <= 60 + IDLE_S + 4


@BOTH
def test_a_topic_that_is_created_again_has_reached_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    job = Job(monkeypatch, kind, broker := new_broker(15))
    for _ in range(4):
        last = job.batch()
    assert last.reached == 14
    broker.create("a")
    assert [job.batch() for _ in range(12)][-1].reached == -inf
    broker.fill("a", 0, [b"x"] * 3)
    assert [job.batch() for _ in range(12)][-1][:2] == (2, 2)


def test_of_ranges_each_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = new_broker(5, 3)
    job = Job(monkeypatch, KafkaRanges, broker)
    assert job.batch().reached == 3
    for _ in range(40):
        broker.fill("a", 0, [b"x"])
        last = job.batch()
    assert last.idle
    assert last[:2] == (45, 44)
