"""A Ray of its own with two nodes, and a record that kills its process: run by test_crash_reports.

It is a program, because a process can use one Ray only, and the tests use theirs already.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from sunshower import Bolt, Counter, Number, Topology
from sunshower.actors import flight_recorder
from sunshower.actors.cluster import RayCluster
from sunshower.errors import TopologyFailed
from sunshower.runtime.plan import Layout
from tests.guarantee.deaths import RECOVERY_S

ATTEMPTS = 4
POISON = 700


class Poisoned(Bolt[Number, None]):
    """Kills its process for the poison, after it has written the node into a file."""

    def __init__(self, deaths: Path) -> None:
        self.deaths = deaths

    def process(self, record: Number) -> None:
        if record.value == POISON:
            with self.deaths.open("a") as file:
                file.write(f"{ray.get_runtime_context().get_node_id()}\n")
            os._exit(1)


def check_deaths(cluster: RayCluster, deaths: Path) -> None:
    """One process dies for each attempt, whichever nodes they were on."""
    topology = Topology("poison", attempts_max=ATTEMPTS)
    topology.spout("numbers", Counter(1000)).shuffle().bolt("keep", Poisoned(deaths))
    run = cluster.submit(topology.graph(), Layout.ISOLATE)
    try:
        failed = f"message {POISON} of spout 'numbers' failed {ATTEMPTS} times"
        with pytest.raises(TopologyFailed, match=failed):
            run.wait(RECOVERY_S)
    finally:
        run.stop()
    nodes = deaths.read_text().splitlines()
    assert len(nodes) == ATTEMPTS, f"deaths by node: {nodes}"


def check_gone(gone: str) -> None:
    """The search on a node that is gone ends within seconds."""
    begun_s = time.monotonic()
    assert flight_recorder.find_on(gone, "some-run", 1) is None
    assert time.monotonic() - begun_s < 10.0


def main(folder: Path) -> None:
    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    (folder / "second").mkdir()
    second = nodes.add_node(num_cpus=1, env_vars={"TMPDIR": str(folder / "second")})
    gone = second.node_id
    try:
        with RayCluster(nodes.address) as cluster:
            check_deaths(cluster, folder / "deaths")
            recorders = folder / "second" / f"sunshower-{os.getuid()}"
            assert recorders.exists(), "both nodes keep their crash reports in one folder"
            nodes.remove_node(second)
            check_gone(gone)
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
