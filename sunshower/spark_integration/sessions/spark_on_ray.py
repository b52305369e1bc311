"""Spark on the Ray cluster through RayDP: a detached actor owns the session and runs the batches.

bolts ──submit──▶ gateway actor ──▶ driver's JVM ──▶ executors: JVMs on the cluster
                  (no processor)        │ dies: the actor exits, Ray restarts it
"""

from __future__ import annotations

import os
import pickle
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from sunshower import errors
from sunshower.arguments import COUNT, SECONDS_FROM_0, check_all
from sunshower.errors import ConfigError, SparkError, SparkLost, TransformFailed
from sunshower.secret import protected
from sunshower.spark_integration.error_report import error_text
from sunshower.spark_integration.job import from_bytes, to_bytes
from sunshower.spark_integration.sessions.environment import (
    MEMORY,
    java_for_executors,
    prepare,
)
from sunshower.spark_integration.sessions.jobs import Job, RunningJobs
from sunshower.spark_integration.sessions.raydp_session import RayDPSession, RayDPSettings
from sunshower.spark_integration.sessions.session_host import SessionHost, after
from sunshower.spark_integration.sessions.spark_port import BatchInfo, JobReport, SparkStep, Ticket

_NAMESPACE = "sunshower"
_STOP_S = 20.0
_ANOTHER = (
    "all that share a session give it the same settings and jars; give this one a name of its own, "
    "or end the other with its stop()"
)
_STEPS_MAX = 64  # steps that an actor keeps unpickled
_WAITING_MAX = 16  # jobs that may wait at the actor besides those that run
_OTHER_CALLS = 4  # threads for all other calls


@dataclass(frozen=True)
class RayDPSpark(RayDPSettings):
    """A session on this process's Ray cluster; it opens with the first batch.

    Bolts that give the same `name` share one session, whose JVM ends after `idle_s` without a job.
    With None each task has its own session, which ends with the task.

    The session takes `executors` × `cores` CPUs and `executors` × `memory` of Ray's resources; the
    driver additionally uses `driver_memory`. `in_flight` batches run concurrently. `jars` are paths
    on the driver's node, which sends them to the executors.
    """

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("executors", "cores", "in_flight"), COUNT)
        sizes = dict.fromkeys(("memory", "driver_memory"), MEMORY)
        check_all(self, {**counts, **sizes, "idle_s": SECONDS_FROM_0}, "RayDPSpark: ")
        object.__setattr__(self, "settings", protected(self.settings))
        java_for_executors()  # before the topology starts Ray

    def open(self) -> RayGateway:
        """A gateway to the session. Raises ConfigError if Ray is not initialised."""
        return RayGateway(self)

    def stop(self) -> None:
        """End the session of this name and all its JVMs, for every user."""
        with suppress(ValueError):  # no session has this name
            _end(ray.get_actor(f"spark/{self.name}", namespace=_NAMESPACE))


class RayGateway:
    """A client of the gateway actor, for one task in one of its lives."""

    def __init__(self, place: RayDPSpark) -> None:
        if not ray.is_initialized():
            raise ConfigError(
                "RayDPSpark is for topologies that run on Ray, and there is no Ray in this "
                "process: use LocalSpark(…)"
            )
        found = prepare("raydp", "pyspark")
        found["PATH"] = f"{found['JAVA_HOME']}/bin{os.pathsep}${{PATH}}"  # on the actor's node
        shared = {"name": f"spark/{place.name}", "lifetime": "detached", "get_if_exists": True}
        self._place, self._private = place, place.name is None
        self._life = uuid.uuid4().hex
        jobs = {"jobs": place.in_flight + _WAITING_MAX}  # jobs that wait for a slot are calls too
        self._make: Callable[[], Any] = partial(
            ray.remote(concurrency_groups=jobs)(GatewayActor)
            .options(
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=_OTHER_CALLS,
                namespace=_NAMESPACE,
                runtime_env={"env_vars": found},
                **({} if self._private else shared),
            )
            .remote,
            place,
        )
        self._actor = self._make()
        self._steps: dict[int, tuple[SparkStep, str, Any]] = {}

    def start(self) -> None:
        self._actor.start.remote()

    def submit(self, step: SparkStep, tables: Sequence[pa.Table], batch: BatchInfo) -> Ticket:
        if id(step) not in self._steps:
            pickled = ray.put(cloudpickle.dumps(step))
            self._steps[id(step)] = step, uuid.uuid4().hex, pickled
        _, name, pickled = self._steps[id(step)]
        # A call fails while the actor restarts. `run` depends on this one, which Ray retries.
        alive = self._actor.ping.options(max_task_retries=-1).remote()
        number = uuid.uuid4().hex
        request = JobRequest(
            number,
            self._life,
            self._place,
            step=name,
            pickled=pickled,
            tables=[to_bytes(table) for table in tables],
            batch=batch,
        )
        job = self._actor.run.options(concurrency_group="jobs").remote(request, alive)
        return RayTicket(job, partial(self._actor.cancel.remote, number), self._reconnect)

    def _reconnect(self) -> None:
        """Look the actor up again: a dead one may have been stopped and replaced."""
        if self._place.name is not None:
            self._actor = self._make()

    def close(self) -> None:
        if self._private:
            self._private = False
            _end(self._actor)


class RayTicket:
    """A running call of the gateway actor."""

    def __init__(self, reference: Any, cancel: Callable[[], Any], died: Callable[[], Any]) -> None:
        self._reference, self._cancel, self._died = reference, cancel, died
        self._report: JobReport | None = None

    def done(self) -> bool:
        ready, _ = ray.wait([self._reference], timeout=0)
        return bool(ready)

    def result(self) -> pa.Table | None:
        try:
            reply: JobReply = ray.get(self._reference)
        except RayTaskError as error:
            raise SparkError(f"the gateway to Spark could not run a job: {error}") from error
        except RayError as error:
            with suppress(Exception):  # Ray may have shut down
                self._died()
            raise SparkLost(
                f"the gateway to Spark died ({type(error).__name__}); Ray starts another"
            ) from error
        if reply.error is not None:
            raise getattr(errors, reply.error)(reply.message)
        self._report = reply.report
        return None if reply.rows is None else from_bytes(reply.rows)

    def report(self) -> JobReport | None:
        return self._report

    def cancel(self) -> None:
        self._cancel()


def _error_name(error: SparkError) -> str:
    """The name of the error's class, or of its nearest base class in `errors`."""
    return next(one.__name__ for one in type(error).__mro__ if one.__module__ == errors.__name__)


def _end(actor: Any) -> None:
    with suppress(RayError):
        ray.get(actor.stop.remote(), timeout=_STOP_S)
    ray.kill(actor)


class JobRequest(NamedTuple):
    """A job for the gateway actor, from one life of a task."""

    number: str
    life: str
    place: RayDPSpark
    step: str  # the name of its step
    pickled: Any  # the reference of the step's bytes in the object store, with its static tables
    tables: Sequence[bytes]
    batch: BatchInfo


class JobReply(NamedTuple):
    """What came of a job: its rows, if any, and its cost; or the name of a SparkError, and its
    message."""

    rows: bytes | None = None
    report: JobReport | None = None
    error: str | None = None
    message: str = ""


class GatewayActor:
    """The actor that runs the driver of a session."""

    def __init__(self, place: RayDPSpark) -> None:
        self._place = place
        self._host = SessionHost(lambda: RayDPSession(place), place.in_flight)
        self._steps: dict[str, SparkStep] = {}
        self._running = RunningJobs()
        self._lock, self._unpacking = threading.Lock(), threading.Lock()
        self._busy = 0
        self._idle = self._timer()
        with suppress(ImportError):  # in this thread: concurrent first imports conflict
            import pyspark.sql  # noqa: F401

    def start(self) -> None:
        """Open the session in the background, if it is not open."""
        self._host.start()

    def ping(self) -> None:
        """Return when the actor is alive."""

    def cancel(self, number: str) -> None:
        """Cancel a job."""
        self._running.cancel(number)

    def run(self, request: JobRequest, _: None) -> JobReply:
        """Run a job to its end."""
        if request.place != self._place:
            text = f"{self._place} is there, and {request.place} has its name: {_ANOTHER}"
            return JobReply(error="SparkError", message=text)
        with self._lock:
            self._busy += 1
            self._idle.cancel()
        try:
            tables = [from_bytes(table) for table in request.tables]
            job = Job(self._unpacked(request), tables, request.batch)
            self._running.add(request.number, job, request.life)
            result = self._host.submit(job).result()
            return JobReply(None if result is None else to_bytes(result), job.report())
        except SparkLost:
            os._exit(1)  # RayDP's actors end too; Ray restarts this one; callers get a RayError
        except SparkError as error:
            return JobReply(error=_error_name(error), message=str(error))
        finally:
            self._running.remove(request.number)
            with self._lock:
                self._busy -= 1
                if not self._busy:
                    self._idle = self._timer()

    def stop(self) -> None:
        """End the session and its JVMs."""
        self._host.stop()

    def _unpacked(self, request: JobRequest) -> SparkStep:
        with self._unpacking:
            if request.step not in self._steps:
                if len(self._steps) >= _STEPS_MAX:
                    self._steps.clear()
                packed = ray.get(request.pickled)
                try:
                    self._steps[request.step] = pickle.loads(packed)  # noqa: S301
                except Exception as error:
                    raise TransformFailed(
                        "a transform cannot be unpacked on the node of its session: "
                        f"{error_text(error)}. What it needs must be there: install it, or keep "
                        "it in the topology's file"
                    ) from error
            return self._steps[request.step]

    def _timer(self) -> threading.Timer:
        return after(self._place.idle_s, self._end_if_idle)

    def _end_if_idle(self) -> None:
        """Exit after `idle_s` without a job; Ray restarts the actor without a session."""
        with self._lock:
            if self._busy:
                return
            if not self._host.opened:
                self._idle = self._timer()
                return
        self._host.stop()
        os._exit(1)
