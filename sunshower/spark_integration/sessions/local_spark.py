"""Spark in this process (`local[*]`): for laptops and tests, with nothing to install or start."""

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
from sunshower.spark_integration.job import collect, hand_over
from sunshower.spark_integration.sessions.environment import (
    SETTINGS,
    memory_bytes,
    prepare,
    with_jars,
)
from sunshower.spark_integration.sessions.session_host import Host, Job, Session, after
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Step, Ticket

_END_S = 10.0  # limit for the JVM to exit
_OPEN_S = 240.0  # limit for opening a session and running its first job


@dataclass(frozen=True)
class LocalSpark:
    """One session per process; all bolts of the process share it. `cores` is the number of Spark
    threads (0: one per processor), `memory` the JVM's heap, `in_flight` the number of concurrent
    batches, `settings` are Spark's, `jars` are added to its classpath."""

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
        """A gateway to this process's session. Raises ConfigError if that has other settings."""
        return LocalGateway(self)


class LocalGateway:
    """A gateway to the session of this process; closing the last gateway ends the JVM."""

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
        with suppress(ImportError):  # in this thread: concurrent first imports conflict
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
    """A host and the number of its open gateways."""

    place: LocalSpark
    host: Host
    users: int = 0


_lock = threading.Lock()
_there: list[Shared] = []  # at most one: a process has one session


class LocalSession:
    """A session whose JVM is a child of this process and ends with it, also when that is killed."""

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
                    self.spark.sparkContext.setLogLevel("OFF")  # relevant errors are raised
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
    """Call `kill` if the block takes longer than `_OPEN_S`, and then raise SparkUnavailable.
    Without a limit Spark waits for ever for executors that never start, or whose master has died.
    """
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
    """Run a small job: the first job of a session takes seconds."""
    frame = session.hand_over(session.spark, pa.table({"key": [0], "value": [0.0]}))
    collect(frame.groupBy("key").sum("value"))


def answers(java: Any, context: Any) -> bool:
    """Whether the JVM runs (None: not started here) and its Spark context has not stopped."""
    try:
        return (java is None or java.poll() is None) and not context._jsc.sc().isStopped()
    except Exception:
        return False


def kill_half_open() -> None:
    """Kill a JVM that does not open a session, so that the waiting call raises."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None and SparkContext._gateway.proc is not None:
        SparkContext._gateway.proc.kill()


def end_half_open() -> None:
    """End the JVM of a session that failed to open, so that the next session does not reuse it."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        end_java(SparkContext._gateway.proc)


def end_java(java: Any) -> None:
    """End the driver's JVM, if this process started it, and clear pyspark's references to it.
    pyspark keeps the gateway in class attributes and would use the dead JVM again. The JVM removes
    its temporary folders when it exits by itself."""
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
        java.stdin.close()  # the JVM exits when its stdin is closed
    try:
        java.wait(_END_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
