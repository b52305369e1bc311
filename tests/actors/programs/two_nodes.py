"""A Ray of its own with two nodes, of which one is paused and killed: run by test_ends_on_ray.py.

It is a program, because a process can use one Ray only, and the tests use theirs already.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ray.cluster_utils import Cluster

from sunshower.actors.cluster import RayCluster
from sunshower.runtime.plan import Layout
from tests.actors.programs.evidence import (
    TOTAL,
    Held,
    check_no_ack_came_too_soon,
    finish,
    stored,
    topology,
    until_acked,
    wrote,
)


def main(folder: Path) -> None:
    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    second = nodes.add_node(num_cpus=1)
    try:
        with RayCluster(nodes.address) as cluster:
            gate = folder / "gate"
            declared = topology(folder, Held(TOTAL, gate), ackers=4)  # enough processes
            run = cluster.submit(declared.graph(), Layout.ISOLATE, sample=1)
            places = run.nodes()
            workers = places[second.node_id]
            assert 0 < len(workers) < len(run.plan.workers), f"the workers are not spread: {places}"
            until_acked(run, 1)
            run.pause_worker(workers[0])
            run.resume_worker(workers[0])
            run.pause_worker(workers[0])
            killed = run.kill_node(second.node_id)
            assert len(killed) in (len(workers), len(workers) + 1), "and the master, if it is there"
            gate.touch()
            finish(run)
            assert run.snapshot().restarts == len(workers)
            entries = run.history()
            check_no_ack_came_too_soon(entries)
            assert set(stored(folder)) == set(range(TOTAL)) == set(wrote(entries))
            run.stop()
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
