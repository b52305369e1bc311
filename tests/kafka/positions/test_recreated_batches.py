"""Batches from topics that are cut, deleted and created again, over a broker in memory."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from sunshower.clock import ManualClock
from sunshower.errors import FailedBatch, IncompleteBatch, KafkaUnreachable
from sunshower.kafka.exactly_once.batch_spouts import KafkaOpaque, KafkaRanges, KafkaTransactional
from sunshower.state.tree import MemoryForest
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.positions.broker import Broker, new_batches
from tests.seeds import seeds
from tests.trident.rigs.emitting import Drive

EACH = pytest.mark.parametrize("kind", [KafkaOpaque, KafkaTransactional, KafkaRanges])
Place = tuple[str, int, int]  # the id of a topic, a partition, an offset


class Job:
    """Batches of topic `a`, one after the other; `rows` are those that are committed."""

    def __init__(
        self, patch: pytest.MonkeyPatch, kind: Any, broker: Broker, **options: Any
    ) -> None:
        self.broker, self.clock, self.forest = broker, ManualClock(), MemoryForest()
        self.patch, self.kind, self.options, self.deployment = patch, kind, options, "d"
        self.txid, self.attempt = 1, 0
        self.rows: Counter[Place] = Counter()
        self.metadata: dict[int, Any] = {}
        self.start()

    def start(self) -> None:
        """Start a process, or another one after a kill."""
        spout = new_batches(
            *(self.patch, self.kind, self.broker, self.clock, FIELDS),
            deployment=self.deployment,
            **{"bounds": Bounds(records=7)} | self.options,
        )
        self.drive = Drive(spout, 1, self.forest, self.clock)
        self.drive.metadata = self.metadata

    def batch(self, *, fails: bool = False) -> None:
        """Run the next batch; `fails`: it is emitted, and not committed."""
        self.clock.advance(1.0)
        try:
            rows = self.drive.emit(self.txid, self.attempt)
            if fails:
                raise FailedBatch("on purpose")
            self.drive.commit(self.txid, self.attempt)
        except IncompleteBatch as error:  # it is committed with what is there
            rows = list(error.rows)
        self.drive.success(self.txid, self.attempt)
        for row in rows:
            self.rows.update(places(row))
        self.txid, self.attempt = self.txid + 1, 0
        self.drive.tree_says(self.txid)

    def try_batch(self, *, fails: bool = False) -> None:
        try:
            self.batch(fails=fails)
        except (FailedBatch, KafkaUnreachable):
            self.attempt += 1

    def check(self, what: str = "") -> None:
        """All records of the present topic are in one batch."""
        topic = self.broker.topics_of["a"]
        retained = {
            (topic.id, number, offset)
            for number, log in enumerate(topic.logs)
            for offset in range(log.first, log.end)
        }
        assert retained <= {*self.rows}, f"{what}: {sorted(retained - {*self.rows})[:3]}"
        assert max(self.rows.values(), default=1) == 1, f"{what}: {self.rows.most_common(3)}"


FIELDS = ("topic_id", "partition", "offset")


def places(row: Any) -> list[Place]:
    if len(row) == len(FIELDS):
        return [row]
    return [(row.topic_id, row.partition, offset) for offset in range(row.first, row.end)]


def new_broker(count: int = 10) -> Broker:
    broker = Broker()
    broker.create("a")
    broker.fill("a", 0, [b"old"] * count)
    return broker


@EACH
@pytest.mark.parametrize("count", [3, 50])
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "running"])
def test_each_record_of_a_topic_that_is_created_again_is_in_one_batch(
    monkeypatch: pytest.MonkeyPatch, kind: Any, count: int, is_stopped: bool
) -> None:
    job = Job(monkeypatch, kind, new_broker())
    for _ in range(3):
        job.batch()
    job.broker.create("a", 2)
    job.broker.fill("a", 0, [b"new"] * count)
    job.broker.fill("a", 1, [b"new"] * 4)
    if is_stopped:
        job.start()
    for _ in range(12):
        job.batch()
    job.check()
    assert sum(job.rows.values()) == 10 + count + 4


@EACH
def test_a_new_topic_of_a_bounded_job_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    job = Job(monkeypatch, kind, new_broker(3), until_end=True)
    for _ in range(3):
        job.batch()
    assert job.drive.is_last(job.txid - 1)
    job.broker.create("a")
    job.broker.fill("a", 0, [b"new"] * 20)
    job.start()
    while not job.drive.is_last(job.txid - 1) or job.txid < 6:
        job.batch()
        assert job.txid < 30
    job.check()


@EACH
def test_metadata_without_an_id_belong_to_the_topic_that_there_is(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    broker = new_broker()
    broker.gives_ids = False
    job = Job(monkeypatch, kind, broker)
    job.batch()
    broker.gives_ids = True
    job.start()
    job.batch()
    job.batch()
    assert sum(job.rows.values()) == 10
    broker.create("a")
    broker.fill("a", 0, [b"new"] * 30)
    for _ in range(8):
        job.batch()
    job.check()


def test_a_transactional_batch_of_a_former_topic_is_incomplete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in (KafkaTransactional, KafkaRanges):
        job = Job(monkeypatch, kind, new_broker())
        job.try_batch(fails=True)
        job.broker.create("a")
        job.broker.fill("a", 0, [b"old"] * 30)
        job.start()
        with pytest.raises(IncompleteBatch, match="deleted and created again since the batch was"):
            job.drive.emit(1, 1)


@EACH
def test_without_an_answer_nothing_is_emitted_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    job = Job(monkeypatch, kind, new_broker(30))
    job.batch()
    count = sum(job.rows.values())
    assert count < 30
    job.broker.answers = False
    for _ in range(3):
        job.batch()
    assert sum(job.rows.values()) == count
    job.broker.answers = True
    for _ in range(8):
        job.batch()
    job.check()


def test_a_deleted_topic_is_an_outage_for_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, KafkaOpaque, new_broker())
    job.batch()
    job.broker.delete("a")
    with pytest.raises(KafkaUnreachable, match="wait until it is created again"):
        job.batch()
    with suppress(KafkaUnreachable):
        job.try_batch()
    job.broker.create("a")
    job.broker.fill("a", 0, [b"new"] * 30)
    for _ in range(9):
        job.try_batch()
    job.check()


@seeds(400, kinds=3)
def test_each_record_is_in_one_batch_whatever_happens_to_topic_and_tasks(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = Random(seed)
    broker = Broker()
    broker.create("a", draw.randint(1, 3))
    kind = (KafkaOpaque, KafkaTransactional, KafkaRanges)[seed % 3]
    job = Job(monkeypatch, kind, broker)
    for _ in range(draw.randint(10, 50)):
        number = draw.randrange(len(broker.topics_of["a"].logs))
        log = broker.topics_of["a"].logs[number]
        match draw.choice(["fill", "fill", "batch", "batch", "fail", "kill", "cut", "recreate"]):
            case "fill":
                broker.fill("a", number, [b"x"] * draw.randint(1, 20))
            case "batch":
                job.try_batch()
            case "fail":
                job.try_batch(fails=True)
            case "kill":
                job.start()
            case "cut" if draw.random() < 0.3:
                broker.cut("a", number, draw.randint(log.first, log.end))
            case "recreate":
                broker.create("a", draw.randint(1, 3))
    for _ in range(80):
        job.try_batch()
    job.check(f"seed {seed}")
