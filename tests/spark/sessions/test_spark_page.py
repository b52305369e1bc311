"""Runs the programs of docs/SPARK.md; those that need a broker are only declared."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import sunshower.spark_integration
from sunshower import Records, Topology
from sunshower.runtime.inline import run_inline
from sunshower.spark_integration import LocalSpark, steps
from sunshower.spark_integration.sessions import spark_on_ray
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    SparkPlace,
    SparkStep,
)
from sunshower.spark_integration.tables.tables import batches_in
from sunshower.trident.declaration.declare import batches
from sunshower.trident.spouts.fixed import FixedBatchSpout
from tests.spark.sales import Sale, run

pytest.importorskip("pyspark.sql.functions")  # before another thread is importing it
REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs/SPARK.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
BLOCKS = [*map(dedent, BLOCK.findall(PAGE))]
FIRST, ON_RAY, TABLES, READERS, STATE, DELTA, S3, ICEBERG, CATALOG = BLOCKS[:9]
RECEIVER, DIRECT, KAFKA, SUBSCRIBED, CLUSTER, CONNECT = BLOCKS[9:]


class Total(NamedTuple):
    title: str
    total: float


SALES = [Sale("a", 1.0), Sale("b", 2.0), Sale("a", 4.0), Sale("x", 9.0)]


def totals_in(dataset: Any) -> list[tuple[str, float]]:
    return sorted((row["title"], row["total"]) for row in dataset.to_table().to_pylist())


def read(df: Any, batch: BatchInfo) -> None:
    """Run the page's code for readers: a table, a stream of it, and the table without Spark."""
    names = {"spark": df.sparkSession, "pyarrow": pa}
    lines = READERS.replace("out/totals", str(Path("out/totals").absolute())).splitlines()
    once, stream, plain = [eval(line, names) for line in lines]
    totals = sorted((row.title, row.total, row.txid) for row in once.collect())
    assert totals == [("A", 1.0, 1), ("A", 4.0, 2), ("B", 2.0, 1)]
    assert stream.isStreaming
    assert totals_in(plain) == [("A", 1.0), ("A", 4.0), ("B", 2.0)]


def totals_of_iceberg(df: Any, batch: BatchInfo) -> Any:
    return df.sparkSession.table("lake.shop.totals")


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_the_programs_of_the_page_do_what_it_says(
    place: SparkPlace, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(steps, "_DRAIN_S", 240.0)  # the last batches are published at the end
    for module in (sunshower.spark_integration, spark_on_ray):
        monkeypatch.setattr(module, "LocalSpark", lambda **_: place)  # a process has one session
    for jars in ("spark_kafka", "spark_delta", "spark_iceberg", "spark_s3"):
        monkeypatch.setattr(f"sunshower.dev.{jars}", tuple)
    for secret in ("LAKE_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(secret, "whatever")
    pyarrow.parquet.write_table(
        pa.table({"page": ["a", "b"], "title": ["A", "B"]}), "pages.parquet"
    )
    topology, names = Topology("first"), dict[str, Any](Total=Total)
    names["sales"] = topology.spout("sales", Records(SALES, type=Sale))

    exec(FIRST, names)
    run_inline(topology.graph())
    dataset = pyarrow.dataset.dataset("out/totals", partitioning="hive")
    assert totals_in(dataset) == [("A", 5.0), ("B", 2.0)]

    shutil.rmtree("out")
    topology, spout = Topology("second"), FixedBatchSpout(SALES, 2, type=Sale)
    names |= {"topology": topology, "spout": spout, "batches": batches}
    exec(TABLES, names)
    run_inline(topology.graph())
    gateway.submit(SparkStep(read), [pa.table({})], BatchInfo("1", 0)).result()

    names["topology"] = topology = Topology("sums")
    exec(STATE, names)
    run_inline(topology.graph())
    newest = Path("out/sums") / f"txid={batches_in('out/sums')[-1].txid}"
    sums = pyarrow.dataset.dataset(newest).to_table().to_pylist()
    assert {row["page"]: row["price"] for row in sums} == {"a": 5.0, "b": 2.0, "x": 9.0}

    if any("delta-spark" in jar for jar in getattr(place, "jars", ())):
        names["topology"] = topology = Topology("lake")
        exec(DELTA, names)
        run_inline(topology.graph())
        names_of_files = [
            path.name for path in Path("out/lake/_sunshower/lake/published").iterdir()
        ]
        assert "2" in names_of_files
        assert len([*Path("out/lake/_delta_log").glob("*.json")]) == 2

    names["topology"] = topology = Topology("on-s3")
    exec(S3, names)
    assert [*map(str, names["to_s3"].step.writers)] == ["delta('s3a://bucket/totals')"]
    names["topology"] = topology = Topology("merged")
    exec(ICEBERG, names)
    if any("iceberg-spark" in jar for jar in getattr(place, "jars", ())):
        run_inline(topology.graph())
        totals = run(gateway, SparkStep(totals_of_iceberg, Total), pa.table({}))
        assert sorted(totals) == [Total("A", 4.0), Total("B", 2.0)]
    exec(CATALOG, names)
    assert [*map(str, names["to_s3"].step.writers)] == ["iceberg('lake.shop.totals')"]


def test_the_programs_that_need_a_cluster_or_a_broker_can_be_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sunshower.dev.spark_kafka", tuple)
    topology, names = Topology("two-ways"), dict[str, Any](Total=Total, Sale=Sale, batches=batches)
    names |= {"topology": topology, "sales": topology.spout("sales", Records(SALES, type=Sale))}
    exec(FIRST, names)
    exec(ON_RAY, names)
    assert names["step"].where.executors == 2
    names["LocalSpark"] = LocalSpark
    for block in (RECEIVER, DIRECT, KAFKA, f"from __future__ import annotations\n{SUBSCRIBED}"):
        exec(block, names)
    assert {"totals", "received", "direct", "pages"} <= {*topology.graph().components}
    assert [*names["step"].step.tables] == ["pages"]
    exec(CLUSTER, names)
    assert names["step"].where.executors == 4
    exec(CONNECT, names)
    assert str(names["step"].where.url) == "sc://host:15002"
