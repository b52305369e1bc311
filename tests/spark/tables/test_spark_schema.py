"""RecordColumns, records as columns and back, without Spark: every type, nulls, NaN, refusals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.arrow.record_columns import RecordColumns, normalise
from sunshower.errors import RecordMismatch, ResultMismatch, Unserialisable
from sunshower.spark_integration import Digits
from tests.spark.everything import EVERYTHING, Colour, Everything, Inner, everything, same


class One(NamedTuple):
    x: int


def refused(annotation: Any) -> str:
    record_type: Any = NamedTuple("Order", [("id", int), ("price", annotation)])
    with pytest.raises(RecordMismatch) as caught:
        RecordColumns.of(record_type, "topology 't', bolt 'b'")
    return str(caught.value)


def refused_value(annotation: Any, value: Any) -> str:
    record_type: Any = NamedTuple("Order", [("price", annotation)])
    with pytest.raises(Unserialisable) as caught:
        RecordColumns.of(record_type).table([record_type(value)])
    return str(caught.value)


@given(st.lists(everything(), max_size=8))
def test_every_type_comes_back_as_it_was(records: list[Everything]) -> None:
    table = EVERYTHING.table(records)
    assert table.schema == EVERYTHING.arrow
    assert table.num_rows == len(records)
    assert same(EVERYTHING.records(table), records)
    table.validate(full=True)


@given(st.lists(everything(), min_size=3, max_size=8), st.integers(0, 3))
def test_a_part_of_a_table_is_read_like_a_whole_one(records: list[Everything], start: int) -> None:
    table = EVERYTHING.table(records).slice(start, 2)
    assert same(EVERYTHING.records(table), records[start : start + 2])
    chunked = pa.concat_tables([EVERYTHING.table(records), table])
    assert same(EVERYTHING.records(chunked), records + records[start : start + 2])


@given(st.lists(everything(), max_size=4))
def test_normal_tables_are_left_as_they_are(records: list[Everything]) -> None:
    table = EVERYTHING.table(records)
    assert normalise(table).schema == table.schema
    assert same(EVERYTHING.records(EVERYTHING.conform(normalise(table))), records)


def test_nan_and_null_stay_different() -> None:
    class Reading(NamedTuple):
        value: float | None

    columns = RecordColumns.of(Reading)
    table = columns.table([Reading(math.nan), Reading(None), Reading(1.0)])
    assert table["value"].null_count == 1
    back = columns.records(table)
    assert math.isnan(back[0].value)
    assert back[1:] == [Reading(None), Reading(1.0)]


def test_datetimes_keep_their_moment_and_come_back_in_utc() -> None:
    class Click(NamedTuple):
        at: datetime

    columns = RecordColumns.of(Click)
    moment = datetime(2026, 3, 29, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    (back,) = columns.records(columns.table([Click(moment)]))
    assert back.at == moment
    assert back.at.tzinfo is UTC


def test_decimals_have_the_declared_digits() -> None:
    class Price(NamedTuple):
        price: Annotated[Decimal, Digits(6, 2)] | None

    columns = RecordColumns.of(Price)
    assert columns.arrow.field("price").type == pa.decimal128(6, 2)
    assert columns.records(columns.table([Price(Decimal("9999.99"))])) == [(Decimal("9999.99"),)]
    with pytest.raises(Unserialisable, match=r"Price\.price"):
        columns.table([Price(Decimal(10000))])
    with pytest.raises(Unserialisable, match=r"Price\.price"):
        columns.table([Price(Decimal("0.001"))])


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (object, "object"),
        (Any, "Any"),
        (set[int], r"set[int]"),
        (complex, "complex"),
        (timedelta, "timedelta"),
        (list, "list"),
        (tuple[int, str], "tuple[int, str]"),
        (int | str, "int | str"),
        (list[int | str | None], "int | str"),
        (dict[str, object], "object"),
        (dict[int | None, int], "never null"),
        (dict[int, Any] | None, "Any"),
        (Annotated[Decimal, Digits(40, 2)], "38 digits"),
        (Enum("Mixed", {"A": 1, "B": "b"}), "all of one plain type"),
    ],
)
def test_a_type_that_spark_does_not_have_is_refused_at_the_declaration(
    annotation: Any, expected: str
) -> None:
    message = refused(annotation)
    assert message.startswith("topology 't', bolt 'b': Order.price")
    assert expected in message


@dataclass
class Tree:
    name: str
    children: list[Tree]


@dataclass
class Nothing:
    pass


def test_recursive_empty_nameless_and_ambiguous_records_are_refused() -> None:
    with pytest.raises(RecordMismatch, match=r"Tree\.children\[\] holds itself"):
        RecordColumns.of(Tree)
    with pytest.raises(RecordMismatch, match="Nothing has no fields"):
        RecordColumns.of(Nothing)
    with pytest.raises(RecordMismatch, match="declare a NamedTuple"):
        RecordColumns.of(tuple)
    twice: Any = NamedTuple("Twice", [("id", int), ("Id", int)])
    with pytest.raises(RecordMismatch, match="id and Id are one name"):
        RecordColumns.of(twice)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, None, "is None"),
        (int, True, "is a bool"),
        (int, 2**63, "Order.price"),
        (int, 1.0, "is a float"),
        (str, b"bytes", "is a bytes"),
        (bytes, "text", "is a str"),
        (str, "\udc80", "Order.price"),
        (date, datetime(2026, 1, 1, tzinfo=UTC), "is a datetime"),
        (datetime, datetime(2026, 1, 1), "has no zone"),  # noqa: DTZ001
        (Decimal, Decimal("NaN"), "is NaN"),
        (Decimal, 1, "is a int"),
        (Colour, "red", "is a str"),
        (list[int], [1, None], r"Order.price[] is None"),
        (dict[str, int], {"a": "b"}, "Order.price.values() is a str"),
        (One, One("x"), "Order.price.x is a str"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_refused_and_not_converted(
    annotation: Any, value: Any, expected: str
) -> None:
    assert expected in refused_value(annotation, value)


class Plain(NamedTuple):
    text: str
    at: datetime
    day: date
    count: int
    share: float
    tags: list[str]


def test_columns_that_spark_would_read_wrongly_are_normalised() -> None:
    columns = RecordColumns.of(Plain)
    table = pa.table(
        {
            "tags": pa.array([["a"], []], pa.large_list(pa.large_string())),
            "text": pa.array(["x", "y"], pa.large_string()).dictionary_encode(),
            "at": pa.array([0, 1], pa.timestamp("ms", tz="Europe/Berlin")),
            "day": pa.array([0, 86_400_000], pa.date64()),
            "count": pa.array([1, 2], pa.uint16()),
            "share": pa.array([0.5, 1.0], pa.float32()),
        }
    )
    conformed = columns.conform(table)
    assert conformed.schema == columns.arrow
    moment = datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    assert columns.records(conformed)[1] == Plain("y", moment, date(1970, 1, 2), 2, 1.0, [])
    assert normalise(table).schema.types == [
        pa.list_(pa.field("element", pa.string())),
        pa.string(),
        pa.timestamp("us", tz="UTC"),
        pa.date32(),
        pa.int32(),
        pa.float32(),
    ]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1], pa.timestamp("ns", tz="UTC")), "'at'"),  # would lose a nanosecond
        (pa.array([2**63], pa.uint64()), "'at'"),
        (pa.array([1], pa.time64("us")), "'at' is time64"),
        (pa.array([None], pa.null()), "'at' is null"),
    ],
)
def test_a_column_that_cannot_be_normalised_is_refused_with_its_name(
    array: Any, expected: str
) -> None:
    with pytest.raises(Unserialisable, match=expected):
        normalise(pa.table({"at": array}))


def test_a_result_must_have_the_declared_columns() -> None:
    columns = RecordColumns.of(One)
    with pytest.raises(ResultMismatch, match="no such column; the columns are: y"):
        columns.conform(pa.table({"y": [1]}))
    with pytest.raises(ResultMismatch, match=r"a column 'y' that One does not have.*select\('x'\)"):
        columns.conform(pa.table({"x": [1], "y": [1]}))
    with pytest.raises(ResultMismatch, match=r"two columns 'x'.*a\.join\(b, 'x'\), or leave one"):
        columns.conform(pa.table([[1], [1]], names=["x", "x"]))
    with pytest.raises(ResultMismatch, match=r"One\.x is int64, and the column is string"):
        columns.conform(pa.table({"x": ["1"]}))
    with pytest.raises(ResultMismatch, match=r"One\.x is null in 1 of 2 rows"):
        columns.records(columns.conform(pa.table({"x": [1, None]})))
    assert columns.records(columns.conform(pa.table({"x": pa.array([1], pa.int8())}))) == [One(1)]


def test_a_result_that_is_no_member_of_an_enum_is_reported() -> None:
    class Painted(NamedTuple):
        colour: Colour

    columns = RecordColumns.of(Painted)
    with pytest.raises(ResultMismatch, match=r"Painted\.colour: 'pink' is not a valid Colour"):
        columns.records(pa.table({"colour": ["red", "pink"]}))


def test_dataclasses_are_records_too() -> None:
    columns = RecordColumns.of(Inner)
    records = [Inner(1, ["a"]), Inner(2, None)]
    assert columns.records(columns.table(records)) == records


class Level(IntEnum):
    LOW = 1
    HIGH = 9


def test_enums_of_numbers_are_numbers_in_spark() -> None:
    class Alarm(NamedTuple):
        level: Level | None

    columns = RecordColumns.of(Alarm)
    assert columns.arrow.field("level").type == pa.int64()
    records = [Alarm(Level.HIGH), Alarm(None)]
    assert columns.records(columns.table(records)) == records
