"""Topics of a real Kafka that are deleted and created again at once, longer than before."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.errors import FailedBatch, KafkaUnreachable
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import (
    BatchOptions,
    KafkaOpaque,
    KafkaRanges,
    KafkaTransactional,
)
from sunshower.kafka.exactly_once.offsets_with_results import OffsetsWithResults
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.options import SqliteOffsets
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.stage import running, topology
from tests.kafka.topics import fill, new_topic, recreate
from tests.trident.rigs.emitting import Drive

pytestmark = pytest.mark.servers
OLD = [f"old {number}".encode() for number in range(20)]
NEW = [f"new {number}".encode() for number in range(50)]
FIELDS = ("topic", "partition", "offset", "topic_id", "value")
TABLE = "CREATE TABLE IF NOT EXISTS got (topic_id TEXT, partition INTEGER, offset INTEGER)"


def spout(kafka: Kafka, topic: str, **options: Any) -> KafkaSpout:
    return KafkaSpout(
        {"bootstrap.servers": kafka.bootstrap, "group.id": topic},
        topics=[topic],
        fields=FIELDS,
        deployment="d",
        options=KafkaOptions(**{"first": StartPosition.EARLIEST, "commit_s": 0.05} | options),
    )


def values(records: Sequence[Any]) -> set[bytes]:
    return {record[4] for record in records}


def test_a_running_spout_reads_all_of_a_topic_that_is_created_again(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, OLD)
    with running(topology(spout(kafka, topic))) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 20})
        recreate(kafka.bootstrap, topic, 2)
        fill(kafka.bootstrap, topic, NEW)
        fill(kafka.bootstrap, topic, [b"other"], 1)
        run.until(lambda: values(run.records()) == {*OLD, *NEW, b"other"})
        assert run.spout().figures()["recreated"] == 1


def test_a_spout_whose_position_outlives_its_topic_reads_all_of_the_new_one(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic, store = new_topic(kafka.bootstrap), SqliteOffsets(tmp_path / "offsets.db", "id")
    fill(kafka.bootstrap, topic, OLD)
    with running(topology(spout(kafka, topic, store=store))) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 20})
    recreate(kafka.bootstrap, topic)
    fill(kafka.bootstrap, topic, NEW)
    with running(topology(spout(kafka, topic, store=store))) as run:
        run.until(lambda: values(run.records()) == {*NEW})


def test_results_contain_each_message_of_both_topics_once(kafka: Kafka, tmp_path: Path) -> None:
    topic, store = new_topic(kafka.bootstrap), OffsetsWithResults(tmp_path / "results.db", "id")

    def write(db: Any, records: Sequence[Any]) -> None:
        rows = [(record[3], record[1], record[2]) for record in records]
        db.executemany("INSERT INTO got VALUES (?, ?, ?)", rows)

    store._open().setup(TABLE)

    def got() -> Counter[int]:
        with sqlite3.connect(str(store.place)) as db:
            return Counter(at for _, _, at in db.execute("SELECT DISTINCT * FROM got"))

    fill(kafka.bootstrap, topic, OLD)
    bolt = store.bolt(write, TABLE)
    with running(topology(spout(kafka, topic, store=store), bolt)) as run:
        run.until(lambda: got().total() == 20)
        recreate(kafka.bootstrap, topic)
        fill(kafka.bootstrap, topic, NEW)
        run.until(lambda: got().total() >= 70)
    with sqlite3.connect(str(store.place)) as db:
        assert db.execute("SELECT count(*), count(DISTINCT topic_id) FROM got").fetchone() == (
            70,
            2,
        )


@pytest.mark.parametrize("kind", [KafkaOpaque, KafkaTransactional, KafkaRanges])
def test_batches_contain_each_record_of_a_topic_that_is_created_again(
    kafka: Kafka, kind: Any
) -> None:
    topic, clock = new_topic(kafka.bootstrap), SystemClock()
    fill(kafka.bootstrap, topic, OLD)
    source = {} if kind is KafkaRanges else {"fields": ("offset",)}
    options = BatchOptions(
        first=StartPosition.EARLIEST, refresh_s=0.1, bounds=Bounds(records=30, seconds=0.2)
    )
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic}
    drive = Drive(kind(settings, topics=[topic], options=options, **source), clock=clock)
    offsets: list[int] = []

    def read(count: int, txid: int) -> int:
        attempt, end_s = 0, clock.now() + 60.0
        while len(offsets) < count:
            assert clock.now() < end_s
            try:
                rows = drive.batch(txid, attempt)
            except (FailedBatch, KafkaUnreachable):
                attempt += 1
                continue
            for row in rows:
                offsets.extend(row if len(row) == 1 else range(row.first, row.end))
            txid, attempt = txid + 1, 0
            drive.tree_says(txid)
        return txid

    txid = read(20, 1)
    recreate(kafka.bootstrap, topic)
    fill(kafka.bootstrap, topic, NEW)
    read(70, txid)
    drive.close()
    assert offsets == [*range(20), *range(50)]
