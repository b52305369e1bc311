"""Runs examples/heavy_transform.py while workers and processes of Spark are killed."""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import psutil
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from sunshower.errors import ClusterError
from sunshower.experiments.outcome import Facts
from sunshower.runtime.plan import Layout
from sunshower.spark_integration.sessions.spark_on_ray import RayDPSpark
from sunshower.spark_integration.tables.tables import TableFolder, batches_in
from sunshower.state import SqliteState
from tests.spark.conftest import require_spark

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/heavy_transform.py"
EXPERIMENT = EXAMPLE.parent / "experiments/heavy_transform.py"
KILLS = 3


def plain(folder: Path) -> list[tuple[int, str, float]]:
    """The rows that a program without batches reads from the files."""
    lines = [text for file in folder.glob("*.txt") for text in file.read_text().splitlines()]
    fields = [line.split() for line in lines if line != "???"]
    return sorted((int(id), page, float(price)) for id, _, page, price in fields)


Kill = Callable[[Any], bool]  # of the run; returns whether something was killed


def kill_worker(choose: Callable[[Any], int]) -> Kill:
    def kill(run: Any) -> bool:
        with suppress(ClusterError):  # it has just died
            return bool(run.kill_worker(choose(run)))
        return False

    return kill


def rows_of_example(
    cluster: RayCluster, kills: list[Kill], within_s: float, committed: int
) -> list[Any]:
    """Run the example, with a kill whenever more batches than before are committed, and return
    the rows of its table."""
    table = Path("heavy/sales")
    run = cluster.submit(runpy.run_path(str(EXAMPLE))["topology"].graph(), Layout.PACK)
    try:
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s and not run.wait(0.05):
            seen = len(list(table.glob("txid=*")))
            if kills and seen > committed and kills[0](run):
                committed = seen
                kills.pop(0)
        assert run.finished(), run.snapshot()
        assert not kills
    finally:
        run.stop()
    records: list[Any] = pyarrow.dataset.dataset(table, partitioning="hive").to_table().to_pylist()
    rows = sorted((row["id"], row["page"], row["price"]) for row in records)
    assert rows == plain(Path("heavy/input"))
    return records


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_table_has_the_rows_of_a_plain_program_when_workers_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: RayCluster
) -> None:
    require_spark()
    monkeypatch.chdir(tmp_path)
    chance = Random(8)
    kills = [kill_worker(lambda run: chance.choice(run.plan.workers))] * KILLS
    rows = rows_of_example(ray_cluster, kills, 500, 0)
    batches = batches_in(Path("heavy/sales"))
    assert sum(batch.rows for batch in batches) == len(rows)
    assert all(batch.jobs for batch in batches)
    best = [row["page"] for row in rows if row["rank"] == 1]
    assert dict(SqliteState("heavy.db").items()) == {page: best.count(page) for page in set(best)}


def processes(command: str) -> list[psutil.Process]:
    """The descendants of this process whose command contains `command`."""
    matching = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() != "raylet" and command in " ".join(process.cmdline()):
                matching.append(process)
    return matching


def kill_all(command: str, run: Any) -> bool:
    """Kill these processes of a session, if it has an executor and the process that starts it."""
    victims = processes(command) if len(processes("worker.DefaultWorker")) > 1 else []
    for process in victims:
        with suppress(psutil.NoSuchProcess):  # it has ended with another one
            process.kill()
    return bool(victims)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_table_has_the_rows_of_a_plain_program_when_processes_of_spark_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: RayCluster
) -> None:
    """The kills are of the gateway's actor, of its Java, of an executor together with the process
    that starts executors, and of the worker that owns the batch."""
    require_spark()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_ON", "cluster")
    commands = ("ray::GatewayActor", "deploy.SparkSubmit", "worker.DefaultWorker")
    owner = kill_worker(lambda run: run.plan.tasks_of("ranked")[0].worker)
    try:
        kills = [*(partial(kill_all, command) for command in commands), owner]
        rows_of_example(ray_cluster, kills, 800, -1)
    finally:
        RayDPSpark().stop()


@pytest.fixture
def experiment() -> Iterator[dict[str, Any]]:
    """The names that the experiment's file defines; its folder is removed afterwards."""
    definitions = runpy.run_path(str(EXPERIMENT))
    yield definitions
    definitions["FOLDER"].cleanup()


def folders_of_runs(experiment: dict[str, Any]) -> list[Path]:
    return [*Path(experiment["FOLDER"].name).iterdir()]


def test_each_repeat_of_the_experiment_has_its_own_files(experiment: dict[str, Any]) -> None:
    assert experiment["written"]() is None
    for _ in range(2):  # all repeats are declared before the first of them runs
        experiment["topology"]()
    first, second = folders_of_runs(experiment)
    for folder in (second, first):
        assert len([*folder.glob("heavy/input/*.txt")]) == 4
        TableFolder(folder / "heavy/sales", "t", "b", current=1)
        assert experiment["written"]() == folder / "heavy"


def test_the_experiment_compares_whole_rows(experiment: dict[str, Any]) -> None:
    experiment["topology"]()
    (folder,) = folders_of_runs(experiment)
    TableFolder(folder / "heavy/sales", "t", "b", current=1)
    names = (*experiment["COLUMNS"], "rank", "txid")
    lines = experiment["plain"](folder / "heavy/input")
    sales = [dict(zip(names, (*line, 0, 1), strict=True)) for line in lines]
    for row, rank in experiment["ranked"](sales):
        row["rank"] = rank
    batch = folder / "heavy/sales/txid=1"
    batch.mkdir()

    def complaints(instead: dict[str, Any]) -> list[str]:
        rows = pa.Table.from_pylist([instead, *sales[1:]]).drop_columns("txid")
        pyarrow.parquet.write_table(rows, batch / "part.parquet")
        weighed = experiment["SameRows"]().check(cast("Any", None), Facts({}, ()))
        return [reason.partition(", such")[0] for reason in weighed.broken]

    first, second, *_ = sales
    foreign = ["1 sales are missing", "1 sales are duplicated, or not in the files"]
    assert complaints(first) == []
    assert complaints(first | {"rank": 99}) == ["1 sales are ranked wrongly"]
    assert complaints(first | {"category": "tea"})[:2] == complaints(second)[:2] == foreign
