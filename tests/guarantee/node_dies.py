"""A Ray of its own with two nodes, of which one is lost: run by test_deaths_on_ray.py.

A program, because a process can belong to one Ray only, and the tests' one is in use.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from sunshower import Cause
from sunshower.actors.cluster import RayCluster
from sunshower.runtime.plan import Layout
from tests.guarantee.deaths import check_nothing_is_lost, kill_in_the_middle, read, topology

# By default Ray looks every 3 s, and believes in a node's death after five misses: 15 s. Three of
# one second were too few: a living one was taken for dead, on a very busy machine.
HEALTH = {"health_check_period_ms": 1_000, "health_check_failure_threshold": 8}
FIRST, SECOND = "first", "second"
HEAD: dict[str, Any] = {
    "num_cpus": 1,
    "resources": {FIRST: 1},
    "include_dashboard": False,
    "_system_config": HEALTH,
}


def answer() -> None:
    """Has run on the head, so the node that asked for it knows the head."""


def ask() -> None:
    """Has run on the second node, so the head knows it. Each node spreads over those it knows."""
    ray.get(ray.remote(num_cpus=0, resources={FIRST: 1})(answer).remote())


def main(folder: Path) -> None:
    nodes = Cluster(initialize_head=True, head_node_args=HEAD)
    second = nodes.add_node(num_cpus=1, resources={SECOND: 1})
    try:
        with RayCluster(nodes.address) as cluster:
            ray.get(ray.remote(num_cpus=0, resources={SECOND: 1})(ask).remote())
            # Who is on a lost node is known to be dead late: no tuple may time out before.
            mortal = topology(folder, message_timeout_s=600)
            run = cluster.submit(mortal.graph(), Layout.ISOLATE)
            places = run.nodes()
            there = places.get(second.node_id, [])
            assert 0 < len(there) < len(run.plan.workers), f"they are not spread: {places}"
            kill_in_the_middle(run, folder, lambda: nodes.remove_node(second, False))
            check_nothing_is_lost(run, folder)
            assert run.snapshot().restarts == len(there)
            causes = Counter(cause for cause, *_ in read(folder, "failed"))
            spouts = {task.worker for task in run.plan.tasks_of("numbers")}
            # Trees of a spout that lives fail on the workers that died. Where every spout died, its
            # next life begins: its trees may fail on a worker whose death is not noticed yet.
            told = bool(spouts - {*there}) and bool({*there} - spouts)
            assert causes.keys() <= {Cause.ACTOR_DIED}, (causes, places)
            assert causes or not told, (causes, places)
            run.stop()
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
