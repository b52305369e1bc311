"""A topology with a Spark step: every record is in one result, and in one of the written files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset

from sunshower import Records, Topology
from sunshower.runtime.inline import run_inline
from sunshower.spark_integration.bolt import SparkBatchBolt
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Gateway, SparkPlace
from sunshower.spark_integration.steps import parquet, spark
from tests.spark.sales import Collect, Sale

PAGES = pa.table({"page": ["p0", "p1"], "title": ["Zero", "One"]})


class Total(NamedTuple):
    title: str
    total: float
    count: int


def totals(sales: Any, batch: BatchInfo) -> Any:
    from pyspark.sql.functions import count, sum  # noqa: A004

    joined = sales.join(batch.tables["pages"], "page").groupBy("title")
    return joined.agg(sum("price").alias("total"), count("*").alias("count"))


SALES = [Sale(f"p{number % 2}", float(number)) for number in range(10_000)]


def test_every_record_is_in_one_total_and_in_one_file(
    place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    step = spark(totals, out=Total, tables={"pages": PAGES}, where=place)
    step = step.write(parquet(str(tmp_path / "totals")))
    topology = Topology("t", message_timeout_s=300)
    sales = topology.spout("sales", Records(SALES, type=Sale))
    bolt = SparkBatchBolt(step, rows_max=5_000, wait_s=0.5)
    sales.shuffle().bolt("spark", bolt).shuffle().bolt("keep", Collect())
    finished = run_inline(topology.graph())
    assert finished.snapshot.component("sales").acked == 10_000
    assert finished.snapshot.component("sales").replayed == 0
    (seen,) = finished.results["keep"]
    assert sum(total.count for total in seen) == 10_000
    assert sum(total.total for total in seen if total.title == "One") == sum(range(1, 10_000, 2))
    written = pyarrow.dataset.dataset(tmp_path / "totals", partitioning="hive").to_table()
    assert sorted(
        zip(*(written[name].to_pylist() for name in Total._fields), strict=True)
    ) == sorted(seen)
