"""The pipeline of docs/PIPELINE.md on other Sparks than ours, while processes are killed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.runtime.plan import Layout
from sunshower.spark_integration import LocalSpark, SparkCluster, SparkConnect
from tests.actors.programs.evidence import submitted, worker_of
from tests.spark.conftest import SPARK_4, shipped_example
from tests.spark.processes import HERE, ConnectServer, Standalone, standalone

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

SALES, BATCH = 2_000, 200
WITHIN_S = 1_000.0
Kill = Callable[[], bool]  # returns whether something was killed


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    monkeypatch.chdir(tmp_path)  # the program makes its folder
    with shipped_example(monkeypatch, "pipeline", "sales") as modules:
        yield modules


def kill_all(command: str) -> bool:
    """Kill the descendants of this process whose command contains this text."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() != "raylet" and command in " ".join(process.cmdline()):
                process.kill()
                killed += 1
    return killed > 0


def kill_worker(cluster: Standalone) -> bool:
    """Kill one of the two workers of a standalone cluster, with its executor."""
    worker = psutil.Process(cluster.workers[0].pid)
    executors = worker.children()
    for process in (worker, *executors):
        process.kill()
    cluster.workers[0].wait()
    return bool(executors)


def kill_server(server: ConnectServer) -> bool:
    """Kill a server, which then starts again."""
    assert server.process is not None
    server.process.kill()
    return True


@contextmanager
def spark_on(place: str, folder: Path) -> Iterator[tuple[Callable[..., Any], list[Kill]]]:
    """Start what a place needs. Yields what makes it, and the kills of its processes."""
    small = {"memory": "512m", "driver_memory": "512m"}
    java = partial(kill_all, "deploy.SparkSubmit")  # of the driver
    if place == "cluster":
        with standalone(folder) as cluster:
            of_cluster = partial(SparkCluster, cluster.master, executors=2, settings=HERE, **small)
            yield of_cluster, [partial(kill_worker, cluster), java]
    elif place == "local":
        yield partial(LocalSpark, cores=1, memory="512m"), [java, java]
    else:
        with ConnectServer(folder).kept() as server:
            kill = partial(kill_server, server)
            yield lambda **_: SparkConnect(server.url), [kill, kill]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.servers
@pytest.mark.timeout(1_200)  # Spark starts three times, on a busy machine
@pytest.mark.parametrize("place", ["local", "connect"] if SPARK_4 else ["cluster"])
def test_each_sale_is_in_the_table_once_when_processes_are_killed(
    place: str, ray_cluster: RayCluster, kafka: Kafka, tmp_path: Path, example: list[Any]
) -> None:
    """The last kill is of the worker that owns the batch."""
    pipeline, sales = example
    topic, folder = f"sales-{uuid.uuid4().hex[:8]}", tmp_path / "pipeline"
    sales.fill(SALES, kafka.bootstrap, topic)
    with spark_on(place, tmp_path / "spark") as (make, kills):
        topology = pipeline.pipeline(
            kafka.bootstrap, topic, folder, place=make, records=BATCH, until_end=True
        )
        with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
            kills.append(lambda: bool(run.kill_worker(worker_of(run, "spark"))))
            clock, seen = SystemClock(), 0
            end_s = clock.now() + WITHIN_S
            while clock.now() < end_s and not run.wait(0.05):
                batches = len([*folder.glob("table/txid=*")])
                if kills and batches > seen and kills[0]():
                    seen = batches
                    kills.pop(0)
            assert run.finished(), run.snapshot()
            assert not kills
    rows = sales.rows_of(folder / "table")
    assert not sales.differences(rows, kafka.bootstrap, topic)
    assert len(rows) > SALES * 0.9
