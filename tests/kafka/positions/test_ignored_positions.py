"""One warning says that a start does not continue at the stored positions, and what continues."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from sunshower.kafka.consuming.start_position import StartPosition, StartTime, Where
from sunshower.kafka.exactly_once.batch_spouts import KafkaOpaque, KafkaRanges, KafkaTransactional
from sunshower.kafka.partitions.ports import Committed, Partition
from tests.kafka.fakes import Client, FakeOffsets, new_reader
from tests.kafka.positions.broker import Broker
from tests.kafka.positions.test_recreated_batches import Job

EACH = pytest.mark.parametrize("kind", [KafkaOpaque, KafkaTransactional, KafkaRanges])
A0, A1 = Partition("a", 0), Partition("a", 1)


def numbers(first: int, count: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, first + count)]


@pytest.fixture
def broker() -> Broker:
    new_broker = Broker()
    new_broker.create("a", 5)
    for partition in range(5):
        new_broker.fill("a", partition, numbers(0, 5))
    return new_broker


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [text for text in caplog.messages if "an earlier start of this topo" in text]


@pytest.fixture
def new_job(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> Callable[..., Job]:
    """Call it with the kind of the spout: a job that has read all, from the first offset."""

    def make(kind: Any) -> Job:
        job = Job(monkeypatch, kind, broker, first=StartPosition.EARLIEST)
        for _ in range(6):
            job.batch()
        assert sum(job.rows.values()) == 25
        return job

    return make


def run_again(job: Job, then: Where) -> Job:
    """Start the program again: with `then`, and five further messages."""
    job.broker.fill("a", 0, numbers(5, 5))
    return again(job, then)


def again(job: Job, first: Where) -> Job:
    job.deployment += "+"
    job.options["first"] = first
    job.start()
    for _ in range(8):
        job.batch()
    return job


@EACH
def test_a_second_start_from_the_first_offset_is_one_warning_and_its_remedy_works(
    kind: Any, new_job: Any, warnings: Any
) -> None:
    job = run_again(new_job(kind), StartPosition.EARLIEST)
    assert sum(job.rows.values()) == 25 + 30
    (text,) = warnings()
    assert "a[0] begins at offset 0, and the stored position is 5; a[1] begins" in text
    assert "; and 2 more partitions. So messages before the stored position are processed " in text
    remedy = re.search(r"give first=StartPosition\.(\w+)$", text)
    assert remedy is not None
    again(job, StartPosition[remedy[1]])
    assert sum(job.rows.values()) == 25 + 30
    assert len(warnings()) == 1


@EACH
def test_replays_restarts_and_the_same_deployment_are_no_further_warning(
    kind: Any, new_job: Any, warnings: Any
) -> None:
    job = new_job(kind)
    job.start()  # a restart of the same deployment
    job.batch()
    assert warnings() == []
    job.deployment = "e"
    job.start()
    job.try_batch(fails=True)
    assert len(warnings()) == 1
    job.start()  # before anything is committed
    for _ in range(4):
        job.batch()
    job.start()
    job.try_batch(fails=True)
    job.batch()
    assert len(warnings()) == 1


@EACH
@pytest.mark.parametrize(
    ("then", "remedy"),
    [
        (StartPosition.LATEST, "UNCOMMITTED_LATEST"),
        (StartTime(1 << 40), "UNCOMMITTED_EARLIEST"),
    ],
)
def test_a_start_behind_the_stored_position_is_a_warning_too(
    kind: Any, then: Where, remedy: str, new_job: Any, warnings: Any
) -> None:
    run_again(new_job(kind), then)
    (text,) = warnings()
    assert "a[0] begins at offset 10, and the stored position is 5. So messages between " in text
    assert text.endswith(f"give first=StartPosition.{remedy}")


@EACH
@pytest.mark.parametrize("then", [StartPosition.UNCOMMITTED_EARLIEST, StartPosition.NONE])
def test_a_start_that_continues_is_no_warning(
    kind: Any, then: Where, new_job: Any, warnings: Any
) -> None:
    job = run_again(new_job(kind), then)
    assert sum(job.rows.values()) == 30
    assert warnings() == []


def test_positions_below_the_first_retained_offset_are_no_warning(
    broker: Broker, new_job: Any, warnings: Any
) -> None:
    job = new_job(KafkaOpaque)
    for partition in range(5):
        broker.fill("a", partition, numbers(5, 5))
        broker.cut("a", partition, 7)
    again(job, StartPosition.EARLIEST)
    assert warnings() == []


# ---- ordinary spouts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (StartPosition.EARLIEST, "a[0] begins at offset 10, and the stored position is 50"),
        (StartPosition.STORM_FORCED, "a[0] begins at offset 10, and the stored position is 50"),
        (StartPosition.LATEST, "a[0] begins at offset 90, and the stored position is 50"),
        (StartPosition.STORM, ""),
        (StartPosition.UNCOMMITTED_EARLIEST, ""),
    ],
)
def test_a_spout_that_ignores_a_committed_offset_is_one_warning(
    first: StartPosition, expected: str, warnings: Any
) -> None:
    client, stored = Client(), FakeOffsets()
    client.bounds_of = {A0: (10, 90), A1: (10, 90)}
    stored.committed = {
        partition: Committed(50, '{"topologyId": "former"}') for partition in (A0, A1)
    }
    reader = new_reader(client, stored, first=first)
    reader.assigned([A0, A1])
    reader.revoked([A0, A1], lost=True)
    reader.assigned([A0, A1])  # a rebalance
    texts = warnings()
    assert len(texts) == bool(expected)
    assert all(expected in text and "a[1] begins" in text for text in texts)


def test_a_restarted_task_of_a_spout_is_no_warning(warnings: Any) -> None:
    client, stored = Client(), FakeOffsets()
    client.bounds_of = {A0: (10, 90)}
    reader = new_reader(client, stored, first=StartPosition.EARLIEST)
    reader.assigned([A0])
    deployment = reader._deployment
    stored.committed = {A0: Committed(50, json.dumps({"topologyId": deployment}))}
    new_reader(client, stored, first=StartPosition.EARLIEST).assigned([A0])
    assert client.reads == {A0: 50}
    assert warnings() == []
