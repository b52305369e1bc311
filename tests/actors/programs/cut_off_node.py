"""A Ray of its own with two nodes, of which one is stopped: run by test_ends_on_ray.py."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import ray
from ray._private.ray_constants import PROCESS_TYPE_RAYLET
from ray.cluster_utils import Cluster

from sunshower.actors.nodes import cluster_nodes
from sunshower.actors.run import worker_options
from sunshower.config import NOTHING
from sunshower.runtime.control.nodes import NodeView, choice
from tests.guarantee.deaths import RECOVERY_S

REPLACED = 5  # each may be requested from either node
# The stopped node is not declared dead while the test runs, however slow the machine is.
HEALTH = {"health_check_failure_threshold": 1_000}


class Probe:
    def here(self) -> str:
        node_id: str = ray.get_runtime_context().get_node_id()
        return node_id


def options(worker: int, view: NodeView) -> dict[str, Any]:
    """The options with which the master replaces a worker."""
    node = choice(worker, NOTHING, view, {}, "spread")
    return worker_options("replaced-run", worker, NOTHING, node, "spread")


def main(_: Path) -> None:
    few: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}
    head = few | {"include_dashboard": False, "_system_config": HEALTH}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    second = nodes.add_node(**few)
    ray.init(address=nodes.address, namespace="test")
    raylet = second.all_processes[PROCESS_TYPE_RAYLET][0].process.pid
    here = nodes.head_node.node_id
    os.kill(raylet, signal.SIGSTOP)
    try:
        view = NodeView(cluster_nodes(), dict.fromkeys(range(REPLACED), second.node_id))
        probe = ray.remote(num_cpus=0)(Probe)
        actors = [probe.options(**options(worker, view)).remote() for worker in range(REPLACED)]
        calls = [actor.here.remote() for actor in actors]
        assert ray.get(calls, timeout=RECOVERY_S) == [here] * REPLACED
    finally:
        os.kill(raylet, signal.SIGCONT)
        ray.shutdown()
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
