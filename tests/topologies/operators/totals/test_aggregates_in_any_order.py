"""Aggregates of the same records are the same in every order, partition, form and store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import permutations
from random import Random
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from sunshower import (
    Records,
    Spout,
    Topology,
    average,
    collect,
    count,
    max_,
    min_,
    run_inline,
    sliding,
    sum_,
    top,
    tumbling,
)
from sunshower.codec import Codec
from sunshower.errors import BadEmit, TopologyFailed, UnknownField
from sunshower.json_values import text_of, values_of
from sunshower.records import Schema
from sunshower.state import MemoryState
from sunshower.topologies.operators.port import Attempt
from sunshower.trident import FixedBatchSpout, InMemory, batches

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NAN, INF = math.nan, math.inf


class Row(NamedTuple):
    key: str
    value: Any
    number: int = 0


SCHEMA = Schema.of(Row)
ATTEMPT = Attempt(1, 0, 1)
NUMBERS: dict[str, list[Any]] = {
    "integers": [0, -1, 1 << 70, -(1 << 70), 5, None, True, False],
    "floats": [0.1, 1e16, -1e16, 1.0, 3.3, -0.0, 0.0, 5e-324, 1e-300],
    "floats with NaN": [0.1, NAN, -7.5, None, 1e16],
    "infinities": [INF, 1.0, -2.5, None, 1e308],
    "infinities of both signs": [INF, -INF, 1.0],
    "too large": [1e308, -1e308, 1.7e308, 1.0, 0.1, 10**309, -(10**309)],
    "mixed": [1, 1.0, True, Decimal(1), Decimal("1.0"), (1 << 53) + 1, 0.5, None],
    "decimals": [Decimal("0.1"), Decimal("1E+20"), Decimal("-1E-20"), 3, Decimal("0.10"), None],
    "decimals with NaN": [Decimal("NaN"), Decimal("sNaN"), Decimal("2.5"), NAN, 7],
    "decimal infinities": [Decimal("Infinity"), Decimal("2.5"), 7, Decimal("-Infinity")],
    "NumPy": [np.float64(0.1), np.int64(1 << 62), np.float32(0.1), np.bool_(True), 2, 0.5, NAN],
    "only NaN": [NAN, Decimal("sNaN"), None],
    "only None": [None],
    "durations": [timedelta(days=-1), timedelta(0), timedelta(0, 1, 1), timedelta(40_000), None],
}
OTHERS: dict[str, list[Any]] = {
    "moments": [
        *(NOON.astimezone(timezone(timedelta(hours=hours))) for hours in (2, 0, -7)),
        *(datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)),
        datetime(2024, 10, 27, 2, 45, tzinfo=BERLIN),
        None,
    ],
    "texts": ["b", "", "é", "a", None],
    "lists": [(1, NAN), (1, 2.0), (1.0, 2), (0, "x"), (0, 7), None],
}
ALL = {**NUMBERS, **OTHERS}


def aggregators(case: str) -> list[Any]:
    field = "value"
    anything = [min_(field), max_(field), count(), count(field), collect(field)]
    ranked = [top(2, by=field), top(1, by=field, each="number"), top(9, by="number")]
    ranked += [top(1, by=["number", field]), top(2, by="number", ties=True)]
    return [*anything, *ranked, *([sum_(field), average(field)] if case in NUMBERS else [])]


def shown(aggregator: Any, value: Any) -> str:
    """The text of a result, which tells 1 from 1.0; of a list without an order, sorted."""
    return repr(sorted(map(repr, value)) if isinstance(aggregator, collect) else value)


def stored(value: Any) -> Any:
    """A partial value as the next task or the next batch has it."""
    return values_of([text_of(Codec().decode(Codec().encode(value)))])[0]


def result(aggregator: Any, parts: Sequence[Sequence[Row]]) -> str:
    """What is emitted of rows that are combined in parts, of which each was stored."""
    values = []
    for rows in parts:
        table = aggregator.table()
        aggregator.gather(table, ["a"], rows[:1], ATTEMPT)  # a task processes several inputs
        if rows[1:]:
            aggregator.gather_group(table, "a", rows[1:], ATTEMPT)
        values.append(stored(table["a"]))
    ((value,),) = aggregator.rows(reduce(aggregator.combine, values))
    return shown(aggregator, value)


def orders(case: str, seed: int) -> Iterator[list[list[Row]]]:
    """The same rows in several orders and partitions."""
    random = Random(seed)
    rows = [Row("a", random.choice(ALL[case]), random.randrange(3)) for _ in range(12)]
    for _ in range(5):
        random.shuffle(rows)
        ends = sorted(random.sample(range(1, 12), random.randrange(6)))
        yield [rows[begin:end] for begin, end in zip([0, *ends], [*ends, 12], strict=True)]


@pytest.mark.parametrize("case", ALL)
def test_an_aggregate_does_not_depend_on_order_and_partition(case: str) -> None:
    for seed in range(2):
        for aggregator in aggregators(case):
            bound = aggregator.bind(SCHEMA, "here")
            results = {result(bound, parts) for parts in orders(case, seed)}
            assert len(results) == 1, (aggregator.name, results)


@pytest.mark.parametrize("case", ["floats", "floats with NaN", "integers"])
def test_a_sum_is_the_rounded_exact_sum(case: str) -> None:
    for seed in range(8):
        for parts in orders(case, seed):
            values = [row.value for rows in parts for row in rows if row.value is not None]
            exact = math.fsum(values) if case != "integers" else sum(values)
            assert result(sum_("value").bind(SCHEMA, "here"), parts) == repr(exact + 0)


def test_each_aggregate_passes_over_nan_and_none_as_it_is_documented() -> None:
    wanted: list[tuple[list[Any], list[str]]] = [
        # the values; then min, max, sum, average, count of values
        ([1.5, NAN, 100.0], ["1.5", "100.0", "nan", "nan", "3"]),
        ([1.5, None, 100.0], ["1.5", "100.0", "101.5", "50.75", "2"]),
        ([NAN, None], ["nan", "nan", "nan", "nan", "1"]),
        ([None, None], ["None", "None", "None", "None", "0"]),
        ([INF, -INF], ["-inf", "inf", "nan", "nan", "2"]),
        ([1e308, 1e308], ["1e+308", "1e+308", "inf", "1e+308", "2"]),
        ([True, 1, 1.0, Decimal(1)], ["1", "1", "4.0", "1.0", "4"]),
        ([True, 1.0, Decimal("1.0")], ["1.0", "1.0", "3.0", "1.0", "3"]),
        ([Decimal("1.10"), 2], ["Decimal('1.10')", "2", "Decimal('3.10')", "Decimal('1.55')", "2"]),
        ([True, True], ["True", "True", "2", "1.0", "2"]),
        ([np.float32(0.5), np.int8(1)], ["0.5", "1", "1.5", "0.75", "2"]),
    ]
    declared = [min_("value"), max_("value"), sum_("value"), average("value"), count("value")]
    for values, results in wanted:
        for order in permutations(values):
            parts = [[Row("a", value)] for value in order]
            texts = [result(aggregator.bind(SCHEMA, "here"), parts) for aggregator in declared]
            assert texts == results, order


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([5.0, NAN, 1.0, 9.0, 7.0], [9.0, 7.0, 5.0]),
        ([5.0, None, NAN, 9], [9, 5.0]),
        ([NAN, None, NAN], [NAN, NAN]),
        ([None, None], [None, None]),
        ([Decimal("sNaN"), Decimal(3), True, 1.0], [Decimal(3), 1.0, True]),
    ],
)
def test_a_ranking_passes_over_nan_and_none(values: list[Any], best: list[Any]) -> None:
    for order in permutations(values):
        rows = [Row("a", value) for value in order]
        text = result(top(3, by="value").bind(SCHEMA, "here"), [[row] for row in rows])
        assert text == repr([tuple(Row("a", value)) for value in best])


def test_records_with_equal_values_are_ranked_in_the_order_of_their_fields() -> None:
    rows = [Row("b", 1), Row("a", 1.0), Row("a", 1), Row("c", True), Row("d", 2)]
    for order in permutations(rows):
        text = result(top(3, by="value").bind(SCHEMA, "here"), [order[:2], order[2:]])
        assert text == repr([("d", 2, 0), ("a", 1, 0), ("a", 1.0, 0)])


@pytest.mark.parametrize(
    ("aggregator", "values", "why"),
    [
        (max_("value"), [1, "a"], r"max_\('value'\): numbers and texts cannot be compared"),
        (min_("value"), [NOON, NOON.replace(tzinfo=None)], "datetimes and datetimes with a zone"),
        (max_("value"), [{1}, {2}], "values without an order"),
        (top(1, by="value"), [1, "a"], "numbers and texts"),
        (sum_("value"), ["a", "b"], r"sum_\('value'\): a value is a str, and sums are of int"),
        (average("value"), [1, NOON], r"a value is a datetime\.datetime"),
        (sum_("value"), [timedelta(1), 2], "some values are numbers, and some are timedeltas"),
        (average("value"), [timedelta(1), 0.5, None], "some are timedeltas"),
        (sum_("value"), [timedelta.max, timedelta(1)], "more than 999,999,999 days"),
        (sum_("value"), [Fraction(1, 3)], r"fractions\.Fraction.* \(float\(value\)"),
        (sum_("value"), [1j, 2], "a value is a complex"),
        (sum_("value"), [np.timedelta64(1, "ns")], r"numpy\.timedelta64.*astype"),
        (sum_("value"), [np.timedelta64(1)], r"numpy\.timedelta64.*astype"),
        (average("value"), [np.datetime64(1, "ns")], r"numpy\.datetime64"),
        (sum_("value"), [Decimal("1E+20000"), 1], "more than 10,000 digits"),
    ],
)
def test_values_that_cannot_be_aggregated_are_named(
    aggregator: Any, values: list[Any], why: str
) -> None:
    for order in permutations(values):
        with pytest.raises(BadEmit, match=why):
            result(aggregator.bind(SCHEMA, "here"), [[Row("a", value)] for value in order])


@pytest.mark.parametrize("value", [NAN, None, Decimal("NaN"), True])
def test_a_group_that_begins_without_a_number_has_those_that_follow(value: Any) -> None:
    for aggregator, result in ((max_("value"), 7.5), (min_("value"), -2.0)):
        bound = aggregator.bind(SCHEMA, "here")
        table = bound.table()
        bound.gather(table, ["a", "a"], [Row("a", value)] * 2, ATTEMPT)
        bound.gather(table, ["a", "a"], [Row("a", 7.5), Row("a", -2.0)], ATTEMPT)
        assert table == {"a": result}


def test_states_of_before_are_continued() -> None:
    """They had rounded sums, and as the extreme perhaps NaN."""
    bound = [
        aggregator.bind(SCHEMA, "here")
        for aggregator in (sum_("value"), average("value"), max_("value"))
    ]
    total, mean, greatest = bound
    assert total.result(total.combine(0.1, [0.2, 1e-20])) == 0.30000000000000004
    assert mean.result(mean.combine([0.5, 2], [[1.0, 1e-20], 1])) == 0.5
    assert greatest.result(greatest.combine(NAN, 3.0)) == 3.0


def test_durations_of_numpy_are_those_of_python_if_it_has_them() -> None:
    values = [np.timedelta64(3, "us"), np.timedelta64(5_000, "ns"), timedelta(2), None]
    means = [sum_("value"), average("value"), min_("value"), max_("value")]
    for aggregator, wanted in zip(
        means,
        [
            timedelta(2, 0, 8),
            timedelta(0, 57_600, 3),
            timedelta(microseconds=3),
            timedelta(2),
        ],
        strict=True,
    ):
        bound = aggregator.bind(SCHEMA, "here")
        for order in permutations(values):
            assert result(bound, [[Row("a", value)] for value in order]) == repr(wanted)


class Lap(NamedTuple):
    runner: str
    took: timedelta


class LapOrNone(NamedTuple):
    runner: str
    took: timedelta | None


@pytest.mark.parametrize("kind", [Lap, LapOrNone, Row])
def test_durations_of_no_rows_are_no_time(kind: Any) -> None:
    """Of a field that is annotated; otherwise the sum of no rows is 0, and adds nothing."""
    laps = [kind("a", timedelta(seconds=n)) for n in (1, 2)]
    topology, state = Topology("laps"), MemoryState()
    source = batches(topology, "laps", FixedBatchSpout(laps, 1, type=kind), store=InMemory())
    field = kind._fields[1]
    stream = source.filter(lambda lap: lap[1].total_seconds() > 1)  # the first batch is empty
    stream.aggregate(sum_(field), average(field), state=state)
    sums = list[Any]()
    stream.aggregate(sum_(field)).peek(lambda row: sums.append(row[0]))
    run_inline(topology.graph())
    assert [*dict(state.items()).values()] == [[timedelta(seconds=2), [timedelta(seconds=2), 1]]]
    assert sums == [0 if kind is Row else timedelta(0), timedelta(seconds=2)]
    assert average("took").bind(Schema.of(Lap), "here").kinds(Schema.of(Lap)) == (timedelta | None,)


def test_count_of_a_field_that_is_not_there_says_how_to_name_the_number() -> None:
    with pytest.raises(UnknownField, match="name= names what it emits: there is no field 'times'"):
        count("times").bind(SCHEMA, "here")


# ---- in programs ---------------------------------------------------------------------------------


class Tables(Spout[Row]):
    def __init__(self, parts: Sequence[Sequence[Row]], kind: pa.DataType) -> None:
        self.parts, self.kind = parts, kind

    def tables(self) -> Iterator[pa.Table]:
        for rows in self.parts:
            columns = list(zip(*rows, strict=True))
            yield pa.table(
                [pa.array(columns[0]), pa.array(columns[1], self.kind), pa.array(columns[2])],
                names=Row._fields,
            )


FIELD = "value"
GIVEN = [
    *(sum_(FIELD), average(FIELD), min_(FIELD), max_(FIELD), count(), count(FIELD)),
    top(2, by=FIELD),
]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "durations": (pa.duration("us"), NUMBERS["durations"]),
    "floats": (pa.float64(), [0.1, 1e16, -1e16, 1.0, 3.3, -0.0, 0.0, 5e-324]),
    "floats with NaN": (pa.float64(), [0.1, NAN, None, INF]),
    "single": (pa.float32(), [0.5, 16777216.0, 1.5, None]),
    "integers": (pa.int64(), [1, (1 << 62) + 1, -5, None]),
    "decimals": (pa.decimal128(20, 2), [Decimal("0.10"), Decimal("2.00"), None]),
    "nothing": (pa.float64(), [None]),
}


def last_rows(topology: Topology, stream: Any) -> list[str]:
    """The last row of each group, and of each window."""
    rows: dict[Any, Any] = {}

    def keep(row: Any) -> None:
        rows[row[: -len(GIVEN)]] = repr([*row[-len(GIVEN) :]])

    stream.shuffle().bolt("keep", keep)
    run_inline(topology.graph())
    return [rows[key] for key in sorted(rows)]


def totals(source: Spout[Row]) -> list[str]:
    topology = Topology("totals")
    rows = topology.spout("rows", source)
    return last_rows(topology, rows.group_by("key").aggregate(*GIVEN, parallelism=2))


def windows(rows: Sequence[Row], window: Any) -> list[str]:
    topology = Topology("windows")
    stream = topology.spout("rows", Records(rows, type=Row))
    return last_rows(topology, stream.group_by("key").window(window, *GIVEN))[:1]


def in_batches(rows: Sequence[Row], size: int, **more: Any) -> str:
    topology, emitted = Topology("batches"), list[Any]()
    spout = FixedBatchSpout(rows, size, type=Row)
    stream = batches(topology, "rows", spout, store=InMemory()).group_by("key")
    if more:
        stream.window(more["window"], *GIVEN, state=MemoryState()).peek(emitted.append)
    else:
        stream.aggregate(*GIVEN, parallelism=2).peek(emitted.append)
    run_inline(topology.graph())
    return repr([*emitted[-1][-len(GIVEN) :]])


@pytest.mark.parametrize("case", COLUMNS)
def test_rows_tables_windows_and_batches_agree(case: str) -> None:
    kind, values = COLUMNS[case]
    random = Random(5)
    rows = [Row("a", random.choice(values), 1) for _ in range(12)]
    results = set[str]()
    for _ in range(2):
        random.shuffle(rows)
        results |= {*totals(Records(rows, type=Row))}
        results |= {*totals(Tables([rows[:5], rows[5:]], kind)), *totals(Tables([rows], kind))}
        results |= {in_batches(rows, len(rows))}
        results |= {in_batches(rows, 5, window=tumbling(count=12))}
        for window in (tumbling(count=12), sliding(seconds=4, every=2, field="number")):
            results |= {*windows(rows, window)}
    assert len(results) == 1, results


def test_the_greatest_value_beside_nan_is_found_by_max_by_and_stored() -> None:
    for order in permutations([1.0, NAN, 100.0, None]):
        topology, emitted, state = Topology("best"), list[Any](), MemoryState()
        spout = FixedBatchSpout([Row("a", value) for value in order], 2, type=Row)
        stream = batches(topology, "rows", spout, store=InMemory())
        stream.group_by("key").aggregate(max_("value"), state=state)
        stream.max_by("value").peek(emitted.append)
        run_inline(topology.graph())
        assert dict(state.items())["a"] == 100.0
        assert max(row.value for row in emitted if row.value == row.value) == 100.0


def test_a_value_that_is_no_number_fails_its_record_with_the_place_and_the_remedy() -> None:
    topology = Topology("wrong")
    rows = topology.spout("rows", Records([Row("a", "x")], type=Row))
    rows.group_by("key").aggregate(sum_("value"))
    with pytest.raises(TopologyFailed, match=r"convert it in a \.map before"):
        run_inline(topology.graph())
