"""Processes of Spark from PySpark's own jars: a standalone cluster, a server of Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from sunshower.clock import SystemClock
from sunshower.spark_integration.sessions.environment import OPENS, spark_java

WITHIN_S = 300.0
# The address that a process logs when it listens, at a port that the kernel has chosen.
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = re.compile(r"Successfully registered with master")
# The driver listens where executors on this machine find it.
HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@dataclass
class Standalone:
    """A master with workers, each of which has `cores` cores and 1 GiB."""

    folder: Path
    home: Path  # the folder of PySpark, whose `jars` they run
    java: Path = field(default_factory=spark_java)
    cores: int = 2
    master: str = ""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _master: subprocess.Popen[bytes] | None = None

    def start(self, workers: int) -> Self:
        self._master = self._run("master.Master", "--port", "0")
        self.master = self._await("master.Master", _MASTER)[1]
        for number in range(workers):
            options = ("--cores", str(self.cores), "--memory", "1g", "--port", "0")
            work = ("--work-dir", str(self.folder / f"work-{number}"))
            self.workers.append(self._run("worker.Worker", *options, *work, self.master))
            self._await("worker.Worker", _WORKER)
        return self

    def close(self) -> None:
        """End all processes; executors end when their worker has ended."""
        for process in (*self.workers, *filter(None, [self._master])):
            process.kill()
            process.wait()

    def _run(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        (self.folder / "log").mkdir(parents=True, exist_ok=True)
        command = [
            *(str(self.java / "bin/java"), *OPENS.split(), "-Xmx256m", "-cp"),
            *(f"{self.home}/jars/*", f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1"),
            *("--webui-port", "0", *arguments),
        ]
        self._log = self.folder / "log" / f"{main}-{len(self.workers)}"
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={
                    **os.environ,
                    "SPARK_HOME": str(self.home),
                    "JAVA_HOME": str(self.java),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_SCALA_VERSION": "none",  # otherwise a clone of Spark is looked for
                },
            )

    def _await(self, main: str, line: re.Pattern[str]) -> re.Match[str]:
        process = self.workers[-1] if self.workers else self._master
        return awaited(self._log, line, process)


def awaited(
    log: Path, line: re.Pattern[str], process: subprocess.Popen[bytes] | None
) -> re.Match[str]:
    """Wait until a process has logged such a line."""
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    while (match := line.search(text := log.read_text())) is None:
        runs = process is not None and process.poll() is None
        assert runs, f"{log.name} has ended:\n{text[-2000:]}"
        assert clock.now() < end_s, f"{log.name} is not ready:\n{text[-2000:]}"
        clock.sleep(0.05)
    return match


def spark_home() -> Path:
    """The folder of the PySpark of this Python."""
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 2) -> Iterator[Standalone]:
    """A cluster of the PySpark of this Python; it ends with the context."""
    with closing(Standalone(folder, spark_home(), cores=cores)) as cluster:
        yield cluster.start(workers)


@dataclass
class ConnectServer:
    """A server of Spark Connect, whose driver runs the tasks. A restarted one has the same port."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it; a port that the kernel chooses is kept for its next lives."""
        self.starts += 1
        log = self.folder / f"connect-{self.starts}"
        settings = {
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": OPENS,
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.log.level": "INFO",
            **({"spark.jars": ",".join(self.jars)} if self.jars else {}),
            **self.settings,
        }
        confs = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
        command = [str(spark_home() / "bin/spark-submit"), *confs, "--class", CONNECT]
        self.folder.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, "spark-internal"],
                stdout=file,
                stderr=file,
                cwd=self.folder,
                env={
                    **{name: value for name, value in os.environ.items() if name != _MODE},
                    "SPARK_HOME": str(spark_home()),
                    "JAVA_HOME": str(spark_java()),
                    "PYSPARK_PYTHON": sys.executable,
                },
            )
        self.port = int(awaited(log, _LISTENS, self.process)[1])
        return self

    def kill(self) -> None:
        """Kill it, as a machine's end would."""
        assert self.process is not None
        self.process.kill()  # spark-submit has become Java
        self.process.wait()

    @contextmanager
    def kept(self) -> Iterator[Self]:
        """Start it, and again whenever it was killed, until the end of the context."""
        over, self.process = threading.Event(), None

        def keep() -> None:
            while not over.is_set():
                assert self.process is not None
                self.process.wait()
                if not over.is_set():
                    with suppress(AssertionError):  # killed again before it listens
                        self.start()

        thread = threading.Thread(target=keep, name="keeps-connect", daemon=True)
        try:
            self.start()
            thread.start()
            yield self
        finally:
            over.set()
            while thread.is_alive():  # it may be starting another one
                if self.process is not None:
                    self.process.kill()
                thread.join(0.1)
            if self.process is not None:
                self.kill()


CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LISTENS = re.compile(r"Spark Connect server started at: \S*:(\d+)")
_MODE = "SPARKCONNECT_MODE_ENABLED"


def java_processes() -> list[psutil.Process]:
    """The Java processes that run now."""
    return [child for child in psutil.Process().children(recursive=True) if _is_java(child)]


def java_left(before: Collection[psutil.Process] = (), grace_s: float = 120.0) -> list[str]:
    """The commands of the processes that are not in `before`, and still run after `grace_s`."""
    started = [process for process in java_processes() if process not in before]
    _, alive = psutil.wait_procs(started, timeout=grace_s)
    return [" ".join(process.cmdline())[-120:] for process in alive]


def _is_java(process: psutil.Process) -> bool:
    try:
        return process.name() == "java" and "kafka.Kafka" not in process.cmdline()
    except psutil.NoSuchProcess:
        return False
