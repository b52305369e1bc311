"""States of a real Spark, compared with plain programs while processes are killed; the example."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.dataset
import pytest
from pyarrow import parquet

from sunshower import Topology
from sunshower.errors import ResultMismatch
from sunshower.runtime.plan import Layout
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    SparkPlace,
    SparkStep,
)
from sunshower.spark_integration.steps import spark
from sunshower.spark_integration.tables.tables import TableFolder, batches_in, spark_state
from sunshower.trident import InMemory, batches
from tests.spark.conftest import require_spark
from tests.spark.sales import SALES, Sale, run, run_through_outages
from tests.spark.tables.test_heavy_transform import kill_worker, processes
from tests.spark.test_spark_batches import KillsJavaOnce
from tests.trident.rigs.group_rig import Hook, Numbers, OpaqueNumbers

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/spark_state.py"
TOTAL = 20


class Total(NamedTuple):
    page: str
    cents: Decimal
    sales: int
    at: datetime | None


def summed(sales: Any, state: Any, batch: BatchInfo) -> Any:
    """Return a state whose columns have another order, and of which one is narrower."""
    from pyspark.sql import functions as f

    decimal = "decimal(38,18)"
    rows = sales.select("page", f.col("price").cast(decimal).alias("cents")).withColumns(
        {"sales": f.lit(1), "at": f.lit(datetime(2026, 1, batch.txid or 0, tzinfo=UTC))}
    )
    state = state.unionByName(rows).groupBy("page")
    state = state.agg(
        f.max("at").alias("at"),
        f.sum("sales").cast("int").alias("sales"),
        f.sum("cents").cast(decimal).alias("cents"),
    )
    return state, state


def test_a_state_is_read_as_it_was_written(gateway: Gateway, tmp_path: Path) -> None:
    state = spark_state(tmp_path / "the state, 100%", Total)
    folder = TableFolder(state.folder, "t", "b", 1, state.columns)
    step = SparkStep(summed, Total, state=state)
    for txid, attempt in ((1, 0), (2, 0), (2, 1)):
        before = folder.version_before(txid)
        totals = run(
            gateway,
            step,
            SALES.table([Sale("a", 1.5), Sale("b", 2.0)]),
            id=str(txid),
            txid=txid,
            attempt=attempt,
            state=None if before is None else str(before),
        )
        at = datetime(2026, 1, txid, tzinfo=UTC)
        assert sorted(totals) == [
            Total("a", Decimal("1.5") * txid, txid, at),
            Total("b", Decimal(2) * txid, txid, at),
        ]
    folder.publish(2)
    assert [batch.txid for batch in batches_in(state.folder)] == [1, 2]


def no_pair(sales: Any, state: Any, batch: BatchInfo) -> Any:
    return sales


def no_state(sales: Any, state: Any, batch: BatchInfo) -> Any:
    return sales, None


def other_columns(sales: Any, state: Any, batch: BatchInfo) -> Any:
    return sales, sales


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (no_pair, r"no_pair has a state and returned DataFrame; it must return \(result, state\)"),
        (no_state, "the new state is NoneType; it must be a DataFrame"),
        (other_columns, "Total has a field 'cents', and there is no such column"),
    ],
)
def test_a_transform_that_returns_a_wrong_state_fails(
    gateway: Gateway, tmp_path: Path, transform: Any, message: str
) -> None:
    step = SparkStep(transform, state=spark_state(tmp_path, Total))
    with pytest.raises(ResultMismatch, match=message):
        run(gateway, step, SALES.table([Sale("a", 1.0)]), txid=1)


class Sum(NamedTuple):
    key: int
    cents: int


def added(killing: Any, rows: Any, state: Any, batch: BatchInfo) -> Any:
    """Compute running sums; `killing` kills Java in its first job."""
    rows = rows.withColumnRenamed("key", "page").withColumnRenamed("number", "cents")
    both = state.withColumnRenamed("key", "page").unionByName(rows)
    sums = killing(both, batch).withColumnRenamed("page", "key")
    return sums, sums


def test_running_sums_are_those_of_a_plain_program_when_java_and_batches_fail(
    place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    """The batches of the opaque spout have other rows the second time."""
    kind = OpaqueNumbers if isinstance(place, LocalSpark) else Numbers
    topology, state = Topology("sums", message_timeout_s=300), spark_state(tmp_path / "sums", Sum)
    add = partial(added, KillsJavaOnce(str(tmp_path / "killed")))
    step = spark(add, out=Sum, state=state, where=place)
    numbers = batches(topology, "numbers", kind(TOTAL, 5, Hook()), store=InMemory())
    left = [5, 20]

    def fail_once(row: Sum) -> None:  # in the commit phase, after the state was staged
        if left and row.cents >= left[0]:
            raise ValueError(f"not yet {left.pop(0)}")

    numbers.apply(step).peek(fail_once)
    run_through_outages(topology.graph())
    assert (tmp_path / "killed").exists()
    assert not left
    wanted: Counter[int] = Counter()
    for number in range(TOTAL):
        wanted[number % 5] += number
    newest = batches_in(state.folder)[-1]
    rows = _rows(state.folder / f"txid={newest.txid}")
    assert {row["key"]: row["cents"] for row in rows} == wanted


def _rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for file in folder.glob("*.parquet"):
        rows += parquet.read_table(file, partitioning=None).to_pylist()
    return rows


def plain(lines: Iterable[str]) -> tuple[Counter[str], list[tuple[str, int, int, int]]]:
    """The counts and the visits that a program without batches computes."""
    views = {int(line.split()[0]): line.split() for line in lines}.values()
    counts: Counter[str] = Counter()
    visits: list[tuple[str, int, int, int]] = []
    unfinished: dict[str, tuple[str, int, int, int]] = {}
    for _, text, visitor, page in views:
        counts[page] += 1
        at = int(text)
        before = unfinished.get(visitor, (visitor, at, at, 0))
        if at - before[2] > 1_800:
            visits.append(before)
            before = (visitor, at, at, 0)
        unfinished[visitor] = visitor, before[1], at, before[3] + 1
    return counts, sorted([*visits, *unfinished.values()])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_example_counts_as_a_plain_program_when_processes_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: RayCluster
) -> None:
    """Java or a worker is killed whenever another batch is in the table."""
    require_spark()
    monkeypatch.chdir(tmp_path)
    chance = Random(8)
    any_worker = kill_worker(lambda run: chance.choice(run.plan.workers))

    def java(run: Any) -> bool:
        victims = processes("deploy.SparkSubmit")
        for process in victims:
            process.kill()
        return bool(victims)

    kills = [java, any_worker, java, any_worker]
    run = ray_cluster.submit(runpy.run_path(str(EXAMPLE))["topology"].graph(), Layout.PACK)
    committed = 0
    try:
        for _ in range(12_000):
            if run.wait(0.05):
                break
            seen = len(list(Path("views/counts").glob("txid=*")))
            if kills and seen > committed and kills[0](run):
                committed = seen
                kills.pop(0)
        assert run.finished(), run.snapshot()
    finally:
        run.stop()
    assert not kills
    counts, visits = plain(Path("views/views.txt").read_text().splitlines())
    last = {name: batches_in(f"views/state/{name}")[-1] for name in ("seen", "counts", "visits")}
    left = {name: _rows(Path(f"views/state/{name}/txid={last[name].txid}")) for name in last}
    assert {row["page"]: row["views"] for row in left["counts"]} == counts
    over = pyarrow.dataset.dataset("views/visits", partitioning="hive").to_table().to_pylist()
    names = ("visitor", "first", "last", "views")
    assert sorted(tuple(row[name] for name in names) for row in over + left["visits"]) == visits
    assert len(over) > len(left["visits"]) > 0
    changed = pyarrow.dataset.dataset("views/counts", partitioning="hive").to_table().to_pylist()
    changed.sort(key=lambda row: row["txid"])
    assert {row["page"]: row["views"] for row in changed} == counts
    assert len(left["seen"]) == counts.total()
