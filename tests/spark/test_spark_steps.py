"""Declarations of Spark steps (paths, tables, outputs, queries), and their effects in a session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower import Records, Topology
from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import ResultMismatch, TopologyError
from sunshower.spark_integration import SparkBatchBolt, SparkConnect, delta, iceberg
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Gateway, SparkStep
from sunshower.spark_integration.steps import Spark, parquet, saved_as, spark, spark_sql
from tests.spark.conftest import PLACES
from tests.spark.sales import SALES, Page, Sale, identity, run

pd = pytest.importorskip("pandas")
AT_ONCE = {"local", "connect"}  # a query is resolved in the client, or by the server
locally = pytest.mark.parametrize("place", ["local"], indirect=True)


SOME = [Sale("a", 1.0), Sale("b", 2.5)]


def results(gateway: Gateway, step: Spark, *sales: Sale, id: str = "1") -> list[Any]:
    rows: list[Any] = run(gateway, step.step, SALES.table(sales), id=id)
    return rows


@pytest.mark.parametrize("elsewhere", ["s3a://bucket/pages", "hdfs:///pages", "file:/pages", "/p"])
def test_relative_paths_are_resolved_where_they_are_declared(
    elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    step = spark(lambda df, _: df, tables={"a": "pages", "b": Path("x/pages"), "c": elsewhere})
    assert step.step.tables == {
        "a": f"{tmp_path}/pages",
        "b": f"{tmp_path}/x/pages",
        "c": elsewhere,
    }
    assert str(parquet("out/totals")) == f"parquet('{tmp_path}/out/totals')"
    assert str(parquet(elsewhere)) == f"parquet({elsewhere!r})"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            pa.table({"at": pa.array([1], pa.time64("us"))}),
            "the table 'pages': column 'at' is time64",
        ),
        (
            pa.table({"n": pa.array([2**63], pa.uint64())}),
            "the table 'pages': column 'n' cannot go",
        ),
        (pd.DataFrame({"page": ["a"]}), "'pages' is DataFrame: give an Arrow table, such as"),
    ],
)
def test_a_static_table_that_spark_cannot_represent_is_refused_where_it_is_declared(
    table: Any, message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        spark(lambda df, _: df, tables={"pages": table})


def half(prices: pd.Series) -> pd.Series:
    return prices / 2


def halved(df: Any, batch: BatchInfo) -> Any:
    from pyspark.sql.functions import pandas_udf

    return df.withColumn("price", pandas_udf(half, "double")("price"))


@locally
def test_transforms_may_use_pandas_udfs(gateway: Gateway) -> None:
    assert results(gateway, spark(halved, out=Sale), *SOME) == [Sale("a", 0.5), Sale("b", 1.25)]


def joined_by_a_condition(df: Any, batch: BatchInfo) -> Any:
    pages = batch.tables["pages"]
    return df.join(pages, df.page == pages.page)


@locally
def test_the_error_names_a_column_that_a_join_has_doubled(gateway: Gateway) -> None:
    step = spark(joined_by_a_condition, out=Sale, tables={"pages": pages})
    with pytest.raises(ResultMismatch, match=r"two columns 'page', and Sale is to have one: join"):
        results(gateway, step, *SOME)


def pages(session: Any) -> Any:
    return session.sql("select 'a' page")


@dataclass(frozen=True)
class InDerby:
    """Derby, a database of Java, in the memory of the driver."""

    log: str

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        df.sparkSession._jvm.System.setProperty("derby.stream.error.file", self.log)
        return df


@locally
def test_rows_saved_as_jdbc_are_in_the_database(gateway: Gateway, tmp_path: Path) -> None:
    where = {"url": "jdbc:derby:memory:sales;create=true", "dbtable": "sales"}
    step = spark(InDerby(str(tmp_path / "log"))).write(saved_as("jdbc", **where))
    for number, sale in enumerate(SOME):
        results(gateway, step, sale, id=str(number))

    def stored(df: Any, batch: BatchInfo) -> Any:
        return df.sparkSession.read.format("jdbc").options(**where).load()

    assert sorted(results(gateway, spark(stored, out=Sale))) == SOME


@pytest.mark.parametrize("writer", [delta("/data/lake"), iceberg("lake.shop.totals")], ids=str)
def test_a_table_that_needs_the_drivers_java_is_refused_at_a_server(writer: Any) -> None:
    step = spark(identity, where=SparkConnect("sc://host"))
    with pytest.raises(TopologyError, match=r"SparkConnect has at its server only: take table"):
        step.write(writer)


# ---- queries: the names of inputs and tables, visible in their session only ----------------------


class Priced(NamedTuple):
    price: float
    title: str


TITLES = pa.table({"page": ["a"], "title": ["A"]})
ROWS = SALES.table([Sale("a", 1.0), Sale("b", 2.0)])


@pytest.mark.parametrize("place", [name for name in PLACES if name in AT_ONCE], indirect=True)
def test_a_query_sees_its_inputs_and_tables_and_no_other_job_does(gateway: Gateway) -> None:
    text = "select price, title from Sale join pages using (page) join Page using (page, title)"
    pages = RecordColumns.of(Page)
    step = spark_sql(text, out=Priced, tables={"pages": TITLES}).bind(SALES, pages)
    assert run(gateway, step, ROWS, pages.table([Page("a", "A")])) == [Priced(1.0, "A")]
    seen: list[str] = []  # by later jobs in the same session, and in that of the other slot
    views = {"sale", "pages", "page", "batch"}  # views of other tests stay in the session

    def looking(df: Any, batch: BatchInfo) -> None:
        names = {view.name for view in df.sparkSession.catalog.listTables() if view.isTemporary}
        seen.append(f"{df.count()} rows, views: {sorted(names & views)}")

    for _ in range(4):
        run(gateway, SparkStep(looking), ROWS)
    assert seen == ["2 rows, views: []"] * 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("batch", "the table 'batch' has the name of the input 'batch': give one of them another"),
        ("Batch", "the table 'Batch' has the name of the input 'batch'"),
        ("my-pages", "the table 'my-pages' is to be a view, and that is not a valid name for one"),
    ],
)
def test_a_table_that_cannot_be_a_view_is_refused_where_it_is_declared(
    name: str, message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        spark_sql("select 1", tables={name: TITLES})


def test_inputs_with_the_name_of_another_input_or_table_are_refused() -> None:
    class Other(NamedTuple):
        page: str

    Other.__name__ = "page"
    topology = Topology("t")
    sales = topology.spout("sales", Records([Sale("a", 1.0)], type=Sale)).shuffle()
    pages = topology.spout("pages", Records([Page("a", "A")], type=Page)).shuffle()
    others = topology.spout("others", Records([Other("a")], type=Other)).shuffle()
    with pytest.raises(TopologyError, match="the input 'page' has the name of the input 'Page'"):
        topology.bolt("one", SparkBatchBolt(spark_sql("select 1")), [pages, others])
    named = spark_sql("select 1", tables={"sale": TITLES})
    with pytest.raises(TopologyError, match="the table 'sale' has the name of the input 'Sale'"):
        topology.bolt("two", SparkBatchBolt(named), [sales, pages])
