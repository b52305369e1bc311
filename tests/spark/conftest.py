"""Spark for tests: one session at a time, started for the first test that asks for it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sunshower.dev.jars import spark_delta, spark_iceberg, spark_kafka
from sunshower.errors import Unobtainable
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_on_ray import RayDPSpark
from sunshower.spark_integration.sessions.spark_port import Gateway, SparkPlace

ONE = {"spark.sql.shuffle.partitions": "1"}
LOCAL = LocalSpark(cores=1, memory="1g", settings=ONE)
ON_RAY = RayDPSpark("tests", memory="512m", driver_memory="512m", settings=ONE)


def obtain() -> None:
    """Without the extra `spark` its tests are skipped; where CI is set, they fail."""
    if not importlib.util.find_spec("pyspark") and not os.environ.get("CI"):
        pytest.skip("no Spark here: make setup EXTRAS=spark")


def jars() -> tuple[str, ...]:
    """Spark's for Kafka, Delta Lake and Iceberg. Where they cannot be had there are none; where CI
    is set, it fails."""
    try:
        return (*spark_kafka(), *spark_delta(), *spark_iceberg())
    except Unobtainable:
        if os.environ.get("CI"):
            raise
        return ()


def catalog(name: str, type: str, warehouse: str, **more: str) -> dict[str, str]:
    """The settings for a catalog of Iceberg tables, whose readers see the last commit."""
    prefix, more = f"spark.sql.catalog.{name}", more | {"type": type, "warehouse": warehouse}
    settings = {f"{prefix}.{key}": value for key, value in more.items()}
    settings[f"{prefix}.cache-enabled"] = "false"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **settings}


@pytest.fixture(scope="session", params=["local", "on_ray"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkPlace]:
    """Each body of the port. The session of one has ended before that of the other begins."""
    obtain()
    settings = ONE | catalog("lake", "hadoop", str(tmp_path_factory.mktemp("lake")))
    settings |= catalog("on_s3", "hadoop", "s3a://bucket/lake")
    if request.param == "local":
        yield replace(LOCAL, settings=settings, jars=jars())
    else:
        request.getfixturevalue("ray_cluster")
        yield replace(ON_RAY, settings=settings, jars=jars())
        ON_RAY.stop()
    from tests.spark.javas import java_left

    assert java_left() == []


@pytest.fixture(scope="session")
def gateway(place: SparkPlace) -> Iterator[Gateway]:
    """A way to its session. Who kills it waits until another is there."""
    found = place.open()
    found.start()
    yield found
    found.close()


ABOUT_THE_PLACE = {"test_spark_gateway.py", "test_spark_on_ray.py", "test_spark_batches.py"}
# Each opens a session again, 10 s of processor time, 20 s on a cluster. `make test` has the like:
# Java is killed in a job of the gateway, and locally in a program with a state.
AGAIN = {
    "test_when_java_dies_between_two_jobs_the_second_one_hears_nothing_of_it[on_ray]",
    "test_the_java_of_an_executor_is_killed_in_the_middle_of_a_job[local]",
}


def pytest_itemcollected(item: Any) -> None:
    """Whoever asks for Spark is marked; on a cluster it needs Ray as well. What is not about the
    place is run on a cluster by `make test-all` only."""
    ours = Path(__file__).parent in item.path.parents  # others have a fixture of that name, too
    if ours and "place" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)
        if item.callspec.params["place"] == "on_ray":
            item.add_marker(pytest.mark.ray)
            if item.path.name not in ABOUT_THE_PLACE:
                item.add_marker(pytest.mark.long)
        if item.name in AGAIN:
            item.add_marker(pytest.mark.long)
