"""The Ray actor around the master: it keeps plan and book in a store, and passes news on.

Ray starts it again when it dies. Nobody else stops for that: workers are detached, and what they
tell a master that is away is told again when its successor asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray import cloudpickle

from sunshower.actors.names import (
    NAMESPACE,
    book_key,
    detached,
    luggage_keys,
    plan_key,
    silent,
    worker_name,
)
from sunshower.actors.processes import end_with_ray
from sunshower.actors.store import RayStore
from sunshower.actors.worker import WorkerClass
from sunshower.runtime.book import Book
from sunshower.runtime.havoc import Havoc
from sunshower.runtime.lifecycle import KillReport, State
from sunshower.runtime.master import Master, Welcome, Wish
from sunshower.runtime.metrics import Snapshot, WorkerStats
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.overview import Overview, without_code
from sunshower.runtime.plan import Layout, Plan

T = TypeVar("T")
Process = tuple[str, int]  # Ray's node id, process id
_SAVE_S = 1.0  # how often what workers tell is kept
_LOOK_S = 0.1  # how often, while a kill or a rebalance is under way


class MasterActor:
    """One per topology, detached. The plan is in the store, by value: workers need no source."""

    def __init__(self, run: str, active: bool = True, since_s: float = 0.0) -> None:
        end_with_ray()
        self._run = run
        self._since_s = since_s
        self._store = RayStore()
        plan, book = self._store.read(plan_key(run)), self._store.read(book_key(run))
        assert plan is not None, f"no plan of {run} in the store"
        self._plan = plan
        loaded: Plan = cloudpickle.loads(plan)
        found = Book.from_bytes(book) if book else Book(active=active)
        self._master = Master(loaded, found, time.monotonic())
        self._saved = book
        self._saved_s = 0.0
        self._wish: Wish | None = None  # that everybody was told
        self._timer: threading.Timer | None = None
        self._processes: dict[int, Process] = {}
        self._handles: dict[int, Any] = {}
        for worker in self._master.lives:  # this is not the first master: what has it missed?
            self._tell(worker, "report")
            self.tell_lives(worker)  # its predecessor may have died over it
        self._obey()

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

    def activate(self, active: bool) -> None:
        """Let all spouts emit, or rest, in this life of their workers and in later ones."""
        self._change(lambda: self._master.activate(active, time.monotonic()))

    def drain(self) -> None:
        """Let all spouts emit nothing fresh, likewise."""
        self._change(lambda: self._master.drain(time.monotonic()))

    def disturb(self, havoc: Havoc) -> None:
        """Let this havoc disturb all workers, likewise."""
        self._change(lambda: self._master.disturb(havoc))

    def kill(self, wait_s: float | None) -> None:
        """Drain, and be killed after that."""
        self._change(lambda: self._master.kill(wait_s, time.monotonic()))

    def rebalance(self, workers: int | None, layout: Layout | None, wait_s: float | None) -> None:
        """Share the tasks out anew."""
        now = time.monotonic()
        self._change(lambda: self._master.rebalance(workers, layout, wait_s, now))

    def hear(self, stats: WorkerStats) -> None:
        """A worker tells how it stands."""
        now = time.monotonic()
        self._master.hear(stats, now)
        if self._master.restless or self._wish != self._master.wish:
            self._obey()
        elif now - self._saved_s >= _SAVE_S:  # positions: older ones cost repetitions, no more
            self._save()

    def packed(self, stats: WorkerStats) -> None:
        """A worker has ended its life for a rebalance."""
        self._change(lambda: self._master.packed(stats, time.monotonic()))

    def look(self) -> None:
        """Some time has passed."""
        self._timer = None
        self._change(lambda: self._master.look(time.monotonic()))

    def broken(self, text: str) -> None:
        """A task has given up."""
        self._change(lambda: self._master.broken(text))

    def status(self) -> tuple[Snapshot, str | None]:
        """The topology now, and why it gave up, if it did."""
        snapshot = self._change(lambda: self._master.snapshot(time.monotonic()))
        return snapshot, self._master.error if snapshot.state == State.FAILED else None

    def report(self) -> KillReport:
        """What there is to say after a kill."""
        return self._master.report(time.monotonic())

    def places(self) -> list[int] | None:
        """The worker of each task, if not that of the plan that was submitted."""
        return self._master.book.places

    def overview(self) -> Overview:
        """All there is to show."""
        return Overview(
            without_code(self._master.plan),
            self._master.snapshot(time.monotonic()),
            self._master.error,
            self._since_s,
            dict(self._processes),
        )

    def _change(self, change: Callable[[], T]) -> T:
        """Carry out a change, and keep the book before anybody hears of it."""
        result = change()
        if self._save() or self._master.restless:
            self._obey()
        return result

    def _save(self) -> bool:
        self._saved_s = time.monotonic()
        book = self._master.book.to_bytes()
        changed = book != self._saved
        if changed:
            self._store.write(book_key(self._run), book)
            self._saved = book
        return changed

    def _obey(self) -> None:
        """Tell the workers what is wished, and carry out what a rebalance needs now."""
        if self._wish != self._master.wish:
            self._wish = self._master.wish
            for worker in self._master.lives:
                self._tell(worker, "wish", self._wish)
        orders = self._master.orders()
        for worker, leaving in orders.pack.items():
            self._tell(worker, "pack", self._master.book.moves + 1, leaving)
        for worker in orders.again:
            self._tell(worker, "again", self._master.book.moves)
        for worker in orders.create:
            self._create(worker)
        for worker in orders.end:
            self._end(worker)
        if orders.unload:
            self._store.remove(luggage_keys(self._run))
            self._master.unloaded()
        self._save()
        if self._master.restless and self._timer is None:
            me = ray.get_runtime_context().current_actor
            self._timer = threading.Timer(_LOOK_S, silent(me.look).remote)
            self._timer.daemon = True
            self._timer.start()

    def _create(self, worker: int) -> None:
        """A worker's process, if there is none that has not said hello yet."""
        if self._handle(worker) is None:
            WorkerClass.options(**detached(worker_name(self._run, worker))).remote(
                self._run, worker
            )

    def _end(self, worker: int) -> None:
        if (handle := self._handle(worker)) is not None:
            ray.kill(handle)
        self._handles.pop(worker, None)
        self._processes.pop(worker, None)
        self._master.ended(worker)

    def _tell(self, worker: int, what: str, *news: Any) -> None:
        if (handle := self._handle(worker)) is not None:  # else the run is being stopped
            silent(getattr(handle, what)).remote(*news)

    def _handle(self, worker: int) -> Any:
        if worker not in self._handles:
            name = worker_name(self._run, worker)
            try:
                self._handles[worker] = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:
                return None
        return self._handles[worker]


MasterClass = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(MasterActor)
