"""The Ray actor around the master: it keeps plan and book in a store, and passes news on.

Ray starts it again when it dies. Nobody else stops for that: workers are detached, and what they
tell a master that is away is told again when its successor asks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray import cloudpickle

from sunshower.actors.names import NAMESPACE, book_key, plan_key, silent, worker_name
from sunshower.actors.store import RayStore
from sunshower.runtime.book import Book
from sunshower.runtime.master import Master, Welcome
from sunshower.runtime.metrics import Snapshot, WorkerStats
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.plan import Plan

_SAVE_S = 1.0  # how often what workers tell is kept
T = TypeVar("T")
Process = tuple[str, int]  # Ray's node id, process id


class MasterActor:
    """One per topology, detached. The plan is in the store, by value: workers need no source."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._store = RayStore()
        plan, book = self._store.read(plan_key(run)), self._store.read(book_key(run))
        assert plan is not None, f"no plan of {run} in the store"
        self._plan = plan
        loaded: Plan = cloudpickle.loads(plan)
        self._master = Master(loaded, Book.from_bytes(book) if book else None)
        self._saved = book
        self._saved_s = 0.0
        self._processes: dict[int, Process] = {}
        self._handles: dict[int, Any] = {}
        for worker in self._master.lives:  # this is not the first master: what has it missed?
            self._tell(worker, "report")
            self.tell_lives(worker)  # its predecessor may have died over it

    def hello(
        self, worker: int, process: Process, obituary: Obituary | None
    ) -> tuple[bytes, Welcome]:
        """A worker has started. Returns the plan, and what it has to know."""
        welcome = self._change(lambda: self._master.hello(worker, time.monotonic(), obituary))
        self.here(worker, process)
        for other in welcome.lives:
            if other != worker:
                self.tell_lives(other)
        return self._plan, welcome

    def tell_lives(self, worker: int) -> None:
        """A worker is to hear who is in which life, and of the ends of former ones."""
        obituaries = list(self._master.obituaries.values())
        self._tell(worker, "peers", self._master.lives, obituaries)

    def here(self, worker: int, process: Process) -> None:
        """Where a worker lives."""
        self._processes[worker] = process

    def drain(self) -> None:
        """Let all spouts emit no more, in this life of their workers and in later ones."""
        self._change(self._master.drain)
        for worker in self._master.lives:
            self._tell(worker, "drain")

    def hear(self, stats: WorkerStats) -> None:
        """A worker tells how it stands."""
        now = time.monotonic()
        self._master.hear(stats, now)
        if now - self._saved_s >= _SAVE_S:  # positions: older ones cost repetitions, no more
            self._save()

    def broken(self, text: str) -> None:
        """A task has given up."""
        self._change(lambda: self._master.broken(text))

    def status(self) -> tuple[Snapshot, str | None]:
        """The topology now, and why it gave up, if it did."""
        snapshot = self._change(lambda: self._master.snapshot(time.monotonic()))
        return snapshot, self._master.error

    def processes(self) -> dict[int, Process]:
        """Where each worker lives."""
        return self._processes

    def process(self) -> Process:
        """Where the master itself lives."""
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def _change(self, change: Callable[[], T]) -> T:
        """Carry out a change, and keep the book before anybody hears of it."""
        result = change()
        self._save()
        return result

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        book = self._master.book.to_bytes()
        if book != self._saved:
            self._store.write(book_key(self._run), book)
            self._saved = book

    def _tell(self, worker: int, what: str, *news: Any) -> None:
        if worker not in self._handles:
            name = worker_name(self._run, worker)
            try:
                self._handles[worker] = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:  # the run is being stopped
                return
        silent(getattr(self._handles[worker], what)).remote(*news)


MasterClass = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(MasterActor)
