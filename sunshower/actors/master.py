"""The Ray actor around the master, which Ray restarts when it dies.

The workers are detached and continue; the next master asks them to send their statistics again.
"""

from __future__ import annotations

import logging
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any, BinaryIO

import ray
from ray import cloudpickle
from ray.util.metrics import Counter, Gauge

from sunshower.actors.names import NAMESPACE, silent, worker_name
from sunshower.actors.nodes import NodeWatch, why_refused, worker_options
from sunshower.actors.processes import RayProcess, end_with_ray, kill_soon, processes_of
from sunshower.actors.shipping import outline, pickled, with_tasks
from sunshower.actors.starting import first_line
from sunshower.actors.store import RayStore
from sunshower.actors.worker import WorkerClass
from sunshower.config import Resources
from sunshower.errors import LifecycleError, SunshowerError, VersionMismatch
from sunshower.runtime.control.flight_recorder import CrashReport
from sunshower.runtime.control.messages import Welcome
from sunshower.runtime.control.overview import Overview, edges_of, letter_stores, without_code
from sunshower.runtime.control.plan_changes import continued
from sunshower.runtime.events.metrics import MEASURES, Snapshot
from sunshower.runtime.master_process import MasterProcessBase
from sunshower.runtime.nodes import NodeView, choice
from sunshower.runtime.plan import Plan, Task

_WATCH_S = 1.0  # how often to look for silent workers
_ELSEWHERE_S = 2.0  # until Ray starts a refused master again, perhaps on another node
_LOG = logging.getLogger("sunshower")


# ---- ray metrics ---------------------------------------------------------------------------------

EXPORT_S = 5.0  # how often: as often as Ray collects, and no call for each tuple
_WINDOW = "1m"  # of the capacity
_TAGS = ("topology", "component")
_COUNTERS = ("emitted", "executed", "acked", "failed")  # of each component


# ---- plan check ----------------------------------------------------------------------------------
# Loads the new code of an upgrade in a process of its own, because the master keeps no user code.
#
#   python -m sunshower.actors.master < the two pickled plans, each behind its length
#
# A process can have one version of a module at a time, and a master lives through several. Of the
# running code, this process has the outline only.

_LENGTH = struct.Struct("!Q")
_CONTINUED, _REFUSED = b"+", b"-"


def check_plan(before: bytes, given: bytes, within_s: float) -> bytes:
    """The pickled plan of `given` code, whose spouts continue at the positions of those `before`.

    Raises LifecycleError if the code does not load here within that time, or does not continue.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__]
    content = b"".join(_LENGTH.pack(len(one)) + one for one in (before, given))
    try:
        done = subprocess.run(  # noqa: S603 (this interpreter)
            command,
            input=content,
            stdout=subprocess.PIPE,
            env=environment,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        why = f"it takes longer than {within_s:g} s"
    else:
        outcome, answer = done.stdout[:1], done.stdout[1:]
        if outcome == _CONTINUED:
            return answer
        if outcome == _REFUSED:
            raise LifecycleError(answer.decode())
        why = f"the process that loads it ends with status {done.returncode}"
    raise _unloadable(why)


def _unloadable(why: str) -> LifecycleError:
    return LifecycleError(
        f"the new code does not load on the cluster: {why}. Nothing has been changed"
    )


def _check(before: bytes, given: bytes) -> bytes:
    former = outline(before)
    try:
        plan: Plan = cloudpickle.loads(given)
    except Exception as error:
        raise _unloadable(first_line(error)) from error
    graph = replace(plan.graph, components=continued(former, plan))
    return pickled(replace(plan, graph=graph))


def _read(file: BinaryIO) -> bytes:
    (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
    return file.read(size)


def _main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what user code prints is no answer
    plans = [_read(sys.stdin.buffer) for _ in range(2)]
    try:
        answer = _CONTINUED + _check(*plans)
    except SunshowerError as error:
        answer = _REFUSED + str(error).encode()
    with answers:
        answers.write(answer)


if __name__ == "__main__":
    _main()


# ---- master --------------------------------------------------------------------------------------


def _name_in_ray(field: str) -> str:
    """The name of a metric for Ray, which adds `_total` itself."""
    return f"sunshower_{MEASURES[field].name.removesuffix('_total')}"


class RayMetrics:
    """The metrics of one topology, in the process of its master. A component has six at most, so
    the number of time series follows from the declarations."""

    def __init__(self, topology: str) -> None:
        self._topology = topology
        self._counters = {
            name: Counter(_name_in_ray(name), MEASURES[name].help, _TAGS) for name in _COUNTERS
        }
        self._pending = Gauge(_name_in_ray("pending"), MEASURES["pending"].help, _TAGS)
        self._capacity = Gauge(
            "sunshower_capacity", "the busy share of the tasks in the last minute, 0 to 1", _TAGS
        )
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
            _LOG.error("%s", error)
            time.sleep(_ELSEWHERE_S)
            os._exit(1)
        self._given = b""  # the pickled plan of the upgrade that is under way
        self._processes: dict[int, RayProcess] = {}
        self._chosen: dict[int, str] = {}  # worker → the node on which it was created
        self._nodes = NodeWatch(run)
        self._handles: dict[int, Any] = {}
        super().__init__(active=active)
        self._metrics = RayMetrics(self.core.plan.graph.id)
        self._begun_s = self._exported_s = self.now()
        self._watch_later()

    def hello(self, worker: int, process: RayProcess, crash_report: CrashReport | None) -> Welcome:
        """A worker has started."""
        welcome = self.welcome(worker, crash_report)
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
        return Overview(
            without_code(self.core.plan),
            self.core.snapshot(self.now(), windows=True),
            self.core.error,
            self._since_s,
            dict(self._processes),
            edges_of(self.core.plan.graph),
            letter_stores(self.core.plan.graph),
        )

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
        self._store.write_plan(number, with_tasks(self._given, plan.tasks))

    def keep_plans(self, numbers: Collection[int]) -> None:
        self._store.keep_plans(numbers)

    def upgrade(
        self, given: Plan | bytes, wait_s: float | None, open_s: float, dry_run: bool
    ) -> tuple[int, list[str]]:
        """`given`: as shipped by the client. The code is loaded in another process."""
        assert isinstance(given, bytes)
        self._given = check_plan(self._store.read_plan(self.core.stored.plan), given, open_s)
        return super().upgrade(outline(self._given), wait_s, open_s, dry_run)

    def plan_in_force(self, known: int | None) -> tuple[int, Plan | None, list[Task] | None]:
        """The number of the plan in force; the plan without user code, unless the caller knows that
        number; and its tasks (None: as submitted)."""
        stored = self.core.stored
        other = None if known == stored.plan else without_code(self.core.plan)
        return stored.plan, other, stored.tasks

    def remove_transfers(self) -> None:
        self._store.remove_transfers()

    def call_worker(self, worker: int, what: str, *given: Any) -> None:
        if (handle := self._handle(worker)) is not None:  # else the run is being stopped
            silent(getattr(handle, what)).remote(*given)

    def create_worker(self, worker: int) -> None:
        self._handles.pop(worker, None)  # that actor may have failed at its start
        if self._handle(worker) is None:
            plan = self.core.plan
            request, placement = plan.request_of(worker), plan.graph.config.placement
            node = self._node_for(worker, request, placement)
            options = worker_options(self._run, worker, request, node, placement)
            WorkerClass.options(**options).remote(self._run, worker)

    def why_refused(self, request: Resources) -> str | None:
        return why_refused(request)

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
        try:
            super().watch()
            self._export()
            self._leave_node()
        finally:
            self._watch_later()

    def _export(self) -> None:
        if (now := self.now()) - self._exported_s >= EXPORT_S:
            self._exported_s = now
            self._metrics.export(self.core.plan, self.core.snapshot(now, windows=True))

    def _leave_node(self) -> None:
        """End on a node that is being drained: all is saved, and Ray starts the next master on a
        node that stays. The calls of workers and clients wait for it."""
        here, age_s = ray.get_runtime_context().get_node_id(), self.now() - self._begun_s
        if self.core.nodes.master_leaves(here, age_s, moving=self.core.restless):
            _LOG.info("the master leaves node %s, which is being drained", here[:8])
            os._exit(1)  # Ray does not restart an actor that exits otherwise

    def look_after(self, seconds: float) -> None:
        me = ray.get_runtime_context().current_actor
        timer = threading.Timer(seconds, silent(me.look).remote)
        timer.daemon = True
        timer.start()

    def _watch_later(self) -> None:
        me = ray.get_runtime_context().current_actor
        timer = threading.Timer(_WATCH_S, silent(me.watch).remote)
        timer.daemon = True
        timer.start()

    def node_view(self) -> NodeView:
        return self._nodes.with_places(self._places)

    @property
    def _places(self) -> dict[int, str]:
        return self._chosen | {one: process.node for one, process in self._processes.items()}

    def _node_for(self, worker: int, request: Resources, placement: str) -> str | None:
        plan, view = self.core.plan, self._nodes.with_workers(self._places)
        view = replace(view, places={w: at for w, at in view.places.items() if w in plan.workers})
        starting = view.places.keys() - self._processes.keys() - {worker}
        counted = {one: plan.request_of(one) for one in starting}
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


MasterClass = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(MasterActor)
