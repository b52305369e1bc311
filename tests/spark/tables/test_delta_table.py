"""Delta Lake tables that a real Spark writes: whoever dies between two writes, each row is once."""

from __future__ import annotations

import fcntl
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower.errors import (
    ConfigError,
    ResultMismatch,
    SparkMissing,
    SparkUnavailable,
    WriteFailed,
)
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    Publication,
    SparkPlace,
    SparkStep,
)
from sunshower.spark_integration.tables.delta_table import delta
from tests.spark.sales import SALES, Sale, as_it_is, run


class Commit(NamedTuple):
    version: int
    about: str | None


@dataclass(frozen=True)
class Reading:
    """What anybody's job would write to read a table."""

    path: str

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        return df.sparkSession.read.format("delta").load(self.path)


@dataclass(frozen=True)
class History(Reading):
    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        found = df.sparkSession.sql(f"describe history delta.`{self.path}`")
        return found.selectExpr("version", "userMetadata about")


@dataclass(frozen=True)
class Following(Reading):
    """A stream that reads what is new, into files of its own."""

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        session, into = df.sparkSession, f"{self.path}-followed"
        stream = session.readStream.format("delta").load(self.path).writeStream.format("parquet")
        stream = stream.option("checkpointLocation", f"{into}-checkpoint")
        stream.trigger(availableNow=True).start(into).awaitTermination()
        return session.read.parquet(into)


@pytest.fixture
def path(place: SparkPlace, tmp_path: Path) -> Path:
    if not any("delta-spark" in jar for jar in getattr(place, "jars", ())):
        pytest.skip("no jars of Delta Lake here")
    return tmp_path / "sales of März, 100%"


def stage(gateway: Gateway, writer: Any, txid: int, *sales: Sale, attempt: int = 0) -> None:
    step, rows = SparkStep(as_it_is, writers=(writer,)), SALES.table(sales)
    run(gateway, step, rows, id=str(txid), txid=txid, attempt=attempt, topology="t/1")


def publish(gateway: Gateway, writer: Any, current: int, batches: str = "b") -> None:
    step = SparkStep(as_it_is, writers=(writer,))
    run(gateway, step, topology="t/1", publish=Publication(batches, current))


def rows(gateway: Gateway, transform: Any, out: Any = Sale) -> list[Any]:
    return sorted(run(gateway, SparkStep(transform, out), SALES.table(())))


def own(path: Path) -> Path:
    return path / "_sunshower" / "t%2F1"


def test_readers_see_committed_batches_alone_once_whoever_dies_between_two_writes(
    gateway: Gateway, path: Path, tmp_path: Path
) -> None:
    writer, kept = delta(path), tmp_path / "kept"
    publish(gateway, writer, 1)
    (path / "_delta_log").mkdir()  # as long as the first commit is not complete
    stage(gateway, writer, 1, Sale("given up", 0.0))
    stage(gateway, writer, 1, Sale("a", 1.0), Sale("b", 2.0), attempt=1)
    (unfinished := own(path) / "staged/1/2.0-died").mkdir()  # nobody has completed it
    shutil.copytree(own(path), kept)
    with (path / "_sunshower/lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)  # as another driver that is stopped inside of its commit
        with pytest.raises(SparkUnavailable, match="another driver commits to this table now"):
            publish(gateway, writer, 2)
    assert not [*(path / "_delta_log").glob("*.json")]
    publish(gateway, writer, 2)
    one = [Sale("a", 1.0), Sale("b", 2.0)]
    assert rows(gateway, Following(str(path))) == one
    assert not unfinished.exists()
    shutil.rmtree(own(path))  # the driver has died after Delta's commit and before its note
    shutil.copytree(kept, own(path))
    stage(gateway, writer, 2, Sale("c", 3.0))
    publish(gateway, writer, 3)
    both = [*one, Sale("c", 3.0)]
    assert rows(gateway, Reading(str(path))) == rows(gateway, Following(str(path))) == both
    stage(gateway, writer, 3)  # no rows: no commit
    publish(gateway, writer, 4)
    found = [one.about for one in rows(gateway, History(str(path)), Commit)]
    about = [json.loads(text) for text in found if text]
    assert [(one["topology"], one["txid"], one["attempt"]) for one in about] == [
        ("t/1", 1, 1),
        ("t/1", 2, 0),
    ]
    assert [one.name for one in (own(path) / "published").glob("[0-9]*")] == ["3"]
    assert not [*(own(path) / "staged").glob("[0-9]*")]


def test_rows_with_the_same_keys_replace_each_other_and_a_repeat_changes_nothing(
    gateway: Gateway, path: Path, tmp_path: Path
) -> None:
    writer, kept = delta(path, keys=["Page"]), tmp_path / "kept"
    publish(gateway, writer, 1)
    stage(gateway, writer, 1, Sale("a", 1.0), Sale("b", 2.0))
    publish(gateway, writer, 2)
    stage(gateway, writer, 2, Sale("b", 3.0), Sale("c", 4.0))
    shutil.copytree(own(path), kept)
    publish(gateway, writer, 3)
    shutil.rmtree(own(path))
    shutil.copytree(kept, own(path))
    stage(gateway, writer, 3, Sale("a", 5.0))
    publish(gateway, writer, 4)
    expected = [Sale("a", 5.0), Sale("b", 3.0), Sale("c", 4.0)]
    assert rows(gateway, Reading(str(path))) == expected
    with pytest.raises(ResultMismatch, match="2 rows of batch 4 have the keys"):
        stage(gateway, writer, 4, Sale("a", 1.0), Sale("a", 2.0))


@dataclass(frozen=True)
class Changed:
    """A transform with another result than before."""

    column: str

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        return df.selectExpr("page", self.column)


def test_what_could_not_be_added_once_it_is_committed_is_refused_before(
    gateway: Gateway, path: Path
) -> None:
    writer = delta(path)
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
    with pytest.raises(SparkMissing, match=r"jars=.*spark_s3\(\)"):
        publish(gateway, delta("s3a://bucket/sales"), 1)


def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(ConfigError, match="for a pattern"):
        delta("out/*")
    for keys in ("page", ["page", "Page"]):
        with pytest.raises(ConfigError, match="a tuple of different columns"):
            delta("out", keys=keys)
