"""A Ray of its own with an autoscaler, whose nodes are processes: run by test_ends_on_ray.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from sunshower import Counter, Resources, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.dev.servers import Ports
from sunshower.runtime.events.metrics import Snapshot
from tests.actors.programs.evidence import Endless, finish, work
from tests.guarantee.deaths import until

TOTAL = 100
HEAD = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"  # of Ray's provider for tests


def config(address: str) -> dict[str, Any]:
    """Up to two nodes of four CPUs beside a head of one. Ray's own AutoscalingCluster needs a file
    that its wheel lacks, and ends every Ray of the machine."""
    lists = ("initialization_commands", "setup_commands", "head_setup_commands", "rsync_exclude")
    lists += ("worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    lists += ("cluster_synced_files", "rsync_filter")
    return {
        "cluster_name": "fake",
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "provider": {
            "type": "external",
            "module": "tests.actors.programs.node_provider.LocalNodes",
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "head_node_id": HEAD,
            "gcs_address": address,
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "large": {
                "resources": {"CPU": 4, "memory": 2**30, "object_store_memory": 80_000_000},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 2,
            },
        },
        "head_node_type": "ray.head.default",
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **{name: [] for name in lists},
    }


@contextmanager
def head(folder: Path) -> Iterator[str]:
    """The address of a head with an autoscaler."""
    from ray.util import get_node_ip_address  # Ray is imported by Sunshower first, for its token

    ports = Ports()
    port = ports.claim()
    address = f"{get_node_ip_address()}:{port}"
    file = folder / "autoscaling.yaml"
    file.write_text(json.dumps(config(address)), encoding="utf-8")
    command = [Path(sys.executable).with_name("ray"), "start", "--head", "--block"]
    options = ["--port", port, "--num-cpus", 1, "--object-store-memory", 80_000_000]
    options += ["--include-dashboard", "false", "--autoscaling-config", file]
    environment = {
        **os.environ,
        "RAY_FAKE_CLUSTER": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    }
    started = subprocess.Popen(
        [*map(str, command), *map(str, options)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with started:
        assert started.stdout is not None
        for line in started.stdout:
            if "This command will now block" in line:
                break
        try:
            yield address
        finally:
            below = psutil.Process(started.pid).children(recursive=True)
            started.send_signal(signal.SIGTERM)
            for process in psutil.wait_procs(below, timeout=10)[1]:  # of the nodes that were added
                process.kill()


def topology(cpus: float) -> Topology:
    program = Topology("scaled", workers=2)
    program.spout("numbers", Counter(TOTAL), 2, resources=Resources(num_cpus=cpus))
    return program


def growing(gate: Path) -> Topology:
    """One worker, whose tasks fill a node."""
    topology = Topology("growing", workers=1)
    numbers = topology.spout("numbers", Endless(gate))
    numbers.shuffle().bolt("work", work, parallelism=2, resources=Resources(num_cpus=2))
    return topology


def _check_growth(cluster: RayCluster, gate: Path) -> None:
    """A further worker, as by `between`, is a request for a further node."""
    run = cluster.submit(growing(gate).graph())
    assert len(run.nodes()) == 1
    run.rebalance(tasks={"work": 4}, workers=2)
    until(lambda: len(run.nodes()) == 2)
    gate.touch()
    finish(run)
    run.stop()


def main(folder: Path) -> None:
    with head(folder) as address, RayCluster(address) as cluster:
        _check_growth(cluster, folder / "gate")
        run = cluster.submit(topology(3).graph())
        assert len(run.nodes()) == 2, "each worker has its own node, and none is on the head"
        finish(run)
        run.stop()
        _check_endless(cluster)


def _check_endless(cluster: RayCluster) -> None:
    """Workers that no type of node can hold wait, are reported, and can be interrupted."""

    def look(snapshot: Snapshot) -> None:
        for line in snapshot.unplaced:
            assert "wait for a node with 30 CPU free" in line
            assert "Ray's autoscaler may add a node" in line
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.submit(topology(30).graph(), look=look)
    assert cluster.runs() == {}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
