"""Records for the tests of Spark, and a function that runs a batch of them through a gateway."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from sunshower import Bolt
from sunshower.arrow.record_columns import RecordColumns
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.inline import InlineTopology
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Gateway, SparkStep
from sunshower.topologies.graph import Graph

WITHIN_S = 240.0


class Sale(NamedTuple):
    page: str
    price: float


class Page(NamedTuple):
    page: str
    title: str


SALES = RecordColumns.of(Sale)


class Collect(Bolt[Any, None]):
    """Keeps all records as its result."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def process(self, record: Any) -> None:
        self.seen.append(record)

    def result(self) -> list[Any]:
        return self.seen


def identity(df: Any, batch: BatchInfo) -> Any:
    return df


def run_through_outages(graph: Graph) -> None:
    """Run a program to its end in this process; it waits for a server that starts again."""
    with InlineTopology(graph, quiet=True) as topology:
        topology.work(WITHIN_S)
        assert topology.snapshot().state is State.FINISHED


def run(gateway: Gateway, step: SparkStep, *tables: pa.Table, id: str = "1", **info: Any) -> Any:
    """Run a batch, and return the records of its result."""
    batch = BatchInfo(id, sum(table.num_rows for table in tables), **info)
    result = gateway.submit(step, tables, batch).result()
    return [] if result is None else RecordColumns.of(step.out).records(result)
