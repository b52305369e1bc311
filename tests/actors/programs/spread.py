"""A Ray of its own with three nodes, on which topologies start: run by test_ends_on_ray.py."""

from __future__ import annotations

import sys
from pathlib import Path

from ray.cluster_utils import Cluster

from sunshower import Counter, Topology
from sunshower.actors.cluster import RayCluster

NODES = 3
SUBMITTED = 5  # a single topology may be spread by chance


def main(_: Path) -> None:
    few = {"num_cpus": 1, "object_store_memory": 80_000_000}
    nodes = Cluster(initialize_head=True, head_node_args=few | {"include_dashboard": False})
    for _node in range(NODES - 1):
        nodes.add_node(**few)
    try:
        with RayCluster(nodes.address) as cluster:
            for number in range(SUBMITTED):
                topology = Topology(f"spread{number}", workers=NODES)
                topology.spout("numbers", Counter(), NODES)
                run = cluster.submit(topology.graph(), active=False)
                assert len(run.nodes()) == NODES, f"two workers share a node: {run.nodes()}"
                run.stop()
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
