"""A program that starts a Ray with two nodes and loses one of them: see test_deaths_on_ray.py.

It is a program because a process can belong to one Ray only, and the tests use theirs.
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

# By default Ray checks nodes every 3 s, and declares one dead after five failures, so after 15 s.
# Three checks of one second were too few: on a very busy machine a running node was declared dead.
HEALTH = {"health_check_period_ms": 1_000, "health_check_failure_threshold": 8}
FIRST, SECOND = "first", "second"
HEAD: dict[str, Any] = {
    "num_cpus": 1,
    "resources": {FIRST: 1},
    "include_dashboard": False,
    "_system_config": HEALTH,
}


def answer() -> None:
    """A task on the head, so that the calling node knows the head."""


def ask() -> None:
    """A task on the second node, so that the head knows it: a node spreads over those it knows."""
    ray.get(ray.remote(num_cpus=0, resources={FIRST: 1})(answer).remote())


def main(folder: Path) -> None:
    nodes = Cluster(initialize_head=True, head_node_args=HEAD)
    second = nodes.add_node(num_cpus=1, resources={SECOND: 1})
    try:
        with RayCluster(nodes.address) as cluster:
            ray.get(ray.remote(num_cpus=0, resources={SECOND: 1})(ask).remote())
            # Ray detects late that processes on a lost node are dead: no tuple may time out before.
            mortal = topology(folder, message_timeout_s=600)
            run = cluster.submit(mortal.graph(), Layout.ISOLATE)
            places = run.nodes()
            lost = places.get(second.node_id, [])
            assert 0 < len(lost) < len(run.plan.workers), f"workers are on one node: {places}"
            kill_in_the_middle(run, folder, lambda: nodes.remove_node(second, False))
            check_nothing_is_lost(run, folder)
            assert run.snapshot().restarts == len(lost)
            causes = Counter(cause for cause, *_ in read(folder, "failed"))
            spouts = {task.worker for task in run.plan.tasks_of("numbers")}
            # Trees of a spout that survives fail because of the workers that died. If all spouts
            # died, trees of the new ones may still fail on a worker whose death is not known yet.
            must_fail = bool(spouts - {*lost}) and bool({*lost} - spouts)
            assert causes.keys() <= {Cause.ACTOR_DIED}, (causes, places)
            assert causes or not must_fail, (causes, places)
            run.stop()
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
