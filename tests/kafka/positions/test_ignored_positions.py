"""One warning says that a start does not continue at the stored positions, and what continues."""

from __future__ import annotations

import json
import re
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
    made = Broker()
    made.create("a", 5)
    for partition in range(5):
        made.fill("a", partition, numbers(0, 5))
    return made


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "an earlier start of this topology" in text]


def run_twice(
    patch: pytest.MonkeyPatch, kind: Any, broker: Broker, first: Where, then: Where, **more: Any
) -> Job:
    """Read all, and start the program again: with `then`, and five further messages."""
    job = Job(patch, kind, broker, first=first, **more)
    for _ in range(6):
        job.batch()
    assert sum(job.rows.values()) == 25
    broker.fill("a", 0, numbers(5, 5))
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
    kind: Any, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    earliest = StartPosition.EARLIEST
    job = run_twice(monkeypatch, kind, broker, earliest, earliest)
    assert sum(job.rows.values()) == 25 + 30
    (text,) = warnings(caplog)
    assert "a[0] begins at offset 0, and the stored position is 5; a[1] begins" in text
    assert "; and 2 more partitions. So messages before the stored position are processed " in text
    remedy = re.search(r"give first=StartPosition\.(\w+)$", text)
    assert remedy is not None
    again(job, StartPosition[remedy[1]])
    assert sum(job.rows.values()) == 25 + 30
    assert len(warnings(caplog)) == 1


@EACH
def test_replays_restarts_and_the_same_deployment_are_no_further_warning(
    kind: Any, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    earliest = StartPosition.EARLIEST
    job = Job(monkeypatch, kind, broker, first=earliest)
    for _ in range(6):
        job.batch()
    job.start()  # a restart of the same deployment
    job.batch()
    assert warnings(caplog) == []
    job.deployment = "e"
    job.start()
    job.try_batch(fails=True)
    assert len(warnings(caplog)) == 1
    job.start()  # before anything is committed
    for _ in range(4):
        job.batch()
    job.start()
    job.try_batch(fails=True)
    job.batch()
    assert len(warnings(caplog)) == 1


@EACH
@pytest.mark.parametrize(
    ("then", "remedy"),
    [
        (StartPosition.LATEST, "UNCOMMITTED_LATEST"),
        (StartTime(1 << 40), "UNCOMMITTED_EARLIEST"),
    ],
)
def test_a_start_behind_the_stored_position_is_a_warning_too(
    kind: Any,
    then: Where,
    remedy: str,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_twice(monkeypatch, kind, broker, StartPosition.EARLIEST, then)
    (text,) = warnings(caplog)
    assert "a[0] begins at offset 10, and the stored position is 5. So messages between " in text
    assert text.endswith(f"give first=StartPosition.{remedy}")


@EACH
@pytest.mark.parametrize("then", [StartPosition.UNCOMMITTED_EARLIEST, StartPosition.NONE])
def test_a_start_that_continues_is_no_warning(
    kind: Any,
    then: Where,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = run_twice(monkeypatch, kind, broker, StartPosition.EARLIEST, then)
    assert sum(job.rows.values()) == 30
    assert warnings(caplog) == []


def test_positions_below_the_first_retained_offset_are_no_warning(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(monkeypatch, KafkaOpaque, broker)
    for _ in range(6):
        job.batch()
    for partition in range(5):
        broker.fill("a", partition, numbers(5, 5))
        broker.cut("a", partition, 7)
    again(job, StartPosition.EARLIEST)
    assert warnings(caplog) == []


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
    first: StartPosition, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, stored = Client(), FakeOffsets()
    client.bounds_of = {A0: (10, 90), A1: (10, 90)}
    stored.kept = {one: Committed(50, '{"topologyId": "former"}') for one in (A0, A1)}
    reader = new_reader(client, stored, first=first)
    reader.assigned([A0, A1])
    reader.revoked([A0, A1], lost=True)
    reader.assigned([A0, A1])  # a rebalance
    found = warnings(caplog)
    assert len(found) == bool(expected)
    assert all(expected in text and "a[1] begins" in text for text in found)


def test_a_restarted_task_of_a_spout_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    client, stored = Client(), FakeOffsets()
    client.bounds_of = {A0: (10, 90)}
    reader = new_reader(client, stored, first=StartPosition.EARLIEST)
    reader.assigned([A0])
    deployment = reader._deployment
    stored.kept = {A0: Committed(50, json.dumps({"topologyId": deployment}))}
    new_reader(client, stored, first=StartPosition.EARLIEST).assigned([A0])
    assert client.reads == {A0: 50}
    assert warnings(caplog) == []
