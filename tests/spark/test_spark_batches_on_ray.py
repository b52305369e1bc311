"""A program of batches on Ray whose worker with Spark is killed: as if nothing had happened."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sunshower import Topology
from sunshower.runtime.plan import Layout
from sunshower.spark_integration.steps import spark
from sunshower.trident import FixedBatchSpout, InSqlite, SqliteState, batches, sum_
from tests.spark.conftest import LOCAL, obtain
from tests.spark.javas import java_left, javas
from tests.spark.test_spark_batches import PLAIN, SALES, Sale, Total, totals

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


@pytest.mark.spark
def test_the_worker_that_owns_the_batch_is_killed(ray_cluster: RayCluster, tmp_path: Path) -> None:
    obtain()
    before = javas()  # of sessions that other tests share
    topology, state = Topology("sales", message_timeout_s=300), SqliteState(tmp_path / "totals.db")
    spout = FixedBatchSpout(SALES, 100, type=Sale)
    store = InSqlite(tmp_path / "batches.db")
    sales = batches(topology, "sales", spout, store=store, max_batches=2)
    made = sales.apply(spark(totals, out=Total, where=LOCAL)).named("spark")
    made.group_by("page").persistent_aggregate(state, sum_("cents"))
    run = ray_cluster.submit(topology.graph(), Layout.ISOLATE)
    try:
        killed, end_s = False, time.monotonic() + 240
        while time.monotonic() < end_s and not run.wait(0.1):
            if not killed and run.snapshot().figures("spark").get("spark batches", 0) >= 2:
                run.kill_worker(run.plan.tasks_of("spark")[0].worker)
                killed = True
        assert killed, run.snapshot()
        assert run.finished(), run.snapshot()
        assert run.snapshot().restarts == 1
    finally:
        run.stop()
    assert dict(state.items()) == PLAIN
    assert java_left(before) == []
