"""Spark Connect: the driver is in a server, and here is a client of it, which needs no Java.

worker ──plans and Arrow rows, gRPC──▶ server: the driver's JVM ──▶ executors
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sunshower.arguments import COUNT, Instance, check_all
from sunshower.errors import ConfigError, SparkMissing, SparkUnavailable
from sunshower.installed import check_packages, release_of
from sunshower.secret import Secret, address, protected, reveal
from sunshower.spark_integration.job import error_text, spark_schema
from sunshower.spark_integration.sessions.environment import TIMES
from sunshower.spark_integration.sessions.local_spark import LocalGateway
from sunshower.spark_integration.sessions.session_host import DriverSession, Job
from sunshower.spark_integration.sessions.spark_cluster import (
    check_files,
    check_workers,
    misfit,
    modules_of,
)

_ADDRESS = Instance((str, Secret), 'an address, such as "sc://host:15002"', False, True)
_URL = re.compile(r"sc://[^/;?#]+(/(;[^;]+)*)?")
_PACKAGES = ("pyspark", "grpc", "grpc_status", "google.rpc", "zstandard")
_GIVE_PYTHON = "start the server with PYSPARK_PYTHON set to the path of a Python {}"
# Functions of pyspark.sql make columns of Connect if it is set.
_MODE = "SPARK_CONNECT_MODE_ENABLED"
_RETRIES = 4  # after 0.05, 0.2, 0.8 and 3.2 s: longer outages are handled by the batches
_SETTINGS_OF_SERVER = re.compile("CANNOT_MODIFY_(STATIC_)?CONFIG")


@dataclass(frozen=True)
class SparkConnect:
    """A server of Spark Connect: `sc://host:15002`, or with parameters, such as
    `sc://host:443/;use_ssl=true;token=…`. No Java is needed here.

    `in_flight` batches run concurrently, each in a session of its own. `settings` are those of a
    session (`spark.sql.…`); all others, and jars, are the server's. `py_files` (modules as .py,
    packages as .zip) are paths on this machine, from which they are sent to Python workers.

    The client is PySpark 4 (the extra `spark4`), not newer than the server, and Python workers have
    the minor version of Python here. Raises ConfigError for another address.
    """

    url: str | Secret
    in_flight: int = 2
    settings: Mapping[str, str] = field(default_factory=dict)
    py_files: Sequence[str] = ()

    remote = True  # its driver is not in a process of ours

    def __post_init__(self) -> None:
        check_all(self, {"url": _ADDRESS, "in_flight": COUNT}, "SparkConnect: ")
        object.__setattr__(self, "url", address(self.url))
        if not _URL.fullmatch(reveal(self.url)):
            raise ConfigError(
                f"SparkConnect: the address is {self.url!r}; give sc://HOST:PORT, or "
                "sc://HOST:PORT/;NAME=VALUE;… with parameters. For the master of a cluster "
                "(spark://, yarn, k8s://) take SparkCluster(…)"
            )
        object.__setattr__(self, "settings", protected(self.settings))

    def open(self) -> LocalGateway:
        """A gateway to this process's sessions. Raises ConfigError if that has other settings, and
        SparkMissing without PySpark 4, its packages for Connect, or a file of `py_files`."""
        version = release_of("pyspark")
        if version and version < (4,):
            raise SparkMissing(
                f"SparkConnect needs PySpark 4, and this is PySpark "
                f"{'.'.join(map(str, version))}, of the extra spark, which excludes the extra "
                "spark4: install spark4 into an environment of its own"
            )
        check_packages("spark4", "which runs batches", *_PACKAGES, error=SparkMissing)
        check_files(self.py_files)
        import pyspark.sql.connect.session  # noqa: F401  # here: concurrent imports conflict

        return LocalGateway(self)

    def session(self) -> ConnectSession:
        return ConnectSession(self)


class ConnectSession(DriverSession):
    """Sessions at a server, one for each thread that runs jobs. They end with the server: one that
    has started again does not know them."""

    def __init__(self, place: SparkConnect) -> None:
        self._place = place
        self._sessions = weakref.WeakSet[Any]()
        self.open()

    def connect(self) -> None:
        """Make a session, and check that server and Python workers fit. Raises SparkUnavailable
        without an answer, SparkMissing if they do not fit."""
        from pyspark.errors.exceptions.connect import SparkConnectGrpcException

        try:
            self.spark = self.new()
            check_version(release_of("pyspark"), self.spark.version, str(self._place.url))
        except SparkConnectGrpcException as error:
            why = error_text(error).strip().partition("\n")[0]
            raise SparkUnavailable(
                f"{self._place.url} does not answer as a server of Spark Connect: {why}"
            ) from None
        try:
            check_workers(self.spark, modules_of(self._place.py_files))
        except SparkConnectGrpcException as error:
            if remedy := misfit(error_text(error), self.spark.version, _GIVE_PYTHON):
                raise SparkMissing(f"{self._place.url}: {remedy}") from None
            raise

    def new(self) -> Any:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        os.environ[_MODE] = "1"
        session = SparkSession.builder.remote(reveal(self._place.url)).create()
        self._sessions.add(session)
        session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
        SparkSession._active_session.session = session  # of this thread; UDFs are made in it
        for name, value in {**TIMES, **self._place.settings}.items():
            try:
                session.conf.set(name, reveal(value))
            except Exception as error:
                if not _SETTINGS_OF_SERVER.search(error_text(error)):
                    raise
                raise ConfigError(
                    f"SparkConnect: the setting {name} is not one of a session: start the server "
                    f"with --conf {name}=…"
                ) from None
        if self._place.py_files:
            session.addArtifacts(*self._place.py_files, pyfile=True)
        return session

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        return session.createDataFrame(table, spark_schema(table.schema))

    def begin(self, session: Any, group: str, job: Job) -> None:
        session.clearTags()
        session.addTag(group)

    def cancel(self, session: Any, group: str) -> None:
        session.interruptTag(group)

    def metrics(self, group: str) -> dict[str, Any]:
        return {}  # a client does not see jobs

    def alive(self) -> bool:
        """Whether the server answers and knows the sessions."""
        try:
            for session in [*self._sessions]:
                session.conf.get("spark.sql.session.timeZone")
        except Exception:
            return False
        return True

    def kill(self) -> None:
        """Close the connections, so that waiting calls raise."""
        for session in [*self._sessions]:
            with suppress(Exception):
                session.client.close()

    def stop(self) -> None:
        for session in [*self._sessions]:
            with suppress(Exception):
                session.client.set_retry_policies([])  # the server may be gone
                session.stop()
        os.environ.pop(_MODE, None)


def check_version(ours: tuple[int, ...], server: str, url: str) -> None:
    """Raise SparkMissing for a server of another major version than the client's, or an older
    one."""
    theirs = tuple(map(int, re.findall(r"\d+", server)[:2]))
    if theirs[:1] != ours[:1] or theirs < ours[:2]:
        raise SparkMissing(
            f"the client is PySpark {'.'.join(map(str, ours))}, and the server at {url} is Spark "
            f"{server}: use a server of {ours[0]}.{ours[1]} or a later {ours[0]}.x; or, for a "
            f"cluster of Spark {server}, SparkCluster(…), with PySpark {server} here"
        )
