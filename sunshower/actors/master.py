"""The Ray actor around the master: it keeps the plan, and passes news of workers on."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray import cloudpickle

from sunshower.actors.names import silent
from sunshower.runtime.master import Master, Welcome
from sunshower.runtime.metrics import Snapshot, WorkerStats
from sunshower.runtime.plan import Plan


class MasterActor:
    """One per topology, detached. `plan` is pickled by value, so that workers need no source."""

    def __init__(self, plan: bytes) -> None:
        loaded: Plan = cloudpickle.loads(plan)
        self._plan = plan
        self._master = Master(loaded)
        self._workers: dict[int, Any] = {}
        self._processes: dict[int, tuple[str, int]] = {}

    def hello(self, worker: int, handle: Any, process: tuple[str, int]) -> tuple[bytes, Welcome]:
        """A worker has started. Returns the plan, and what it has to know."""
        welcome = self._master.hello(worker)
        self._workers[worker] = handle
        self._processes[worker] = process
        for other, peer in self._workers.items():
            if other != worker:
                silent(peer.peers).remote(welcome.lives)
        return self._plan, welcome

    def drain(self) -> None:
        """Let all spouts emit no more, in this life of their workers and in later ones."""
        self._master.drain()
        for worker in self._workers.values():
            silent(worker.drain).remote()

    def hear(self, stats: WorkerStats) -> None:
        """A worker tells how it stands."""
        self._master.hear(stats, time.monotonic())

    def broken(self, text: str) -> None:
        """A task has given up."""
        self._master.broken(text)

    def status(self) -> tuple[Snapshot, str | None]:
        """The topology now, and why it gave up, if it did."""
        return self._master.snapshot(time.monotonic()), self._master.error

    def processes(self) -> dict[int, tuple[str, int]]:
        """(Ray's node id, process id) of each worker."""
        return self._processes


MasterClass = ray.remote(num_cpus=0, max_restarts=0)(MasterActor)
