"""On Ray, an exception whose text UTF-8 cannot encode fails its topology as any other does."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.errors import ClusterError, TopologyFailed
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.plan import Layout
from tests.guarantee.deaths import until
from tests.texts.hostile import ESCAPES


def bad(number: Number) -> None:
    raise ValueError("cannot parse \ud800" + ESCAPES)


@pytest.mark.long
def test_status_worker_restart_and_kill_work_after_a_text_that_cannot_be_encoded(
    ray_cluster: RayCluster,
) -> None:
    topology = Topology("surrogate", attempts_max=1)
    topology.spout("numbers", Counter(1)).shuffle().bolt("bad", bad)
    run = ray_cluster.submit(topology.graph(), Layout.ISOLATE, active=False)

    def is_killed() -> bool:
        """Whether there was a process to kill: its successor may not have started yet."""
        with suppress(ClusterError):
            return bool(run.kill_worker(run.plan.tasks_of("bad")[0].worker))
        return False

    try:
        run.activate()
        with pytest.raises(TopologyFailed, match=r"cannot parse \\ud800"):
            run.wait(150)
        for _ in range(2):
            overview = run.overview()
            assert overview.snapshot.state == State.FAILED
            assert "cannot parse \\ud800" in json.loads(json.dumps(overview.error))
            until(is_killed)
            run.kill_master()
        run.kill(0.0)
    finally:
        run.stop()
