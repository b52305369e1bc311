"""A topology that runs on Ray: the production implementation of the `Run` port."""

from __future__ import annotations

import contextlib
import logging
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import Any, TypeVar, cast

import ray

from sunshower.actors import event_log_files, flight_recorder, processes
from sunshower.actors.master import MasterClass
from sunshower.actors.names import (
    CALL_S,
    detached,
    master_name,
    topology_of,
    worker_name,
    worker_of,
)
from sunshower.actors.nodes import START_S, create_workers, wait_for_workers
from sunshower.actors.processes import (
    RayProcess,
    actor_named,
    living_workers,
    mark_paused,
    processes_of,
    resume_all,
    send,
)
from sunshower.actors.shipping import pickled
from sunshower.actors.starting import call, call_once
from sunshower.actors.store import PLANS, RayStore
from sunshower.clock import SystemClock
from sunshower.errors import ClusterError, TopologyFailed
from sunshower.runtime.cluster import Look, Run
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.events.trace_recorder import WorkerTraces
from sunshower.runtime.plan import Plan
from sunshower.runtime.queries import Caller, send_until_answered, worker_of_requests
from sunshower.topologies.requests import Request

_log = logging.getLogger(__name__)
_POLL_S = 0.1
T = TypeVar("T")


class RayRun(Run):
    """One submitted topology: a master and its workers, detached actors with names."""

    def __init__(self, run: str, plan: Plan | None = None) -> None:
        super().__init__(topology_of(run))
        self.id = run
        self._store = RayStore(run)
        self._master: Any = actor_named(master_name(run)) if plan is None else None
        self._known: tuple[int | None, Any] = (None if plan is None else 0), plan
        self._master_is_paused = False

    def create(
        self, active: bool = True, sample: int | None = None, resume: Savepoint | None = None
    ) -> None:
        """Store the plan and register the master."""
        with self._stopped_on_error():
            self._store.begin()
            self._store.save_plan(0, self.plan)
            if resume is not None:
                self._store.resume(resume, resume.master_state(self.plan, active=active))
            if sample is not None:
                event_log_files.create(self.id, sample)
            self._master = MasterClass.options(**detached(master_name(self.id))).remote(
                self.id, active, time.time()
            )

    def start(self, look: Look | None = None, *, resumes: bool = False) -> None:
        """Create the workers; return once every worker has said hello, and after a savepoint has
        read its part of it. Calls `look` meanwhile."""

        def snapshot() -> Snapshot:
            found = self.snapshot()
            if look is not None:
                look(found)
            return found

        with self._stopped_on_error():
            create_workers(self.id, self._known[1])
            # A snapshot would wait for the master's process no longer than CALL_S.
            call(self.topology, self._master.__ray_ready__, within_s=START_S)
            wait_for_workers(self._known[1], snapshot)
            if resumes:  # until all have read what they continue from
                workers = {*self._known[1].workers}
                self._until(lambda: workers <= snapshot().workers.keys())

    @property
    def plan(self) -> Plan:
        """Also available while the master is paused."""
        number, plan = self._known
        if plan is None or (self._master is not None and not self._master_is_paused):
            number, other, tasks = self._call_master("plan_in_force", number)
            plan = (other or plan).with_tasks(tasks)
            self._known = number, plan
        return cast("Plan", plan)

    def overview(self, within_s: float = CALL_S) -> Overview:
        """Plan, statistics and processes, also if the topology has failed."""
        found: Overview = self._call_master("overview", within_s=within_s)
        return found

    def ask(self, name: str, value: Any, *, timeout_s: float = 10.0) -> list[Any]:
        self._check_not_stopped()
        caller = Caller(name, value, timeout_s, secrets.token_hex(16), time.monotonic())
        return send_until_answered(caller, partial(self._ask_whom, name), self._ask, SystemClock())

    def _ask_whom(self, name: str, left_s: float) -> int:
        if (found := self._call_master("overview", within_s=min(left_s, CALL_S))).error is not None:
            raise TopologyFailed(found.error)
        return worker_of_requests(found.plan, name)

    def _ask(self, worker: int, name: str, request: Request) -> Any:
        actor = actor_named(worker_name(self.id, worker))
        return self._call(actor.ask, name, request, within_s=min(request.left_s + 0.1, CALL_S))

    def _recorded(self, root: int | None) -> Iterable[WorkerTraces]:
        """Answered also while user code runs."""
        calls = [actor.recorded.remote(root) for actor in living_workers(self.id)]
        return processes.answers(calls)

    def kill_worker(self, worker: int) -> int:
        return self._signal(signal.SIGKILL, worker_name(self.id, worker))

    def kill_master(self) -> int:
        self._master_is_paused = False  # the next one is not
        return self._signal(signal.SIGKILL, master_name(self.id))

    def pause_worker(self, worker: int) -> None:
        """For Ray it is alive, and calls to it wait; after seven minutes they fail."""
        self._pause(worker_name(self.id, worker))

    def resume_worker(self, worker: int) -> None:
        self._resume(worker_name(self.id, worker))

    def pause_master(self) -> None:
        """Calls to it then raise ClusterError after 30 s."""
        _ = self.plan  # fetch it while the master answers
        self._pause(master_name(self.id))
        self._master_is_paused = True

    def resume_master(self) -> None:
        self._resume(master_name(self.id))
        self._master_is_paused = False

    def nodes(self) -> dict[str, list[int]]:
        """By Ray's node ids; without workers that are starting."""
        found: dict[str, list[int]] = {}
        for name, process in self._processes().items():
            if (worker := worker_of(name)) is not None:
                found.setdefault(process.node, []).append(worker)
        return {node: sorted(workers) for node, workers in found.items()}

    def kill_node(self, node: str) -> list[int]:
        there = {name: one for name, one in self._processes().items() if one.node == node}
        if not there:
            raise ClusterError(
                f"topology {self.topology!r} has no process on a machine {node!r}; "
                f"it has workers on: {', '.join(self.nodes()) or 'none'}"
            )
        self._master_is_paused = self._master_is_paused and master_name(self.id) not in there
        return send(signal.SIGKILL, list(there.values()))

    def disturb(self, injected: InjectedFaults) -> None:
        """Reaches workers within milliseconds, unless they are paused. A master that was paused
        here receives it when resumed; this call does not wait for that."""
        self._check_not_stopped()
        if self._master_is_paused:
            self._master.disturb.remote(injected)
        else:
            self._call_master("disturb", injected)

    def now(self) -> float:
        """This machine's monotonic clock."""
        return time.monotonic()

    def history(self) -> list[Entry]:
        """Raises ClusterError after the topology was stopped."""
        self._check_not_stopped()
        found = event_log_files.find(self.id)
        return found.read() if found is not None else []

    def stop(self) -> None:
        if self.stopped:
            return
        self.stopped = True
        master, self._master = self._master, None
        if master is not None:
            for error in self.close_tasks():
                _log.warning("%s", error.story)
        self._store.clear(PLANS)  # first, because they hold the user's credentials
        if master is not None:
            for actor in (master, *living_workers(self.id)):  # master first: it creates workers
                with contextlib.suppress(Exception):
                    ray.kill(actor)
        flight_recorder.remove_all(self.id)  # with the files of the event log
        self._store.clear()

    def close_tasks(self) -> list[TaskError]:
        """Close every task, and return the errors that they raised. The workers stay, so that the
        output of cleanup() can be read."""
        return processes.close_workers(self.id)

    def kill_actors(self) -> None:
        """Kill every actor at once. No task is closed; user code that hangs cannot delay it."""
        with contextlib.suppress(Exception):  # a machine that does not answer must not delay it
            resume_all(self.id)
        with contextlib.suppress(ClusterError):  # it has ended already
            ray.kill(actor_named(master_name(self.id)))
        for worker in living_workers(self.id):
            ray.kill(worker)

    @contextlib.contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def _pause(self, name: str) -> None:
        mark_paused(self.id)
        self._signal(signal.SIGSTOP, name)

    def _resume(self, name: str) -> None:
        if (process := self._processes().get(name)) is not None:
            send(signal.SIGCONT, [process])

    def _signal(self, number: int, name: str) -> int:
        self._check_not_stopped()
        return processes.send_to(self.id, name, number)

    def _processes(self) -> dict[str, RayProcess]:
        self._check_not_stopped()
        return processes_of(self.id)

    def _check_not_stopped(self) -> None:
        if self._master is None:
            raise ClusterError(f"topology {self.topology!r} was stopped; submit it again")

    def _call_master(self, what: str, *args: Any, within_s: float = CALL_S) -> Any:
        self._check_not_stopped()
        return self._call(getattr(self._master, what), *args, within_s=within_s)

    def _call_once(self, what: str, *args: Any) -> Any:
        _ = self.plan  # waits for a master that is starting
        self._check_not_stopped()
        return call_once(self.topology, self._master, what, *args)

    def _call_worker(self, worker: int, what: str, *given: Any) -> Any:
        return self._call(getattr(actor_named(worker_name(self.id, worker)), what), *given)

    def _call(self, method: Any, *args: Any, within_s: float = CALL_S) -> Any:
        return call(self.topology, method, *args, within_s=within_s)

    def _until(self, ready: Callable[[], T], within_s: float | None = None) -> T:
        end_s = inf if within_s is None else time.monotonic() + within_s
        while True:
            if not self._master_is_paused and (found := ready()):
                return found
            if time.monotonic() >= end_s:
                raise TimeoutError
            time.sleep(_POLL_S)

    def _transfers_of(self, move: int) -> Callable[[int], bytes | None]:
        return partial(self._store.transfer, move)

    def _shipped(self, plan: Plan) -> Any:
        return pickled(plan)
