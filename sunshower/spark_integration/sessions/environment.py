"""The environment Spark needs: Java, this Python, and settings that suit small batches."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sunshower.arguments import Rule
from sunshower.errors import SparkMissing
from sunshower.installed import (
    SET_JAVA,
    check_packages,
    check_python,
    install_command,
    java_of_spark,
    release_of,
    spark_extra,
    unfit_java,
)

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

# Java 17 packages that Spark 3.5 accesses; without them RayDP's app master fails to start. Java 8
# has no modules, and ignores the options in this form only.
_OPENED = (
    *("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "math", "text", "util"),
    *("util.concurrent", "util.concurrent.atomic"),
)
_OPENED_SUN = ("nio.ch", "nio.cs", "security.action", "util.calendar")
_PACKAGES = (*(f"java.{name}" for name in _OPENED), *(f"sun.{name}" for name in _OPENED_SUN))
_OPENS = (f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES)
OPENS = " ".join(("-XX:+IgnoreUnrecognizedVMOptions", *_OPENS))

# Times as other readers have them: Spark's default, INT96, counts nanoseconds (9999-12-31 overflows
# to 1816 in pyarrow) without a zone. And as they are, also before 1900 and 1582: nothing that we
# write or read is of Spark 2, whose calendar differed.
TIMES: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    **{
        f"spark.sql.{kind}RebaseModeIn{way}": "CORRECTED"
        for kind in ("parquet.datetime", "parquet.int96", "avro.datetime")
        for way in ("Read", "Write")
    },
}
SETTINGS: Mapping[str, str] = {
    **TIMES,
    "spark.driver.extraJavaOptions": OPENS,
    "spark.executor.extraJavaOptions": OPENS,
    "spark.ray.raydp_app_master.extraJavaOptions": OPENS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark converts smaller tables to rows on the driver. For 1 M rows that took 15 times as long
    # as tasks that read the columns, and more memory than available.
    "spark.sql.execution.arrow.localRelationThreshold": "0b",
    "spark.scheduler.mode": "FAIR",  # each topology is a scheduler pool
    # Bounds what Spark remembers of finished batches: about 35 KiB each, by default of 1000.
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "10000",
    "spark.sql.ui.retainedExecutions": "100",
}


_EXTENSIONS = "spark.sql.extensions"
_BY_JAR = {  # the start of a jar's name → settings
    "delta-spark": {
        _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "4",  # of the log; 50 tasks take seconds
    },
    "iceberg-spark": {
        _EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    },
}


class _MemoryRule(Rule):
    def allows(self, value: Any) -> bool:
        return isinstance(value, str) and re.fullmatch(r"[0-9]+[kmgtKMGT]", value) is not None

    def __str__(self) -> str:
        return "an amount of memory for Java: 512m, or 2g"


MEMORY = _MemoryRule()


def memory_bytes(text: str) -> int:
    """Bytes of a Java memory size such as `512m` or `2g`, which follows MEMORY."""
    return int(text[:-1]) * _UNITS[text[-1].lower()]


def spark_java() -> Path:
    """The folder of the Java that Spark runs on. Raises SparkMissing, also if the PySpark that is
    installed does not run on it."""
    home = java_of_spark(SparkMissing)
    check_java(home / "bin" / "java", SET_JAVA)
    return home


def java_release(java: Path) -> Mapping[str, str]:
    """JAVA_VERSION and MODULES of an executable `java`, as its file `release` has them. Without the
    file, the version that it prints; empty if it does not start."""
    with suppress(OSError):
        lines = (java.resolve().parents[1] / "release").read_text(encoding="utf-8").splitlines()
        return {name: text.strip('"') for name, _, text in (line.partition("=") for line in lines)}
    with suppress(OSError, subprocess.SubprocessError):
        command = [str(java), "-version"]
        done = subprocess.run(  # noqa: S603 - the user's own Java
            command, capture_output=True, text=True, timeout=30, check=False
        )
        if version := re.search(r'version "([^"]+)"', done.stderr):
            return {"JAVA_VERSION": version[1]}
    return {}


def check_java(java: Path, remedy: str) -> None:
    """Raise SparkMissing, with the remedy, if this PySpark does not run on a Java."""
    release = java_release(java)
    if why := unfit_java(release, ".".join(map(str, release_of("pyspark")))):
        version = release.get("JAVA_VERSION", "?")
        raise SparkMissing(f"{java} is Java {version}, and {why}: {remedy}")


def java_for_executors() -> None:
    """Add a Java to PATH if there is none. A Ray that this process starts later runs Spark's
    executors with the `java` on its own PATH."""
    if shutil.which("java") is None:
        with suppress(SparkMissing):
            os.environ["PATH"] += f"{os.pathsep}{spark_java() / 'bin'}"


def with_jars(jars: Sequence[str]) -> dict[str, str]:
    """The settings for additional jars. Raises SparkMissing if one of the files does not exist."""
    for jar in jars:
        if not Path(jar).is_file():
            raise SparkMissing(
                f"there is no file {jar}, which jars=(…) names: give paths on the machine of the "
                "driver, as `sunshower.dev.jars.spark_kafka()` returns them where it is called"
            )
    settings = {"spark.jars": ",".join(jars)} if jars else {}
    for start, more in _BY_JAR.items():
        if any(Path(jar).name.startswith(start) for jar in jars):
            both = filter(None, (settings.get(_EXTENSIONS), more[_EXTENSIONS]))
            settings |= {**more, _EXTENSIONS: ",".join(both)}
    return settings


def check_spark_python() -> None:
    """Raise SparkMissing on a Python for which PySpark 3.5 and RayDP have no release, unless
    PySpark 4 is installed, which has one."""
    if spark_extra() == "spark":
        try:
            check_python("spark", "a Spark step", error=SparkMissing)
        except SparkMissing as error:
            raise SparkMissing(
                f"{error}. Or install Spark 4, without RayDP, here: {install_command('spark4')}"
            ) from None


def check_raydp() -> None:
    """Raise SparkMissing with PySpark 4, on which RayDP does not run."""
    version = release_of("pyspark")
    if version >= (4,):
        raise SparkMissing(
            f"RayDP runs on PySpark 3.5, and this environment has PySpark "
            f"{'.'.join(map(str, version))}, of the extra spark4, which excludes the extra spark. "
            "Use LocalSpark, SparkCluster or SparkConnect here, or install the extra spark into an "
            "environment of its own, with Python 3.11 or 3.12"
        )


def prepare(*packages: str) -> dict[str, str]:
    """Set and return the environment variables that Spark's processes read. Raises SparkMissing if
    Java or one of `packages` is missing, or has no release for this Python."""
    if "raydp" in packages:
        check_raydp()
    check_spark_python()
    check_packages(spark_extra(), "which runs batches", *packages, error=SparkMissing)
    variables = {
        "JAVA_HOME": str(spark_java()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    os.environ.update(variables)
    return variables
