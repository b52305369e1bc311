"""A Ray of its own with two nodes, and topologies that request resources: test_ends_on_ray.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from sunshower import Counter, Resources, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.names import worker_name
from sunshower.cli.health import current_problems
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.events.metrics import Snapshot
from sunshower.topologies.graph import Graph
from tests.guarantee.deaths import until

FEW: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 80_000_000}
CPU = Resources(num_cpus=1)


def declare(name: str, tasks: int, need: Resources, workers: int, **settings: Any) -> Graph:
    topology = Topology(name, workers=workers, **settings)
    topology.spout("numbers", Counter(), tasks, resources=need)
    return topology.graph()


def check_packed(cluster: RayCluster) -> None:
    run = cluster.submit(declare("packed", 3, CPU, 3, placement="pack"), active=False)
    assert sorted(map(len, run.nodes().values())) == [1, 2], "two CPUs are full"
    run.kill_worker(0)
    until(lambda: run.snapshot().restarts == 1)
    until(lambda: ray.available_resources().get("CPU") == 1)  # it requests the same again
    with pytest.raises(LifecycleError, match="3 CPU"):
        run.rebalance(workers=1)  # three CPUs in one worker
    run.stop()


def check_refused(cluster: RayCluster) -> None:
    """The requests are refused before any worker is created, and nothing is left."""
    for graph, why in [
        (declare("large", 1, Resources(num_cpus=5), 1), "worker 0 requests 5 CPU, and no node"),
        (
            declare("many", 5, CPU, 5),
            "its workers request 5 CPU together, and all nodes have 4 CPU",
        ),
        (
            declare("chips", 3, Resources(custom={"TPU": 1}), 1),
            "would request 3 TPU for .*, and Ray",
        ),
    ]:
        with pytest.raises(ClusterError, match=why):
            cluster.submit(graph)
    assert cluster.runs() == {}


def check_wait(cluster: RayCluster) -> None:
    """A topology waits for resources that another one holds; an interrupted wait leaves nothing."""
    first = cluster.submit(declare("first", 2, Resources(num_cpus=2), 2), active=False)

    def look(snapshot: Snapshot) -> None:
        if any("waits for a node with 1 CPU free" in line for line in snapshot.unplaced):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.submit(declare("second", 1, CPU, 1), look=look)
    names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    assert not [name for name in names if name.startswith("second")]
    assert worker_name(first.id, 0) in names
    first.stop()


def check_lost_node(cluster: RayCluster, nodes: Cluster, second: Any) -> None:
    """A worker whose node has ended waits for another one, and is not reported as silent."""
    run = cluster.submit(declare("lost", 2, Resources(num_cpus=2), 2), active=False)
    (lost,) = run.nodes()[second.node_id]
    nodes.remove_node(second)
    until(lambda: run.snapshot().without_room == (lost,))
    until(lambda: lost in run.snapshot().silent)
    (line,) = current_problems(run.snapshot())
    assert line.startswith(f"worker {lost} waits for a node with 2 CPU free: the largest, ")
    nodes.add_node(**FEW)
    until(lambda: run.snapshot().restarts == 1 and not run.snapshot().unplaced)
    run.stop()


def main(_: Path) -> None:
    nodes = Cluster(initialize_head=True, head_node_args=FEW | {"include_dashboard": False})
    second = nodes.add_node(**FEW)
    try:
        with RayCluster(nodes.address) as cluster:
            check_packed(cluster)
            until(lambda: ray.available_resources().get("CPU") == 4)
            check_refused(cluster)
            check_wait(cluster)
            until(lambda: ray.available_resources().get("CPU") == 4)
            check_lost_node(cluster, nodes, second)
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
