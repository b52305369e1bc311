"""Tables that a real Spark writes and reads as a folder of Parquet: as a table and as a stream."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset
import pytest

from sunshower.arrow.record_columns import RecordColumns
from sunshower.connectors import ObjectBatches
from sunshower.errors import ResultMismatch, SparkError, WriteFailed
from sunshower.spark_integration.sessions.spark_connect import SparkConnect
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    SparkPlace,
    SparkStep,
)
from sunshower.spark_integration.tables.tables import Staged, Table, TableFolder, batches_in, table
from tests.spark.sales import SALES, Sale, identity, run
from tests.trident.rigs.emitting import Drive


class Sold(NamedTuple):
    page: str
    price: float
    txid: int


def with_a_txid(df: Any, batch: BatchInfo) -> Any:
    return df.withColumnRenamed("page", "TxId")


@dataclass(frozen=True)
class Reading:
    """Reads the table as any job of Spark would."""

    folder: str

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        return df.sparkSession.read.parquet(self.folder)


@dataclass(frozen=True)
class Following:
    """A stream that reads new rows of the table into files of its own."""

    folder: str
    into: str

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        session = df.sparkSession
        schema = session.read.parquet(self.folder).schema
        stream = session.readStream.schema(schema).parquet(self.folder).writeStream
        stream = stream.format("parquet").option("checkpointLocation", f"{self.into}-checkpoint")
        stream.trigger(availableNow=True).start(self.into).awaitTermination()
        return session.read.parquet(self.into)


class Moment(NamedTuple):
    number: int
    day: date
    at: datetime
    nested: list[datetime]


class MomentOfBatch(NamedTuple):
    number: int
    day: date
    at: datetime
    nested: list[datetime]
    txid: int


_DAYS = [
    date(1, 1, 1),
    date(1582, 10, 4),
    date(1582, 10, 14),
    date(1600, 2, 29),
    date(9999, 12, 31),
]
_TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 14, 12, 30, tzinfo=UTC),
    datetime(1899, 12, 30, tzinfo=UTC),
    datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]


def test_times_of_all_years_are_read_as_they_were_written_by_spark_and_by_pyarrow(
    gateway: Gateway, tmp_path: Path
) -> None:
    folder = tmp_path / "moments"
    opened = TableFolder(folder, "t", "b", current=1)
    pairs = zip(_DAYS, _TIMES, strict=True)
    moments = [Moment(number, day, at, [at]) for number, (day, at) in enumerate(pairs)]
    columns = RecordColumns.of(Moment)
    returned = run(
        gateway,
        SparkStep(identity, Moment, writers=(table(folder),)),
        columns.table(moments),
        id="1",
        txid=1,
    )
    assert sorted(returned) == moments
    opened.publish(1)
    reading = SparkStep(Reading(str(folder)), MomentOfBatch)
    read = run(gateway, reading, columns.table(moments), id="2", txid=2)
    assert sorted(read) == [(*moment, 1) for moment in moments]
    stored = pyarrow.dataset.dataset(folder, partitioning="hive").to_table().sort_by("number")
    assert stored.schema.field("at").type == pyarrow.timestamp("us", "UTC")
    assert [Moment(*row.values()) for row in stored.select(Moment._fields).to_pylist()] == moments
    source = ObjectBatches(folder, type=Moment, shares=1, ends=True)
    assert sorted(Drive(source).emit(1)) == moments


def write(
    gateway: Gateway, step: SparkStep, *sales: Sale, txid: int = 1, attempt: int = 0
) -> list[Sold]:
    rows = run(gateway, step, SALES.table(sales), id=str(txid), txid=txid, attempt=attempt)
    return sorted(rows)


def test_readers_see_only_committed_batches_in_a_table_and_in_a_stream(
    place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    folder = tmp_path / "sales of März, 100%"
    opened = TableFolder(folder, "t", "b", current=1)
    writing = SparkStep(identity, writers=(table(folder),))
    reading = SparkStep(Reading(str(folder)), Sold)
    following = SparkStep(Following(str(folder), str(tmp_path / "followed")), Sold)
    write(gateway, writing, Sale("given up", 0.0))
    write(gateway, writing, Sale("a", 1.0), Sale("b", 2.0), attempt=1)
    write(gateway, writing, Sale("c", 3.0), txid=2)
    opened.publish(1)
    first = [Sold("a", 1.0, 1), Sold("b", 2.0, 1)]
    assert write(gateway, reading) == write(gateway, following) == first
    opened.publish(2)
    both = [*first, Sold("c", 3.0, 2)]
    assert write(gateway, reading) == write(gateway, following) == both
    stored = pyarrow.dataset.dataset(folder, partitioning="hive").to_table()
    assert sorted(stored["page"].to_pylist()) == ["a", "b", "c"]
    reports = batches_in(folder)
    assert [(report.txid, report.attempt, report.rows) for report in reports] == [
        (1, 1, 2),
        (2, 0, 1),
    ]
    assert all(report.seconds for report in reports)
    if isinstance(place, SparkConnect):
        return  # a client does not see jobs
    assert all(report.jobs and report.application for report in reports)
    assert not set(reports[0].jobs) & set(reports[1].jobs)


def in_three(df: Any, batch: BatchInfo) -> Any:
    return df.repartition(3)


def above_average(df: Any, batch: BatchInfo) -> Any:
    """A query whose plan is adaptive without a shuffle, because it has a subquery."""
    df.createOrReplaceTempView("sales")
    dear = df.sparkSession.sql("SELECT * FROM sales WHERE price >= (SELECT avg(price) FROM sales)")
    return dear.coalesce(1)


def test_the_rows_of_an_adaptive_plan_are_counted_once(gateway: Gateway, tmp_path: Path) -> None:
    opened, sales = TableFolder(tmp_path, "t", "b", current=1), [Sale("a", 1.0), Sale("b", 3.0)]
    write(gateway, SparkStep(above_average, writers=(table(tmp_path),)), *sales)
    opened.publish(1)
    assert [(report.rows, report.files) for report in batches_in(tmp_path)] == [(1, 1)]


class LosesFile(Table):
    """A table whose folder not all executors share: one of the written files is missing."""

    def save(self, result: Any, where: Path) -> Staged:
        saved = super().save(result, where)
        min(where.glob("*.parquet")).unlink()
        return saved


def test_a_batch_of_which_a_part_was_written_elsewhere_is_not_committed(
    gateway: Gateway, tmp_path: Path
) -> None:
    opened, sales = TableFolder(tmp_path, "t", "b", current=1), [Sale("a", 1.0)] * 9
    with pytest.raises(WriteFailed, match=r"written (3 files|9 rows) of batch 1, and \d of them"):
        write(gateway, SparkStep(in_three, Sale, writers=(LosesFile(tmp_path),)), *sales)
    write(gateway, SparkStep(in_three, writers=(table(tmp_path),)), *sales, attempt=1)
    opened.publish(1)
    assert [(report.attempt, report.rows, report.files) for report in batches_in(tmp_path)] == [
        (1, 9, 3)
    ]


def test_a_table_that_cannot_be_written_fails_the_batch_with_its_reason(
    gateway: Gateway, tmp_path: Path
) -> None:
    with pytest.raises(ResultMismatch, match="a column 'TxId', and txid is the batch's number"):
        write(gateway, SparkStep(with_a_txid, writers=(table(tmp_path),)), Sale("a", 1.0))
    (tmp_path / "file").touch()
    with pytest.raises(SparkError, match="file"):
        write(gateway, SparkStep(identity, writers=(table(tmp_path / "file"),)), Sale("a", 1.0))
