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

from sunshower.actors.master import MasterActor
from sunshower.actors.processes import RayProcess

REPLACED = 5  # each may be requested from either node
WITHIN_S = 40.0  # Ray takes longer to declare the node dead


class Probe:
    def here(self) -> str:
        found: str = ray.get_runtime_context().get_node_id()
        return found


class Master(MasterActor):
    """One that was started by nobody."""

    def __init__(self, node: str, processes: dict[int, RayProcess]) -> None:
        self._node, self._processes = node, processes

    def options(self, worker: int) -> dict[str, Any]:
        return self._elsewhere(worker)


def main(_: Path) -> None:
    few = {"num_cpus": 1, "object_store_memory": 80_000_000}
    nodes = Cluster(initialize_head=True, head_node_args=few | {"include_dashboard": False})
    second = nodes.add_node(**few)
    ray.init(address=nodes.address, namespace="test")
    raylet = second.all_processes[PROCESS_TYPE_RAYLET][0].process.pid
    here = nodes.head_node.node_id
    os.kill(raylet, signal.SIGSTOP)
    try:
        former = RayProcess(second.node_id, 1)
        master = Master(here, dict.fromkeys(range(REPLACED), former))
        probe = ray.remote(num_cpus=0)(Probe)
        actors = [probe.options(**master.options(one)).remote() for one in range(REPLACED)]
        calls = [actor.here.remote() for actor in actors]
        assert ray.get(calls, timeout=WITHIN_S) == [here] * REPLACED
    finally:
        os.kill(raylet, signal.SIGCONT)
        ray.shutdown()
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
