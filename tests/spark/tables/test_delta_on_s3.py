"""A Delta Lake table on an S3 server: drivers that are stopped or killed inside of a commit."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import psutil
import pytest

from sunshower.dev.jars import spark_delta, spark_s3
from sunshower.errors import SparkUnavailable, WriteFailed
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    Publication,
    SparkStep,
    Ticket,
)
from sunshower.spark_integration.tables.delta_table import delta
from tests.spark.conftest import ONE, obtain
from tests.spark.javas import javas
from tests.spark.sales import SALES, Sale, as_it_is, run
from tests.spark.tables.s3 import S3, s3

PATH = "s3a://bucket/sales of März"
WITHIN_S = 200.0
SECRET = "hunter2-planted"  # the key of the server


@pytest.fixture
def server() -> Iterator[tuple[S3, dict[str, str]]]:
    obtain()
    if not importlib.util.find_spec("moto"):
        pytest.skip("no moto here")
    with s3(SECRET) as found:
        yield found


def driver(settings: dict[str, str]) -> Gateway:
    place = LocalSpark(1, settings=ONE | settings, jars=(*spark_delta(), *spark_s3()))
    assert SECRET not in repr(place)
    return place.open()


def stage(gateway: Gateway, txid: int, *sales: Sale) -> None:
    step = SparkStep(as_it_is, writers=(delta(PATH, keys=["page"]),))
    run(gateway, step, SALES.table(sales), id=str(txid), txid=txid, topology="t")


def publish(gateway: Gateway, current: int) -> Ticket:
    step = SparkStep(as_it_is, writers=(delta(PATH, keys=["page"]),))
    batch = BatchInfo("1", 0, topology="t", publish=Publication("b", current))
    return gateway.submit(step, (), batch)


@dataclass(frozen=True)
class Reading:
    history: bool = False

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        if self.history:
            found = df.sparkSession.sql(f"describe history delta.`{PATH}`")
            return found.selectExpr("string(version) page", "double(0) price")
        return df.sparkSession.read.format("delta").load(PATH)


def rows(gateway: Gateway, transform: Any) -> list[Sale]:
    return sorted(run(gateway, SparkStep(transform, Sale), SALES.table(())))


class Successor:
    """The driver of another process. It publishes batch 2, and begins to publish batch 3."""

    gateway: Gateway

    @classmethod
    def begin(cls, settings: dict[str, str]) -> list[Sale]:
        cls.gateway = driver(settings)
        publish(cls.gateway, 3).result()
        stage(cls.gateway, 3, Sale("b", 4.0))
        return rows(cls.gateway, Reading())

    @classmethod
    def end(cls) -> None:
        publish(cls.gateway, 4).result()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_driver_is_stopped_inside_of_a_commit_and_its_successor_killed_after_one(
    server: tuple[S3, dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    store, settings = server
    first = driver(settings)
    publish(first, 1).result()
    stage(first, 1, Sale("a", 1.0))
    publish(first, 2).result()
    stage(first, 2, Sale("a", 2.0), Sale("b", 3.0))
    (java,) = javas()

    committing = store.hold(r"/_delta_log/0{19}1\.json$")
    stopped = publish(first, 3)
    assert committing.arrived.wait(WITHIN_S)
    java.suspend()  # until its successor has committed the same batch
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        found = process.submit(Successor.begin, settings).result(WITHIN_S)
        assert found == [Sale("a", 2.0), Sale("b", 3.0)]
        noting = store.hold("/_sunshower/t/published/3$")
        process.submit(Successor.end)
        assert noting.arrived.wait(WITHIN_S)
        for one in [*javas(), *map(psutil.Process, process._processes or ())]:
            if one != java:
                one.kill()
        noting.release(dropped=True)
    committing.release()
    java.resume()
    with pytest.raises(
        SparkUnavailable, match=r"another writer came first \(Status Code: 412\)"
    ) as waits:
        stopped.result()

    publish(first, 4).result()  # batch 3 is in the log, and not noted
    assert rows(first, Reading()) == [Sale("a", 2.0), Sale("b", 4.0)]
    assert [one.page for one in rows(first, Reading(history=True))] == ["0", "1", "2"]
    store.conditional = False
    stage(first, 4, Sale("c", 5.0))
    with pytest.raises(WriteFailed, match="Use one that knows conditional writes"):
        publish(first, 5).result()
    assert SECRET not in f"{waits.value!r} {waits.value.__cause__!r} {caplog.text}"
    first.close()
