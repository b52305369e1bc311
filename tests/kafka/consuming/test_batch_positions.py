"""Where batches of Kafka begin, end and continue, over a fake client with logs in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Message

from sunshower.clock import ManualClock
from sunshower.config import Config
from sunshower.errors import IncompleteBatch
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaOpaque, KafkaTransactional
from sunshower.kafka.partitions.ports import Partition
from sunshower.state.tree import MemoryForest
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.fakes import SETTINGS, LogClient
from tests.kafka.groups import Topics
from tests.trident.rigs.emitting import Drive

BOTH = pytest.mark.parametrize("kind", [KafkaOpaque, KafkaTransactional])


class TopicRig:
    """A topic and a store; `drive` returns a Drive of a spout over both."""

    def __init__(self, patch: pytest.MonkeyPatch, *sizes: int) -> None:
        self.logs: dict[int, Sequence[int]] = {n: range(size) for n, size in enumerate(sizes)}
        self.topics, self.forest = Topics(a=len(sizes)), MemoryForest()
        self.clock = ManualClock()
        patch.setattr("sunshower.kafka.exactly_once.batch_spouts.Consumer", lambda _: self.broker())

    def broker(self) -> LogClient:
        client, consume = LogClient(self.logs), LogClient.consume

        def asked(limit: int, wait_s: float) -> list[Message]:
            self.clock.advance(wait_s)
            return consume(client, limit, wait_s)

        vars(client)["consume"] = asked
        client.on_no_leader = lambda: self.clock.advance(6.0)
        return client

    def spout(self, kind: Any, **options: Any) -> Any:
        usual = {"first": StartPosition.EARLIEST, "refresh_s": 0.001, "bounds": Bounds(records=4)}
        deployment = options.pop("deployment", "nightly")
        chosen = BatchOptions(directory=lambda _: self.topics, **usual | options)
        return kind(SETTINGS, topics=["a"], options=chosen, deployment=deployment)

    def drive(self, spout: Any, tasks: int = 1) -> Drive:
        return Drive(spout, tasks, self.forest, self.clock)


def read_to_end(
    drive: Drive, txid: int, last: Any = None
) -> tuple[list[tuple[int, int]], int, Any]:
    """Read to the end: the (partition, offset) of each row, the last txid, and its metadata."""
    if last is not None:
        drive.metadata[txid - 1] = last
    positions: list[tuple[int, int]] = []
    for at in range(txid, txid + 20):
        positions += [(row.partition, row.offset) for row in drive.batch(at)]
        drive.tree_says(at + 1)
        if drive.is_last(at):
            return positions, at, drive.metadata[at]
    raise AssertionError(f"no end; {positions}")


@BOTH
@pytest.mark.parametrize("is_new_spout", [True, False])
def test_a_bounded_job_that_is_run_again_reads_the_messages_since_its_last_run(
    monkeypatch: pytest.MonkeyPatch, kind: Any, is_new_spout: bool
) -> None:
    rig = TopicRig(monkeypatch, 3, 6)
    spout = rig.spout(kind, until_end=True)
    first, txid, last = read_to_end(rig.drive(spout, 2), 1)
    assert sorted(first) == [(0, n) for n in range(3)] + [(1, n) for n in range(6)]
    rig.logs |= {0: range(5)}
    spout = rig.spout(kind, until_end=True) if is_new_spout else spout
    second, txid, last = read_to_end(rig.drive(spout, 2), txid + 1, last)
    assert second == [(0, 3), (0, 4)]
    spout = rig.spout(kind, until_end=True) if is_new_spout else spout
    assert read_to_end(rig.drive(spout, 2), txid + 1, last)[0] == [], (
        "the job also ends if there is nothing to read"
    )


@BOTH
def test_an_unbounded_job_continues_where_a_bounded_job_has_ended(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    rig = TopicRig(monkeypatch, 3)
    _, txid, last = read_to_end(rig.drive(rig.spout(kind, until_end=True)), 1)
    live = rig.drive(rig.spout(kind))
    live.metadata[txid] = last
    for size in (3, 5, 6):
        rig.logs[0], txid = range(size), txid + 1
        assert len(live.batch(txid)) == {3: 0, 5: 2, 6: 1}[size]
        live.tree_says(txid + 1)
        assert not live.is_last(txid)


@BOTH
def test_tasks_that_restart_within_a_run_keep_its_end(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    rig = TopicRig(monkeypatch, 6)
    spout = rig.spout(kind, until_end=True)
    drive = rig.drive(spout)
    assert len(drive.batch(1)) == 4
    drive.tree_says(2)
    rig.logs[0] = range(90)  # too late for this run
    again = rig.drive(spout)
    again.metadata = drive.metadata
    rest, _, _ = read_to_end(again, 2)
    assert rest == [(0, 4), (0, 5)]


def test_a_replayed_batch_of_the_previous_run_is_not_the_last_of_this_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = TopicRig(monkeypatch, 3)
    first = rig.drive(rig.spout(KafkaTransactional, until_end=True))
    assert len(first.emit(1)) == 3  # dies before the batch is committed
    rig.logs[0] = range(4)
    second = rig.drive(rig.spout(KafkaTransactional, until_end=True))
    second.metadata = first.metadata
    assert len(second.batch(1, 1)) == 3
    second.tree_says(2)
    assert not second.is_last(1)
    assert read_to_end(second, 2)[0] == [(0, 3)]


class NoOffsets:
    """The offsets of a group that has committed nothing."""

    def __init__(self, *_: object) -> None: ...

    def read(self, _: Any) -> dict[Partition, Any]:
        return {}


@BOTH
@pytest.mark.parametrize("first", [StartPosition.LATEST, StartPosition.UNCOMMITTED_LATEST])
def test_a_partition_that_is_added_is_read_from_its_first_record(
    monkeypatch: pytest.MonkeyPatch, kind: Any, first: StartPosition
) -> None:
    monkeypatch.setattr("sunshower.kafka.exactly_once.batch_spouts.KafkaOffsets", NoOffsets)
    rig = TopicRig(monkeypatch, 5)
    spout = rig.spout(kind, first=first)
    drive = rig.drive(spout)
    assert drive.batch(1) == []
    drive.tree_says(2)
    rig.logs[1] = range(3)
    rig.topics.counts["a"] = 2
    assert len(drive.emit(2)) == 3
    again = rig.drive(spout)
    again.metadata = drive.metadata
    assert len(again.batch(2, 1)) == 3, "also after a restart, in another attempt"
    other_deployment = rig.drive(rig.spout(kind, first=first, deployment="another"))
    rig.logs[2] = range(3)
    rig.topics.counts["a"] = 3
    other_deployment.metadata = drive.metadata
    other_deployment.tree_says(3)
    partitions = {row.partition for row in other_deployment.batch(3)}
    assert partitions == (set() if first is StartPosition.LATEST else {2}), (
        "LATEST is the end at the start of each deployment"
    )


def test_a_batch_of_a_shortened_topic_is_incomplete_and_has_the_rows_of_other_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = TopicRig(monkeypatch, 4, 2)
    drive = rig.drive(rig.spout(KafkaTransactional, bounds=Bounds(records=9)))
    assert len(drive.emit(1)) == 6
    rig.logs[0] = range(3)
    for attempt in (1, 2):
        if attempt == 2:
            rig.logs[0] = range(0)
            drive.restart()
        expected = (
            rf"a\[0\], offsets 0 to 3: the batch had 4 records, and {len(rig.logs[0])} are there"
        )
        with pytest.raises(IncompleteBatch, match=expected) as caught:
            drive.emit(1, attempt)
        assert [row.partition for row in caught.value.rows] == [1, 1]
    drive.success(1)
    drive.tree_says(2)
    rig.logs |= {0: range(5), 1: range(3)}
    assert sorted((row.partition, row.offset) for row in drive.batch(2)) == [(0, 4), (1, 2)]


def test_partitions_without_a_leader_delay_batches_by_seconds_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = TopicRig(monkeypatch, 9)
    rig.topics.counts["a"] = 8
    drive = rig.drive(rig.spout(KafkaOpaque))
    rows, took_s = [], []
    for txid in range(1, 90):
        before_s = rig.clock.now()
        rows += drive.batch(txid)
        drive.tree_says(txid + 1)
        took_s.append(rig.clock.now() - before_s)
        rig.clock.advance(1.0)
    assert [row.offset for row in rows] == [*range(9)]
    assert max(took_s) < 8
    rig.logs |= dict.fromkeys(range(1, 8), range(1))
    for txid in range(90, 110):
        rows += drive.batch(txid)
        drive.tree_says(txid + 1)
        rig.clock.advance(1.0)
    assert len(rows) == 9 + 7
    assert BatchOptions().answer_s <= Config().message_timeout_s / 2


@pytest.mark.parametrize(
    ("position", "rest"), [(StartPosition.EARLIEST, [0, 1]), (StartPosition.LATEST, [])]
)
def test_a_bounded_job_ends_at_the_end_of_a_topic_that_is_created_again_meanwhile(
    monkeypatch: pytest.MonkeyPatch, position: StartPosition, rest: list[int]
) -> None:
    rig = TopicRig(monkeypatch, 6)
    drive = rig.drive(rig.spout(KafkaOpaque, until_end=True, shortened=position))
    assert len(drive.batch(1)) == 4
    drive.tree_says(2)
    rig.logs[0] = range(2)
    drive.restart()
    assert [offset for _, offset in read_to_end(drive, 2)[0]] == rest
