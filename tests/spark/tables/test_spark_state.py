"""States of Spark steps, without Spark: each row counts once, also after failures and crashes."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from sunshower import Topology
from sunshower.clock import ManualClock
from sunshower.errors import (
    ClusterError,
    ConfigError,
    DuplicateComponent,
    LifecycleError,
    RecordMismatch,
    StateMismatch,
    TopologyError,
    TopologyFailed,
)
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.spark_integration.bolt import SparkBatchBolt
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkStep
from sunshower.spark_integration.steps import Spark, spark, spark_sql
from sunshower.spark_integration.tables.tables import (
    SparkState,
    TableFolder,
    batches_in,
    spark_state,
)
from sunshower.trident import InMemory, InSqlite, batches
from sunshower.trident.spouts.port import SpoutKind
from tests.seeds import seeds
from tests.spark.scripted import ScriptedPlace
from tests.spark.tables.test_table_folder import Crash, crashing, seen, written
from tests.spark.tables.test_tables import SETTINGS, TOTAL, FileTable, raises_once_for
from tests.trident.rigs.group_rig import Hook, Numbers, OpaqueNumbers, Row


class FileState(SparkState):
    """A state that is read and written without Spark."""

    def before(self, session: Any, batch: BatchInfo) -> Any:
        if batch.state is None:
            return pa.table({"key": pa.array([], "int64"), "number": pa.array([], "int64")})
        return parquet.read_table(f"{batch.state}/part.parquet", partitioning=None)

    def __call__(self, state: Any, batch: BatchInfo) -> None:
        self.table(state, batch)


def kept(rows: pa.Table, state: pa.Table, batch: BatchInfo) -> tuple[pa.Table, pa.Table]:
    """Return the rows unchanged, and a state with all rows so far."""
    return rows, pa.concat_tables([state, rows])


def kept_in(state: SparkState) -> Spark:
    return Spark(SparkStep(kept, Row, state=state), ScriptedPlace())


def program(spout: Any, folder: Path, after: Any = None, **options: Any) -> Topology:
    """A program that keeps numbers in a state; `after` is called with each row after that."""
    topology, store = Topology("numbers", **SETTINGS), options.pop("store", InMemory())
    step = kept_in(FileState(FileTable(folder), Row))
    numbers = batches(topology, "numbers", spout, store=store, **options).apply(step)
    if after is not None:
        numbers.peek(after)
    return topology


def versions(folder: Path) -> dict[int, list[int]]:
    """The numbers in each version of the state."""
    return {
        batch.txid: sorted(
            parquet.read_table(folder / f"txid={batch.txid}/part.parquet", partitioning=None)[
                "number"
            ].to_pylist()
        )
        for batch in batches_in(folder)
    }


def last(folder: Path) -> list[int]:
    by_txid = versions(folder)
    return by_txid[max(by_txid)] if by_txid else []


def run_all(topology: Topology) -> None:
    run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)


@pytest.mark.parametrize("kind", [OpaqueNumbers, Numbers])
def test_a_batch_that_fails_after_its_state_was_staged_begins_with_the_former_state(
    tmp_path: Path, kind: Any
) -> None:
    """The batches of the opaque spout have other rows the second time."""
    run_all(program(kind(TOTAL, 5, Hook()), tmp_path, raises_once_for(3, 7, 24)))
    by_txid = versions(tmp_path)
    assert last(tmp_path) == [*range(TOTAL)]
    assert [*by_txid] == [max(by_txid) - 1, max(by_txid)], "older versions are removed"


def test_to_begin_with_the_last_staged_state_would_be_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(self: TableFolder, txid: int) -> Path | None:
        self.publish(txid - 1)
        return self._staged(txid) or (self._folder / f"txid={txid - 1}" if txid > 1 else None)

    monkeypatch.setattr(TableFolder, "version_before", hasty)
    run_all(program(Numbers(TOTAL, 5), tmp_path, raises_once_for(3, 7, 24)))
    assert last(tmp_path) != [*range(TOTAL)]


@seeds(8, kinds=2)
def test_each_row_is_in_the_state_once_when_workers_are_killed(seed: int, tmp_path: Path) -> None:
    spout = (OpaqueNumbers(TOTAL, 5, Hook()), Numbers(TOTAL, 5))[seed % 2]
    topology = program(spout, tmp_path, max_batches=1 + seed % 3, interval_s=0.2)
    layout = (Layout.ISOLATE, Layout.PACK)[seed // 2 % 2]
    run = SimCluster(seed, check=True).submit(topology.graph(), layout)
    for killed in range(3):
        run.wait(0.3 + 0.17 * ((seed + killed) % 5))
        assert last(tmp_path) == [*range(len(last(tmp_path)))]
        workers = sorted(run.snapshot().workers)
        with suppress(ClusterError):  # it has just died
            run.kill_worker(workers[(seed * 5 + killed) % len(workers)])
    assert run.wait(3_000.0)
    assert last(tmp_path) == [*range(TOTAL)]


@seeds(20, kinds=2)
def test_a_state_stays_as_it_is_when_the_stages_around_it_get_other_numbers_of_tasks(
    seed: int, tmp_path: Path
) -> None:
    """Also if processes die meanwhile. Its own step has one task, and says so."""
    draw, topology = Random(seed), Topology("numbers", **SETTINGS)
    spout = (OpaqueNumbers(TOTAL, 5, Hook()), Numbers(TOTAL, 5))[seed % 2]
    rows = batches(topology, "numbers", spout, store=InMemory(), interval_s=0.2)
    rows = rows.shuffle(parallelism=2).filter(bool_of).named("before")
    kept_rows = rows.apply(kept_in(FileState(FileTable(tmp_path), Row))).named("kept")
    kept_rows.shuffle(parallelism=2).filter(bool_of).named("after")
    run = SimCluster(seed, check=True).submit(topology.graph())
    with pytest.raises(LifecycleError, match="one task publishes its batches"):
        run.rebalance(tasks={"kept": 2})
    for _ in range(3):
        if run.wait(draw.uniform(0.2, 0.6)):
            break
        with suppress(ClusterError, LifecycleError):  # it ends, or has just died
            numbers = {name: draw.randint(1, 3) for name in ("before", "after")}
            run.rebalance(tasks=numbers, waits=False)
            run.wait(draw.uniform(0.0, 0.3))
            run.kill_worker(draw.choice(run.plan.workers))
        assert last(tmp_path) == [*range(len(last(tmp_path)))]
    assert run.wait(3_000.0)
    assert last(tmp_path) == [*range(TOTAL)]


def bool_of(_row: Any) -> bool:
    return True


def opened(folder: Path, current: int, columns: str = "page string") -> TableFolder:
    return TableFolder(folder, "t", "b", current, columns)


def work(folder: Path, committed: list[int], life: int) -> None:
    """Run batches that append their txid to the state; the second has two attempts. `committed`
    is the store of the batches."""
    table = opened(folder, len(committed) + 1)
    for txid in range(len(committed) + 1, 5 + life):
        for attempt in range(2 * life, 2 * life + (2 if txid == 2 else 1)):
            before = table.version_before(txid)
            text = "" if before is None else (before / "part.parquet").read_text()
            written(folder, txid, attempt, f"{text}{txid}")
        committed.append(txid)
        table.publish(txid)


def test_after_a_crash_at_any_step_a_successor_continues_with_the_committed_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        steps = crashing(patched, 10_000, after=False)
        work(tmp_path / "whole", [], 0)
    assert len(steps) > 40
    assert steps.count("rmtree") == 6, "four of staged attempts, two of old versions"
    for at in range(1, len(steps) + 1):
        for after in (False, True):
            folder, committed = tmp_path / f"{at}-{after}", list[int]()
            with monkeypatch.context() as patched:
                crashing(patched, at, after=after)
                with pytest.raises(Crash):
                    work(folder, committed, 0)
            work(folder, committed, 1)
            assert seen(folder) == {"txid=4": "1234", "txid=5": "12345"}


def test_a_folder_that_is_behind_the_store_of_the_batches_is_refused(tmp_path: Path) -> None:
    folder, store = tmp_path / "state", InSqlite(tmp_path / "batches.db")
    for total in (20, 30):
        run_all(program(Numbers(total, 5), folder, store=store))
        assert last(folder) == [*range(total)]
    newest = max(versions(folder))
    shutil.rmtree(folder / f"txid={newest}")
    with pytest.raises(TopologyFailed, match=f"batch {newest} is committed, and the state that"):
        run_all(program(Numbers(40, 5), folder, store=store))
    shutil.rmtree(folder)
    with pytest.raises(TopologyFailed, match=r"the state in .* is empty, but it had batch"):
        run_all(program(Numbers(40, 5), folder, store=store))
    run_all(program(Numbers(40, 5), tmp_path / "another", store=store))
    assert last(tmp_path / "another") == [*range(30, 40)]


def test_a_state_with_other_columns_and_a_version_that_was_removed_are_refused(
    tmp_path: Path,
) -> None:
    table = opened(tmp_path, 1)
    for txid in (1, 2):
        written(tmp_path, txid, 0, str(txid))
        table.publish(txid)
    with pytest.raises(StateMismatch, match="columns 'page string', and this is 'page int64'"):
        opened(tmp_path, 3, "page int64")
    shutil.rmtree(tmp_path / "txid=2")
    with pytest.raises(StateMismatch, match="batch 2 is committed, and the state"):
        table.version_before(3)


def test_a_late_attempt_is_not_taken_for_the_last_write(tmp_path: Path) -> None:
    table = opened(tmp_path, 1)
    assert table.last_attempt() is None
    written(tmp_path, 1, 3, "one")
    assert table.last_attempt() == (1, 3, 0)
    table.publish(1)
    written(tmp_path, 1, 2, "late")
    assert table.last_attempt() == (1, 3, 0)


class Stamped(NamedTuple):
    Txid: int


class Anything(NamedTuple):
    what: object


def without_state(df: Any, batch: BatchInfo) -> Any:
    return df


def test_wrong_declarations_of_states_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give its path"):
        spark_state("s3a://bucket/state", Row)
    with pytest.raises(ConfigError, match="Stamped has a field 'Txid'"):
        spark_state(tmp_path, Stamped)
    with pytest.raises(RecordMismatch, match="what"):
        spark_state(tmp_path, Anything)
    with pytest.raises(TopologyError, match="give spark_state"):
        spark(kept, state=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="a query has no state"):
        spark_sql("select 1", state=spark_state(tmp_path, Row))
    step = kept_in(spark_state(tmp_path, Row))
    with pytest.raises(ConfigError, match=r"the state of spark\(kept\) needs batches"):
        SparkBatchBolt(step)
    numbers = batches(Topology("t"), "numbers", Numbers(9, 3), store=InMemory())
    with pytest.raises(TopologyError, match=r"state and batch, as in `def .*\(df, state, batch\)"):
        numbers.apply(spark(without_state, out=Row, state=spark_state(tmp_path / "b", Row)))
    numbers.apply(step)
    with pytest.raises(DuplicateComponent, match="one place that writes it"):
        numbers.apply(step)
    non_transactional = Numbers(9, 3, kind=SpoutKind.NON_TRANSACTIONAL)
    with pytest.raises(TopologyError, match="do not count exactly once"):
        batches(Topology("t"), "numbers", non_transactional, store=InMemory()).apply(step)
