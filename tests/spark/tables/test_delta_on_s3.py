"""A Delta Lake table on an S3 server, and a driver that is replaced between two of its writes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sunshower.dev.jars import spark_delta, spark_s3
from sunshower.errors import WriteFailed
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    Publication,
    SparkStep,
)
from sunshower.spark_integration.tables.delta_table import delta
from sunshower.spark_integration.tables.driver_fence import DriverFence
from sunshower.spark_integration.tables.hadoop_folder import HadoopFolder
from tests.spark.conftest import ONE, obtain
from tests.spark.sales import SALES, Sale, as_it_is, run

PATH = "s3a://bucket/sales"


@pytest.fixture
def settings() -> Iterator[dict[str, str]]:
    """Spark's, for a server with an empty bucket."""
    if not importlib.util.find_spec("moto"):
        pytest.skip("no moto here")
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    address, keys = f"http://{host}:{port}", ("anybody", "whatever")
    access = {"endpoint_url": address, "aws_access_key_id": keys[0]}
    access["aws_secret_access_key"] = keys[1]
    boto3.client("s3", "us-east-1", **access).create_bucket(Bucket="bucket")
    s3a = {"endpoint": address, "access.key": keys[0], "secret.key": keys[1]}
    s3a["path.style.access"] = "true"
    yield {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}
    server.stop()


def stage(gateway: Gateway, txid: int, *sales: Sale) -> None:
    step = SparkStep(as_it_is, writers=(delta(PATH, keys=["page"]),))
    run(gateway, step, SALES.table(sales), id=str(txid), txid=txid, topology="t")


def publish(gateway: Gateway, current: int) -> None:
    step = SparkStep(as_it_is, writers=(delta(PATH, keys=["page"]),))
    run(gateway, step, topology="t", publish=Publication("b", current))


@dataclass(frozen=True)
class Reading:
    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        return df.sparkSession.read.format("delta").load(PATH)


def dies_between(df: Any, batch: BatchInfo) -> Any:
    """Leaves what a driver leaves that is killed after Delta's commit, and before its note."""
    folder = HadoopFolder(df.sparkSession, f"{PATH}/_sunshower")
    folder.create("t/published/1")
    folder.remove("t/published/2")
    folder.create("writing/of-the-dead")
    return df


def is_replaced(df: Any, batch: BatchInfo) -> Any:
    """Another driver claims the table."""
    other = DriverFence(df.sparkSession, PATH, silent_s=0.5)
    other._me = "another"
    with other.held():
        pass
    return df


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_driver_is_killed_between_two_writes_and_the_replaced_one_is_fenced(
    settings: dict[str, str],
) -> None:
    obtain()
    place = LocalSpark(1, settings=ONE | settings, jars=(*spark_delta(), *spark_s3()))
    first = place.open()
    publish(first, 1)
    stage(first, 1, Sale("a", 1.0))
    publish(first, 2)
    stage(first, 2, Sale("a", 2.0), Sale("b", 3.0))
    publish(first, 3)
    stage(first, 2, Sale("a", 2.0), Sale("b", 3.0))
    run(first, SparkStep(dies_between), SALES.table(()))
    first.close()
    second = place.open()
    publish(second, 3)  # repeats batch 2, once the dead driver is silent
    stage(second, 3, Sale("b", 4.0))
    publish(second, 4)
    found = sorted(run(second, SparkStep(Reading(), Sale), SALES.table(())))
    assert found == [Sale("a", 2.0), Sale("b", 4.0)]
    run(second, SparkStep(is_replaced), SALES.table(()))
    stage(second, 4, Sale("b", 5.0))
    with pytest.raises(WriteFailed, match="another driver .another. writes this table now"):
        publish(second, 5)
    assert sorted(run(second, SparkStep(Reading(), Sale), SALES.table(()))) == found
    second.close()
