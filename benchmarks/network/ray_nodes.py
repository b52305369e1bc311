"""Starts and kills the nodes of a Ray cluster, each in its own network namespace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import BenchmarkError
from benchmarks.network.namespaces import NODES, ROOT, Network, address, pids

PORT = 6379
_START_MAX_S = _END_MAX_S = 180.0  # a cut-off raylet may end minutes after Ray declares it dead
_POLL_S = 0.25
_RECONNECT = "gcs_rpc_server_reconnect_timeout_s"


class RayNodes:
    """One Ray cluster; node 0 is its head. Any process of the machine may kill and start its nodes.

    `tables` is the HOST:PORT of a Redis for the head's tables, or empty. With it, Ray's processes
    wait for an unavailable head for at most `head_away_max_s`.
    """

    def __init__(
        self, network: Network, folder: Path, tables: str = "", head_away_max_s: int = 0
    ) -> None:
        self._network, self._folder = network, folder
        self._tables, self._head_away_max_s = tables, head_away_max_s

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start all nodes; they end with the block."""
        # In sequence: when two started at the same time on one machine, one of them hung.
        started = [self.start(number) for number in range(NODES)]
        try:
            yield
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start or restart a node. Returns when it has joined."""
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1",
                 "--object-store-memory=80000000", "--disable-usage-stats"]  # fmt: skip
        if number == 0:
            # Otherwise Ray finds this address in the file, and in the commands of other nodes'
            # processes, and refuses to start a second head there.
            (self._folder / "ray" / "ray_current_cluster").unlink(missing_ok=True)
            start += ["--head", f"--port={PORT}", "--include-dashboard=false",
                      f"--temp-dir={self._folder}/ray",
                      f"--system-config={json.dumps(self._settings())}"]  # fmt: skip
        else:
            start += [f"--address={address(0)}:{PORT}"]
        inside = ["ip", "netns", "exec", self._network.node(number)]
        settings = {}
        if self._tables:  # raylets of other nodes do not take this setting from the head
            settings["RAY_" + _RECONNECT] = str(self._head_away_max_s)
        if self._tables and number == 0:
            settings["RAY_REDIS_ADDRESS"] = self._tables
        log = self._folder / f"node-{number}-{time.monotonic_ns()}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [*inside, *start, f"--node-ip-address={address(number)}"],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment() | settings,
            )
        until(lambda: "Ray runtime started" in log.read_text(), f"node {number}", _START_MAX_S)
        return process

    def kill(self, number: int) -> None:
        """Send a SIGKILL to all processes of a node: Ray's and the workers."""
        for _ in range(3):  # also to processes that are just starting
            for pid in pids(self._network.node(number)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def start_if_ended(self, number: int) -> bool:
        """Restart a node that Ray has declared dead, when it has ended, as a supervisor does.

        Returns whether it did. Raises BenchmarkError if the node does not end.
        """
        import ray

        alive = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        if address(number) in alive:
            return False
        namespace = self._network.node(number)
        until(lambda: not _has_raylet(namespace), f"the end of node {number}", _END_MAX_S)
        self.start(number)
        return True

    def _settings(self) -> dict[str, int]:
        from sunshower.actors.starting import SYSTEM_CONFIG

        if not self._tables:
            return SYSTEM_CONFIG
        return SYSTEM_CONFIG | {_RECONNECT: self._head_away_max_s}


def environment() -> dict[str, str]:
    """The environment variables of processes in namespaces."""
    settings = {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}
    return {**os.environ, **settings, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


def until(condition: Callable[[], bool], what: str, within_s: float) -> float:
    """Wait until `condition`. Returns the seconds. Raises BenchmarkError after `within_s`."""
    begun_s = time.monotonic()
    while not condition():
        if time.monotonic() - begun_s > within_s:
            raise BenchmarkError(f"timed out after {within_s:g} s, waiting for {what}")
        time.sleep(_POLL_S)
    return time.monotonic() - begun_s


def commands(namespace: str) -> dict[int, str]:
    """Process id → command, of the processes in a namespace."""
    commands_of = {}
    for pid in pids(namespace):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            commands_of[pid] = command.replace(b"\0", b" ").decode(errors="replace")
    return commands_of


def _has_raylet(namespace: str) -> bool:
    return any(
        command.split(" ")[0].endswith("/raylet") for command in commands(namespace).values()
    )
