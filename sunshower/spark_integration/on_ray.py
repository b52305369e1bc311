"""Spark on the Ray cluster, through RayDP: an actor owns the session, and hands batches over.

bolts ──submit──▶ gateway actor ──▶ driver's Java ──▶ executors: Java on the cluster
                  (no processor)        │ dies: the actor ends itself, Ray starts it again
"""

from __future__ import annotations

import os
import pickle
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from sunshower import errors
from sunshower.arguments import COUNT
from sunshower.errors import ConfigError, SparkError, SparkLost, TransformFailed
from sunshower.spark_integration.blame import said
from sunshower.spark_integration.environment import java_for_executors, memory_bytes, prepare
from sunshower.spark_integration.host import Host, Job
from sunshower.spark_integration.port import BatchInfo, JobReport, Step, Ticket
from sunshower.spark_integration.running import from_bytes, to_bytes
from sunshower.spark_integration.under_way import UnderWay

_NAMESPACE = "sunshower"
_STOP_S = 20.0
_ANOTHER = (
    "all that share a session give it the same settings and jars; give this one a name of its own, "
    "or end the other with its stop()"
)
_STEPS_MAX = 64  # that an actor keeps unpacked
_WAITING_MAX = 16  # jobs at the actor beside those that run
_WORDS = 4  # threads for all other calls


@dataclass(frozen=True)
class RayDPSpark:
    """A session on the Ray cluster that this process is on; it begins with the first batch.

    `name`: all bolts of the cluster that say the same name share one session, which ends its Java
    when nobody has asked for `idle_s`. None: each task has one of its own, which ends with it.

    It takes `executors` × `cores` processors of Ray, and `executors` × `memory`; beside them the
    driver has `driver_memory`. `in_flight` batches run at a time. `jars` are on the driver's node,
    which hands them to the executors.
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
        for name in ("executors", "cores", "in_flight"):
            COUNT.check(f"RayDPSpark({name})", getattr(self, name))
        memory_bytes(self.memory)
        memory_bytes(self.driver_memory)
        java_for_executors()  # it is declared before the topology starts a Ray

    def open(self) -> RayGateway:
        """A way to the session. Raises ConfigError where there is no Ray."""
        return RayGateway(self)

    def stop(self) -> None:
        """End the session of this name, for all that share it, and all its Java."""
        with suppress(ValueError):  # there is none
            _end(ray.get_actor(f"spark/{self.name}", namespace=_NAMESPACE))


class RayGateway:
    """A client of the gateway actor: one task of a topology, in one of its lives."""

    def __init__(self, place: RayDPSpark) -> None:
        if not ray.is_initialized():
            raise ConfigError(
                "RayDPSpark is for topologies that run on Ray, and there is no Ray in this "
                "process: use LocalSpark(…)"
            )
        found = prepare("raydp", "pyspark")
        found["PATH"] = f"{found['JAVA_HOME']}/bin{os.pathsep}${{PATH}}"  # of the actor's node
        shared = {"name": f"spark/{place.name}", "lifetime": "detached", "get_if_exists": True}
        self._place, self._private = place, place.name is None
        self._life = uuid.uuid4().hex
        jobs = {"jobs": place.in_flight + _WAITING_MAX}  # those that wait for a slot, wait there
        self._make: Callable[[], Any] = partial(
            ray.remote(concurrency_groups=jobs)(GatewayActor)
            .options(
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=_WORDS,
                namespace=_NAMESPACE,
                runtime_env={"env_vars": found},
                **({} if self._private else shared),
            )
            .remote,
            place,
        )
        self._actor = self._make()
        self._steps: dict[int, tuple[Step, Packed]] = {}

    def start(self) -> None:
        self._actor.start.remote()

    def submit(self, step: Step, tables: Sequence[pa.Table], batch: BatchInfo) -> Ticket:
        if id(step) not in self._steps:
            packed = Packed(uuid.uuid4().hex, ray.put(cloudpickle.dumps(step)))
            self._steps[id(step)] = step, packed
        rows = [to_bytes(table) for table in tables]
        # In the middle of a restart a call fails: this one waits for one that is made again.
        there = self._actor.there.options(max_task_retries=-1).remote()
        number = uuid.uuid4().hex
        job = self._actor.run.options(concurrency_group="jobs").remote(
            self._steps[id(step)][1], rows, batch, (number, self._life), self._place, there
        )
        return RayTicket(job, partial(self._actor.cancel.remote, number), self._find)

    def _find(self) -> None:
        """Who has died may have been stopped for good: of this name there is another, or will."""
        if self._place.name is not None:
            self._actor = self._make()

    def close(self) -> None:
        if self._private:
            self._private = False
            _end(self._actor)


class RayTicket:
    """A call of the actor that is under way."""

    def __init__(self, reference: Any, cancel: Callable[[], Any], died: Callable[[], Any]) -> None:
        self._reference, self._cancel, self._died = reference, cancel, died
        self._report: JobReport | None = None

    def done(self) -> bool:
        ready, _ = ray.wait([self._reference], timeout=0)
        return bool(ready)

    def result(self) -> pa.Table | None:
        try:
            kind, value, self._report = ray.get(self._reference)
        except RayTaskError as error:
            raise SparkError(f"the gateway to Spark could not run a job: {error}") from error
        except RayError as error:
            with suppress(Exception):  # there may be no Ray any more
                self._died()
            raise SparkLost(
                f"the gateway to Spark died ({type(error).__name__}); Ray starts another"
            ) from error
        if kind:
            raise getattr(errors, kind)(value)
        return None if value is None else from_bytes(value)

    def report(self) -> JobReport | None:
        return self._report

    def cancel(self) -> None:
        self._cancel()


def _loaded(packed: bytes) -> Step:
    try:
        step: Step = pickle.loads(packed)  # noqa: S301
    except Exception as error:
        raise TransformFailed(
            f"a transform cannot be unpacked on the node of its session: {said(error)}. What it "
            "needs must be there: install it, or keep it in the topology's file"
        ) from error
    return step


def _kind(error: SparkError) -> str:
    """Its name, or that of the nearest one that callers know."""
    return next(one.__name__ for one in type(error).__mro__ if one.__module__ == errors.__name__)


def _end(actor: Any) -> None:
    with suppress(RayError):
        ray.get(actor.stop.remote(), timeout=_STOP_S)
    ray.kill(actor)


@dataclass(frozen=True)
class Packed:
    """A step, with its static tables: it travels once, and is named in each job."""

    name: str
    kept: Any  # the reference to its bytes


class GatewayActor:
    """The one process of the cluster in which this session's driver is."""

    def __init__(self, place: RayDPSpark) -> None:
        from sunshower.spark_integration.raydp_session import RayDPSession

        self._place = place
        self._host = Host(lambda: RayDPSession(place), place.in_flight)
        self._steps: dict[str, Step] = {}
        self._under_way = UnderWay()
        self._lock, self._unpacking = threading.Lock(), threading.Lock()
        self._busy = 0
        self._idle = self._timer()

    def start(self) -> None:
        """Open the session, if it is not there, beside other work."""
        self._host.start()

    def there(self) -> None:
        """Answers."""

    def cancel(self, number: str) -> None:
        """Nobody waits for a job any more."""
        self._under_way.cancel(number)

    def run(
        self,
        step: Packed,
        tables: Sequence[bytes],
        batch: BatchInfo,
        asked: tuple[str, str],
        place: RayDPSpark,
        _: None,
    ) -> tuple[str, bytes | str | None, JobReport | None]:
        """A job, to its end: ("", its rows, …) or (a kind of SparkError, what it says, None).
        `asked`: the number of the job, and the life of the task that has handed it over."""
        if place != self._place:
            said = f"{self._place} is there, and {place} has its name: {_ANOTHER}"
            return "SparkError", said, None
        with self._lock:
            self._busy += 1
            self._idle.cancel()
        try:
            job = Job(self._unpacked(step), [from_bytes(table) for table in tables], batch)
            self._under_way.add(asked[0], job, asked[1])
            result = self._host.submit(job).result()
            return "", None if result is None else to_bytes(result), job.report()
        except SparkLost:
            os._exit(1)  # with it go RayDP's actors; Ray starts it again, and the caller hears
        except SparkError as error:
            return _kind(error), str(error), None
        finally:
            self._under_way.remove(asked[0])
            with self._lock:
                self._busy -= 1
                if not self._busy:
                    self._idle = self._timer()

    def stop(self) -> None:
        """End the session, and all Java with it."""
        self._host.stop()

    def _unpacked(self, step: Packed) -> Step:
        with self._unpacking:
            if step.name not in self._steps:
                if len(self._steps) >= _STEPS_MAX:
                    self._steps.clear()
                self._steps[step.name] = _loaded(ray.get(step.kept))
            return self._steps[step.name]

    def _timer(self) -> threading.Timer:
        timer = threading.Timer(self._place.idle_s, self._rest)
        timer.daemon = True
        timer.start()
        return timer

    def _rest(self) -> None:
        """Nobody has asked for long: the next one finds an empty actor."""
        with self._lock:
            if self._busy:
                return
            if not self._host.opened:
                self._idle = self._timer()
                return
        self._host.stop()
        os._exit(1)
