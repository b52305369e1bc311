"""Starts and kills the nodes of a Ray, each in a network namespace of its own."""

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
_START_MAX_S = _END_MAX_S = 180.0  # a cut-off raylet may learn of it minutes later
_LOOK_S = 0.25
_RECONNECT = "gcs_rpc_server_reconnect_timeout_s"


class RayNodes:
    """One Ray; node 0 is its head. Any process of the machine may kill and start its nodes.

    `tables` is the HOST:PORT of a Redis in which the head has its tables, or empty; then Ray's
    processes wait for a head that is away for at most `head_away_max_s`.
    """

    def __init__(
        self, network: Network, folder: Path, tables: str = "", head_away_max_s: int = 0
    ) -> None:
        self._network, self._folder = network, folder
        self._tables, self._head_away_max_s = tables, head_away_max_s

    @contextmanager
    def running(self) -> Iterator[None]:
        """All nodes; they end with the block."""
        # One after the other: of two that started together on one machine, one hung.
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
        """Start a node, also again. Returns when it has joined."""
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1",
                 "--object-store-memory=80000000", "--disable-usage-stats"]  # fmt: skip
        if number == 0:
            # Else Ray finds this address in the file, and in the commands of the other nodes'
            # processes, and refuses to start a second head there.
            (self._folder / "ray" / "ray_current_cluster").unlink(missing_ok=True)
            start += ["--head", f"--port={PORT}", "--include-dashboard=false",
                      f"--temp-dir={self._folder}/ray",
                      f"--system-config={json.dumps(self._settings())}"]  # fmt: skip
        else:
            start += [f"--address={address(0)}:{PORT}"]
        inside = ["ip", "netns", "exec", self._network.node(number)]
        settings = {}
        if self._tables:  # the raylets of other nodes do not take this setting from the head's
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
        """SIGKILL for everything of a node: Ray's processes and the workers."""
        for _ in range(3):  # one that is just being started
            for pid in pids(self._network.node(number)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def start_if_ended(self, number: int) -> bool:
        """Start a node again that Ray has declared dead, as a supervisor does when it has ended.

        Raises BenchmarkError if Ray has declared it dead and it does not end.
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
    """The environment of processes in namespaces."""
    settings = {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}
    return {**os.environ, **settings, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


def until(is_so: Callable[[], bool], what: str, within_s: float) -> float:
    """Wait; how many seconds. Raises BenchmarkError when the time is over."""
    begun_s = time.monotonic()
    while not is_so():
        if time.monotonic() - begun_s > within_s:
            raise BenchmarkError(f"{what} has not come in {within_s:g} s")
        time.sleep(_LOOK_S)
    return time.monotonic() - begun_s


def commands(namespace: str) -> dict[int, str]:
    """Process → its command, of those in a namespace."""
    found = {}
    for pid in pids(namespace):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            found[pid] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def _has_raylet(namespace: str) -> bool:
    return any(
        command.split(" ")[0].endswith("/raylet") for command in commands(namespace).values()
    )
