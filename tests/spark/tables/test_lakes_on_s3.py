"""Lake tables on an S3 server: drivers that are stopped or killed inside of a commit."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import psutil
import pytest

from sunshower.dev.jars import POSTGRES_FOR_JAVA, class_path, spark_delta, spark_iceberg, spark_s3
from sunshower.errors import SparkUnavailable, WriteFailed
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    Publication,
    SparkStep,
    Ticket,
)
from sunshower.spark_integration.tables.lake_table import LakeTable, delta, iceberg
from tests.spark.conftest import ONE, catalog, require_spark
from tests.spark.processes import java_processes
from tests.spark.sales import SALES, Sale, identity, run
from tests.spark.tables.s3 import S3, s3

PATH, NAME = "s3a://bucket/sales of März", "lake.shop.sales of März"
WITHIN_S = 200.0
SECRET = "hunter2-planted"  # the key of the server


@pytest.fixture
def server() -> Iterator[tuple[S3, dict[str, str]]]:
    require_spark()
    if not importlib.util.find_spec("moto"):
        pytest.skip("no moto here")
    with s3(SECRET) as s3_server:
        yield s3_server


@dataclass(frozen=True)
class Lake:
    """A table on the server. `second` is the object that commits its second batch."""

    writer: LakeTable
    second: str
    refused: str
    settings: dict[str, str]
    jars: tuple[Callable[[], tuple[str, ...]], ...]

    def driver(self, s3: dict[str, str]) -> Gateway:
        jars = tuple(jar for jars in (*self.jars, spark_s3) for jar in jars())
        place = LocalSpark(1, settings=ONE | s3 | self.settings, jars=jars)
        assert SECRET not in repr(place)
        return place.open()

    def stage(self, gateway: Gateway, txid: int, *sales: Sale) -> None:
        step = SparkStep(identity, writers=(self.writer,))
        run(gateway, step, SALES.table(sales), id=str(txid), txid=txid, topology="t")

    def publish(self, gateway: Gateway, current: int) -> Ticket:
        step = SparkStep(identity, writers=(self.writer,))
        batch = BatchInfo("1", 0, topology="t", publish=Publication("b", current))
        return gateway.submit(step, (), batch)


def postgres_driver() -> tuple[str, ...]:
    return tuple(class_path(POSTGRES_FOR_JAVA, lambda _: None).split(os.pathsep))


@dataclass(frozen=True)
class Reading:
    kind: str
    history: bool = False

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        session, name = df.sparkSession, "lake.shop.`sales of März`"
        if self.kind == "delta" and self.history:
            history = session.sql(f"describe history delta.`{PATH}`")
            return history.selectExpr("string(version) page", "double(0) price")
        if self.history:
            return session.table(f"{name}.history").selectExpr(
                "string(row_number() over (order by made_current_at) - 1) page", "double(0) price"
            )
        return (
            session.read.format("delta").load(PATH) if self.kind == "delta" else session.table(name)
        )


def rows(gateway: Gateway, transform: Any) -> list[Sale]:
    return sorted(run(gateway, SparkStep(transform, Sale), SALES.table(())))


class Successor:
    """The driver of another process: publishes batch 2, and begins to publish batch 3."""

    lake: Lake
    gateway: Gateway

    @classmethod
    def begin(cls, lake: Lake, s3: dict[str, str]) -> list[Sale]:
        cls.lake, cls.gateway = lake, lake.driver(s3)
        lake.publish(cls.gateway, 3).result()
        lake.stage(cls.gateway, 3, Sale("b", 4.0))
        return rows(cls.gateway, Reading(lake.writer._kind))

    @classmethod
    def end(cls) -> None:
        cls.lake.publish(cls.gateway, 4).result()


def check(lake: Lake, server: tuple[S3, dict[str, str]], caplog: pytest.LogCaptureFixture) -> None:
    """Stop a driver inside of a commit, kill its successor after one, and check the table."""
    (store, settings), kind = server, lake.writer._kind
    first = lake.driver(settings)
    lake.publish(first, 1).result()
    lake.stage(first, 1, Sale("a", 1.0))
    lake.publish(first, 2).result()
    lake.stage(first, 2, Sale("a", 2.0), Sale("b", 3.0))
    (java,) = java_processes()

    committing = store.hold(lake.second)
    stopped = lake.publish(first, 3)
    assert committing.arrived.wait(WITHIN_S)
    java.suspend()  # until its successor has committed the same batch
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        sales = process.submit(Successor.begin, lake, settings).result(WITHIN_S)
        assert sales == [Sale("a", 2.0), Sale("b", 3.0)]
        noting = store.hold("/_sunshower/t/published/3$")
        process.submit(Successor.end)
        assert noting.arrived.wait(WITHIN_S)
        for other_process in [*java_processes(), *map(psutil.Process, process._processes or ())]:
            if other_process != java:
                other_process.kill()
        noting.release(dropped=True)
    committing.release()
    java.resume()
    with pytest.raises(SparkUnavailable, match=lake.refused) as waits:
        stopped.result()

    lake.publish(first, 4).result()  # batch 3 is in the log, but without a note
    assert rows(first, Reading(kind)) == [Sale("a", 2.0), Sale("b", 4.0)]
    assert [row.page for row in rows(first, Reading(kind, history=True))] == ["0", "1", "2"]
    assert SECRET not in f"{waits.value!r} {waits.value.__cause__!r} {caplog.text}"
    if kind == "delta":
        store.conditional = False
        lake.stage(first, 4, Sale("c", 5.0))
        with pytest.raises(WriteFailed, match="Use one that knows conditional writes"):
            lake.publish(first, 5).result()
    first.close()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_driver_is_stopped_inside_of_a_commit_and_its_successor_killed_after_one(
    server: tuple[S3, dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    refused = r"another writer came first \(Status Code: 412\)"
    second = r"/_delta_log/0{19}1\.json$"
    check(Lake(delta(PATH, keys=["page"]), second, refused, {}, (spark_delta,)), server, caplog)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
def test_an_iceberg_table_with_a_catalog_in_postgresql_survives_the_same_crashes(
    server: tuple[S3, dict[str, str]], postgres_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"jdbc:postgresql://127.0.0.1:{postgres_port}/postgres?user=postgres"
    settings = catalog("lake", "jdbc", "s3a://bucket/lake", uri=uri)
    second, refused = (
        r"/metadata/00006-[^/]*\.metadata\.json$",
        "CommitFailedException: Cannot",
    )
    jars = (spark_iceberg, postgres_driver)
    check(Lake(iceberg(NAME, keys=["page"]), second, refused, settings, jars), server, caplog)
