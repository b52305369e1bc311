"""Values that KafkaBolt has written are read again with the types of the record's fields."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    Union,
    get_args,
    get_origin,
)
from uuid import UUID

import msgpack
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from sunshower.kafka.consuming.decoding import MessageBatch, Translator, Undecodable
from sunshower.kafka.formats import Bytes, Json, MessagePack
from sunshower.kafka.producing.producer import Composer
from sunshower.record_reader import record_reader
from tests.runtime.field_values import Access, Color, Level, Unit, datetimes, exactly, times


class Price(NamedTuple):
    amount: Decimal
    currency: Unit = Unit.METRE


@dataclass(frozen=True)
class Stop:
    at: datetime
    price: Price | None = None
    before: tuple[Stop, ...] = ()


class Note(TypedDict):
    on: date
    by: NotRequired[str]


Id = NewType("Id", UUID)
texts = st.text(max_size=5)
prices = st.builds(Price, st.decimals(allow_nan=False), st.sampled_from(Unit))
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    NoneType: st.none(),
    Any: texts | st.integers() | st.lists(st.booleans()),
    datetime: datetimes,
    date: st.dates(),
    time: times,
    timedelta: st.timedeltas(),
    Decimal: st.decimals(),
    UUID: st.uuids(),
    Id: st.uuids(),
    Color: st.sampled_from(Color),
    Level: st.sampled_from(Level),
    Unit: st.sampled_from(Unit),
    Access: st.sampled_from([*Access, Access.READ | Access.WRITE, Access(0)]),
    Literal[Level.LOW, "a"]: st.sampled_from([Level.LOW, "a"]),
    Price: prices,
    Stop: st.builds(
        Stop, datetimes, st.none() | prices, st.builds(Stop, datetimes).map(lambda s: (s,))
    ),
    Note: st.fixed_dictionaries({"on": st.dates()}, optional={"by": texts}),
    Counter[Level]: st.dictionaries(st.sampled_from(Level), st.integers()).map(Counter),
}
annotations = st.recursive(
    st.sampled_from([*LEAVES]),
    lambda inner: (
        inner.map(lambda kind: list[kind])  # type: ignore[valid-type]
        | inner.map(lambda kind: Sequence[kind])  # type: ignore[valid-type]
        | inner.map(lambda kind: tuple[kind, ...])  # type: ignore[valid-type]
        | st.tuples(inner, inner).map(lambda two: tuple[two])  # type: ignore[valid-type]
        | inner.map(lambda kind: dict[str, kind])  # type: ignore[valid-type]
        | st.tuples(st.sampled_from([int, float, bool, Unit, Level]), inner).map(
            lambda two: Mapping[two]  # type: ignore[valid-type]
        )
        | inner.map(lambda kind: Annotated[kind, "unit"])
        | inner.map(lambda kind: Optional[kind])  # noqa: UP045
    ),
    max_leaves=4,
)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """A strategy for the values of an annotation."""
    if annotation in LEAVES:
        return LEAVES[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values_of(args[0])
    if origin is Union:
        return st.none() | values_of(args[0])
    if origin in (dict, Mapping):
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=3)
    if origin is tuple and args[-1] is not Ellipsis:
        return st.tuples(*map(values_of, args))
    lists = st.lists(values_of(args[0]), max_size=3)
    return lists.map(tuple) if origin is tuple else lists


def parts(value: Any) -> Any:
    """A form of the value that is equal only for values of the same types, at any depth."""
    if isinstance(value, Stop):
        return Stop, *map(exactly, (value.at, value.price)), parts(value.before)
    if isinstance(value, Counter):
        return exactly(value)
    if isinstance(value, dict):
        return type(value), [(exactly(name), parts(element)) for name, element in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [*map(parts, value)]
    return exactly(value)


def encode(record: Any) -> bytes:
    encoded = Composer("here", "topic").compose(record).value
    assert encoded is not None
    return encoded


@given(st.data())
def test_a_value_is_read_as_it_was_written(data: st.DataObject) -> None:
    annotation = data.draw(annotations)
    value = data.draw(values_of(annotation))
    kind = make_dataclass("Sent", [("value", annotation)])
    data_of_json = encode(kind(value))
    plain = json.loads(data_of_json)  # as any other tool reads it
    for read in (
        Json(kind).decoder("topic", "value")(data_of_json),
        MessagePack(kind).decoder("topic", "value")(msgpack.packb(with_64_bits(plain))),
        record_reader(kind)(plain),
    ):
        if read != []:
            assert type(read) is kind
            assert parts(read.value) == parts(value)


def with_64_bits(value: Any) -> Any:
    """No records in place of a value with numbers that MessagePack does not have."""
    try:
        msgpack.packb(value)
    except OverflowError:
        return []
    return value


def test_a_set_is_read_from_an_array() -> None:
    kind = make_dataclass("Tags", [("days", set[date]), ("names", frozenset[str])])
    tags = Json(kind).decoder("topic", "value")(b'{"days": ["2026-01-02"], "names": ["a", "a"]}')
    assert tags == kind({date(2026, 1, 2)}, frozenset("a"))


def test_messagepack_decodes_typed_values_from_text() -> None:
    packed = msgpack.packb({"at": "2026-01-02T03:04:05+00:00", "price": ["1.50", "m"]})
    stop = MessagePack(Stop).decoder("topic", "value")(packed)
    assert stop == Stop(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), Price(Decimal("1.50")))


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (date | str, "2026-01-02", date(2026, 1, 2)),
        (date | str, "new", "new"),
        (str | date, "2026-01-02", "2026-01-02"),
        (int | Decimal | None, 7, 7),
        (int | Decimal | None, "7.0", Decimal("7.0")),
        (float | date, 7, 7),
        (list[date] | date, ["2026-01-02"], [date(2026, 1, 2)]),
    ],
)
def test_a_union_uses_its_first_member_that_matches(annotation: Any, text: Any, value: Any) -> None:
    kind = make_dataclass("Sent", [("value", annotation)])
    data = json.dumps({"value": text}).encode()
    assert exactly(Json(kind).decoder("topic", "value")(data).value) == exactly(value)


class Order(NamedTuple):
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    price: Decimal = Decimal(0)
    color: Color = Color.RED
    stops: Sequence[Stop] = ()
    pair: tuple[int, int] = (0, 0)
    days: Mapping[int, date] = {}
    due: date | Decimal | None = None
    last: Stop | None = None
    note: Note | None = None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("at", "yesterday", r"at: 'yesterday' is no datetime"),
        (
            "at",
            "2026-13-01T00:00",
            r"at: '2026-13-01T00:00' is no datetime: month must be in 1..12",
        ),
        ("at", None, r"at: None is no datetime, which is a text"),
        ("price", 1.5, r"price: 1\.5 is no Decimal, which is a text"),
        ("price", "free", r"price: 'free' is no Decimal"),
        ("color", "blue", r"color: 'blue' is no Color"),
        ("color", {}, r"color: {} is no Color"),
        ("stops", "x", r"stops: 'x' is no array"),
        ("stops", [{"at": "x"}], r"stops\[0\]\.at: 'x' is no datetime"),
        ("stops", [{}], r"stops\[0\]: Stop without at"),
        ("stops", [7], r"stops\[0\]: Stop was expected, and it is 7"),
        ("pair", [1], r"pair: \[1\]: Expected `array` of length 2"),
        ("days", {"one": "2026-01-02"}, r"days: {'one': '2026-01-02'} has a key that is no int"),
        ("days", {"1": "x"}, r"days: 'x' is no date"),
        ("due", "soon", r"due: 'soon' is no date \| Decimal \| NoneType"),
        ("last", {"at": 7}, r"last\.at: 7 is no datetime, which is a text"),
        ("note", {"on": "x"}, r"note\.on: 'x' is no date"),
    ],
)
def test_the_error_for_a_value_of_the_wrong_type_names_its_field(
    name: str, value: Any, expected: str
) -> None:
    data = json.dumps({name: value}).encode()
    messages = MessageBatch.of([Message(topic="a", partition=0, offset=0, value=data)])
    ((record,), _) = Translator(Json(Order), Bytes()).records(messages)
    assert isinstance(record, Undecodable)
    assert re.match(rf"Order\.{expected}", record.reason)
