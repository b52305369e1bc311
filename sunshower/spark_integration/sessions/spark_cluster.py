"""Spark on an existing cluster: the driver is in this process, executors are on the cluster.

worker ──submit──▶ the driver's JVM, its child ──▶ executors of a cluster

Before its first batch a session runs jobs that find executors that do not fit: another Spark,
another Python, no modules.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sunshower.arguments import COUNT, NAME, check_all
from sunshower.errors import ConfigError, SparkMissing
from sunshower.secret import protected
from sunshower.spark_integration.job import error_text
from sunshower.spark_integration.sessions.environment import (
    MEMORY,
    SETTINGS,
    check_spark_python,
    with_jars,
)
from sunshower.spark_integration.sessions.local_spark import LocalGateway, LocalSession

_MASTER = re.compile(r"spark://[^/]+:\d+(,[^/]+:\d+)*|yarn|k8s://.+")
_IMAGE = "spark.kubernetes.container.image"
_OPENS = "spark.executor.extraJavaOptions"  # an executor's Java may be older; Spark adds its own
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
# What Spark reports if versions, or the Python of a worker, do not fit.
_INCOMPATIBLE = re.compile(r"InvalidClassException|local class incompatible|NoSuchMethodError")
_OTHER_PYTHON = re.compile(r"Python in worker has different version:? \(?(\d+)[.,] ?(\d+)")
_ROWS = 1_000  # for at most as many tasks, one per core of the cluster
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*)"')


@dataclass(frozen=True)
class SparkCluster:
    """A session on a cluster of Spark: `spark://host:7077` (standalone), `yarn`, or
    `k8s://https://host:443`. Each process that runs such a bolt is an application of the cluster.

    It takes `executors` executors of `cores` cores and `memory`, and `driver_memory` here.
    `in_flight` batches run concurrently. `jars` and `py_files` (modules as .py, packages as .zip)
    are paths on the driver's machine, which sends them to the executors. `python` is the path of
    the executors' Python: on a standalone cluster by default that of this one, elsewhere `python3`.

    The cluster must have the Spark version of the driver, and Python workers its minor version of
    Python. Raises ConfigError for another master, or for Kubernetes without an image.
    """

    master: str
    executors: int = 1
    cores: int = 1
    memory: str = "1g"
    driver_memory: str = "1g"
    in_flight: int = 2
    settings: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[str] = ()
    py_files: Sequence[str] = ()
    python: str = ""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("executors", "cores", "in_flight"), COUNT)
        sizes = dict.fromkeys(("memory", "driver_memory"), MEMORY)
        check_all(self, {"master": NAME, **counts, **sizes}, "SparkCluster: ")
        if not _MASTER.fullmatch(self.master):
            raise ConfigError(
                f"SparkCluster: the master is {self.master!r}; give spark://HOST:PORT of a "
                "standalone cluster, yarn, or k8s://https://HOST:PORT. In this process Spark runs "
                "with LocalSpark(…)"
            )
        if self.master.startswith("k8s:") and _IMAGE not in self.settings:
            raise ConfigError(
                f"SparkCluster: on Kubernetes executors are containers: give settings={{{_IMAGE!r}:"
                " …}, an image with this Spark and this Python"
            )
        object.__setattr__(self, "settings", protected(self.settings))

    def open(self) -> LocalGateway:
        """A gateway to this process's session. Raises ConfigError if that has other settings,
        SparkMissing on a Python without PySpark, without a file of `py_files`, and for YARN without
        its configuration."""
        check_spark_python()
        check_files(self.py_files)
        if self.master == "yarn" and not any(os.environ.get(name) for name in _HADOOP):
            raise SparkMissing(
                "SparkCluster('yarn') reads where YARN is from the folder of Hadoop's "
                f"configuration: set {' or '.join(_HADOOP)} to it in the environment of the workers"
            )
        return LocalGateway(self)

    def configuration(self) -> dict[str, Any]:
        """The settings of the session; those of a Secret are not revealed. Sets PYSPARK_PYTHON,
        where PySpark reads the path of the executors' Python. Raises SparkMissing."""
        os.environ["PYSPARK_PYTHON"] = self.python or self._default_python
        ours = {
            "spark.master": self.master,
            "spark.driver.memory": self.driver_memory,
            "spark.executor.memory": self.memory,
            "spark.executor.cores": str(self.cores),
            "spark.sql.shuffle.partitions": str(2 * self.executors * self.cores),
        }
        if self.master.startswith("spark:"):
            ours["spark.cores.max"] = str(self.executors * self.cores)
        else:
            ours["spark.executor.instances"] = str(self.executors)
        settings = {**SETTINGS, **ours, **with_jars(self.jars)}
        del settings[_OPENS]
        return {**settings, **self.settings}

    def session(self) -> LocalSession:
        return LocalSession(self)

    @property
    def _default_python(self) -> str:
        return sys.executable if self.master.startswith("spark:") else "python3"

    def check(self, session: Any) -> None:
        """Send the files of `py_files`, and let executors report their Spark, their Python and
        these modules. Raises SparkMissing."""
        for file in self.py_files:
            session.sparkContext.addPyFile(file)
        try:
            check_executors(session, modules_of(self.py_files))
        except SparkMissing:
            raise
        except Exception as error:
            if remedy := misfit(error_text(error), session.version, _GIVE_PYTHON):
                raise SparkMissing(f"{self.master}: {remedy}") from error
            raise


_GIVE_PYTHON = "give SparkCluster(python=…) the path of a Python {} on the cluster's machines"


def check_files(files: Sequence[str]) -> None:
    """Raise SparkMissing for a file that is to be sent, and does not exist."""
    for file in files:
        if not Path(file).is_file():
            raise SparkMissing(
                f"there is no file {file}, which py_files=(…) names: give paths on the machine "
                "that runs the step"
            )


def modules_of(files: Sequence[str]) -> list[str]:
    """The modules and packages at the top of these files."""
    names = set()
    for path in map(Path, files):
        inner = [path.name]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                inner = archive.namelist()
        for name in inner:
            top, _, below = name.partition("/")
            if top.endswith(".py") and not below:
                names.add(top.removesuffix(".py"))
            elif below.endswith(".py") and top.isidentifier():
                names.add(top)
    return sorted(names - {"__init__", "__main__"})


def check_executors(session: Any, modules: Sequence[str]) -> None:
    """Raise SparkMissing unless the executors have the driver's Spark, and its Python and these
    modules."""
    # Not deterministic for Spark's optimizer, so an executor evaluates it.
    version = session.range(1).selectExpr("reflect('org.apache.spark.package', 'SPARK_VERSION')")
    ((theirs,),) = version.collect()
    if theirs != session.version:
        raise SparkMissing(_other_version(session.version, theirs))
    check_workers(session, modules)


def check_workers(session: Any, modules: Sequence[str]) -> None:
    """Start Python workers on all executors, which fails with another Python. Raise SparkMissing
    unless they have these modules."""
    from pyspark.sql.functions import udf

    def missing(_: int) -> list[str]:
        """The modules that a Python worker lacks; it gets this function by value."""
        from importlib.util import find_spec

        return [name for name in modules if find_spec(name) is None]

    lacking = session.range(_ROWS).select(udf(missing, "array<string>")("id").alias("names"))
    if names := sorted({row.name for row in lacking.selectExpr("explode(names) name").collect()}):
        raise SparkMissing(
            f"Python workers of the cluster cannot import {', '.join(names)}, which py_files=(…) "
            "sends: see whether a file of that name shadows it there"
        )


def misfit(text: str, version: str, give_python: str) -> str | None:
    """What does not fit, and the remedy, if the text of an error says so. `give_python` says how
    the workers get a Python `{}`."""
    this = "{}.{}".format(*sys.version_info)
    if _INCOMPATIBLE.search(text):
        return _other_version(version, "another one")
    if match := _OTHER_PYTHON.search(text):
        return (
            f"a Python worker is Python {match[1]}.{match[2]}, and the driver {this}: "
            f"{give_python.format(this)}, or run the topology with their Python"
        )
    if match := _NO_PYTHON.search(text):
        return (
            f"there is no Python at {match[1]} on a machine of the cluster: "
            f"{give_python.format(this)}"
        )
    return None


def _other_version(ours: str, theirs: str) -> str:
    return (
        f"the driver is PySpark {ours}, and the cluster's Spark is {theirs}: they must be equal. "
        f"Install the cluster's version here (python -m pip install pyspark==VERSION), or Spark "
        f"{ours} there"
    )
