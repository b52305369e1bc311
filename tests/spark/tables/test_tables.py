"""Tables in programs of batches: readers see each committed row once, also after crashes."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyarrow import parquet

from sunshower import Topology
from sunshower.clock import ManualClock
from sunshower.errors import (
    ClusterError,
    ConfigError,
    DuplicateComponent,
    TopologyError,
    WriteFailed,
)
from sunshower.records import Schema
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.spark_integration.bolt import SparkBatchBolt
from sunshower.spark_integration.sessions.spark_port import BatchInfo
from sunshower.spark_integration.tables import tables
from sunshower.spark_integration.tables.tables import Staged, Table, batches_in, table
from sunshower.trident import InMemory, InSqlite, batches
from sunshower.trident.spouts.port import SpoutKind
from tests.seeds import seeds
from tests.spark.scripted import ScriptedPlace
from tests.trident.rigs.group_rig import Hook, Numbers, OpaqueNumbers, Row
from tests.trident.rigs.programs import SETTINGS

TOTAL = 40


class FileTable(Table):
    """A table that is written without Spark."""

    def save(self, result: Any, where: Path) -> Staged:
        where.mkdir(parents=True)
        parquet.write_table(result, where / "part.parquet")
        return Staged("no-spark", (), 1)


def same(rows: pa.Table, batch: BatchInfo) -> pa.Table:
    return rows


def seen(folder: Path) -> dict[int, list[int]]:
    """The numbers that a reader finds in each batch."""
    if not list(folder.glob("txid=*")):
        return {}
    written = pyarrow.dataset.dataset(folder, partitioning="hive").to_table()
    rows: dict[int, list[int]] = {}
    for txid, number in zip(
        written["txid"].to_pylist(), written["number"].to_pylist(), strict=True
    ):
        rows.setdefault(txid, []).append(number)
    return rows


def numbers_of(folder: Path) -> list[int]:
    return sorted(number for numbers in seen(folder).values() for number in numbers)


def program(
    spout: Any, folder: Path, after: Any = None, place: ScriptedPlace | None = None, **options: Any
) -> Topology:
    """A program that writes numbers into a table; `after` is called with each row after that."""
    topology = Topology("numbers", **SETTINGS)
    store = options.pop("store", InMemory())
    read = batches(topology, "numbers", spout, store=store, **options)
    numbers = read.apply((place or ScriptedPlace()).step(same, Row).write(FileTable(folder)))
    if after is not None:
        numbers.peek(after)
    return topology


def raises_once_for(*numbers: int) -> Any:
    """A function that raises the first time that it receives each of these numbers."""
    left = [*numbers]

    def raises(row: Row) -> None:
        if row.number in left:
            left.remove(row.number)
            raise ValueError(f"not {row.number}")

    return raises


def test_attempts_that_fail_after_they_were_written_are_never_seen(tmp_path: Path) -> None:
    """The batches of the opaque spout have other rows the second time."""
    topology = program(OpaqueNumbers(TOTAL, 5, Hook()), tmp_path, raises_once_for(3, 7, 24))
    run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)
    assert numbers_of(tmp_path) == [*range(TOTAL)]
    committed = batches_in(tmp_path)
    assert [batch.txid for batch in committed] == [*range(1, len(committed) + 1)]
    assert sum(batch.attempt > 0 for batch in committed) >= 3
    assert sum(batch.rows for batch in committed) == TOTAL


def test_to_publish_a_batch_before_its_commit_would_be_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(where: Path, written: Any) -> None:
        target = tmp_path / f"txid={written.txid}"
        if not target.exists():
            (where / "_batch.json").write_text("{}")
            where.rename(target)

    monkeypatch.setattr(tables, "stage", hasty)
    topology = program(OpaqueNumbers(TOTAL, 5, Hook()), tmp_path, raises_once_for(3, 7, 24))
    run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)
    assert numbers_of(tmp_path) != [*range(TOTAL)]


@seeds(8, kinds=2)
def test_readers_see_each_row_once_and_no_batch_changes_when_workers_are_killed(
    seed: int, tmp_path: Path
) -> None:
    spout = (OpaqueNumbers(TOTAL, 5, Hook()), Numbers(TOTAL, 5))[seed % 2]
    topology = program(spout, tmp_path, max_batches=1 + seed % 3, interval_s=0.2)
    layout = (Layout.ISOLATE, Layout.PACK)[seed // 2 % 2]
    run = SimCluster(seed, check=True).submit(topology.graph(), layout)
    before: dict[int, list[int]] = {}
    for killed in range(3):
        run.wait(0.3 + 0.17 * ((seed + killed) % 5))
        assert before.items() <= seen(tmp_path).items(), "a visible batch has changed"
        before = seen(tmp_path)
        workers = sorted(run.snapshot().workers)
        with suppress(ClusterError):  # it has just died
            run.kill_worker(workers[(seed * 5 + killed) % len(workers)])
    assert run.wait(3_000.0)
    assert before.items() <= seen(tmp_path).items()
    assert numbers_of(tmp_path) == [*range(TOTAL)]


def test_a_later_run_continues_with_the_table(tmp_path: Path) -> None:
    folder, store = tmp_path / "table", InSqlite(tmp_path / "batches.db")
    for _ in range(2):
        topology = program(OpaqueNumbers(TOTAL, 5, Hook()), folder, store=store)
        run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)
        assert numbers_of(folder) == [*range(TOTAL)]


def test_batches_are_written_in_parallel(tmp_path: Path) -> None:
    place = ScriptedPlace(ready=False)
    topology = program(Numbers(TOTAL, 5), tmp_path, place=place, max_batches=3)
    run = SimCluster(1, check=True).submit(topology.graph(), Layout.PACK)
    run.wait(3.0)
    assert [ticket.batch.txid for ticket in place.tickets] == [1, 2, 3]
    place.ready = True
    for ticket in place.tickets:
        ticket.ready = True
    assert run.wait(300.0)
    assert numbers_of(tmp_path) == [*range(TOTAL)]


def test_other_writers_write_in_the_commit_phase() -> None:
    step, inputs = ScriptedPlace().step(same, Row), [Schema.of(Row)]
    assert not step.write(table("a")).operator(inputs).commits
    both = step.write(table("a")).write(same).operator(inputs)
    assert (both.commits, both.publishes) == (True, True)


class Elsewhere(FileTable):
    """A table whose files are on another machine, where Spark does not count them."""

    def save(self, result: Any, where: Path) -> Staged:
        where.mkdir(parents=True)
        return Staged("no-spark", (), None)


def test_a_batch_that_was_written_elsewhere_is_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match="the files of batch 1, and 0 of them are here"):
        Elsewhere(tmp_path)(pa.table({"number": [1]}), BatchInfo("1", 1, 0, 1))


def test_wrong_declarations_of_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give its path"):
        table("s3a://bucket/table")
    step = ScriptedPlace().step(same, Row).write(table(tmp_path))
    with pytest.raises(ConfigError, match="program of batches"):
        SparkBatchBolt(step)
    numbers = batches(Topology("t"), "numbers", Numbers(9, 3), store=InMemory())
    numbers.apply(step)
    with pytest.raises(DuplicateComponent, match="one place that writes it"):
        numbers.apply(step)
    non_transactional = Numbers(9, 3, kind=SpoutKind.NON_TRANSACTIONAL)
    with pytest.raises(TopologyError, match="do not count exactly once"):
        batches(Topology("t"), "numbers", non_transactional, store=InMemory()).apply(step)


def test_pyarrow_reads_int96_of_earlier_releases_beside_new_batches(tmp_path: Path) -> None:
    times = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    rows = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC"))})
    for txid in (1, 2):
        (tmp_path / f"txid={txid}").mkdir()
        is_old = txid == 1
        parquet.write_table(
            rows, tmp_path / f"txid={txid}/0.parquet", use_deprecated_int96_timestamps=is_old
        )
    kind = pyarrow.dataset.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    schema = pyarrow.dataset.dataset(tmp_path / "txid=2").schema
    dataset = pyarrow.dataset.dataset(tmp_path, schema, kind, partitioning="hive")
    assert dataset.to_table()["at"].to_pylist() == times * 2
    plain = pyarrow.dataset.dataset(tmp_path / "txid=1").to_table()["at"]
    assert plain.cast(pa.timestamp("us"), safe=False).to_pylist()[1].year == 1816
