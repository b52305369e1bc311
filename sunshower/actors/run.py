"""A topology that runs on Ray: the production implementation of the `Run` port."""

from __future__ import annotations

import contextlib
import logging
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import ray

from sunshower.actors import event_log_files, flight_recorder, processes
from sunshower.actors.master import MasterClass
from sunshower.actors.names import (
    CALL_S,
    detached,
    master_name,
    plan_key,
    plan_keys,
    topology_of,
    worker_name,
    worker_of,
)
from sunshower.actors.nodes.first_workers import create_workers, wait_for_workers
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
from sunshower.actors.store import (
    RayStore,
    remove_stored,
    transfers_of,
    write_packet_key,
    write_resumed,
    write_version,
)
from sunshower.clock import SystemClock
from sunshower.errors import ClusterError, LifecycleError, TopologyFailed
from sunshower.runtime import queries
from sunshower.runtime.cluster import with_checks
from sunshower.runtime.control.lifecycle import KillReport, State
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.control.plan_changes import AS_THEY_ARE
from sunshower.runtime.control.upgrades import OPEN_S
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.queries import Query
from sunshower.runtime.request_calls import Caller, send_until_answered, worker_of_requests
from sunshower.runtime.savepoint import Savepoint
from sunshower.runtime.tasks.user_code import TaskError
from sunshower.runtime.tuple_traces import Traces, assemble, root_number
from sunshower.topologies.graph import Graph
from sunshower.topologies.requests import Request

_log = logging.getLogger(__name__)
_POLL_S = 0.1
Look = Callable[[Snapshot], None]


@with_checks
class RayRun:
    """One submitted topology: a master and its workers, detached actors with names."""

    def __init__(self, run: str, plan: Plan | None = None) -> None:
        self.id = run
        self.topology = topology_of(run)
        self._master: Any = actor_named(master_name(run)) if plan is None else None
        self._known: tuple[int | None, Any] = (None if plan is None else 0), plan
        self._master_is_paused = False
        self._is_stopped = False
        self._kept: int | None = None  # the number of its savepoint

    def create(
        self, active: bool = True, sample: int | None = None, resume: Savepoint | None = None
    ) -> None:
        """Store the plan and register the master."""
        with self._stopped_on_error():
            write_version(self.id)
            write_packet_key(self.id)
            RayStore().write(plan_key(self.id, 0), pickled(self.plan))
            if resume is not None:
                write_resumed(self.id, resume, resume.master_state(self.plan, active=active))
            if sample is not None:
                event_log_files.create(self.id, sample)
            self._master = MasterClass.options(**detached(master_name(self.id))).remote(
                self.id, active, time.time()
            )

    def start(self, look: Look | None = None, *, resumes: bool = False) -> None:
        """Create the workers; return once every worker has said hello, and after a savepoint has
        read its part of it. Calls `look` meanwhile."""
        with self._stopped_on_error():
            create_workers(self.id, self._known[1])
            wait_for_workers(self._known[1], lambda: self._look(look))
            if resumes:  # until all have read what they continue from
                workers = {*self._known[1].workers}
                self._wait_until(lambda: workers <= self._look(look).workers.keys(), None)

    @property
    def plan(self) -> Plan:
        """Also available while the master is paused."""
        number, plan = self._known
        if plan is None or (self._master is not None and not self._master_is_paused):
            number, other, tasks = self._call_master("plan_in_force", number)
            plan = (other or plan).with_tasks(tasks)
            self._known = number, plan
        return cast("Plan", plan)

    def snapshot(self) -> Snapshot:
        snapshot, error = self._call_master("status")
        if error is not None:
            raise TopologyFailed(error)
        found: Snapshot = snapshot
        return found

    def overview(self, within_s: float = CALL_S) -> Overview:
        """Plan, statistics and processes, also if the topology has failed."""
        found: Overview = self._call_master("overview", within_s=within_s)
        return found

    def finished(self) -> bool:
        return self.snapshot().state == State.FINISHED

    def wait(self, timeout_s: float | None = None) -> bool:
        """Does not call a master that was paused here."""
        with contextlib.suppress(TimeoutError):
            self._wait_until(lambda: not self._master_is_paused and self.finished(), timeout_s)
            return True
        return False

    def results(self, component: str) -> list[Any]:
        """In the order of the task ids."""
        tasks = self.plan.tasks_of(component)
        found: dict[int, list[Any]] = {}
        for worker in {task.worker for task in tasks}:
            actor = actor_named(worker_name(self.id, worker))
            found[worker] = self._call(actor.results, component)
        return [found[task.worker].pop(0) for task in tasks]

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

    def query(self, component: str, key: Any) -> Any:
        return queries.value(self.plan, component, key, self._query)

    def entries(self, component: str, limit: int = 20) -> list[tuple[Any, Any]]:
        return queries.entries(self.plan, component, limit, self._query)

    def _query(self, worker: int, query: Query) -> Any:
        return self._call(actor_named(worker_name(self.id, worker)).query, query)

    def traces(self, root: str | None = None) -> Traces:
        """Answered also while user code runs."""
        number, plan = None if root is None else root_number(root), self.plan
        calls = [actor.recorded.remote(number) for actor in living_workers(self.id)]
        return assemble(plan, processes.answers(calls))

    def log_lines(self, after: int = 0) -> list[LogLine]:
        return list(self._call_master("read_log", after))

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

    def activate(self) -> None:
        self._call_master("activate", True)

    def deactivate(self) -> None:
        self._call_master("activate", False)

    def drain(self) -> None:
        self._call_master("drain")

    def rebalance(
        self,
        workers: int | None = None,
        layout: Layout | None = None,
        wait_s: float | None = None,
        *,
        tasks: Mapping[str, int] = AS_THEY_ARE,
        waits: bool = True,
        look: Look | None = None,
    ) -> None:
        number = self._call_once("rebalance", workers, layout, wait_s, dict(tasks))
        self._wait_for_change(number if waits else 0, look)

    def upgrade(
        self,
        graph: Graph,
        wait_s: float | None = None,
        open_s: float = OPEN_S,
        *,
        dry_run: bool = False,
        waits: bool = True,
        look: Look | None = None,
    ) -> list[str]:
        given = pickled(make_plan(graph, self.plan.layout))
        made: tuple[int, list[str]] = self._call_once("upgrade", given, wait_s, open_s, dry_run)
        self._wait_for_change(made[0] if waits else 0, look)
        return made[1]

    def _wait_for_change(self, number: int, look: Look | None) -> None:
        """Calls `look` with snapshots meanwhile."""
        if number:  # else nothing changes
            self._wait_until(lambda: self._look(look).state != State.REBALANCING, None)
            self._call_master("check_change", number)

    def keep(self, wait_s: float | None = None, *, look: Look | None = None) -> Savepoint:
        self._kept = self._call_once("keep", wait_s)
        try:
            while (packed := self._call_master("savepoint", self._kept)) is None:
                self._look(look)
                time.sleep(_POLL_S)
            savepoint: Savepoint = packed.with_transfers(transfers_of(self.id, packed.move))
        except BaseException:  # also Ctrl-C
            with contextlib.suppress(Exception):
                self.go_on()
            raise
        return savepoint

    def go_on(self) -> bool:
        kept, self._kept = self._kept, None
        return not self._is_stopped and (kept is None or self._call_master("go_on", kept))

    def kill(self, wait_s: float | None = None, *, look: Look | None = None) -> KillReport:
        """Calls `look` with snapshots while it waits."""
        try:
            self._call_master("kill", wait_s, self._kept)
        except LifecycleError:
            self._kept = None
            raise
        self._wait_until(lambda: self._look(look).state == State.KILLED, None)
        report: KillReport = self._call_master("kill_report")
        self.stop()
        return report

    def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        master, self._master = self._master, None
        if master is not None:
            for error in self.close_tasks():
                _log.warning("%s", error.story)
        remove_stored(self.id, plan_keys(self.id))  # first, because it holds the user's credentials
        if master is not None:
            for actor in (master, *living_workers(self.id)):  # master first: it creates workers
                with contextlib.suppress(Exception):
                    ray.kill(actor)
        flight_recorder.remove_all(self.id)  # with the files of the event log
        remove_stored(self.id, f"{self.id}/")

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

    def _look(self, look: Look | None) -> Snapshot:
        snapshot = self.snapshot()
        if look is not None:
            look(snapshot)
        return snapshot

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

    def _call(self, method: Any, *args: Any, within_s: float = CALL_S) -> Any:
        return call(self.topology, method, *args, within_s=within_s)

    def _wait_until(self, done: Callable[[], bool], timeout_s: float | None) -> None:
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not done():
            if end_s is not None and time.monotonic() >= end_s:
                raise TimeoutError
            time.sleep(_POLL_S)
