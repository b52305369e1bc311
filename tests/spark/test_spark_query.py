"""A step that is an SQL query: the names of its inputs and tables, visible in its session only."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower import Records, Topology
from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import TopologyError
from sunshower.spark_integration.bolt import SparkBatchBolt
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Gateway, SparkStep
from sunshower.spark_integration.steps import spark_sql
from tests.spark.sales import SALES, Page, Sale, run


class Priced(NamedTuple):
    price: float
    title: str


PAGES = pa.table({"page": ["a"], "title": ["A"]})
ROWS = SALES.table([Sale("a", 1.0), Sale("b", 2.0)])


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_query_sees_its_inputs_and_tables_and_no_other_job_does(gateway: Gateway) -> None:
    text = "select price, title from Sale join pages using (page) join Page using (page, title)"
    pages = RecordColumns.of(Page)
    step = spark_sql(text, out=Priced, tables={"pages": PAGES}).bind(SALES, pages)
    assert run(gateway, step, ROWS, pages.table([Page("a", "A")])) == [Priced(1.0, "A")]
    seen: list[str] = []  # by later jobs in the same session, and in that of the other slot

    def looking(df: Any, batch: BatchInfo) -> None:
        catalog = df.sparkSession._jsparkSession.sessionState().catalog()
        views = [name for name in ("pages", "Sale", "Page") if catalog.getTempView(name).nonEmpty()]
        seen.append(f"{df.count()} rows, views: {views}")

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
        spark_sql("select 1", tables={name: PAGES})


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
    named = spark_sql("select 1", tables={"sale": PAGES})
    with pytest.raises(TopologyError, match="the table 'sale' has the name of the input 'Sale'"):
        topology.bolt("two", SparkBatchBolt(named), [sales, pages])
