"""Ray as a place that runs topologies: the body of the `Cluster` port that production uses."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import ray
from ray import cloudpickle

from sunshower.actors import blackbox
from sunshower.actors.master import MasterClass
from sunshower.actors.names import NAMESPACE, master_name, plan_key, worker_name
from sunshower.actors.store import RayStore
from sunshower.actors.worker import WorkerClass
from sunshower.errors import ClusterError, TopologyError, TopologyFailed
from sunshower.runtime.master import State
from sunshower.runtime.metrics import Snapshot
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.topologies.graph import Graph

_log = logging.getLogger(__name__)

_POLL_S = 0.1
_START_S = 60.0  # for all workers to say hello
_CALL_S = 30.0
_OBJECT_STORE_BYTES = 256 << 20


class RayCluster:
    """A local Ray that ends with this object, or a running one at `address`.

    Use it as a context manager. Raises ClusterError when Ray cannot be started or reached.
    """

    def __init__(self, address: str | None = None, *, quiet: bool = True) -> None:
        self._owned = not ray.is_initialized()
        self._runs: list[RayRun] = []
        if self._owned:
            _start_ray(address, quiet)

    def submit(self, graph: Graph, layout: Layout = Layout.PACK) -> RayRun:
        """Start a topology and wait until all its workers are there."""
        run = RayRun(make_plan(graph, layout))
        self._runs.append(run)
        run.start()
        return run

    def close(self) -> None:
        """Stop every topology that was submitted here, and the Ray that was started here."""
        for run in self._runs:
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

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.id = f"{plan.graph.id}-{uuid.uuid4().hex[:8]}"
        self._master: Any = None
        self._workers: dict[int, Any] = {}

    def start(self) -> None:
        """Create the actors; return when every worker has said hello."""
        place: dict[str, Any] = {"namespace": NAMESPACE, "lifetime": "detached"}
        try:
            RayStore().write(plan_key(self.id), _pickle(self.plan))
            self._master = MasterClass.options(name=master_name(self.id), **place).remote(self.id)
            for worker in self.plan.workers:
                name = worker_name(self.id, worker)
                options = {"name": name, "scheduling_strategy": "SPREAD", **place}  # over all nodes
                actor = WorkerClass.options(**options).remote(self.id, worker)
                self._workers[worker] = actor
            with contextlib.suppress(TimeoutError):
                self._wait_until(lambda: self.snapshot().state != State.STARTING, _START_S)
                return
            raise ClusterError(
                f"not all {len(self.plan.workers)} workers of {self.plan.graph.id!r} started in "
                f"{_START_S:g} s: is there memory for as many processes? Try fewer, or layout pack"
            )
        except BaseException:
            self.stop()
            raise

    def snapshot(self) -> Snapshot:
        """See the port."""
        snapshot, error = self._call(self._master.status)
        if error is not None:
            raise TopologyFailed(error)
        found: Snapshot = snapshot
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
        found: dict[int, list[Any]] = {}
        for worker in {task.worker for task in self.plan.tasks_of(component)}:
            found[worker] = self._call(self._workers[worker].results, component)
        return [found[task.worker].pop(0) for task in self.plan.tasks_of(component)]

    def kill_worker(self, worker: int) -> int:
        """See the port. The worker must be on this machine."""
        return _kill(f"worker {worker}", *self._call(self._master.processes)[worker])

    def kill_master(self) -> int:
        """See the port. The master must be on this machine."""
        return _kill("the master", *self._call(self._master.process))

    def drain(self) -> None:
        """See the port."""
        self._call(self._master.drain)

    def stop(self) -> None:
        """See the port."""
        workers, self._workers = list(self._workers.values()), {}
        with contextlib.suppress(Exception):
            calls = [worker.stop.remote() for worker in workers]
            for error in (e for said in ray.get(calls, timeout=_CALL_S) for e in said):
                _log.warning("%s", error.story)
        for actor in (*workers, self._master):
            if actor is not None:
                with contextlib.suppress(Exception):
                    ray.kill(actor)
        blackbox.remove_all(self.id)
        if self._master is not None:
            with contextlib.suppress(Exception):
                RayStore().remove(f"{self.id}/")
        self._master = None

    def _call(self, method: Any, *args: Any) -> Any:
        if self._master is None:
            raise ClusterError(f"topology {self.plan.graph.id!r} was stopped; submit it again")
        try:
            return ray.get(method.remote(*args), timeout=_CALL_S)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise TopologyFailed(
                f"topology {self.plan.graph.id!r} was asked something and user code raised "
                f"{type(cause).__name__}: {cause}"
            ) from error
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"topology {self.plan.graph.id!r} does not answer: {_first_line(error)}. Its "
                "actors may have been killed or the node is out of memory; submit it again"
            ) from error

    def _wait_until(self, done: Callable[[], bool], timeout_s: float | None) -> None:
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not done():
            if end_s is not None and time.monotonic() >= end_s:
                raise TimeoutError
            time.sleep(_POLL_S)


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
        where = f"the Ray at {address}" if address else "a local Ray"
        raise ClusterError(
            f"cannot {'reach' if address else 'start'} {where}: {_first_line(error)}. "
            "`sunshower doctor` says what this machine lacks"
        ) from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"
