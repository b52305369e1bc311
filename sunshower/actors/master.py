"""The Ray actor around the master: stores plan and MasterState, and sends changes to the workers.

Ray restarts it when it dies. The workers are detached and continue; the next master asks them to
send their statistics again.
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
    plan_key,
    silent,
    transfer_keys,
    worker_name,
)
from sunshower.actors.processes import end_with_ray
from sunshower.actors.store import RayStore
from sunshower.actors.worker import WorkerClass
from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.lifecycle import KillReport, State
from sunshower.runtime.control.master import DesiredState, Master, Welcome
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.overview import Overview, without_code
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.metrics import Snapshot, WorkerStats
from sunshower.runtime.plan import Layout, Plan

T = TypeVar("T")
Process = tuple[str, int]  # Ray's node id, process id
_SAVE_S = 1.0  # how often the workers' positions are stored
_LOOK_S = 0.1  # how often to call `look` during a kill or rebalance


class MasterActor:
    """One per topology, detached. The plan is stored by value: workers need no source files."""

    def __init__(self, run: str, active: bool = True, since_s: float = 0.0) -> None:
        end_with_ray()
        self._run = run
        self._since_s = since_s
        self._store = RayStore()
        plan, book = self._store.read(plan_key(run)), self._store.read(book_key(run))
        assert plan is not None, f"no plan of {run} in the store"
        self._plan = plan
        loaded: Plan = cloudpickle.loads(plan)
        found = MasterState.from_bytes(book) if book else MasterState(active=active)
        self._master = Master(loaded, found, time.monotonic())
        self._saved = book
        self._saved_s = 0.0
        self._desired_state: DesiredState | None = None  # as last sent to all workers
        self._timer: threading.Timer | None = None
        self._processes: dict[int, Process] = {}
        self._handles: dict[int, Any] = {}
        for worker in self._master.lives:  # a former master knew them: ask for what was missed
            self._tell(worker, "report")
            self.tell_lives(worker)  # the former master may have died before that
        self._obey()

    def hello(
        self, worker: int, process: Process, crash_report: CrashReport | None
    ) -> tuple[bytes, Welcome]:
        """A worker has started. Returns the pickled plan and the Welcome."""
        welcome = self._change(lambda: self._master.hello(worker, time.monotonic(), crash_report))
        self.here(worker, process)
        for other in welcome.lives:
            if other != worker:
                self.tell_lives(other)
        return self._plan, welcome

    def tell_lives(self, worker: int) -> None:
        """Send a worker the lives of all workers, and the crash reports of former ones."""
        crash_reports = list(self._master.crash_reports.values())
        self._tell(worker, "peers", self._master.lives, crash_reports)

    def place_of(self, worker: int) -> Process | None:
        """The process of a worker's latest life, if this master knows it."""
        return self._processes.get(worker)

    def here(self, worker: int, process: Process) -> None:
        """Note the process of a worker."""
        self._processes[worker] = process

    def activate(self, active: bool) -> None:
        """Activate or deactivate all spouts, in this life of their workers and in later ones."""
        self._change(lambda: self._master.activate(active, time.monotonic()))

    def drain(self) -> None:
        """Let no spout emit new records, in this life or later ones."""
        self._change(lambda: self._master.drain(time.monotonic()))

    def disturb(self, injected: InjectedFaults) -> None:
        """Inject these faults into all workers, in this life and later ones."""
        self._change(lambda: self._master.disturb(injected))

    def kill(self, wait_s: float | None) -> None:
        """Drain the topology, then kill it."""
        self._change(lambda: self._master.kill(wait_s, time.monotonic()))

    def rebalance(self, workers: int | None, layout: Layout | None, wait_s: float | None) -> None:
        """Distribute the tasks over the workers again."""
        now = time.monotonic()
        self._change(lambda: self._master.rebalance(workers, layout, wait_s, now))

    def hear(self, stats: WorkerStats) -> None:
        """Process the statistics of a worker."""
        now = time.monotonic()
        self._master.hear(stats, now)
        if self._master.restless or self._desired_state != self._master.desired_state:
            self._obey()
        elif now - self._saved_s >= _SAVE_S:  # positions: older ones only cause more replays
            self._save()

    def stuck(self, worker: int, task: int, for_s: float, where: str) -> None:
        """A worker's watchdog reports a call of user code that does not return."""
        self._master.stuck(worker, task, for_s, where, time.monotonic())

    def packed(self, stats: WorkerStats) -> None:
        """A worker has ended its life for a rebalance."""
        self._change(lambda: self._master.packed(stats, time.monotonic()))

    def look(self) -> None:
        """Let the master check its waits; called by the timer."""
        self._timer = None
        self._change(lambda: self._master.look(time.monotonic()))

    def broken(self, text: str) -> None:
        """A task failed, and so the topology fails."""
        self._change(lambda: self._master.broken(text))

    def status(self) -> tuple[Snapshot, str | None]:
        """The current statistics, and why the topology failed, or None."""
        snapshot = self._change(lambda: self._master.snapshot(time.monotonic()))
        return snapshot, self._master.error if snapshot.state == State.FAILED else None

    def report(self) -> KillReport:
        """The report after a kill."""
        return self._master.report(time.monotonic())

    def places(self) -> list[int] | None:
        """The worker of each task; None if as in the submitted plan."""
        return self._master.book.places

    def overview(self) -> Overview:
        """Plan, statistics and processes, for a client without the code."""
        return Overview(
            without_code(self._master.plan),
            self._master.snapshot(time.monotonic()),
            self._master.error,
            self._since_s,
            dict(self._processes),
        )

    def _change(self, change: Callable[[], T]) -> T:
        """Carry out a change, and store the MasterState before anything is sent."""
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
        """Send the DesiredState to the workers, and carry out the orders of a rebalance."""
        if self._desired_state != self._master.desired_state:
            self._desired_state = self._master.desired_state
            for worker in self._master.lives:
                self._tell(worker, "desired_state", self._desired_state)
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
            self._store.remove(transfer_keys(self._run))
            self._master.unloaded()
        self._save()
        if self._master.restless and self._timer is None:
            me = ray.get_runtime_context().current_actor
            self._timer = threading.Timer(_LOOK_S, silent(me.look).remote)
            self._timer.daemon = True
            self._timer.start()

    def _create(self, worker: int) -> None:
        """Create a worker's process, unless there is one that has not said hello yet."""
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
