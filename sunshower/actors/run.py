"""A topology that runs on Ray: the production implementation of the `Run` port."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

import ray
from ray._private.accelerators import get_all_accelerator_resource_names
from ray.util.metrics import Counter, Gauge
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sunshower.actors import event_log_files, flight_recorder, processes
from sunshower.actors.names import (
    CALL_S,
    NAMESPACE,
    detached,
    master_name,
    silent,
    topology_of,
    worker_name,
    worker_of,
)
from sunshower.actors.nodes import NodeWatch, next_view, node_view, with_workers, workers_by_node
from sunshower.actors.plan_check import check_plan
from sunshower.actors.processes import (
    RayProcess,
    actor_named,
    end_with_ray,
    kill_soon,
    living_workers,
    mark_paused,
    processes_of,
    resume_all,
    send,
)
from sunshower.actors.shipping import outline, pickled
from sunshower.actors.starting import call, call_once, first_line
from sunshower.actors.store import PLANS, RayStore
from sunshower.actors.worker import REQUESTS, WorkerClass
from sunshower.clock import SystemClock
from sunshower.config import Resources
from sunshower.errors import ClusterError, SunshowerError, TopologyFailed, VersionMismatch
from sunshower.runtime.cluster import MASTER, Look, Run
from sunshower.runtime.control import events
from sunshower.runtime.control.events import Welcome
from sunshower.runtime.control.lifecycle import NOT_STARTED
from sunshower.runtime.control.measures import CAPACITY, MEASURES, Kind, Measure
from sunshower.runtime.control.nodes import NodeView, choice, choices, misfit, refused
from sunshower.runtime.control.overview import Overview, without_code
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.events.trace_recorder import WorkerTraces
from sunshower.runtime.master_process import MasterProcessBase
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.queries import HOLD_S, Caller, send_until_answered, worker_of_requests
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.topologies.requests import Reply, Request, RequestProgress

_log = logging.getLogger(__name__)
_POLL_S = 0.1
T = TypeVar("T")


# ---- workers ------------------------------------------------------------------------------


def worker_options(
    run: str, worker: int, request: Resources, node: str | None, placement: str
) -> dict[str, Any]:
    """`node`: where to start it, if it has room then; None: where Ray finds room.

    Ray keeps them for restarts. One byte of memory is always requested: Ray starts an actor that
    requests nothing on any node, and its autoscaler ends a node of which nothing is requested.
    """
    strategy: Any = "SPREAD" if placement == "spread" else "DEFAULT"
    if node is not None:
        strategy = NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True)
    return detached(worker_name(run, worker)) | {
        "num_cpus": request.num_cpus,
        "num_gpus": request.num_gpus,
        "memory": max(1, int(request.memory)),
        "resources": dict(request.custom),
        "scheduling_strategy": strategy,
        "get_if_exists": True,  # of a run that resumes, master and client create the workers
    }


def why_refused(request: Resources) -> str | None:
    """What Ray has against a worker that requests that, whatever the nodes have; None: nothing."""
    try:
        WorkerClass.options(**worker_options("", 0, request, None, "spread"))
    except ValueError as error:
        return str(error)
    accelerators = get_all_accelerator_resource_names()
    for name, amount in request.custom.items():  # what Ray refuses only when it creates the actor
        if name in accelerators and amount > 1 and amount != int(amount):
            return f"{amount:g} {name}: more than one must be a whole number"
    return None


# ---- first workers -------------------------------------------------------------------------------

START_S = 60.0  # for the master, and then for all workers, besides waits for the autoscaler
_LOOK_S = 1.0  # between two looks at the nodes


def create_workers(run: str, plan: Plan) -> None:
    """Create each worker on the node that is best for it. Raises ClusterError if Ray refuses what
    one requests, the head does not answer, or the nodes cannot hold them."""
    if (why := refused(plan, plan.workers, why_refused)) is not None:
        raise ClusterError(f"topology {plan.graph.id!r} cannot start: {why}")
    try:
        view = with_workers(node_view(), workers_by_node())
    except Exception as error:
        raise ClusterError(
            f"topology {plan.graph.id!r} cannot start: the head of the Ray cluster, "
            f"{ray.get_runtime_context().gcs_address}, does not list the nodes: "
            f"{first_line(error)}. Submit it again once `ray status` answers"
        ) from error
    _check(plan, view)
    placement = plan.graph.config.placement
    requests = {worker: plan.request_of(worker) for worker in plan.workers}
    nodes = choices(requests, view, placement)
    for worker, request in requests.items():
        options = worker_options(run, worker, request, nodes.get(worker), placement)
        WorkerClass.options(**options).remote(run, worker)


def wait_for_workers(plan: Plan, look: Callable[[], Snapshot]) -> None:
    """Return once every worker has said hello. While one waits for a node that the autoscaler may
    add, there is no limit. Raises ClusterError if they do not start."""
    end_s, look_s, view = time.monotonic() + START_S, time.monotonic() + _LOOK_S, NodeView()
    while (snapshot := look()).state in NOT_STARTED:
        now = time.monotonic()
        if now >= look_s:
            look_s, view = now + _LOOK_S, next_view(view)
            _check(plan, view)
            if snapshot.without_room and view.grows:
                end_s = now + START_S
        if now >= end_s:
            why = "; ".join(snapshot.unplaced) or (
                "is there memory for as many processes? Try fewer, or layout pack"
            )
            raise ClusterError(
                f"not all {len(plan.workers)} workers of {plan.graph.id!r} started in "
                f"{START_S:g} s: {why}"
            )
        time.sleep(_POLL_S)


def _check(plan: Plan, view: NodeView) -> None:
    requests = {worker: plan.request_of(worker) for worker in plan.workers}
    if (why := misfit(requests, view)) is not None:
        raise ClusterError(
            f"the cluster cannot hold topology {plan.graph.id!r}: {why}. No autoscaler adds nodes "
            "to it: add some, or request less, and submit it again"
        )


# ---- ray metrics ---------------------------------------------------------------------------------

EXPORT_S = 5.0  # how often: as often as Ray collects, and no call for each tuple
_WINDOW = "1m"  # of the capacity
_TAGS = ("topology", "component")


def _in_ray(kind: Kind) -> dict[str, Measure]:
    """The measures that Ray has, by their fields. Ray adds `_total` to a name itself."""
    return {
        measure.field: measure for measure in MEASURES if measure.in_ray and measure.kind is kind
    }


def _name_in_ray(name: str) -> str:
    return f"sunshower_{name.removesuffix('_total')}"


class RayMetrics:
    """The metrics of one topology, in the process of its master. A component has six at most, so
    the number of time series follows from the declarations."""

    def __init__(self, topology: str) -> None:
        self._topology = topology
        self._counters = {
            field: Counter(_name_in_ray(measure.name), measure.help, _TAGS)
            for field, measure in _in_ray(Kind.COUNTER).items()
        }
        pending = _in_ray(Kind.GAUGE)["pending"]
        self._pending = Gauge(_name_in_ray(pending.name), pending.help, _TAGS)
        self._capacity = Gauge(_name_in_ray(CAPACITY[0]), CAPACITY[1], _TAGS)
        self._exported: dict[tuple[str, str], int] = {}
        self._components: set[str] = set()  # of the last export

    def export(self, plan: Plan, snapshot: Snapshot) -> None:
        """Set all metrics to those of a snapshot with windows. Counters do not go back: one that is
        lower, because a worker has not reported yet, stays. The gauges of components that are no
        longer there become 0."""
        before, self._components = self._components, {*plan.graph.components}
        for id in before - self._components:
            for gauge in (self._pending, self._capacity):
                gauge.set(0, {"topology": self._topology, "component": id})
        for component in plan.graph.components.values():
            id, counts = component.id, snapshot.component(component.id)
            tags = {"topology": self._topology, "component": id}
            for name, counter in self._counters.items():
                if (grown := getattr(counts, name) - self._exported.get((id, name), 0)) > 0:
                    counter.inc(grown, tags)
                    self._exported[id, name] = getattr(counts, name)
            if component.level.is_spout:
                self._pending.set(counts.pending, tags)
            if (activity := snapshot.windows.get(_WINDOW, {}).get(id)) is not None:
                self._capacity.set(activity.capacity(component.parallelism), tags)


# ---- master --------------------------------------------------------------------------------------

# The Ray actor around the master, which Ray restarts when it dies.
#
# The workers are detached and continue; the next master asks them to send their statistics again.

_WATCH_S = 1.0  # how often to look for silent workers
_ELSEWHERE_S = 2.0  # until Ray starts a refused master again, perhaps on another node
_TOPOLOGY_LOG = logging.getLogger("sunshower")


class MasterActor(MasterProcessBase):
    """One per topology, detached. It has no user code: its plans are outlines, see shipping.py."""

    def __init__(self, run: str, active: bool = True, since_s: float = 0.0) -> None:
        end_with_ray()
        self._run = run
        self._since_s = since_s
        self._store = RayStore(run)
        try:
            self._store.check_version("its master")
        except VersionMismatch as error:
            if self.load_state() is None:
                raise  # the submission is refused
            # Ray does not restart an actor whose constructor raises: the run could not be ended.
            _TOPOLOGY_LOG.error("%s", error)
            time.sleep(_ELSEWHERE_S)
            os._exit(1)
        self._given = b""  # the pickled plan of the upgrade that is under way
        self._processes: dict[int, RayProcess] = {}
        self._chosen: dict[int, str] = {}  # worker → the node on which it was created
        self._nodes = NodeWatch(run)
        self._handles: dict[int, Any] = {}
        super().__init__(active=active)
        self.core.nodes.why_refused = why_refused
        self._metrics = RayMetrics(self.core.plan.graph.id)
        self._begun_s = self._exported_s = self.now()
        self._call_later(_WATCH_S, "watch")

    def hello(self, worker: int, process: RayProcess, crash_report: CrashReport | None) -> Welcome:
        """A worker has started."""
        welcome: Welcome = self.apply(events.Hello(worker, crash_report))
        self.here(worker, process)
        return welcome

    def place_of(self, worker: int) -> RayProcess | None:
        """The process of a worker's latest life, if this master knows it."""
        return self._processes.get(worker)

    def here(self, worker: int, process: RayProcess) -> None:
        """Note the process of a worker."""
        self._processes[worker] = process

    def overview(self) -> Overview:
        """Plan, statistics and processes, for a client without the code."""
        snapshot = self.core.snapshot(self.now(), windows=True)
        facts = self.core.stored.error, self._since_s, dict(self._processes)
        return Overview.of(self.core.plan, snapshot, *facts)

    # ---- the port of MasterProcessBase --------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def load_state(self) -> bytes | None:
        return self._store.load_state()

    def save_state(self, state: bytes) -> None:
        self._store.save_state(state)

    def load_plan(self, number: int) -> Plan:
        return self._store.load_outline(number)

    def save_plan(self, number: int, plan: Plan) -> None:
        self._store.write_plan(number, self._given)

    def keep_plans(self, numbers: Collection[int]) -> None:
        self._store.keep_plans(numbers)

    def apply(self, event: events.Event) -> Any:
        """The code of an upgrade, as shipped by the client, is loaded in another process."""
        if isinstance(event, events.Upgrade):
            assert isinstance(event.given, bytes)
            before = self._store.read_plan(self.core.stored.plan)
            self._given = check_plan(before, event.given, event.open_s)
            event = replace(event, given=outline(self._given))
        return super().apply(event)

    def plan_in_force(self, known: int | None) -> tuple[int, Plan | None, list[Task] | None]:
        """The number of the plan in force; the plan without user code, unless the caller knows that
        number; and its tasks (None: as submitted)."""
        stored = self.core.stored
        other = None if known == stored.plan else without_code(self.core.plan)
        return stored.plan, other, stored.tasks

    def remove_transfers(self) -> None:
        self._store.remove_transfers()

    def call_worker(self, worker: int, what: str, *arguments: Any) -> None:
        if (handle := self._handle(worker)) is not None:  # else the run is being stopped
            silent(getattr(handle, what)).remote(*arguments)

    def create_worker(self, worker: int) -> None:
        self._handles.pop(worker, None)  # that actor may have failed at its start
        if self._handle(worker) is None:
            plan = self.core.plan
            request, placement = plan.request_of(worker), plan.graph.config.placement
            node = self._node_for(worker, request, placement)
            options = worker_options(self._run, worker, request, node, placement)
            WorkerClass.options(**options).remote(self._run, worker)

    def end_worker(self, worker: int) -> None:
        if (handle := self._handle(worker)) is not None:
            ray.kill(handle)
        self._handles.pop(worker, None)
        self._processes.pop(worker, None)
        self._chosen.pop(worker, None)

    def replace_worker(self, worker: int) -> None:
        name = worker_name(self._run, worker)
        process = processes_of(self._run).get(name)
        if (handle := self._handle(worker)) is not None:
            ray.kill(handle)  # for Ray it is dead then, and its name free, even if it is cut off
        self._handles.pop(worker, None)
        if process is not None:
            kill_soon(process)  # a process that is stopped does not end by Ray's request

    def watch(self) -> None:
        """Called every second, while heartbeats come."""
        try:
            self.apply(events.Watch())
            self._export()
            self._leave_node()
        finally:
            self._call_later(_WATCH_S, "watch")

    def _export(self) -> None:
        if (now := self.now()) - self._exported_s >= EXPORT_S:
            self._exported_s = now
            self._metrics.export(self.core.plan, self.core.snapshot(now, windows=True))

    def _leave_node(self) -> None:
        """End on a node that is being drained: all is saved, and Ray starts the next master on a
        node that stays. The calls of workers and clients wait for it."""
        here, age_s = ray.get_runtime_context().get_node_id(), self.now() - self._begun_s
        if self.core.nodes.master_leaves(here, age_s, moving=self.core.restless):
            _TOPOLOGY_LOG.info("the master leaves node %s, which is being drained", here[:8])
            os._exit(1)  # Ray does not restart an actor that exits otherwise

    def look_after(self, seconds: float) -> None:
        self._call_later(seconds, "apply", events.Tick())

    def _call_later(self, seconds: float, what: str, *arguments: Any) -> None:
        method = getattr(ray.get_runtime_context().current_actor, what)
        timer = threading.Timer(seconds, silent(method).remote, arguments)
        timer.daemon = True
        timer.start()

    def node_view(self) -> NodeView:
        return self._nodes.with_places(self._places)

    @property
    def _places(self) -> dict[int, str]:
        return self._chosen | {
            address: process.node for address, process in self._processes.items()
        }

    def _node_for(self, worker: int, request: Resources, placement: str) -> str | None:
        plan, view = self.core.plan, self._nodes.with_workers(self._places)
        view = replace(view, places={w: at for w, at in view.places.items() if w in plan.workers})
        starting = view.places.keys() - self._processes.keys() - {worker}
        counted = {id: plan.request_of(id) for id in starting}
        node = choice(worker, request, view, counted, placement)
        if node is not None:
            self._chosen[worker] = node
        return node

    def _handle(self, worker: int) -> Any:
        if worker not in self._handles:
            name = worker_name(self._run, worker)
            try:
                self._handles[worker] = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:
                return None
        return self._handles[worker]


class SunshowerMaster(MasterActor):
    """The class that a client sends to Ray: see SunshowerWorker."""


MasterClass = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(SunshowerMaster)


# ---- request calls -------------------------------------------------------------------------------

_CALLS_MAX = 4  # open calls of a process to one worker
_CALL_REQUESTS = 1_000  # in one call
_SEND = object()  # what a thread gets that is to send the requests which wait


class RequestCalls:
    """Sends the requests of all threads of this process to one worker. While `_CALLS_MAX` calls are
    open, requests wait, and the next call has all of them."""

    def __init__(self, call: Callable[[list[Request]], list[Reply | RequestProgress]]) -> None:
        """`call`: to the worker. Raises ClusterError."""
        self._call = call
        self._lock = threading.Lock()
        self._waiting: dict[SimpleQueue[Any], Request] = {}  # by what its thread waits at
        self._open = 0

    def ask(self, request: Request) -> Reply | RequestProgress:
        """Send a request, and return the reply to this call. Raises what `call` raises, and
        ClusterError if other requests kept it waiting for all the time that its caller has."""
        inbox, ends_s = SimpleQueue[Any](), time.monotonic() + request.left_s
        with self._lock:
            if sends := self._open < _CALLS_MAX:
                self._open += 1
            else:
                self._waiting[inbox] = request
        reply: Any = _SEND
        if not sends:
            try:
                reply = inbox.get(timeout=request.left_s)
            except BaseException as error:
                self._leave(inbox)
                if isinstance(error, Empty):
                    raise ClusterError("its worker has not answered other requests") from None
                raise
        if reply is _SEND:
            left_s = max(ends_s - time.monotonic(), 0.0)
            reply = self._send(replace(request, left_s=left_s))
        if isinstance(reply, SunshowerError):
            raise reply
        return cast("Reply | RequestProgress", reply)

    def _send(self, request: Request) -> Any:
        """Send a request and those that wait. Returns its reply, or the error of the call."""
        with self._lock:
            others = [*islice(self._waiting.items(), _CALL_REQUESTS - 1)]
            for inbox, _ in others:
                del self._waiting[inbox]
        requests = [request, *(other for _, other in others)]
        replies: Sequence[Any] = [ClusterError("the call was interrupted")] * len(requests)
        try:
            replies = self._call(requests)
        except SunshowerError as error:
            replies = [error] * len(requests)
        finally:
            for (inbox, _), reply in zip(others, replies[1:], strict=True):
                inbox.put(reply)
            self._pass_on()
        return replies[0]

    def _pass_on(self) -> None:
        """A call has ended: the next one is made by the thread with the most time left, because
        that is how long the call may take for all requests in it."""
        with self._lock:
            waiting = self._waiting
            inbox = max(waiting, key=lambda inbox: waiting[inbox].left_s, default=None)
            if inbox is not None:
                del waiting[inbox]
                inbox.put(_SEND)
            else:
                self._open -= 1

    def _leave(self, inbox: SimpleQueue[Any]) -> None:
        """The thread of a request does not wait any more."""
        with self._lock:
            self._waiting.pop(inbox, None)
        if not inbox.empty() and inbox.get() is _SEND:
            self._pass_on()


# ---- run -----------------------------------------------------------------------------------------


class RayRun(Run):
    """One submitted topology: a master and its workers, detached actors with names."""

    def __init__(self, run: str, plan: Plan | None = None) -> None:
        super().__init__(topology_of(run))
        self.id = run
        self._store = RayStore(run)
        self._master: Any = actor_named(master_name(run)) if plan is None else None
        self._known: tuple[int | None, Any] = (None if plan is None else 0), plan
        self._master_is_paused = False
        self._asked: dict[str, int] = {}  # stream of requests → the worker that took the last one
        self._calls: dict[tuple[int, str], RequestCalls] = {}  # worker, stream of requests

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
            snapshot_now = self.snapshot()
            if look is not None:
                look(snapshot_now)
            return snapshot_now

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
        overview: Overview = self._call_master("overview", within_s=within_s)
        return overview

    def ask(self, name: str, value: Any, *, timeout_s: float = 10.0) -> list[Any]:
        self._check_not_stopped()
        caller = Caller(name, value, timeout_s, secrets.token_hex(16), time.monotonic())
        ask_whom, worker = partial(self._ask_whom, name), self._asked.get(name)
        return send_until_answered(caller, ask_whom, self._ask, SystemClock(), worker)

    def _ask_whom(self, name: str, left_s: float) -> int:
        if (
            overview := self._call_master("overview", within_s=min(left_s, CALL_S))
        ).error is not None:
            raise TopologyFailed(overview.error)
        worker = self._asked[name] = worker_of_requests(overview.plan, name)
        self._calls.pop((worker, name), None)  # that may be another process now
        return worker

    def _ask(self, worker: int, name: str, request: Request) -> Reply | RequestProgress:
        if (calls := self._calls.get((worker, name))) is None:
            actor = actor_named(worker_name(self.id, worker))
            calls = self._calls[worker, name] = RequestCalls(partial(self._ask_all, actor, name))
        return calls.ask(request)

    def _ask_all(self, actor: Any, name: str, requests: list[Request]) -> Any:
        """The first request is that of this thread; those of others do not shorten the call, which
        would lose the replies of all."""
        hold_s = min(HOLD_S, *(request.left_s for request in requests))
        within_s = min(requests[0].left_s + 0.1, CALL_S)
        ask = actor.ask.options(concurrency_group=REQUESTS)
        return self._call(ask, name, requests, hold_s, within_s=within_s)

    def _recorded(self, root: int | None) -> Iterable[WorkerTraces]:
        """Answered also while user code runs."""
        calls = [actor.recorded.remote(root) for actor in living_workers(self.id)]
        return processes.answers(calls)

    def nodes(self) -> dict[str, list[int]]:
        """By Ray's node ids; without workers that are starting."""
        workers_of: dict[str, list[int]] = {}
        for name, process in self._processes().items():
            if (worker := worker_of(name)) is not None:
                workers_of.setdefault(process.node, []).append(worker)
        return {node: sorted(workers) for node, workers in workers_of.items()}

    def kill_node(self, node: str) -> list[int]:
        on_node = {
            name: process for name, process in self._processes().items() if process.node == node
        }
        if not on_node:
            raise ClusterError(
                f"topology {self.topology!r} has no process on a machine {node!r}; "
                f"it has workers on: {', '.join(self.nodes()) or 'none'}"
            )
        self._master_is_paused = self._master_is_paused and master_name(self.id) not in on_node
        return send(signal.SIGKILL, list(on_node.values()))

    def disturb(self, injected: InjectedFaults) -> None:
        """Reaches workers within milliseconds, unless they are paused. A master that was paused
        here receives it when resumed; this call does not wait for that."""
        self._check_not_stopped()
        if self._master_is_paused:
            self._master.apply.remote(events.Disturb(injected))
        else:
            self._apply(events.Disturb(injected))

    def now(self) -> float:
        """This machine's monotonic clock."""
        return time.monotonic()

    def history(self) -> list[Entry]:
        """Raises ClusterError after the topology was stopped."""
        self._check_not_stopped()
        log_folder = event_log_files.find(self.id)
        return log_folder.read() if log_folder is not None else []

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

    def _kill(self, address: int) -> int:
        if address == MASTER:
            self._master_is_paused = False  # the next one is not
        return self._signal(signal.SIGKILL, address)

    def _pause(self, address: int) -> None:
        """For Ray it is alive, and calls to it wait: clients give up after 30 s, and calls of a
        worker fail after seven minutes."""
        if address == MASTER:
            _ = self.plan  # fetch it while the master answers
        mark_paused(self.id)
        self._signal(signal.SIGSTOP, address)
        self._master_is_paused |= address == MASTER

    def _resume(self, address: int) -> None:
        if (process := self._processes().get(self._name(address))) is not None:
            send(signal.SIGCONT, [process])
        self._master_is_paused &= address != MASTER

    def _signal(self, number: int, address: int) -> int:
        self._check_not_stopped()
        return processes.send_to(self.id, self._name(address), number)

    def _name(self, address: int) -> str:
        return master_name(self.id) if address == MASTER else worker_name(self.id, address)

    def _processes(self) -> dict[str, RayProcess]:
        self._check_not_stopped()
        return processes_of(self.id)

    def _check_not_stopped(self) -> None:
        if self._master is None:
            raise ClusterError(f"topology {self.topology!r} was stopped; submit it again")

    def _call_master(self, what: str, *args: Any, within_s: float = CALL_S) -> Any:
        self._check_not_stopped()
        return self._call(getattr(self._master, what), *args, within_s=within_s)

    def _apply_once(self, event: events.Event) -> Any:
        _ = self.plan  # waits for a master that is starting
        self._check_not_stopped()
        return call_once(self.topology, self._master, event)

    def _call_worker(self, worker: int, what: str, *arguments: Any) -> Any:
        return self._call(getattr(actor_named(worker_name(self.id, worker)), what), *arguments)

    def _call(self, method: Any, *args: Any, within_s: float = CALL_S) -> Any:
        return call(self.topology, method, *args, within_s=within_s)

    def _until(self, ready: Callable[[], T], within_s: float | None = None) -> T:
        end_s = inf if within_s is None else time.monotonic() + within_s
        while True:
            if not self._master_is_paused and (result := ready()):
                return result
            if time.monotonic() >= end_s:
                raise TimeoutError
            time.sleep(_POLL_S)

    def _transfers_of(self, move: int) -> Callable[[int], bytes | None]:
        return partial(self._store.transfer, move)

    def _shipped(self, plan: Plan) -> Any:
        return pickled(plan)
