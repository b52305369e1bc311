"""A Spark session whose driver's JVM is a child of this process: opens it, checks it, ends it."""

from __future__ import annotations

import socket
import subprocess
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from sunshower.errors import SparkUnavailable
from sunshower.secret import protected
from sunshower.spark_integration.job import collect_rows
from sunshower.spark_integration.sessions.session_host import after

_END_S = 10.0  # limit for the JVM to exit
_OPEN_S = 240.0  # limit for opening a session and running its first job


class DriverSession:
    """An open session. `owned`: whether this object started the JVM, and so ends it."""

    owned = True
    spark: Any
    _java: Any  # the JVM's process; None if pyspark did not start it

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        """Convert a normalised table to a DataFrame of `session`."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the session and its JVM, or what is left of them, so that another can be opened."""
        raise NotImplementedError

    def alive(self) -> bool:
        """Whether the JVM runs and its Spark context has not stopped."""
        try:
            running = self._java is None or self._java.poll() is None
            return running and not self.spark.sparkContext._jsc.sc().isStopped()
        except Exception:
            return False

    def kill(self) -> None:
        """Kill the JVM, if this session started it, so that waiting calls raise."""
        if self.owned:
            self._java.kill()

    def open(self, start: Callable[[], Any]) -> None:
        """Start the session and run its first job. Raises SparkUnavailable after `_OPEN_S`: Spark
        waits for ever for executors that never start, or whose master has died."""
        _hide_secrets_from_arguments()
        late = threading.Event()
        limit = after(_OPEN_S, late.set, self.kill_unopened if self.owned else late.set)
        try:
            self.spark = start()
            if self.owned:
                self.spark.sparkContext.setLogLevel("OFF")  # relevant errors are raised
            self._java = self.spark.sparkContext._gateway.proc
            if self.owned:
                end_calls_with(self._java, self.spark.sparkContext._gateway)
            self.warm()
        except BaseException as error:
            limit.cancel()
            if self.owned:
                self.end_unopened()
            if not late.is_set() or not isinstance(error, Exception):
                raise
            raise SparkUnavailable(
                f"Spark has not opened, and run a first job, within {_OPEN_S:g} s. See whether one "
                "node alone has the processors and the memory of an executor, and a Java that "
                "starts"
            ) from error
        limit.cancel()

    def warm(self) -> None:
        """Run a small job: the first job of a session takes seconds."""
        frame = self.hand_over(self.spark, pa.table({"key": [0], "value": [0.0]}))
        collect_rows(frame.groupBy("key").sum("value"))

    def kill_unopened(self) -> None:
        """Kill a JVM that does not open a session, so that the waiting call raises."""
        if (java := _unopened_java()) is not None:
            java.kill()

    def end_unopened(self) -> None:
        """End the JVM of a session that failed to open, so that the next one does not reuse it."""
        end_java(_unopened_java())


def _hide_secrets_from_arguments() -> None:
    """Let pyspark start the JVM without the settings that hold secrets: it passes all of them as
    arguments of the process, which every user of the machine can see. It sets them again in the
    JVM, through its gateway."""
    from pyspark import context

    launch = context.launch_gateway
    if hasattr(launch, "hides_secrets"):
        return

    def launched(conf: Any = None, popen_kwargs: Any = None) -> Any:
        from pyspark import SparkConf

        public = SparkConf(loadDefaults=False)
        for name, value in conf.getAll() if conf else ():
            if protected({name: value}) == {name: value}:
                public.set(name, value)
        return launch(public, popen_kwargs)

    launched.hides_secrets = True  # type: ignore[attr-defined]
    context.launch_gateway = launched


def end_calls_with(java: Any, gateway: Any) -> None:
    """Have waiting calls of py4j raise when the JVM has ended. Its sockets alone do not tell: a
    process that it was just starting inherits them, and in Java 17.0.9 waits for ever
    (JDK-8307990)."""
    client = gateway._gateway_client
    connections, connect = weakref.WeakSet[Any](client.deque), client._create_new_connection

    def connected() -> Any:
        if java.poll() is not None:
            raise ConnectionError("Java has ended")
        connection = connect()
        connections.add(connection)
        return connection

    def close() -> None:
        java.wait()
        for connection in [*connections]:
            with suppress(Exception):
                connection.socket.shutdown(socket.SHUT_RDWR)

    client._create_new_connection = connected
    threading.Thread(target=close, name="spark-java", daemon=True).start()


def _unopened_java() -> Any:
    from pyspark import SparkContext

    return None if SparkContext._gateway is None else SparkContext._gateway.proc


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
