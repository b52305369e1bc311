"""Operators compute the same on streams of rows, of tables and of batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower import (
    Context,
    Derived,
    KeyState,
    Topology,
    average,
    batch,
    collect,
    count,
    max_,
    reduce,
    sum_,
    top,
    tumbling,
)
from sunshower.errors import RecordMismatch, TopologyError, UnknownField
from sunshower.state import MemoryState
from sunshower.trident import Aggregator, Attempt
from tests.topologies.operators.kinds import SALES, AnyStream, Run, Sale, Source


class Total(NamedTuple):
    shop: str
    sales: int
    amount: int


def is_a(sale: Sale) -> bool:
    return sale.shop == "a"


def is_large(sale: Sale) -> bool:
    return sale.amount >= 100


def is_negative(sale: Sale) -> bool:
    return sale.amount < 0


def doubled(sale: Sale) -> Sale:
    return Sale(sale.shop, sale.amount * 2)


def keep(sale: Sale, state: KeyState[int]) -> None: ...


def twice(sale: Sale) -> Iterator[Sale]:
    yield sale
    yield sale


def none_of(sale: Sale) -> list[Sale]:
    return []


def nothing(sale: Sale) -> None:
    """Do nothing."""


@batch
def plus_one(table: pa.Table) -> Derived:
    return Derived(plus_one_table(table), pa.array(range(len(table))))


@batch
def plus_one_table(table: pa.Table) -> pa.Table:
    amounts = pa.array([amount + 1 for amount in table["amount"].to_pylist()])
    return pa.table({"shop": table["shop"], "amount": amounts})


# ---- functions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assemble", "expected"),
    [
        (lambda s: s.flat_map(twice), [*SALES, *SALES]),
        (lambda s: s.flat_map(none_of), []),
        (lambda s: s.map(doubled), [doubled(sale) for sale in SALES]),
        (lambda s: s.filter(is_a), [sale for sale in SALES if is_a(sale)]),
        (lambda s: s.project("amount"), [(sale.amount,) for sale in SALES]),
        (lambda s: s.peek(nothing), SALES),
        (
            lambda s: s.flat_map(twice).map(doubled).filter(is_a).project("amount"),
            [(sale.amount * 2,) for sale in SALES if is_a(sale) for _ in range(2)],
        ),
        (lambda s: s.flat_map(plus_one, fields=Sale), [Sale(s, n + 1) for s, n in SALES]),
        (
            lambda s: s.flat_map(plus_one_table, fields=Sale).project("amount").filter(any),
            [(sale.amount + 1,) for sale in SALES],
        ),
        (
            lambda s: s.filter(is_a).merge(s.map(doubled)),
            [*filter(is_a, SALES), *map(doubled, SALES)],
        ),
    ],
)
def test_each_operator_does_what_python_does(run: Run, assemble: Any, expected: Any) -> None:
    (rows,) = run(lambda sales: [assemble(sales)])
    assert sorted(rows) == sorted(map(tuple, expected))


@pytest.mark.parametrize(
    "assemble",
    [
        lambda s: s.filter(twice),
        lambda s: s.branch(is_a, twice),
        lambda s: s.peek(twice),
        lambda s: s.group_by("shop").window(tumbling(count=2), count(where=twice)),
        lambda s: s.group_by("shop").window(tumbling(seconds=2, until=twice), count()),
    ],
)
def test_a_generator_function_is_refused_where_nothing_reads_it(run: Run, assemble: Any) -> None:
    with pytest.raises(TopologyError, match=r"twice is a generator function.*without yield"):
        run(lambda sales: [assemble(sales)])


# ---- branch -------------------------------------------------------------------------------------


def test_each_record_goes_to_the_first_branch_that_takes_it(run: Run) -> None:
    branches = run(lambda sales: sales.branch(is_a, is_large, is_negative))
    assert list(map(sorted, branches)) == [
        sorted(sale for sale in SALES if is_a(sale)),
        sorted(sale for sale in SALES if is_large(sale) and not is_a(sale)),
        [],
        sorted(sale for sale in SALES if not is_large(sale) and not is_a(sale)),
    ]


def test_operators_follow_branches_and_branches_are_merged_again(run: Run) -> None:
    def assemble(sales: AnyStream) -> list[AnyStream]:
        a, others = sales.map(doubled).branch(is_a)
        return [a.map(doubled).merge(others)]

    (rows,) = run(assemble)
    assert sorted(rows) == sorted(Sale(s, n * (4 if s == "a" else 2)) for s, n in SALES)


def test_each_predicate_is_called_once_for_a_record(run: Run) -> None:
    class Predicate:
        def prepare(self, context: Context) -> None:
            self.calls = 0

        def __call__(self, sale: Sale) -> bool:
            self.calls += 1
            return sale.amount < self.calls  # the n-th record has the amount n - 1

    branches = run(lambda sales: sales.branch(Predicate()))
    assert list(map(len, branches)) == [len(SALES), 0]


# ---- aggregate ----------------------------------------------------------------------------------


def final(rows: list[Any]) -> dict[Any, Any]:
    """Return the last total of each group. The totals of these tests only grow."""
    return {row[0]: row[1:] for row in sorted(rows)}


def test_a_state_has_the_totals_of_all_records_by_group(run: Run) -> None:
    state = MemoryState()

    def assemble(sales: AnyStream) -> list[AnyStream]:
        wanted = [count(), sum_("amount")]
        totals = sales.group_by("shop").aggregate(*wanted, state=state, fields=Total, parallelism=2)
        return [totals, totals.filter(lambda total: total.sales == 40)]

    totals, full = run(assemble)
    assert final(totals) == {
        shop: (40, sum(sale.amount for sale in SALES if sale.shop == shop)) for shop in "abc"
    }
    assert sorted(full) == sorted((shop, *total) for shop, total in final(totals).items())
    assert {key: tuple(value) for key, value in state.items()} == final(totals)


def test_the_name_of_an_aggregation_is_that_of_its_bolt(
    source: Source,
) -> None:
    topology = Topology("both")
    source(topology, SALES).aggregate(sum_("amount"), state=MemoryState(), name="turnover")
    assert "turnover" in topology.graph().components


def longest(value: int, sale: Sale) -> int:
    return max(value, len(str(sale.amount)))


def test_reduce_folds_records_with_a_function(run: Run) -> None:
    def assemble(sales: AnyStream) -> list[AnyStream]:
        named = sales.aggregate(reduce(longest, 0), state=MemoryState(), name="all")
        both = sales.group_by("shop").aggregate(
            reduce(lambda sums, sale: [sums[0] + sale.amount, sums[1] + 1], [0, 0]),
            state=MemoryState(),
        )
        assert (named.schema.fields, both.schema.fields) == (("longest",), ("shop", "value"))
        return [named, both]

    named, both = run(assemble)
    assert max(named) == (3,)
    assert final(both)["a"] == ([sum(n for _, n in filter(is_a, SALES)), 40],)


def test_top_is_the_list_of_the_greatest_records(run: Run) -> None:
    def assemble(sales: AnyStream) -> list[AnyStream]:
        state = MemoryState()
        whole = sales.aggregate(top(2, by="amount"), state=state)
        by_shop = sales.group_by("shop").aggregate(top(1, by="amount"), state=state, name="best")
        return [whole, by_shop]

    whole, by_shop = run(assemble)
    assert whole[-1] == ([("c", 119), ("b", 118)],)
    assert final(by_shop) == {s: ([(s, n)],) for s, n in (("a", 117), ("b", 118), ("c", 119))}


def test_the_top_of_totals_has_each_group_once(run: Run) -> None:
    sales = [Sale(f"shop {n % 7}", n % 7 + 1) for n in range(200)]

    def assemble(sales: AnyStream) -> list[AnyStream]:
        totals = sales.group_by("shop").aggregate(
            sum_("amount"), state=MemoryState(), parallelism=2
        )
        best = top(3, by="amount_sum", each="shop")
        return [totals.aggregate(best, state=MemoryState())]

    (lists,) = run(assemble, sales)
    wanted = Counter[str]()
    for shop, amount in sales:
        wanted[shop] += amount
    assert lists[-1] == (wanted.most_common(3),)


# ---- wrong declarations -------------------------------------------------------------------------

TWO = tumbling(count=2)


def of_words(word: str) -> bool:
    return bool(word)


def sales_of(shop: str) -> list[Sale]:
    return [Sale(shop, 1)]


def of_a_word(value: int, word: str) -> int:
    return value


def amount_of(sale: Sale) -> int:
    return sale.amount


class Listing(Aggregator[Sale, list[int]]):
    def init(self, attempt: Attempt) -> list[int]:
        return []

    def aggregate(self, state: list[int], record: Sale) -> None: ...

    def complete(self, state: list[int]) -> list[tuple[Any, ...]]:
        return []


def windows(stream: AnyStream, fields: Any, window: Any = TWO) -> Any:
    return stream.window(window, count(), fields=fields, state=MemoryState())


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (
            lambda s: s.flat_map(sales_of),
            RecordMismatch,
            "reads str, but the stream carries Sale",
        ),
        (lambda s: s.flat_map(doubled), RecordMismatch, "must yield its records"),
        (lambda s: s.flat_map(nothing), RecordMismatch, "makes nothing"),
        (lambda s: s.flat_map("split"), TopologyError, "is not a function"),
        (lambda s: s.flat_map(lambda sale: [sale]), TopologyError, "nothing says which fields"),
        (lambda s: s.map(of_words), RecordMismatch, "it reads str"),
        (lambda s: s.map(lambda sale: sale), TopologyError, "nothing says which fields"),
        (lambda s: s.map(nothing), RecordMismatch, "makes nothing"),
        (lambda s: s.map(twice), RecordMismatch, "map makes one record"),
        (lambda s: s.map(doubled, fields=("shop",)), RecordMismatch, "declared to emit"),
        (lambda s: s.filter(doubled), RecordMismatch, "returns Sale; a filter says True"),
        (lambda s: s.peek(of_words), RecordMismatch, "it reads str"),
        (lambda s: s.project("town"), UnknownField, "its fields are: shop, amount"),
        (lambda s: s.group_by("town"), UnknownField, "no field 'town'"),
        (lambda s: s.group_by(), TopologyError, "needs a field, one of: shop, amount"),
        (lambda s: s.merge(s.project("shop")), RecordMismatch, "another one (shop); make them the"),
        (lambda s: s.merge(3), TopologyError, "3 is no"),
        (lambda s: s.aggregate(), TopologyError, "it needs an aggregator, as in count()"),
        (lambda s: s.aggregate(count), TopologyError, "count is no aggregator; "),
        (lambda s: s.aggregate(count(), count()), RecordMismatch, "one name: count, count"),
        (lambda s: s.aggregate(sum_("town")), UnknownField, "aggregate: there is no field 'town'"),
        (lambda s: s.aggregate(count(), fields=Sale), RecordMismatch, "give 1 fields"),
        (
            lambda s: s.group_by("amount").aggregate(count(), fields=Sale),
            RecordMismatch,
            "what comes out is (amount, count)",
        ),
        (
            lambda s: s.aggregate(Listing(), state=MemoryState()),
            TopologyError,
            "kept by one ReducerAggregator",
        ),
        (
            lambda s: s.aggregate(reduce(longest, 0), count(), state=MemoryState()),
            TopologyError,
            "declare two aggregations",
        ),
        (lambda s: s.map(lambda sale: sale), TopologyError, "for tuples, or fields=Word"),
        (lambda s: s.aggregate(count(), state=MemoryState), TopologyError, "is not a state; give"),
        (
            lambda s: s.window(TWO, count(), state=MemoryState),
            TopologyError,
            "is not a state; give one like",
        ),
        (
            lambda s: s.group_by("shop").process(keep, state=MemoryState),
            TopologyError,
            "is not a state; give one like",
        ),
        (
            lambda s: s.group_by("shop").table(state=MemoryState),
            TopologyError,
            "is not a state; give one like",
        ),
        (lambda s: windows(s, None, 60), TopologyError, "60 is no window"),
        (lambda s: windows(s, None, tumbling(seconds=1, field="at")), UnknownField, "'at'"),
        (lambda s: s.branch(), TopologyError, "branch needs a predicate, -> bool"),
        (lambda s: s.branch("a"), TopologyError, "branch(str): 'a' is not a function"),
        (lambda s: s.branch(is_a, of_words), RecordMismatch, "it reads str"),
        (lambda s: s.branch(amount_of), RecordMismatch, "a filter says True"),
        (lambda s: s.aggregate(top(3, by="town")), UnknownField, "no field 'town'"),
        (lambda s: s.aggregate(top(3, by="shop", each="town")), UnknownField, "no field 'town'"),
        (lambda s: s.aggregate(reduce("f", 0)), TopologyError, "a function of a value and"),
        (lambda s: s.aggregate(reduce(is_a, 0)), TopologyError, "must take a value and a record"),
        (lambda s: s.aggregate(reduce(of_a_word, 0)), RecordMismatch, "its function reads str"),
        (lambda s: s.aggregate(count(), state="counts.db"), TopologyError, "is not a state"),
        (
            lambda s: s.aggregate(count(), state=MemoryState(), parallelism=2),
            TopologyError,
            "without .group_by(…) one task has all records",
        ),
    ],
)
def test_wrong_declarations_are_refused(
    source: Source,
    assemble: Callable[[AnyStream], Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error) as raised:
        assemble(source(Topology("both"), SALES))
    assert message in str(raised.value)
    assert "'both'" in str(raised.value)


def totals(aggregator: Any) -> Callable[[AnyStream, Any], Any]:
    return lambda s, fields: s.group_by("shop").aggregate(
        aggregator, fields=fields, state=MemoryState()
    )


@pytest.mark.parametrize(
    ("assemble", "names", "right", "wrong"),
    [
        (windows, "*window count", [int, float, int | None, Any], [datetime, str, timedelta, date]),
        (windows, "window *count", [int, float, int | str], [str, Decimal, bytes, list[int]]),
        (totals(count()), "*shop count", [str, str | None], [int, datetime | None]),
        (totals(sum_("amount")), "shop *sum", [int, float, Any], [str, Decimal, timedelta]),
        (totals(average("amount")), "shop *mean", [float, Decimal, float | None], [int, str]),
        (totals(max_("amount")), "shop *most", [int, float], [str, datetime]),
        (totals(collect("amount")), "shop *all", [list, list[int]], [int, dict[str, int]]),
    ],
)
def test_a_field_that_an_operator_fills_is_declared_as_what_it_gets(
    source: Source,
    assemble: Callable[[AnyStream, Any], Any],
    names: str,
    right: list[Any],
    wrong: list[Any],
) -> None:
    def declare(kind: Any) -> None:
        fields = [(name.strip("*"), kind if "*" in name else Any) for name in names.split()]
        assemble(source(Topology("both"), SALES), NamedTuple("Row", fields))  # type: ignore[misc]

    field = next(name.strip("*") for name in names.split() if "*" in name)
    for kind in right:
        declare(kind)
    for kind in wrong:
        with pytest.raises(RecordMismatch, match=rf"Row\.{field} is .*and its values are"):
            declare(kind)
