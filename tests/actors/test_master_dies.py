"""The master is killed with SIGKILL: nobody stops for that, and its successor knows the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import ray

from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.errors import ClusterError
from sunshower.runtime.events.metrics import Counts

TOTAL = 200_000


def keep(number: Number) -> None: ...


def until(run: RayRun, enough: Callable[[Counts], bool]) -> Counts:
    end_s = time.monotonic() + 60
    while not enough(counts := run.snapshot().component("numbers")):
        assert time.monotonic() < end_s, f"it never came to that: {counts}"
    return counts


def test_topology_goes_on_and_its_next_master_knows_it(ray_cluster: RayCluster) -> None:
    topology = Topology("survivor", spout_pending=64)
    topology.spout("numbers", Counter(TOTAL)).shuffle().bolt("keep", keep)
    run = ray_cluster.submit(topology.graph())
    try:
        before = until(run, lambda counts: counts.acked > 0)
        assert before.acked < TOTAL
        first = run.kill_master()
        after = until(
            run, lambda counts: counts.acked > before.acked
        )  # while no master can be asked, too
        assert after.failed == 0
        assert run.wait(150)
        assert run.snapshot().component("numbers").acked == TOTAL
        assert run.snapshot().restarts == 0
        assert run.kill_master() != first
        assert run.wait(150)  # also a master that comes when all is done finds out that it is
    finally:
        run.stop()


def test_a_change_is_not_repeated_to_the_next_master(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = Topology("changed")
    topology.spout("numbers", Counter(10)).shuffle().bolt("keep", keep)
    run = ray_cluster.submit(topology.graph())
    wait_for = ray.get

    def kill_first(call: Any, **how: Any) -> Any:
        monkeypatch.undo()
        run.kill_master()
        return wait_for(call, **how)

    try:
        run.pause_master()
        monkeypatch.setattr(ray, "get", kill_first)
        with pytest.raises(ClusterError, match="died meanwhile; `sunshower status changed` shows"):
            run.rebalance(workers=2)
        assert len(run.plan.workers) == 1
    finally:
        run.stop()
