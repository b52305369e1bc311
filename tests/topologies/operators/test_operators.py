"""Operators on streams: results, the bolts in which they run, and wrong declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from sunshower import (
    BatchBolt,
    Bolt,
    Collector,
    Context,
    Records,
    Retry,
    Topology,
    Tuple,
    count,
    run_inline,
)
from sunshower.clock import ManualClock
from sunshower.runtime.inline import Finished
from sunshower.topologies.streams import Stream
from tests.topologies.operators.kinds import Kept, Sale

SALES = [Sale("abc"[n % 3], n) for n in range(300)]


def sales_topology(
    assemble: Callable[[Stream[Sale]], Stream[Any]],
    sink: Any = Kept,
    retry: Retry | None = None,
    **settings: Any,
) -> Topology:
    topology = Topology("sales", **settings)
    sales = topology.spout("sales", Records(SALES, type=Sale), retry=retry)
    assemble(sales).shuffle().bolt("kept", sink)
    return topology


def run(topology: Topology) -> Finished:
    return run_inline(topology.graph(), clock=ManualClock())


def rows_of(assemble: Callable[[Stream[Sale]], Stream[Any]], sink: Any = Kept) -> list[Any]:
    (rows,) = run(sales_topology(assemble, sink)).results["kept"]
    return sorted(rows)


def twice(sale: Sale) -> Iterator[Sale]:
    yield sale
    yield sale


def doubled(sale: Sale) -> Sale:
    return Sale(sale.shop, sale.amount * 2)


def anything(row: Any) -> bool:
    return True


def nothing(sale: Sale) -> None:
    """Do nothing."""


def of_a(sale: Sale) -> bool:
    return sale.shop == "a"


# ---- results ------------------------------------------------------------------------------------


def test_a_stage_of_several_tasks_does_what_python_does() -> None:
    rows = rows_of(lambda s: s.shuffle().stage("several", parallelism=3).map(doubled))
    assert rows == sorted(map(doubled, SALES))


def final(rows: list[Any], width: int = 1) -> dict[Any, Any]:
    """Return the last total of each group. The totals of these tests only grow."""
    totals: dict[Any, Any] = {}
    for row in sorted(rows):
        totals[row[:width] if width > 1 else row[0]] = row[width:]
    return totals


@pytest.mark.parametrize("columns", [False, True])
def test_totals_reach_bolts_of_all_kinds(columns: bool) -> None:
    class Manual(Kept):
        def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
            self.rows.append((*tuple.record,))
            out.ack(tuple)

        process = Bolt.process  # type: ignore[assignment]

    class Columns(BatchBolt[Any, None]):
        def prepare(self, context: Context) -> None:
            self.rows: list[Any] = []

        def process(self, table: pa.Table) -> None:
            self.rows += zip(*(column.to_pylist() for column in table.columns), strict=True)

        def result(self) -> list[Any]:
            return self.rows

    sink = Columns if columns else Manual
    rows = rows_of(lambda s: s.group_by("shop").aggregate(count()), sink)
    assert final(rows) == {"a": (100,), "b": (100,), "c": (100,)}


def test_a_state_in_memory_is_the_result_of_its_bolt() -> None:
    topology = sales_topology(lambda s: s.group_by("shop").aggregate(count()))
    assert run(topology).results["count"] == [{"a": 100, "b": 100, "c": 100}]


# ---- bolts --------------------------------------------------------------------------------------


def test_operators_up_to_a_grouping_are_one_bolt() -> None:
    def assemble(sales: Stream[Sale]) -> Stream[Any]:
        many = sales.flat_map(twice).map(doubled).filter(of_a)
        return many.group_by("shop").aggregate(count()).filter(anything)

    graph = sales_topology(assemble).graph()
    assert list(graph.components) == ["sales", "twice", "count", "kept"]


def test_rows_are_combined_before_they_are_sent() -> None:
    topology = sales_topology(lambda s: s.flat_map(twice).group_by("shop").aggregate(count()))
    snapshot = run(topology).snapshot
    assert snapshot.component("twice").executed == 300
    assert snapshot.component("count").executed <= 300 / 5  # a few rows for each batch


def test_a_stream_can_have_several_readers() -> None:
    topology = Topology("sales")
    many = topology.spout("sales", Records(SALES, type=Sale)).flat_map(twice)
    many.group_by("shop").aggregate(count(), name="by-shop")
    many.shuffle().bolt("kept", Kept)
    many.map(doubled).shuffle().bolt("doubled", Kept)
    done = run(topology)
    assert list(done.results) == ["sales", "twice", "by-shop", "kept", "doubled"]
    assert done.results["by-shop"] == [{"a": 200, "b": 200, "c": 200}]
    assert len(done.results["kept"][0]) == len(done.results["doubled"][0]) == 600
