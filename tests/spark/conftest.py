"""Fixtures for Spark: one session at a time, started for the first test that uses it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sunshower.dev.jars import spark_delta, spark_iceberg, spark_kafka
from sunshower.errors import Unobtainable
from sunshower.installed import spark_extra
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_cluster import SparkCluster
from sunshower.spark_integration.sessions.spark_connect import SparkConnect
from sunshower.spark_integration.sessions.spark_on_ray import RayDPSpark
from sunshower.spark_integration.sessions.spark_port import Gateway, SparkPlace
from tests.spark.processes import HERE, ConnectServer, standalone
from tests.structure.reading import ROOT

ONE = {"spark.sql.shuffle.partitions": "1"}
LOCAL = LocalSpark(cores=1, memory="1g", settings=ONE)
ON_CLUSTER = SparkCluster("spark://HOST:1", memory="512m", driver_memory="512m")
SPARK_4 = spark_extra() == "spark4"  # of the PySpark in this environment
PLACES = ("local", "cluster", "connect" if SPARK_4 else "on_ray")
ON_RAY = RayDPSpark("tests", memory="512m", driver_memory="512m", settings=ONE)


def require_spark() -> None:
    """Skip the test if the extra `spark` is not installed; if CI is set, it fails instead."""
    if not importlib.util.find_spec("pyspark") and not os.environ.get("CI"):
        pytest.skip("no Spark here: make setup EXTRAS=spark")


@contextmanager
def shipped_example(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[list[Any]]:
    """Modules of examples/kafka_to_spark, sent to the workers as `sunshower run` sends them."""
    require_spark()
    from sunshower.actors.shipping import ship

    monkeypatch.syspath_prepend(ROOT / "examples/kafka_to_spark")
    modules = [import_module(name) for name in names]
    ship(modules)
    try:
        yield modules
    finally:
        ship(())
        for name in names:
            del sys.modules[name]


def jars() -> tuple[str, ...]:
    """The jars for Kafka, and with Spark 3.5 for Delta Lake and Iceberg; none if they cannot be
    obtained, or an error if CI is set."""
    try:
        if SPARK_4:
            return spark_kafka()
        return (*spark_kafka(), *spark_delta(), *spark_iceberg())
    except Unobtainable:
        if os.environ.get("CI"):
            raise
        return ()


def catalog(name: str, type: str, warehouse: str, **more: str) -> dict[str, str]:
    """The settings of a catalog of Iceberg tables, without a cache, so that readers see commits."""
    prefix, more = f"spark.sql.catalog.{name}", more | {"type": type, "warehouse": warehouse}
    settings = {f"{prefix}.{key}": value for key, value in more.items()}
    settings[f"{prefix}.cache-enabled"] = "false"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **settings}


@pytest.fixture(scope="session", params=PLACES)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkPlace]:
    """Each implementation of SparkPlace. The session of the first ends before the second begins."""
    require_spark()
    settings = ONE | catalog("lake", "hadoop", str(tmp_path_factory.mktemp("lake")))
    settings |= catalog("on_s3", "hadoop", "s3a://bucket/lake")
    if request.param == "local":
        yield replace(LOCAL, settings=settings, jars=jars())
    elif request.param == "cluster":
        with standalone(tmp_path_factory.mktemp("standalone"), workers=1) as cluster:
            yield replace(ON_CLUSTER, master=cluster.master, settings=HERE | settings, jars=jars())
    elif request.param == "connect":
        with ConnectServer(tmp_path_factory.mktemp("connect"), settings, jars()).kept() as server:
            yield SparkConnect(server.url, settings=ONE)
    else:
        request.getfixturevalue("ray_cluster")
        yield replace(ON_RAY, settings=settings, jars=jars())
        ON_RAY.stop()
    from tests.spark.processes import java_left

    assert java_left() == []


@pytest.fixture(scope="session")
def gateway(place: SparkPlace) -> Iterator[Gateway]:
    """A gateway to the session. A test that kills the session must wait for the next one."""
    found = place.open()
    found.start()
    yield found
    found.close()


ABOUT_THE_PLACE = {"test_spark_gateway.py", "test_spark_on_ray.py", "test_spark_batches.py"}
# Each opens another session: 10 s of processor time, 20 s on a cluster. `make test` has similar
# tests: Java is killed in a job of the gateway, and locally in a program with a state.
AGAIN = {
    "test_a_job_that_never_ends_is_ended_and_the_next_one_runs[on_ray]",
    "test_when_java_dies_between_two_jobs_the_second_one_succeeds[on_ray]",
    "test_the_java_of_an_executor_is_killed_in_the_middle_of_a_job[local]",
}


def pytest_itemcollected(item: Any) -> None:
    """Mark the tests that use Spark, and Ray. Tests that are not about the place run on Ray in
    `make test-all` only, and on a standalone cluster all do."""
    ours = Path(__file__).parent in item.path.parents  # other folders have a fixture `place`, too
    if ours and "place" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)
        param = item.callspec.params["place"]
        if param == "on_ray":
            item.add_marker(pytest.mark.ray)
        if param == "cluster" or (param != "local" and item.path.name not in ABOUT_THE_PLACE):
            item.add_marker(pytest.mark.long)
        if item.name in AGAIN:
            item.add_marker(pytest.mark.long)
