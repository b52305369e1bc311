"""Tasks on Ray follow the load of a bolt that takes 5 ms a record, and nothing is lost.

`python -m benchmarks.endurance load` does that for half an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.endurance import load
from benchmarks.endurance.load import COST_S, Source, changes, load_topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.config import Internals

pytestmark = pytest.mark.ray


def until(run: RayRun, ready: Callable[[], Any], within_s: float) -> None:
    run._until(ready, within_s)


@pytest.mark.long
@pytest.mark.timeout(150)
def test_tasks_follow_the_load(ray_cluster: RayCluster, tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.set_rate(1.6 / COST_S)
    ship([load])
    topology = load_topology("load", source, 1, 4, internals=Internals(scaling_s=1.0))
    run = ray_cluster.submit(topology.graph())
    until(run, lambda: changes(run), 60.0)
    until(run, lambda: len(run.plan.tasks_of("slow")) > 1, 30.0)
    assert "its source falls behind" in changes(run)[0][1]
    source.set_rate(0.0)
    until(run, lambda: source.settled() == source.added(), 60.0)
    until(run, lambda: len(run.plan.tasks_of("slow")) == 1 == len(run.plan.workers), 60.0)
    assert "slow is busy" in changes(run)[-1][1]
    run.kill()
    assert source.done().keys() == {*range(source.added())}
