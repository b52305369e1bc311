"""Batch spouts on a real Kafka: each record is in one batch, and a replayed batch is the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.errors import FailedBatch, IncompleteBatch, KafkaUnreachable
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaOpaque, KafkaTransactional
from sunshower.kafka.formats import Json
from sunshower.kafka.partitions.ports import Partition
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.topics import WITHIN_S, fill, new_topic, remove_before
from tests.trident.rigs.emitting import Drive

Kind = type[KafkaOpaque] | type[KafkaTransactional]
BOTH = pytest.mark.parametrize("kind", [KafkaOpaque, KafkaTransactional])


def numbered_values(count: int, first: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(first, first + count)]


def spout(kafka: Kafka, topic: str, kind: Kind = KafkaTransactional, **options: Any) -> Any:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": f"g-{uuid.uuid4().hex[:8]}"}
    reading = {name: options.pop(name) for name in ("value",) if name in options}
    # A batch with records ends when all that are available have arrived, however late.
    bounds = Bounds(records=options.pop("records", 200), seconds=options.pop("seconds", 60.0))
    chosen = BatchOptions(bounds=bounds, refresh_s=0.01, **{"answer_s": 60.0} | options)
    return kind(settings, topics=[topic], options=chosen, **reading)


@contextmanager
def open_drive(batch_spout: Any, tasks: int = 1) -> Iterator[Drive]:
    drive = Drive(batch_spout, tasks, clock=SystemClock())
    try:
        yield drive
    finally:
        drive.close()


def values(rows: list[Any]) -> list[int]:
    return sorted(int(row.value) for row in rows)


def txids(first: int = 1) -> Iterator[int]:
    """Numbers of batches, for at most a minute: what a test waits for comes earlier."""
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    for txid in count(first):
        assert clock.now() < end_s, f"after {txid - first} batches"
        yield txid


def first_rows(step: Callable[[int], list[Any]]) -> tuple[int, list[Any]]:
    """The first batch with rows: its txid, and the rows. `step` emits a batch, or runs it.

    The batches before are empty, while the brokers do not say yet where to begin.
    """
    return next((txid, rows) for txid in txids() if (rows := step(txid)))


@BOTH
def test_a_bounded_job_reads_the_records_that_exist_at_its_start_and_ends(
    kafka: Kafka, kind: Kind
) -> None:
    topic = new_topic(kafka.bootstrap, 3)
    for partition in range(3):
        fill(kafka.bootstrap, topic, numbered_values(500, partition * 500), partition)
    with open_drive(spout(kafka, topic, kind, until_end=True), tasks=2) as drive:
        txid, rows = 1, list[Any]()
        # A new broker has no coordinator at first, and its client may get one partition late.
        while not {*values(first := drive.emit(txid))} & {*range(500, 1000)}:
            drive.commit(txid)
            drive.success(txid)
            txid, rows = txid + 1, rows + first
        fill(kafka.bootstrap, topic, [b"9999"], 1)  # too late for this job
        rows += drive.batch(txid, 1)
        while not drive.is_last(txid):
            txid += 1
            batch = drive.batch(txid)
            assert len(batch) <= 400, "200 for each task"
            rows += batch
        figures = drive.emitters[1].figures()
        drive.restart(0)
        assert drive.batch(txid + 1) == []
    assert values(rows) == list(range(1500))
    assert txid >= 4
    assert first
    assert figures["lag"] >= 0
    assert figures[f"{topic}[1]/emitted"] == 500


def test_a_replayed_transactional_batch_is_the_same_also_after_a_restart(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, 2)
    for partition in range(2):
        fill(kafka.bootstrap, topic, numbered_values(300, partition * 300), partition)
    with open_drive(spout(kafka, topic, records=150)) as drive:
        first = [drive.emit(txid) for txid in (1, 2, 3)]
        fill(kafka.bootstrap, topic, numbered_values(100, 600), 1)
        assert [drive.emit(txid, 1) for txid in (1, 2, 3)] == first
        drive.close()
        drive.restart()
        assert [drive.emit(txid, 2) for txid in (1, 2, 3)] == first
        rows = [row for batch in first for row in batch]
        for txid in txids(4):
            if len(rows) >= 700:
                break
            rows += drive.batch(txid)
        assert values(rows) == list(range(700))


def test_a_replayed_batch_is_incomplete_if_retention_has_removed_a_part(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, numbered_values(30))
    with open_drive(spout(kafka, topic, records=20)) as drive:
        txid, _ = first_rows(drive.emit)
        remove_before(kafka.bootstrap, topic, 15)
        expected = (
            rf"{topic}\[0\], offsets 0 to 19: the batch had 20 records, and 5 are there now; "
        )
        with pytest.raises(IncompleteBatch, match=expected + "the partition has 15 to 29"):
            drive.emit(txid, 1)


@BOTH
def test_records_removed_before_they_were_read_are_skipped_and_counted(
    kafka: Kafka, kind: Kind
) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, numbered_values(10))
    with open_drive(spout(kafka, topic, kind)) as drive:
        txid, first = first_rows(drive.batch)
        assert len(first) == 10
        fill(kafka.bootstrap, topic, numbered_values(20, 10))
        remove_before(kafka.bootstrap, topic, 25)
        drive.close()
        drive.restart()
        drive.tree_says(txid + 1)
        rows = [row for later in (txid + 1, txid + 2) for row in drive.batch(later)]
        assert values(rows) == [25, 26, 27, 28, 29]
        assert drive.emitters[0].figures()["skipped"] == 15


def test_transaction_markers_and_aborted_records_are_not_emitted(
    kafka: Kafka,
) -> None:
    topic = new_topic(kafka.bootstrap)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(30)
    for end, names in ((producer.commit_transaction, "12"), (producer.abort_transaction, "34")):
        producer.begin_transaction()
        for name in names:
            producer.produce(topic, name)
        producer.flush(60)
        end(60)
    with open_drive(spout(kafka, topic, until_end=True)) as drive:
        txid, first = first_rows(drive.emit)
        assert values(first) == [1, 2]
        drive.close()
        drive.restart()
        assert drive.batch(txid, 1) == first
        assert drive.is_last(txid), "the marker of the transaction at the end is skipped"


def test_no_record_is_lost_while_the_broker_is_unavailable(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, numbered_values(400))
    with open_drive(spout(kafka, topic, records=100, answer_s=0.5, seconds=0.5)) as drive:
        txid, rows = first_rows(drive.batch)
        before, txid = len(rows), txid + 1
        second = drive.emit(txid)
        kafka.kill(1)
        try:
            drive.restart()
            with pytest.raises(KafkaUnreachable, match="could not be read again within"):
                drive.emit(txid, 1)
        finally:
            kafka.restart(1)
        later, attempt = txid, 2
        while len(rows) < 400:
            try:
                rows += drive.batch(later, attempt)
            except KafkaUnreachable:
                attempt += 1
                assert attempt < 100
                continue
            if later == txid:
                assert rows[before:] == second
            later += 1
        assert second
        assert values(rows) == list(range(400))


def test_an_unreadable_message_fails_its_batch_or_is_replaced_by_unreadable(
    kafka: Kafka,
) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b"1", b"no json", b"3"])
    with open_drive(spout(kafka, topic, value=Json())) as drive:
        expected = rf"{topic}\[0\], offset 1 cannot be read: .*malformed.*unreadable="
        with pytest.raises(FailedBatch, match=expected):
            list(map(drive.batch, txids()))  # the first batches may lack the message
    unreadable: list[Any] = []

    def mark_unreadable(record: Any, reason: str) -> Any:
        unreadable.append((record.offset, record.value))
        return record._replace(value=-1)

    with open_drive(spout(kafka, topic, value=Json(), unreadable=mark_unreadable)) as drive:
        _, rows = first_rows(drive.batch)
        assert [row.value for row in rows] == [1, -1, 3]
        assert unreadable == [(1, b"no json")]
        assert drive.emitters[0].figures()["unreadable"] == 1


def test_a_replayed_first_batch_begins_at_the_end_that_the_first_attempt_found(
    kafka: Kafka,
) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, numbered_values(5))
    batch_spout = spout(kafka, topic, KafkaOpaque, first=StartPosition.LATEST, seconds=0.3)
    with open_drive(batch_spout) as drive:
        assert drive.emit(1) == []
        fill(kafka.bootstrap, topic, numbered_values(5, 5))
        rows = drive.batch(1, 1)
        for txid in txids(2):
            if len(rows) >= 5:
                break
            rows += drive.batch(txid)
        assert values(rows) == [5, 6, 7, 8, 9]
        figures = drive.emitters[0].figures()
        assert figures[f"{topic}[0]/emitted"] == 10
    assert Partition(topic, 0) in batch_spout.subscription.found(
        batch_spout.options.directory(batch_spout.settings)
    )
