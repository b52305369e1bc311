"""A standalone cluster of Spark, made of PySpark's own jars: a master and workers, to be killed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sunshower.clock import SystemClock
from sunshower.spark_integration.sessions.environment import OPENS, spark_java

WITHIN_S = 120.0
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
        clock = SystemClock()
        end_s = clock.now() + WITHIN_S
        while (match := line.search(text := self._log.read_text())) is None:
            assert clock.now() < end_s, f"{main} is not ready:\n{text[-2000:]}"
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
