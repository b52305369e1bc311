"""Spark in this process: `local[*]`, for laptops and tests, with nothing to install or start."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from sunshower.arguments import COUNT
from sunshower.errors import ConfigError, SparkUnavailable
from sunshower.spark_integration.environment import SETTINGS, memory_bytes, prepare, with_jars
from sunshower.spark_integration.host import Host, Job, Session, after
from sunshower.spark_integration.port import BatchInfo, Step, Ticket
from sunshower.spark_integration.running import collect, hand_over

_END_S = 10.0  # for Java's own end
_OPEN_S = 240.0  # for a session and its first job


@dataclass(frozen=True)
class LocalSpark:
    """A session in each process that runs a bolt with it; bolts of one process share it.

    `cores` are threads of Spark (0: as many as there are processors), `memory` is Java's,
    `in_flight` how many batches run at a time, `settings` Spark's own, `jars` what else its Java is
    to have.
    """

    cores: int = 0
    memory: str = "1g"
    in_flight: int = 2
    settings: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[str] = ()

    def __post_init__(self) -> None:
        replace(COUNT, least=0).check("LocalSpark(cores)", self.cores)
        COUNT.check("LocalSpark(in_flight)", self.in_flight)
        memory_bytes(self.memory)

    def open(self) -> LocalGateway:
        """A way to this process's session. Raises ConfigError if it is one of other settings."""
        return LocalGateway(self)


class LocalGateway:
    """The session of this process; the last one that closes it ends its Java."""

    def __init__(self, place: LocalSpark) -> None:
        with _lock:
            if _there and _there[0].place != place:
                raise ConfigError(
                    f"this process has {_there[0].place} already, and can have one session alone, "
                    f"not {place} too: use one LocalSpark(…) for all"
                )
            if not _there:
                _there.append(Shared(place, Host(lambda: LocalSession(place), place.in_flight)))
            self._shared: Shared | None = _there[0]
            self._shared.users += 1
        self._host = self._shared.host
        with suppress(ImportError):  # in this thread: two that import it first get in their way
            import pyspark.sql  # noqa: F401

    def start(self) -> None:
        self._host.start()

    def submit(self, step: Step, tables: Sequence[pa.Table], batch: BatchInfo) -> Ticket:
        return self._host.submit(Job(step, tables, batch))

    def close(self) -> None:
        with _lock:
            if self._shared is None:
                return
            self._shared.users -= 1
            if not self._shared.users:
                _there.clear()
                self._host.stop()
            self._shared = None


@dataclass
class Shared:
    """A host, and how many gateways lead to it."""

    place: LocalSpark
    host: Host
    users: int = 0


_lock = threading.Lock()
_there: list[Shared] = []  # one at most: a process has one session


class LocalSession:
    """A session whose Java is a child of this process. It ends with it, also when killed."""

    hand_over = staticmethod(hand_over)

    def __init__(self, place: LocalSpark) -> None:
        prepare("pyspark")
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        self.owned = SparkContext._active_spark_context is None
        builder = SparkSession.builder.master(f"local[{place.cores or '*'}]").appName("sunshower")
        cores = place.cores or 4
        ours = {"spark.driver.memory": place.memory, "spark.sql.shuffle.partitions": str(cores)}
        for name, value in {**SETTINGS, **ours, **with_jars(place.jars), **place.settings}.items():
            builder = builder.config(name, value)
        try:
            with opening(kill_half_open if self.owned else lambda: None):
                self.spark: Any = builder.getOrCreate()
                if self.owned:
                    self.spark.sparkContext.setLogLevel("OFF")  # what matters is raised
                self._java = self.spark.sparkContext._gateway.proc
                warm(self)
        except BaseException:
            if self.owned:
                end_half_open()
            raise

    def alive(self) -> bool:
        return answers(self._java, self.spark.sparkContext)

    def kill(self) -> None:
        if self.owned:
            self._java.kill()

    def stop(self) -> None:
        if self.owned and self.alive():
            with suppress(Exception):
                self.spark.stop()
        if self.owned or (self._java is not None and self._java.poll() is not None):
            end_java(self._java)


@contextmanager
def opening(kill: Callable[[], Any]) -> Iterator[None]:
    """Whatever hangs in it is killed, in the end. Raises SparkUnavailable then: that executors
    never come, or that who was to start them has died, is no error to Spark."""
    late = threading.Event()
    limit = after(_OPEN_S, late.set, kill)
    try:
        yield
    except Exception as error:
        if not late.is_set():
            raise
        raise SparkUnavailable(
            f"Spark has not opened, and run a first job, within {_OPEN_S:g} s. See whether one "
            "node alone has the processors and the memory of an executor, and a Java that starts"
        ) from error
    finally:
        limit.cancel()


def warm(session: Session) -> None:
    """The first job of a session takes seconds: let it be one that nobody waits for."""
    frame = session.hand_over(session.spark, pa.table({"key": [0], "value": [0.0]}))
    collect(frame.groupBy("key").sum("value"))


def answers(java: Any, context: Any) -> bool:
    """Whether Java runs (None: it is not ours to say), and Spark in it has not ended by itself."""
    try:
        return (java is None or java.poll() is None) and not context._jsc.sc().isStopped()
    except Exception:
        return False


def kill_half_open() -> None:
    """Let whoever waits for a Java that does not open hear of an error."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None and SparkContext._gateway.proc is not None:
        SparkContext._gateway.proc.kill()


def end_half_open() -> None:
    """End what is there of a session that did not open: else the next one would go on with it."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        end_java(SparkContext._gateway.proc)


def end_java(java: Any) -> None:
    """End a driver's Java, if it is ours, and let pyspark forget it: it keeps its way there in
    classes, and would ask the dead one again. Java removes its temporary folders, if it can."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if java is None:
        return
    with suppress(Exception):
        SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession.builder._options.clear()
    with suppress(OSError):
        java.stdin.close()  # which it takes as a word to end
    try:
        java.wait(_END_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
