"""`where=`, count_distinct, first, last and ties against plain Python, in every kind of program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Records,
    Topology,
    average,
    collect,
    count,
    count_distinct,
    first,
    installed,
    last,
    max_,
    min_,
    reduce,
    run_inline,
    sessions,
    sum_,
    top,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import (
    BadEmit,
    RecordMismatch,
    TopologyError,
    TopologyFailed,
    UnknownField,
)
from sunshower.records import Schema
from sunshower.state import MemoryState
from sunshower.topologies.operators.port import Attempt
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept

NAN = math.nan
ATTEMPT = Attempt(1, 0, 1)
VALUES = [None, 0, 1, 2, 1.0, 2.5, -3, Decimal(2), True]
AnyRow = Any


class Sale(NamedTuple):
    shop: str
    at: float
    price: Any
    venue: str


@dataclass
class Sold:
    shop: str
    at: float
    price: Any
    venue: str


def is_west(sale: AnyRow) -> bool:
    return bool(values_of(sale)[3] == "west")


def values_of(sale: AnyRow) -> tuple[Any, ...]:
    is_tuple = isinstance(sale, tuple)
    return tuple(sale) if is_tuple else (sale.shop, sale.at, sale.price, sale.venue)


def last_venue(_: str, sale: AnyRow) -> str:
    return str(values_of(sale)[3])


GIVEN: tuple[Any, ...] = (
    count(name="west", where=is_west),
    sum_("price", name="west_sum", where=is_west),
    average("price", name="west_mean", where=is_west),
    min_("price", name="west_least", where=is_west),
    max_("at", name="west_latest", where=is_west),
    count("price", where=is_west),
    count(),
    sum_("price"),
    count_distinct("price"),
    count_distinct("price", "venue", name="pairs", where=is_west),
    first("price", by="at"),
    last("venue", by="at"),
    last("price", "venue", by="at", name="latest", where=is_west),
    top(2, by=["venue", "at"], name="by_two"),
    top(1, by="venue", ties=True, name="tied"),
    top(2, by="at", name="west_top", where=is_west),
)
Model = Callable[[list[tuple[Any, ...]]], list[Any]]


def model(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What the aggregators emit for the rows of a group, as a plain program computes it."""
    west = [row for row in rows if row[3] == "west"]
    prices = [row[2] for row in west if row[2] is not None]
    known = [row for row in rows if row[2] is not None]
    early = sorted(known, key=lambda row: (row[1], row[2], ranks(row[2])))
    late = sorted(rows, key=lambda row: (row[1], row[3]))
    latest = sorted(west, key=lambda row: (row[1], place(row[2])))
    by_two = sorted(sorted(rows, key=places), key=lambda row: (row[3], row[1]), reverse=True)
    by_venue = sorted(sorted(rows, key=places), key=lambda row: row[3], reverse=True)
    at = sorted(sorted(west, key=places), key=lambda row: row[1], reverse=True)
    return [
        len(west),
        None if west and not prices else total(prices),
        total(prices) / len(prices) if prices else None,
        min(sorted(prices, key=ranks), default=None),
        max((row[1] for row in west), default=None),
        len(prices),
        len(rows),
        None if not known else total([row[2] for row in known]),
        len({row[2] for row in known}),
        len({row[2:] for row in west if row[2] is not None}),
        early[0][2] if early else None,
        late[-1][3],
        latest[-1][2:] if latest else None,
        by_two[:2],
        [row for row in by_venue if row[3] == by_venue[0][3]],
        at[:2],
    ]


def total(values: Sequence[Any]) -> Any:
    """A sum of numbers of several types: floats win over Decimals."""
    if any(isinstance(value, float) for value in values):
        return math.fsum(map(float, values))
    return sum(values)


def ranks(value: Any) -> Any:
    """The order of equal numbers: int, float, Decimal, bool."""
    return ([int, float, Decimal, bool].index(type(value)), repr(value))


def place(value: Any) -> Any:
    """The order of prices; None is behind all numbers ("values without an order")."""
    return (value is None, value or 0, () if value is None else ranks(value))


def places(row: tuple[Any, ...]) -> Any:
    """The order of rows by their fields."""
    price = row[2]
    return (row[0], row[1], place(price)[:2], row[3]), place(price)[2]


def sales(seed: int) -> list[tuple[Any, ...]]:
    random = Random(seed)
    return [
        (
            random.choice("ab"),
            float(random.randrange(8)),
            random.choice(VALUES),
            random.choice(["west", "west", "east"] if seed % 3 else ["east"]),
        )
        for _ in range(random.randrange(1, 25))
    ]


def groups_of(rows: Sequence[tuple[Any, ...]]) -> dict[Any, str]:
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return {key: repr(model(several)) for key, several in groups.items()}


def results_of(topology: Topology, width: int = 1) -> dict[Any, str]:
    """The last row of each group."""
    results = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    return {row[0]: repr([*row[width:]]) for task in results for row in task}


def of_totals(rows: Sequence[Any], kind: Any) -> dict[Any, str]:
    topology = Topology("totals")
    source = topology.spout("sales", Records(rows, **kind))
    totals = source.group_by("shop").aggregate(
        *GIVEN, state=MemoryState(), name="totals", parallelism=2
    )
    totals.global_().bolt("kept", Kept)
    return results_of(topology)


def of_windows(rows: Sequence[Any], kind: Any) -> dict[Any, str]:
    topology = Topology("windows")
    source = topology.spout("sales", Records(rows, **kind))
    windows = source.group_by("shop").window(
        tumbling(seconds=100, field="at", late=100), *GIVEN, state=MemoryState(), parallelism=2
    )
    windows.global_().bolt("kept", Kept)
    return results_of(topology, 2)


def of_sessions(rows: Sequence[Any], kind: Any) -> dict[Any, str]:
    topology = Topology("sessions")
    source = topology.spout("sales", Records(rows, **kind))
    window = sessions(gap=100, field="at", late=100)
    source.group_by("shop").window(window, *GIVEN).global_().bolt("kept", Kept)
    return results_of(topology, 2)


def of_batches(rows: Sequence[Any], kind: Any) -> dict[Any, str]:
    topology = Topology("batches")
    spout = FixedBatchSpout(rows, 3, **kind)
    grouped = batches(topology, "sales", spout, store=InMemory()).group_by("shop")
    totals = grouped.aggregate(*GIVEN, state=MemoryState(), parallelism=2)
    totals.records("out").global_().bolt("kept", Kept)
    return results_of(topology)


def of_windows_of_batches(rows: Sequence[Any], kind: Any) -> dict[Any, str]:
    topology = Topology("batches")
    spout = FixedBatchSpout(rows, 3, **kind)
    grouped = batches(topology, "sales", spout, store=InMemory()).group_by("shop")
    window = tumbling(seconds=100, field="at", late=100)
    ended = grouped.window(window, *GIVEN, state=MemoryState(), parallelism=2)
    ended.records("out").global_().bolt("kept", Kept)
    return results_of(topology, 2)


def of_totals_of_totals(rows: Sequence[Any], kind: Any) -> dict[Any, str]:
    """Each sale is a total of its own, which is then in a group of the second totals."""
    topology = Topology("updated")
    numbered = [(number, *values_of(row)) for number, row in enumerate(rows)]
    fields = ("number", "shop", "at", "price", "venue")
    source = topology.spout("sales", Records(numbered, fields=fields))
    latest = source.group_by(*fields).aggregate(count(name="times"), name="each")
    each = latest.project("shop", "at", "price", "venue")
    totals = each.group_by("shop").aggregate(*GIVEN, name="totals", parallelism=2)
    totals.global_().bolt("kept", Kept)
    return results_of(topology)


PROGRAMS = [
    *(of_totals, of_windows, of_sessions, of_batches, of_windows_of_batches),
    of_totals_of_totals,
]
KINDS: list[Any] = [{"type": Sale}, {"type": Sold}, {"fields": Sale._fields}]


@pytest.mark.parametrize("program", PROGRAMS)
@seeds(40)
def test_programs_have_the_results_of_plain_python(program: Any, seed: int) -> None:
    rows, kind = sales(seed), KINDS[seed % 3]
    records = [kind["type"](*row) for row in rows] if "type" in kind else rows
    assert program(records, kind) == groups_of(rows), f"seed {seed}"


def combined(aggregator: Any, parts: Sequence[Sequence[Any]]) -> Any:
    """What is emitted of rows that are combined in parts."""
    values = []
    for rows in parts:
        table = aggregator.table()
        aggregator.gather(table, ["a"] * len(rows), rows, ATTEMPT)
        values += [*table.values()]
    value = aggregator.zero()
    for partial_value in values:
        value = aggregator.combine(value, partial_value)
    ((result,),) = aggregator.rows(value)
    return result


@seeds(200)
def test_first_and_last_are_the_same_in_every_order_of_arrival(seed: int) -> None:
    random = Random(seed)
    noon = datetime(2024, 6, 1, 12, tzinfo=UTC)
    times: list[Any] = random.choice(
        [
            [0, 0.5, Decimal("0.5"), 1, 2**60, 2**60 + 1],
            [0.1, Decimal("0.1"), 0.30000000000000004, Decimal("0.3")],
            [noon + timedelta(microseconds=n) for n in range(3)],
            [datetime(2024, 1, 1), datetime(2024, 1, 2)],  # noqa: DTZ001
        ]
    )
    values = [NAN, None, 1, 1.0, True, "x", (1, "y"), -0.0, 0.0]
    rows = [
        Sale("a", random.choice(times), random.choice(values), random.choice("uvw"))
        for _ in range(random.randrange(1, 9))
    ]
    schema = Schema.of(Sale)
    aggregators = [first("price", by="at"), last("price", by="at"), last("venue", "price", by="at")]
    for aggregator in (unbound.bind(schema, "here") for unbound in aggregators):
        results = set()
        for _ in range(6):
            random.shuffle(rows)
            cut = random.randrange(len(rows) + 1)
            results.add(repr(combined(aggregator, [rows[:cut], rows[cut:]])))
        assert len(results) == 1, f"seed {seed}"


def test_a_group_without_a_chosen_record_has_the_value_of_no_rows() -> None:
    topology = Topology("none")
    rows = [Sale("a", 1.0, 5, "east"), Sale("b", 2.0, 7, "west")]
    source = topology.spout("sales", Records(rows, type=Sale))
    totals = source.group_by("shop").aggregate(
        count(where=is_west),
        sum_("price", where=is_west),
        max_("price", where=is_west),
        collect("price", name="all", where=is_west),
        top(1, by="price", where=is_west),
    )
    totals.global_().bolt("kept", Kept)
    assert sorted(run_inline(topology.graph()).results["kept"][0]) == [
        ("a", 0, 0, None, [], []),
        ("b", 1, 7, 7, [7], [(Sale("b", 2.0, 7, "west"))]),
    ]


def test_a_reducer_reads_only_the_records_that_are_chosen() -> None:
    rows = [Sale("a", float(n), n, "west" if n % 2 else "east") for n in range(5)]
    joined = reduce(lambda seen, sale: [*seen, sale.price], [], "seen", where=is_west)
    topology = Topology("reduced")
    source = topology.spout("sales", Records(rows, type=Sale))
    source.group_by("shop").aggregate(joined).global_().bolt("kept", Kept)
    source.group_by("shop").window(tumbling(count=5), joined).global_().bolt("panes", Kept)
    results = run_inline(topology.graph()).results
    assert results["kept"][0][-1] == ("a", [1, 3])
    assert results["panes"][0] == [("a", 0, [1, 3])]


def test_ties_are_listed_with_the_last_one() -> None:
    schema = Schema.of(Sale)
    rows = [Sale("a", float(n), price, "v") for n, price in enumerate([3, 9, 5, 5, 5, 1, None])]
    tied = combined(top(2, by="price", ties=True).bind(schema, "here"), [rows[:3], rows[3:]])
    assert [row[2] for row in tied] == [9, 5, 5, 5]
    both = top(2, by=["price", "at"], ties=True).bind(schema, "here")
    assert [row[1:3] for row in combined(both, [rows])] == [(1.0, 9), (4.0, 5)]
    each = top(1, by="price", each="price", ties=True).bind(schema, "here")
    assert [row[2] for row in combined(each, [rows, rows])] == [9]


@pytest.mark.parametrize("values", [[None, NAN, 4, 2], [NAN, None], [None, "text", 3, (1,)]])
def test_further_fields_of_a_ranking_may_be_missing_and_of_any_kind(values: list[Any]) -> None:
    schema = Schema.of(Sale)
    rows = [Sale("a", 1.0, value, "v") for value in values]
    ranking = top(9, by=["at", "price"]).bind(schema, "here")
    lists = [combined(ranking, [rows[:cut], rows[cut:]]) for cut in range(len(rows))]
    lists += [combined(ranking, [rows[::-1]])]
    assert len({*map(repr, lists)}) == 1
    assert [row[2] for row in lists[0]][-1] is None


def test_values_are_distinct_as_groups_are() -> None:
    schema = Schema.of(Sale)
    values = [1, 1.0, True, Decimal(1), NAN, float("nan"), -0.0, 0, None, [1], (1,), {"a": 1}]
    moments = [datetime(2024, 6, 1, 12, tzinfo=UTC), datetime.fromisoformat("2024-06-01T14+02:00")]
    rows = [Sale("a", 1.0, value, "v") for value in [*values, {"a": 1.0}, *moments]]
    counted = count_distinct("price").bind(schema, "here")
    for cut in range(len(rows)):
        assert combined(counted, [rows[:cut], rows[cut:]]) == 6


needs_sketches = pytest.mark.skipif(
    not installed.runs_on(installed.PYTHON, "sketches"), reason="no releases for this Python"
)


@needs_sketches
@seeds(60)
def test_an_estimate_is_the_same_in_every_order_and_near_the_number(seed: int) -> None:
    random = Random(seed)
    schema = Schema.of(Sale)
    number = random.choice([0, 1, 300, 4_096, 20_000])
    values = [random.choice([n, float(n), Decimal(n)]) for n in range(number)] + [None] * 3
    rows = [Sale("a", 1.0, value, "v") for value in values * 2]
    counted = count_distinct("price", approx=True).bind(schema, "here")
    estimates = set()
    for cuts in (0, 1, 4):
        random.shuffle(rows)
        ends = sorted(random.sample(range(len(rows)), cuts))
        parts = [rows[begin:end] for begin, end in zip([0, *ends], [*ends, len(rows)], strict=True)]
        estimates.add(combined(counted, parts))
    assert len(estimates) == 1
    (estimate,) = estimates
    assert estimate == number if number <= 4_096 else abs(estimate / number - 1) < 0.06


@needs_sketches
def test_a_sketch_is_at_most_33_kb_and_is_stored_in_any_store() -> None:
    topology, state = Topology("estimates"), MemoryState()
    rows = [Sale("a", float(n), n, "v") for n in range(50_000)]
    source = topology.spout("sales", Records(rows, type=Sale))
    source.group_by("shop").aggregate(count_distinct("price", approx=True), state=state)
    window = tumbling(seconds=1_000_000, field="at")
    source.group_by("shop").window(window, count_distinct("price", approx=True)).global_().bolt(
        "kept", Kept
    )
    results = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    ((_, sketch),) = state.items()
    assert 30_000 < len(sketch) < 33_000
    assert [round(row[2], -4) for row in results[0]] == [50_000]


def test_an_estimate_without_its_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Topology("estimates").spout("sales", Records([], type=Sale))
    with monkeypatch.context() as patch:
        patch.setattr(installed, "PYTHON", (3, 14, 1))
        with pytest.raises(TopologyError, match=r"approx=True\) needs Python 3.11, 3.12 or 3.13"):
            source.aggregate(count_distinct("price", approx=True))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(TopologyError, match=r"datasketches, which estimates .*is missing: "):
        source.aggregate(count_distinct("price", approx=True))


nothing: Any = lambda: True  # noqa: E731


@pytest.mark.parametrize(
    ("aggregator", "error", "why"),
    [
        (count(where=nothing), TopologyError, "must take exactly one record"),
        (top(1, by=[]), TopologyError, "there is no field to rank by"),
        (top(1, by=["price", "no"]), UnknownField, "there is no field 'no'"),
        (first("price", by="no"), UnknownField, "there is no field 'no'"),
        (count_distinct("no"), UnknownField, "there is no field 'no'"),
    ],
)
def test_wrong_aggregators_are_refused(aggregator: Any, error: Any, why: str) -> None:
    source = Topology("wrong").spout("sales", Records([], type=Sale))
    with pytest.raises(error, match=why):
        source.aggregate(aggregator)


def test_a_predicate_of_other_records_or_without_an_answer_is_refused() -> None:
    def of_texts(text: str) -> bool:
        return bool(text)

    def of_sale(sale: Sale) -> int:
        return len(sale)

    async def later(sale: Sale) -> bool:
        return bool(sale)

    source = Topology("wrong").spout("sales", Records([], type=Sale))
    with pytest.raises(RecordMismatch, match=r"count\(where=…\): it reads str"):
        source.aggregate(count(where=of_texts))
    with pytest.raises(RecordMismatch, match="of_sale returns int"):
        source.aggregate(sum_("at", where=of_sale))
    with pytest.raises(TopologyError, match="asynchronous"):
        source.aggregate(count(where=later))
    with pytest.raises(TopologyError, match="where is 5"):
        count(where=5)  # type: ignore[arg-type]


def test_a_time_that_is_none_fails_with_its_field() -> None:
    bound = first("price", by="at").bind(Schema.of(Sale), "here")
    with pytest.raises(BadEmit, match=r"first\('price', by='at'\): field 'at': None is no event"):
        bound.init(Sale("a", None, 1, "v"))  # type: ignore[arg-type]
    topology = Topology("mixed")
    rows = [
        Sale("a", datetime(2024, 1, 1), 1, "v"),  # type: ignore[arg-type]  # noqa: DTZ001
        Sale("a", 5.0, 1, "v"),
    ]
    topology.spout("sales", Records(rows, type=Sale)).aggregate(last("price", by="at"))
    with pytest.raises(TopologyFailed, match="which has no time zone, in one record"):
        run_inline(topology.graph())
