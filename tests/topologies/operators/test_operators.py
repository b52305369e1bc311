"""Operators on streams: results, the bolts in which they run, and wrong declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower import (
    BatchBolt,
    Bolt,
    Collector,
    Context,
    Records,
    ReducerAggregator,
    Retry,
    Topology,
    Tuple,
    average,
    count,
    max_,
    run_inline,
    sum_,
)
from sunshower.clock import ManualClock
from sunshower.errors import RecordMismatch, TopologyError, UnknownField
from sunshower.runtime.inline import Finished
from sunshower.topologies.streams import Stream
from sunshower.trident import Aggregator, Attempt
from tests.topologies.examples import Word
from tests.topologies.operators.kinds import Kept, Sale


class Total(NamedTuple):
    shop: str
    amount: int


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


def kept(assemble: Callable[[Stream[Sale]], Stream[Any]], sink: Any = Kept) -> list[Any]:
    (found,) = run(sales_topology(assemble, sink)).results["kept"]
    return sorted(found)


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


class Longest(ReducerAggregator[Sale, int]):
    fields = ("longest",)

    def init(self) -> int:
        return 0

    def reduce(self, value: int, record: Sale) -> int:
        return max(value, len(str(record.amount)))


# ---- results ------------------------------------------------------------------------------------


def test_a_stage_of_several_tasks_does_what_python_does() -> None:
    made = kept(lambda s: s.shuffle().stage("several", parallelism=3).map(doubled))
    assert made == sorted(map(doubled, SALES))


def final(rows: list[Any], width: int = 1) -> dict[Any, Any]:
    """Return the last total of each group. The totals of these tests only grow."""
    found: dict[Any, Any] = {}
    for row in sorted(rows):
        found[row[:width] if width > 1 else row[0]] = row[width:]
    return found


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_group_has_its_total(parallelism: int) -> None:
    rows = kept(lambda s: s.group_by("shop").aggregate(count(), parallelism=parallelism))
    assert final(rows) == {"a": (100,), "b": (100,), "c": (100,)}


def test_several_aggregators_make_one_record() -> None:
    rows = kept(lambda s: s.group_by("shop").aggregate(count(), sum_("amount"), max_("amount")))
    assert final(rows)["a"] == (100, sum(range(0, 300, 3)), 297)


def test_without_groups_all_records_are_aggregated_together() -> None:
    assert kept(lambda s: s.aggregate(count(), average("amount")))[-1] == (300, 149.5)


def test_a_reducer_gets_the_records_themselves() -> None:
    assert final(kept(lambda s: s.group_by("shop").aggregate(Longest())))["b"] == (3,)


def test_totals_have_a_record_type_and_can_be_aggregated_again() -> None:
    def assemble(sales: Stream[Sale]) -> Stream[Any]:
        totals = sales.group_by("shop").aggregate(sum_("amount"), fields=Total)
        return totals.group_by("shop").aggregate(max_("amount"))

    assert final(kept(assemble))["c"] == (sum(range(2, 300, 3)),)


@pytest.mark.parametrize("columns", [False, True])
def test_totals_reach_bolts_of_all_kinds(columns: bool) -> None:
    class Manual(Kept):
        def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
            self.kept.append((*tuple.record,))
            out.ack(tuple)

        process = Bolt.process  # type: ignore[assignment]

    class Columns(BatchBolt[Any, None]):
        def prepare(self, context: Context) -> None:
            self.kept: list[Any] = []

        def process(self, table: pa.Table) -> None:
            self.kept += zip(*(column.to_pylist() for column in table.columns), strict=True)

        def result(self) -> list[Any]:
            return self.kept

    sink = Columns if columns else Manual
    rows = kept(lambda s: s.group_by("shop").aggregate(count()), sink)
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


# ---- wrong declarations -------------------------------------------------------------------------


class Listing(Aggregator[Sale, list[int]]):
    def init(self, attempt: Attempt) -> list[int]:
        return []

    def aggregate(self, state: list[int], record: Sale) -> None: ...

    def complete(self, state: list[int]) -> list[tuple[Any, ...]]:
        return []


def reads_words(word: Word) -> Word:
    return word


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (lambda s: s.group_by("town"), UnknownField, "its fields are: shop, amount"),
        (lambda s: s.group_by(), TopologyError, "needs a field, one of: shop, amount"),
        (lambda s: s.project("town"), UnknownField, "no field 'town'"),
        (
            lambda s: s.map(reads_words),
            RecordMismatch,
            "it reads Word, but the stream carries Sale",
        ),
        (lambda s: s.map(lambda sale: sale), TopologyError, "nothing says which fields"),
        (lambda s: s.merge(s.project("shop")), RecordMismatch, "make them the same first"),
        (lambda s: s.merge(3), TopologyError, "3 is no stream"),
        (lambda s: s.aggregate(), TopologyError, "it needs an aggregator, as in count()"),
        (lambda s: s.aggregate(Listing()), TopologyError, "one ReducerAggregator, or by one"),
        (lambda s: s.aggregate(Longest(), count()), TopologyError, "declare two aggregations"),
        (lambda s: s.aggregate(count(), state="x.db"), TopologyError, "'x.db' is not a state"),
        (lambda s: s.aggregate(count(), parallelism=2), TopologyError, "one task"),
    ],
)
def test_wrong_declarations_are_refused(
    assemble: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        sales_topology(assemble)
    assert message in str(raised.value)
    assert "topology 'sales', stream 'default' of 'sales'" in str(raised.value)
