"""Rows of a real Kafka go through batches, windows and Spark into a table, each once."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset
import pytest
from confluent_kafka import TopicPartition

from sunshower import Topology, sum_, tumbling
from sunshower.dev.kafka import Kafka
from sunshower.kafka.consuming.decoding import Received
from sunshower.kafka.exactly_once.batch_spouts import (
    BatchOptions,
    KafkaOpaque,
    KafkaRanges,
    KafkaTransactional,
)
from sunshower.runtime.inline import run_inline
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Gateway, SparkPlace
from sunshower.spark_integration.steps import spark
from sunshower.spark_integration.tables.kafka_rows import KafkaRows
from sunshower.spark_integration.tables.tables import table
from sunshower.state import SqliteState
from sunshower.trident import InSqlite, batches
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.topics import admin, fill, new_topic


class Number(NamedTuple):
    number: int


def number(message: Received) -> Number:
    return Number(int(message.value or b""))


@dataclass(frozen=True)
class FailsOnce:
    """A transform that fails the first attempt with rows, and deletes most of them from Kafka."""

    servers: str
    topic: str
    seen: Path

    def __call__(self, numbers: Any, batch: BatchInfo) -> Any:
        rows = [row.number for row in numbers.collect()]
        if rows and not self.seen.exists():
            self.seen.write_text(" ".join(map(str, rows)))
            position = TopicPartition(self.topic, 0, max(rows) - 20)
            admin(self.servers).delete_records([position])[position].result(60)
            raise ValueError("not this time")
        return numbers


@pytest.mark.parametrize("place", ["local"], indirect=True)  # the batches are the same on both
def test_a_repeated_batch_has_other_rows_and_each_row_is_in_the_table_once(
    kafka: Kafka, place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b"%d" % number for number in range(600)])
    spout = KafkaOpaque(
        {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex},
        topics=[topic],
        translate=number,
        emits=Number,
        options=BatchOptions(bounds=Bounds(records=200), until_end=True),
    )
    topology, seen = Topology("opaque", message_timeout_s=300), tmp_path / "seen"
    step = spark(FailsOnce(kafka.bootstrap, topic, seen), where=place)
    read = batches(topology, "in", spout, store=InSqlite(tmp_path / "store.db"))
    read.apply(step.write(table(tmp_path / "table")))
    run_inline(topology.graph())
    assert [int(text) for text in seen.read_text().split()] == [*range(200)]
    stored = pyarrow.dataset.dataset(tmp_path / "table", partitioning="hive").to_table()
    assert sorted(stored["number"].to_pylist()) == [*range(179, 600)]


# ---- behind windows ------------------------------------------------------------------------------


class Sale(NamedTuple):
    user: str
    at: int
    cents: int


class Total(NamedTuple):
    user: str
    end: int
    cents: int


SALES = [Sale("abc"[n % 3], n // 4 - 3 * (n % 5 == 0), n) for n in range(20, 620)]
TENS = tumbling(seconds=10, field="at", late=3, unit="s")


def sale_of(message: Received) -> Sale:
    return Sale(**json.loads(message.value or b""))


def sales_of(records: Any, batch: BatchInfo) -> Any:
    fields = "user string, at bigint, cents bigint"
    return records.selectExpr(f"from_json(string(value), '{fields}') sale").select("sale.*")


def total_of(row: tuple[Any, ...]) -> Total:
    user, end, cents = row
    return Total(user, int(end), cents)


@dataclass(frozen=True)
class FailsFirst:
    """A transform that fails the first attempt with rows."""

    seen: Path

    def __call__(self, totals: Any, batch: BatchInfo) -> Any:
        if batch.rows and not self.seen.exists():
            self.seen.touch()
            raise ValueError("not this time")
        return totals


@pytest.mark.parametrize("place", ["local"], indirect=True)  # the batches are the same on both
@pytest.mark.parametrize("reads", ["rows", "ranges"])
def test_windows_are_in_the_table_once(
    reads: str, kafka: Kafka, place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    """Ranges have no event time, so windows of the clock are behind them."""
    topic, topology = new_topic(kafka.bootstrap, 2), Topology("windows", message_timeout_s=300)
    for partition in range(2):
        sales = [sale for sale in SALES if sale.cents // 8 % 2 == partition]
        values = [json.dumps(sale._asdict()).encode() for sale in sales]
        fill(kafka.bootstrap, topic, values, partition)
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex}
    options: Any = {"options": BatchOptions(bounds=Bounds(records=200), until_end=True)}
    store: Any = {"store": InSqlite(tmp_path / "store.db")}
    stream: Any
    if reads == "rows":
        spout = KafkaTransactional(
            settings, topics=[topic], translate=sale_of, emits=Sale, **options
        )
        stream = batches(topology, "in", spout, **store)
    else:
        step = spark(sales_of, out=Sale, reads=KafkaRows(kafka.bootstrap), where=place)
        ranges = KafkaRanges(settings, topics=[topic], **options)
        stream = batches(topology, "in", ranges, **store).apply(step)
    windows = stream.group_by("user").window(
        TENS if reads == "rows" else tumbling(seconds=1),
        sum_("cents", name="cents"),
        state=SqliteState(tmp_path / "states.db"),
        fields=("user", "end", "cents"),
    )
    written = spark(FailsFirst(tmp_path / "seen"), where=place).write(table(tmp_path / "table"))
    windows.map(total_of).apply(written)
    run_inline(topology.graph())
    assert (tmp_path / "seen").exists()
    rows = pyarrow.dataset.dataset(tmp_path / "table", partitioning="hive").to_table().to_pylist()
    expected = Counter[Any]()
    for sale in SALES:
        expected[sale.user, (sale.at // 10 + 1) * 10 if reads == "rows" else 0] += sale.cents
    totals = Counter[Any]()
    for row in rows:
        totals[row["user"], row["end"] if reads == "rows" else 0] += row["cents"]
    assert totals == expected
    assert reads == "ranges" or len(rows) == len(expected)
