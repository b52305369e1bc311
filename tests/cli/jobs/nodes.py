"""A program that starts two nodes of Ray with a dashboard: see test_ray_jobs.py.

It prints the addresses of the head and of the dashboard, and ends when its standard input does.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

from sunshower.actors.starting import SYSTEM_CONFIG

FEW = {"num_cpus": 1, "object_store_memory": 80_000_000}


def main() -> None:
    head = {**FEW, "include_dashboard": True, "dashboard_port": 0, "_system_config": SYSTEM_CONFIG}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes.add_node(**FEW)
        sys.stdout.write(f"{nodes.address} {nodes.head_node.webui_url}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main()
