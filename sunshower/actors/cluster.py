"""Ray as a place that runs topologies: the body of the `Cluster` port that production uses."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import ray
from ray import cloudpickle

from sunshower.actors import blackbox
from sunshower.actors.master import MasterClass
from sunshower.actors.names import (
    NAMESPACE,
    detached,
    master_name,
    plan_key,
    run_of,
    topology_of,
    worker_name,
)
from sunshower.actors.store import RayStore
from sunshower.actors.worker import WorkerClass
from sunshower.errors import ClusterError, SunshowerError, TopologyError, TopologyFailed
from sunshower.runtime.lifecycle import KillReport, State
from sunshower.runtime.metrics import Snapshot
from sunshower.runtime.overview import Overview
from sunshower.runtime.placement import placed
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.topologies.graph import Graph

_log = logging.getLogger(__name__)

_POLL_S = 0.1
_START_S = 60.0  # for all workers to say hello
_CALL_S = 30.0
_OBJECT_STORE_BYTES = 256 << 20
Look = Callable[[Snapshot], None]


class RayCluster:
    """A local Ray that ends with this object, or a running one at `address`.

    Use it as a context manager: at its end what was submitted is stopped, unless it is `detached`.
    Raises ClusterError when Ray cannot be started or reached.
    """

    def __init__(
        self, address: str | None = None, *, quiet: bool = True, detached: bool = False
    ) -> None:
        self._owned = not ray.is_initialized()
        self._detached = detached
        self._runs: list[RayRun] = []
        if self._owned:
            _start_ray(address, quiet)

    def submit(self, graph: Graph, layout: Layout = Layout.PACK, *, active: bool = True) -> RayRun:
        """Start a topology and wait until all its workers are there.

        Raises ClusterError when one of that name is there.
        """
        if graph.id in self.runs():
            raise ClusterError(
                f"a topology {graph.id!r} is there already: `sunshower status {graph.id}` shows "
                f"it, `sunshower kill {graph.id}` ends and removes it"
            )
        run = RayRun(f"{graph.id}-{uuid.uuid4().hex[:8]}", make_plan(graph, layout))
        self._runs.append(run)
        run.start(active)
        return run

    def runs(self) -> dict[str, str]:
        """Topology → run, of all that are there, whoever has submitted them."""
        actors = ray.util.list_named_actors(all_namespaces=True)
        names = [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]
        return {topology_of(run): run for name in names if (run := run_of(name))}

    def find(self, topology: str) -> RayRun:
        """A topology that was submitted by somebody. Its plan is without user code."""
        runs = self.runs()
        if topology not in runs:
            there = f"there are: {', '.join(sorted(runs))}" if runs else "none is there"
            raise ClusterError(
                f"there is no topology {topology!r} on this cluster; {there}. "
                "Start one with `sunshower submit FILE.py`"
            )
        return RayRun(runs[topology])

    def close(self) -> None:
        """Stop what was submitted here, unless detached, and the Ray that was started here."""
        for run in () if self._detached else self._runs:
            run.stop()
        if self._owned:
            ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class RayRun:
    """One submitted topology: a master and its workers, detached actors with names."""

    def __init__(self, run: str, plan: Plan | None = None) -> None:
        self.id = run
        self.topology = topology_of(run)
        self._master: Any = _actor(master_name(run)) if plan is None else None
        self._submitted = plan

    def start(self, active: bool = True) -> None:
        """Create the actors; return when every worker has said hello."""
        plan = self.plan
        try:
            RayStore().write(plan_key(self.id), _pickle(plan))
            self._master = MasterClass.options(**detached(master_name(self.id))).remote(
                self.id, active, time.time()
            )
            for worker in plan.workers:
                WorkerClass.options(**detached(worker_name(self.id, worker))).remote(
                    self.id, worker
                )
            with contextlib.suppress(TimeoutError):
                self._wait_until(lambda: self.snapshot().state != State.STARTING, _START_S)
                return
            raise ClusterError(
                f"not all {len(plan.workers)} workers of {self.topology!r} started in "
                f"{_START_S:g} s: is there memory for as many processes? Try fewer, or layout pack"
            )
        except BaseException:
            self.stop()
            raise

    @property
    def plan(self) -> Plan:
        """See the port."""
        if self._submitted is None:
            return self.overview().plan
        if self._master is not None:
            self._submitted = placed(self._submitted, self._call_master("places"))
        return self._submitted

    def snapshot(self) -> Snapshot:
        """See the port."""
        snapshot, error = self._call_master("status")
        if error is not None:
            raise TopologyFailed(error)
        found: Snapshot = snapshot
        return found

    def overview(self) -> Overview:
        """All that there is to show of it, also when it has failed."""
        found: Overview = self._call_master("overview")
        return found

    def finished(self) -> bool:
        """See the port."""
        return self.snapshot().state == State.FINISHED

    def wait(self, timeout_s: float | None = None) -> bool:
        """See the port."""
        with contextlib.suppress(TimeoutError):
            self._wait_until(self.finished, timeout_s)
            return True
        return False

    def results(self, component: str) -> list[Any]:
        """See the port. Tasks by ascending id."""
        tasks = self.plan.tasks_of(component)
        found: dict[int, list[Any]] = {}
        for worker in {task.worker for task in tasks}:
            actor = _actor(worker_name(self.id, worker))
            found[worker] = self._call(actor.results, component)
        return [found[task.worker].pop(0) for task in tasks]

    def kill_worker(self, worker: int) -> int:
        """See the port. The worker must be on this machine."""
        return _kill(f"worker {worker}", *self._call_master("processes")[worker])

    def kill_master(self) -> int:
        """See the port. The master must be on this machine."""
        return _kill("the master", *self._call_master("process"))

    def activate(self) -> None:
        """See the port."""
        self._call_master("activate", True)

    def deactivate(self) -> None:
        """See the port."""
        self._call_master("activate", False)

    def drain(self) -> None:
        """See the port."""
        self._call_master("drain")

    def rebalance(
        self,
        workers: int | None = None,
        layout: Layout | None = None,
        wait_s: float | None = None,
        *,
        look: Look | None = None,
    ) -> None:
        """See the port. `look` is shown how things stand while it takes."""
        self._call_master("rebalance", workers, layout, wait_s)
        self._wait_until(lambda: self._look(look).state != State.REBALANCING, None)

    def kill(self, wait_s: float | None = None, *, look: Look | None = None) -> KillReport:
        """See the port. `look` is shown how things stand while it takes."""
        self._call_master("kill", wait_s)
        self._wait_until(lambda: self._look(look).state == State.KILLED, None)
        report: KillReport = self._call_master("report")
        self.stop()
        return report

    def stop(self) -> None:
        """See the port."""
        master, self._master = self._master, None
        if master is None:
            return
        workers = list(living_workers(self.id))
        with contextlib.suppress(Exception):
            calls = [worker.stop.remote() for worker in workers]
            for error in (e for said in ray.get(calls, timeout=_CALL_S) for e in said):
                _log.warning("%s", error.story)
        blackbox.remove_all(self.id)
        for actor in (master, *living_workers(self.id)):  # or it may start another one meanwhile
            with contextlib.suppress(Exception):
                ray.kill(actor)
        with contextlib.suppress(Exception):
            RayStore().remove(f"{self.id}/")

    def _look(self, look: Look | None) -> Snapshot:
        snapshot = self.snapshot()
        if look is not None:
            look(snapshot)
        return snapshot

    def _call_master(self, what: str, *args: Any) -> Any:
        if self._master is None:
            raise ClusterError(f"topology {self.topology!r} was stopped; submit it again")
        return self._call(getattr(self._master, what), *args)

    def _call(self, method: Any, *args: Any) -> Any:
        try:
            return ray.get(method.remote(*args), timeout=_CALL_S)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, SunshowerError):
                raise cause from None
            raise TopologyFailed(
                f"topology {self.topology!r} was asked something and user code raised "
                f"{type(cause).__name__}: {cause}"
            ) from error
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"topology {self.topology!r} does not answer: {_first_line(error)}. Its "
                "actors may have been killed or the node is out of memory; submit it again"
            ) from error

    def _wait_until(self, done: Callable[[], bool], timeout_s: float | None) -> None:
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not done():
            if end_s is not None and time.monotonic() >= end_s:
                raise TimeoutError
            time.sleep(_POLL_S)


def living_workers(run: str) -> Iterator[Any]:
    """The actors of a run's workers, in whatever places they are."""
    first = worker_name(run, 0)[:-1]
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(first):
            with contextlib.suppress(ClusterError):  # it has just ended
                yield _actor(actor["name"])


def _actor(name: str) -> Any:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        raise ClusterError(f"there is no actor {name!r} any more: was it stopped?") from None


def _kill(who: str, node: str, pid: int) -> int:
    try:
        if node != ray.get_runtime_context().get_node_id():
            raise ProcessLookupError  # that number may be somebody else's here
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        raise ClusterError(
            f"{who} (process {pid}) is not on this machine, or has just died"
        ) from None
    return pid


def _pickle(plan: Plan) -> bytes:
    """The plan by value. Raises TopologyError naming the component that cannot be pickled."""
    for component in plan.graph.components.values():
        try:
            cloudpickle.dumps(component)
        except Exception as error:
            raise TopologyError(
                f"component {component.id!r} cannot be sent to its worker: {_first_line(error)}. "
                "Open files, sockets and locks belong into prepare() or open(), not into the "
                "object that is declared"
            ) from error
    data: bytes = cloudpickle.dumps(plan)
    return data


def _start_ray(address: str | None, quiet: bool) -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # two equal lines of a sink are two lines
    local: dict[str, Any] = {
        "include_dashboard": False,
        "object_store_memory": _OBJECT_STORE_BYTES,
        "_system_config": {
            "timeout_ms_task_wait_for_death_info": 50,  # a death is heard of in 0.5 s, not 1.4 s
            "max_direct_call_object_size": 4 << 20,  # packets ride in the call itself
            "task_events_report_interval_ms": 0,  # nobody reads them: 15 % off each call
            "gcs_rpc_server_reconnect_timeout_s": 5,  # if somebody kills Ray, do not hang 60 s
            "worker_niceness": 0,  # niceness.py goes down from here, and less than Ray's 15
        },
    }
    try:
        ray.init(
            address=address or "local",
            namespace=NAMESPACE,
            log_to_driver=not quiet,
            logging_level=logging.ERROR,
            **({} if address else local),
        )
    except Exception as error:
        if address:
            raise ClusterError(
                f"no Ray cluster answers at {address!r}: {_first_line(error)}. Start one here with "
                "`ray start --head`, or name one with --address HOST:PORT or RAY_ADDRESS"
            ) from error
        raise ClusterError(
            f"cannot start a local Ray: {_first_line(error)}. "
            "`sunshower doctor` says what this machine lacks"
        ) from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"
