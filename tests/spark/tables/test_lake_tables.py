"""Delta Lake and Iceberg tables of a real Spark: each row is there once, also after crashes."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from hypothesis import Phase, given, settings

from sunshower.connectors.file_formats import parquet_records
from sunshower.errors import (
    ConfigError,
    ResultMismatch,
    SparkMissing,
    SparkUnavailable,
    WriteFailed,
)
from sunshower.record_reader import record_reader
from sunshower.spark_integration import LocalSpark, spark
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    Publication,
    SparkStep,
)
from sunshower.spark_integration.tables.lake_table import delta, iceberg
from tests.spark.everything import EVERYTHING, Everything, everything, same
from tests.spark.sales import SALES, Sale, identity, run


class Commit(NamedTuple):
    version: int
    about: str | None


@dataclass(frozen=True)
class Reading:
    """Reads the table as any job of Spark would."""

    format: str
    place: str  # for Spark

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        return self.read(df.sparkSession.read)

    def read(self, reader: Any) -> Any:
        reader = reader.format(self.format)
        return reader.load(self.place) if self.format == "delta" else reader.table(self.place)


@dataclass(frozen=True)
class History(Reading):
    """Reads the history of the table, oldest snapshot first."""

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        if self.format == "delta":
            history = df.sparkSession.sql(f"describe history delta.`{self.place}`")
            return history.selectExpr("version", "userMetadata about")
        return df.sparkSession.sql(
            "select row_number() over (order by made_current_at) version, summary['wap.id'] about "
            f"from {self.place}.history join {self.place}.snapshots using (snapshot_id)"
        ).selectExpr("bigint(version)", "about")


@dataclass(frozen=True)
class Following(Reading):
    """A stream that reads new rows of the table into files in `followed`."""

    followed: str

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        session = df.sparkSession
        stream = self.read(session.readStream).writeStream.format("parquet")
        stream = stream.option("checkpointLocation", f"{self.followed}-progress")
        stream.trigger(availableNow=True).start(self.followed).awaitTermination()
        return session.read.parquet(self.followed)


@dataclass(frozen=True)
class Lake:
    """A table for a test."""

    format: str
    folder: Path

    @property
    def reading(self) -> tuple[str, str]:
        if self.format == "delta":
            return self.format, str(self.folder)
        return self.format, f"lake.sales.`{self.folder.name}`"

    @property
    def notes(self) -> Path:
        return self.folder / "_sunshower" / "t%2F1"

    def writer(self, keys: Sequence[str] = ()) -> Any:
        if self.format == "delta":
            return delta(self.folder, keys=keys)
        return iceberg(f"lake.sales.{self.folder.name}", keys=keys)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, place: Any, tmp_path: Path) -> Lake:
    name = str(request.param)
    if not any(f"{name}-spark" in jar for jar in getattr(place, "jars", ())):
        pytest.skip(f"no jars of {name} here")
    if name == "delta":
        return Lake(name, tmp_path / "sales of März, 100%")
    warehouse = Path(place.settings["spark.sql.catalog.lake.warehouse"])
    return Lake(name, warehouse / "sales" / f"sales of März, 100%, {tmp_path.name}")


def stage(gateway: Gateway, writer: Any, txid: int, *sales: Sale, attempt: int = 0) -> None:
    step, rows = SparkStep(identity, writers=(writer,)), SALES.table(sales)
    run(gateway, step, rows, id=str(txid), txid=txid, attempt=attempt, topology="t/1")


def publish(gateway: Gateway, writer: Any, current: int, batches: str = "b") -> None:
    step = SparkStep(identity, writers=(writer,))
    run(gateway, step, topology="t/1", publish=Publication(batches, current))


def rows(gateway: Gateway, transform: Any, out: Any = Sale) -> list[Any]:
    return sorted(run(gateway, SparkStep(transform, out), SALES.table(())))


def published(lake: Lake) -> list[str]:
    return [path.name for path in (lake.notes / "published").glob("[0-9]*")]


def test_readers_see_only_committed_batches_once_after_crashes_between_two_writes(
    gateway: Gateway, lake: Lake, tmp_path: Path
) -> None:
    writer, backup = lake.writer(), tmp_path / "kept"
    publish(gateway, writer, 1)
    (lake.folder / "_delta_log").mkdir()  # as before Delta's first commit is complete
    stage(gateway, writer, 1, Sale("given up", 0.0))
    stage(gateway, writer, 1, Sale("a", 1.0), Sale("b", 2.0), attempt=1)
    (unfinished := lake.notes / "staged/1/2.0-died").mkdir()  # an attempt that was not completed
    shutil.copytree(lake.notes, backup)
    with (lake.folder / "_sunshower/lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)  # as another driver, stopped inside of its commit
        with pytest.raises(SparkUnavailable, match="another driver commits to this table now"):
            publish(gateway, writer, 2)
    assert published(lake) == ["0"]
    publish(gateway, writer, 2)
    first, following = (
        [Sale("a", 1.0), Sale("b", 2.0)],
        Following(*lake.reading, f"{tmp_path}/read"),
    )
    assert rows(gateway, following) == first
    assert not unfinished.exists()
    shutil.rmtree(lake.notes)  # as if the driver had died between the commit and its note
    shutil.copytree(backup, lake.notes)
    stage(gateway, writer, 2, Sale("c", 3.0))
    publish(gateway, writer, 3)
    both = [*first, Sale("c", 3.0)]
    assert rows(gateway, Reading(*lake.reading)) == rows(gateway, following) == both
    stage(gateway, writer, 3)  # no rows: no commit
    publish(gateway, writer, 4)
    texts = [row.about for row in rows(gateway, History(*lake.reading), Commit)]
    about = [json.loads(text) for text in texts if text]
    assert [(note["topology"], note["txid"], note["attempt"]) for note in about] == [
        ("t/1", 1, 1),
        ("t/1", 2, 0),
    ]
    assert published(lake) == ["3"]
    assert not [*(lake.notes / "staged").glob("[0-9]*")]


def test_rows_with_the_same_keys_replace_each_other_and_a_repeat_changes_nothing(
    gateway: Gateway, lake: Lake, tmp_path: Path
) -> None:
    writer, backup = lake.writer(keys=["Page"]), tmp_path / "kept"
    publish(gateway, writer, 1)
    stage(gateway, writer, 1, Sale("a", 1.0), Sale("b", 2.0))
    publish(gateway, writer, 2)
    stage(gateway, writer, 2, Sale("b", 3.0), Sale("c", 4.0))
    shutil.copytree(lake.notes, backup)
    publish(gateway, writer, 3)
    shutil.rmtree(lake.notes)
    shutil.copytree(backup, lake.notes)
    stage(gateway, writer, 3, Sale("a", 5.0))
    publish(gateway, writer, 4)
    expected = [Sale("a", 5.0), Sale("b", 3.0), Sale("c", 4.0)]
    assert rows(gateway, Reading(*lake.reading)) == expected
    with pytest.raises(ResultMismatch, match="2 rows of batch 4 have the keys"):
        stage(gateway, writer, 4, Sale("a", 1.0), Sale("a", 2.0))


@dataclass(frozen=True)
class Changed:
    """A transform whose result has another column."""

    column: str

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        return df.selectExpr("page", self.column)


def test_a_result_that_does_not_fit_the_table_is_refused_before_its_commit(
    gateway: Gateway, lake: Lake
) -> None:
    writer = lake.writer()
    publish(gateway, writer, 1)
    stage(gateway, writer, 1, Sale("a", 1.0))
    publish(gateway, writer, 2)
    table = SALES.table([Sale("a", 1.0)])
    for column, why in (
        ("price other", "'other' is not of the table"),
        ("string(price) price", "'price' is string, and in the table double: cast it"),
    ):
        step = SparkStep(Changed(column), writers=(writer,))
        with pytest.raises(ResultMismatch, match=why):
            run(gateway, step, table, txid=2, topology="t/1")
    for current, batches, why in (
        (3, "b", "batch 2 is committed, and not here"),
        (1, "b", "has batch 1, and by the store of the batches 1 is still to be committed"),
        (2, "c", "topology t/1 has written this table with batches b, and these are c"),
    ):
        with pytest.raises(WriteFailed, match=why):
            publish(gateway, writer, current, batches)


# Delta creates no table with these columns. Parquet, where attempts are staged, has them.
REFUSED = (
    ("price `total price`", "'total price'.*'total_price'"),
    ("price `a=b`", "'a=b'"),
    ("named_struct('a;b', price) s", r"'s\.a;b'"),
    ("array(named_struct('a,b', price)) l", r"'l\.element\.a,b'"),
    ("map('k', named_struct('a{b', price)) m", r"'m\.value\.a{b'"),
    ("map(named_struct('a\tb', price), 1) m", r"'m\.key\.a\\tb'"),
    ("interval '1' day i", "'i' is interval day"),
    ("array(named_struct('i', interval '1' month)) l", r"'l\.element\.i' is interval month"),
)
MAPPING = "spark.databricks.delta.properties.defaults.columnMapping.mode"


def test_every_type_is_the_same_in_the_files_of_a_delta_table(gateway: Gateway, lake: Lake) -> None:
    if lake.format != "delta":
        pytest.skip("Delta's log, which names its files, is JSON")
    writer = lake.writer()
    publish(gateway, writer, 1)
    records: list[Everything] = []

    @settings(max_examples=50, phases=[Phase.generate], derandomize=True)
    @given(everything())
    def collect(record: Everything) -> None:
        records.append(record._replace(number=len(records)))

    collect()
    step, table = SparkStep(identity, writers=(writer,)), EVERYTHING.table(records)
    run(gateway, step, table, txid=1, topology="t/1")
    publish(gateway, writer, 2)
    table_of_others = DeltaTable(lake.folder)
    delta_rows = EVERYTHING.conform(table_of_others.to_pyarrow_table().sort_by("number"))
    assert same(EVERYTHING.records(delta_rows), records)
    files = [Path(unquote(file)) for file in table_of_others.file_uris()]
    read = record_reader(Everything)
    parts = [parquet_records(file.name, file.read_bytes(), read) for file in files]
    assert same(sorted(chain(*parts), key=lambda record: record.number), records)


def test_columns_that_delta_does_not_have_are_refused_before_a_batch_is_committed(
    gateway: Gateway, lake: Lake
) -> None:
    if lake.format != "delta":
        pytest.skip("Iceberg has such names, and converts types when an attempt is staged")
    writer, table = lake.writer(), SALES.table([Sale("a", 1.0)])
    publish(gateway, writer, 1)
    for column, why in REFUSED:
        step = SparkStep(Changed(column), writers=(writer,))
        with pytest.raises(ResultMismatch, match=why):
            run(gateway, step, table, txid=1, topology="t/1")
    stage(gateway, writer, 1, Sale("a", 1.0), attempt=1)  # the corrected program continues
    publish(gateway, writer, 2)
    assert rows(gateway, Reading(*lake.reading)) == [Sale("a", 1.0)]


def test_wrong_keys_of_delta_are_refused_at_the_declaration() -> None:
    for key in ("total cents", "a,b", "a=b", "a\nb"):
        with pytest.raises(ConfigError, match="rename it"):
            spark(identity).write(delta("out", keys=["page", key]))
    spark(identity, where=LocalSpark(settings={MAPPING: "name"})).write(
        delta("out", keys=["total cents"])
    )


def test_places_where_a_commit_may_be_overwritten_or_that_are_missing_are_refused(
    gateway: Gateway, lake: Lake
) -> None:
    if lake.format == "delta":
        with pytest.raises(SparkMissing, match=r"jars=.*spark_s3\(\)"):
            publish(gateway, delta("s3a://bucket/sales"), 1)
        return
    with pytest.raises(WriteFailed, match="use a catalog that compares before it sets"):
        publish(gateway, iceberg("on_s3.sales.totals"), 1)
    with pytest.raises(SparkMissing, match=r"give its place settings=\{'spark.sql.catalog.other'"):
        publish(gateway, iceberg("other.sales.totals"), 1)


def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(ConfigError, match="for a pattern"):
        delta("out/*")
    for keys in ("page", ["page", "Page"]):
        with pytest.raises(ConfigError, match="a tuple of different columns"):
            delta("out", keys=keys)
    for name in ("totals", "shop.totals", "lake..totals"):
        with pytest.raises(ConfigError, match=r"give catalog\.namespace\.table"):
            iceberg(name)
