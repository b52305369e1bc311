"""The example of both ways with its session on the cluster, of which everything is killed once."""

from __future__ import annotations

import runpy
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow.dataset
import pytest

from sunshower.errors import ClusterError
from sunshower.runtime.plan import Layout
from sunshower.spark_integration.sessions.spark_on_ray import RayDPSpark
from tests.spark.conftest import obtain
from tests.spark.tables.test_heavy_transform import EXAMPLE, plain

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

# The gateway's actor, its Java, and two actors of Java on the cluster: who starts executors, and
# an executor.
PROCESSES = ["ray::GatewayActor", "deploy.SparkSubmit", "worker.DefaultWorker"]


def of(command: str) -> list[psutil.Process]:
    """The processes below this one with that in their command."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() != "raylet" and command in " ".join(process.cmdline()):
                found.append(process)
    return found


def kill(command: str) -> bool:
    """Kill all of these, if there are any."""
    there = of(command)
    for process in there:
        with suppress(psutil.NoSuchProcess):  # it has ended with another one
            process.kill()
    return bool(there)


def works() -> bool:
    """Whether there is a session, with an executor beside who starts executors."""
    return len(of("worker.DefaultWorker")) > 1


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_whatever_of_spark_is_killed_the_table_has_the_rows_of_a_plain_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_cluster: RayCluster
) -> None:
    obtain()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_ON", "cluster")
    table = Path("heavy/sales")
    run = ray_cluster.submit(runpy.run_path(str(EXAMPLE))["topology"].graph(), Layout.PACK)

    def kill_owner() -> bool:
        """The worker that owns the batch."""
        (ranked,) = run.plan.tasks_of("ranked")
        with suppress(ClusterError):  # it has just died
            return run.kill_worker(ranked.worker) > 0
        return False

    kills = [*(partial(kill, command) for command in PROCESSES), kill_owner]
    try:
        committed, end_s = -1, time.monotonic() + 800
        while time.monotonic() < end_s and not run.wait(0.05):
            seen = len(list(table.glob("txid=*")))
            if kills and seen > committed and works() and kills[0]():
                committed = seen
                kills.pop(0)
        assert run.finished(), run.snapshot()
        assert not kills
    finally:
        run.stop()
        RayDPSpark().stop()
    found = pyarrow.dataset.dataset(table, partitioning="hive").to_table().to_pylist()
    assert sorted((row["id"], row["page"], row["price"]) for row in found) == plain(
        Path("heavy/input")
    )
