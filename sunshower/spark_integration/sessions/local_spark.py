"""Spark in this process: `LocalSpark`, and gateways to sessions of such places, also elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from sunshower.arguments import COUNT, check_all
from sunshower.errors import ConfigError
from sunshower.secret import protected, reveal
from sunshower.spark_integration.job import hand_over
from sunshower.spark_integration.sessions.environment import (
    MEMORY,
    SETTINGS,
    check_spark_python,
    prepare,
    with_jars,
)
from sunshower.spark_integration.sessions.session_host import (
    DriverSession,
    Job,
    SessionHost,
)
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkStep, Ticket


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
        check_all(self, {"in_flight": COUNT, "memory": MEMORY}, "LocalSpark: ")
        object.__setattr__(self, "settings", protected(self.settings))

    def open(self) -> LocalGateway:
        """A gateway to this process's session. Raises ConfigError if that has other settings,
        SparkMissing on a Python without PySpark."""
        check_spark_python()
        return LocalGateway(self)

    def configuration(self) -> dict[str, Any]:
        """The settings of the session; those of a Secret are not revealed. Raises SparkMissing."""
        ours = {
            "spark.master": f"local[{self.cores or '*'}]",
            "spark.driver.memory": self.memory,
            "spark.sql.shuffle.partitions": str(self.cores or 4),
        }
        return {**SETTINGS, **ours, **with_jars(self.jars), **self.settings}

    def check(self, session: Any) -> None:
        """All is in this process."""

    def session(self) -> DriverSession:
        return LocalSession(self)


class ProcessPlace(Protocol):
    """A place of which a process has one session."""

    @property
    def in_flight(self) -> int:
        """How many batches run concurrently."""

    def session(self) -> DriverSession:
        """Open a session. Raises SparkError and ConfigError."""


class DriverPlace(Protocol):
    """A place whose driver is in the process that uses it."""

    def configuration(self) -> dict[str, Any]:
        """The settings of the session."""

    def check(self, session: Any) -> None:
        """Prepare a session that has started; raise SparkMissing if its executors do not fit."""


class LocalGateway:
    """A gateway to the session of this process; closing the last gateway ends the session, and the
    JVM that it has started."""

    place: ProcessPlace
    _host: SessionHost

    def __init__(self, place: ProcessPlace) -> None:
        with _lock:
            if _gateways and _gateways[0].place != place:
                raise ConfigError(
                    f"this process has {_gateways[0].place} already, and can have one session "
                    f"alone, not {place} too: use one {type(place).__name__}(…) for all"
                )
            self.place = place
            if _gateways:
                self._host = _gateways[0]._host
            else:
                self._host = SessionHost(place.session, place.in_flight)
            _gateways.append(self)
        with suppress(ImportError):  # in this thread: concurrent first imports conflict
            import pyspark.sql  # noqa: F401

    def start(self) -> None:
        self._host.start()

    def submit(self, step: SparkStep, tables: Sequence[pa.Table], batch: BatchInfo) -> Ticket:
        return self._host.submit(Job(step, tables, batch))

    def close(self) -> None:
        with _lock:
            if self in _gateways:
                _gateways.remove(self)
                if not _gateways:
                    self._host.stop()


_lock = threading.Lock()
_gateways: list[LocalGateway] = []  # those that are open; they share one session


class LocalSession(DriverSession):
    """A session whose JVM is a child of this process and ends with it, also when that is killed."""

    def __init__(self, place: DriverPlace) -> None:
        prepare("pyspark")
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        self.owned = SparkContext._active_spark_context is None
        builder = SparkSession.builder.appName("sunshower")
        for name, value in place.configuration().items():
            builder = builder.config(name, reveal(value))
        self.start, self._place = builder.getOrCreate, place
        self.open()

    def warm(self) -> None:
        self._place.check(self.spark)
        super().warm()

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        return hand_over(session, table)

    def stop(self) -> None:
        if self.owned and self.alive():
            with suppress(Exception):
                self.spark.stop()
        if self.owned or (self._java is not None and self._java.poll() is not None):
            super().stop()
