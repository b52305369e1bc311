"""Values that fastavro has written are read with the types of the record's fields, or refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import UnreadableRecord
from sunshower.kafka.formats import Avro
from tests.kafka.schema_registry import RegistryHandler, served
from tests.seeds import seeds
from tests.values.test_reading_of_mutations import (
    BYTE_S,
    MESSAGE_S,
    ROUNDS,
    mutated,
    processor_s,
)

SCHEMAS: list[Any] = []  # by their ids


class Registry(RegistryHandler):
    def schema_of(self, id: str) -> Any:
        return SCHEMAS[int(id)]


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with served(Registry) as url:
        yield url


def record_of(schema: Any) -> Any:
    return {"type": "record", "name": "Sent", "fields": [{"name": "value", "type": schema}]}


def logical(kind: str, logical_type: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": logical_type, **more}


def number(value: int) -> bytes:
    """An int or a long of Avro."""
    value, encoded = (value << 1) ^ (value >> 63), b""
    while value >= 0x80:
        encoded, value = encoded + bytes([value & 0x7F | 0x80]), value >> 7
    return encoded + bytes([value])


def message(schema: Any, value: Any = None, data: bytes | None = None) -> bytes:
    """A message in the framing of the registry: of a value, or of Avro's bytes of it."""
    SCHEMAS.append(schema)
    body = BytesIO()
    if data is None:
        fastavro.schemaless_writer(body, schema, value)
    return struct.pack(">bI", 0, len(SCHEMAS) - 1) + (data or body.getvalue())


def read(registry: str, annotation: Any, data: bytes) -> Any:
    kind = make_dataclass("Sent", [("value", annotation)])
    return Avro({"url": registry}, kind).decoder("topic", "value")(data).value


DECIMAL = logical("bytes", "decimal", precision=4, scale=2)
FIXED_DECIMAL = logical("fixed", "decimal", precision=4, scale=2, name="F", size=4)
FIXED_UUID = logical("fixed", "uuid", name="U", size=16)
DURATION = logical("fixed", "duration", name="D", size=12)
MICROS = logical("long", "timestamp-micros")


@pytest.mark.parametrize(
    ("schema", "annotation", "data", "expected"),
    [
        (DECIMAL, Decimal, number(2) + (9999).to_bytes(2, "big"), Decimal("99.99")),
        (DECIMAL, Decimal, number(2) + (-9999).to_bytes(2, "big", signed=True), Decimal("-99.99")),
        (FIXED_DECIMAL, Decimal, (150).to_bytes(4, "big"), Decimal("1.50")),
        (FIXED_UUID, UUID, UUID(int=5).bytes, UUID(int=5)),
        (["null", FIXED_UUID], UUID | None, number(1) + UUID(int=5).bytes, UUID(int=5)),
        (
            {"type": "array", "items": FIXED_UUID},
            list[UUID],
            number(1) + bytes(16) + b"\0",
            [UUID(int=0)],
        ),
        (
            {"type": "map", "values": DECIMAL},
            dict[str, Decimal],
            number(1) + number(1) + b"a" + number(1) + b"\1" + b"\0",
            {"a": Decimal("0.01")},
        ),
        (DURATION, timedelta, struct.pack("<III", 0, 1, 500), timedelta(days=1, milliseconds=500)),
        (DURATION, Any, struct.pack("<III", 0, 0, 2**32 - 1), timedelta(milliseconds=2**32 - 1)),
        (MICROS, datetime, number(1), datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        ({"type": "fixed", "name": "B", "size": 16}, bytes, bytes(16), bytes(16)),
    ],
)
def test_logical_types_are_exact(
    registry: str, schema: Any, annotation: Any, data: bytes, expected: Any
) -> None:
    value = read(registry, annotation, message(record_of(schema), data=data))
    assert (type(value), value) == (type(expected), expected)


@pytest.mark.parametrize(
    ("schema", "annotation", "data", "expected"),
    [
        (DECIMAL, Decimal, number(3) + (10_000).to_bytes(3, "big"), "more than its 4 digits"),
        (DECIMAL, Any, number(3) + (-10_000).to_bytes(3, "big", signed=True), "its 4 digits"),
        (FIXED_DECIMAL, Decimal, (10_000).to_bytes(4, "big"), "its 4 digits"),
        (["null", DECIMAL], Decimal | None, number(1) + number(4) + b"\x7f" * 4, "its 4 digits"),
        (DURATION, timedelta, struct.pack("<III", 1, 0, 0), "1 months"),
        ("int", int, number(1) + b"more", "4 bytes follow the value"),
        ("long", datetime, number(1), r"Sent\.value: 1 is no datetime"),
        ("string", int, number(1) + b"a", r"Sent\.value: 'a' is no int"),
        (["null", "int"], int, number(0), r"Sent\.value: None is no int"),
        ("bytes", UUID, number(16) + bytes(16), r"Sent\.value: .* is no UUID"),
        ("bytes", str, number(1) + b"a", r"Sent\.value: b'a' is no str"),
        ("string", bytes, number(4) + b"YQ==", r"Sent\.value: 'YQ==' is no bytes"),
        ("string", str, number(1) + b"\xff", "utf-8"),
        (MICROS, datetime, number(2**62), "range|value"),
        (logical("long", "time-micros"), time, number(86_400_000_000), "hour must be in"),
        (["null", "int"], int, number(5), "index out of range"),
    ],
)
def test_what_has_no_exact_value_of_the_type_is_refused(
    registry: str, schema: Any, annotation: Any, data: bytes, expected: str
) -> None:
    with pytest.raises(UnreadableRecord, match=expected):
        read(registry, annotation, message(record_of(schema), data=data))


EMPTY = {"type": "record", "name": "Empty", "fields": []}
NOTHING = {"type": "fixed", "name": "Nothing", "size": 0}
OF_NULL = {
    "type": "record",
    "name": "OfNull",
    "fields": [{"name": "a", "type": "null"}, {"name": "b", "type": EMPTY}],
}
TWICE = {
    "type": "record",
    "name": "Twice",
    "fields": [
        {"name": "first", "type": OF_NULL},
        {"name": "value", "type": {"type": "array", "items": "OfNull"}},
    ],
}


@pytest.mark.parametrize("items", ["null", {"type": "null"}, EMPTY, NOTHING, OF_NULL, TWICE])
def test_items_without_bytes_are_counted(registry: str, items: Any) -> None:
    schema = items if items is TWICE else record_of({"type": "array", "items": items})
    for count in (1, 9_999):
        data = message(schema, data=number(count) + b"\0")
        assert len(read(registry, list[Any], data)) == count
    nested = number(20_000) + b"\0"
    for wrong in (number(2**62) + b"\0", nested, number(6_000) * 2 + b"\0"):
        with pytest.raises(UnreadableRecord, match="more than 10,000 items without bytes"):
            read(registry, list[Any], message(schema, data=wrong))


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "value", "type": DECIMAL}, {"name": "next", "type": ["null", "Node"]}],
}


class Node(NamedTuple):
    value: Decimal
    next: Node | None = None


def test_logical_types_are_exact_in_a_type_that_contains_itself(registry: str) -> None:
    reader = Avro({"url": registry}, Node).decoder("topic", "value")
    data = message(NODE, {"value": Decimal("1.5"), "next": {"value": Decimal("2.5"), "next": None}})
    assert reader(data) == Node(Decimal("1.50"), Node(Decimal("2.50")))
    wrong = number(1) + b"\1" + number(1) + number(3) + (10_000).to_bytes(3, "big") + number(0)
    with pytest.raises(UnreadableRecord, match="more than its 4 digits"):
        reader(message(NODE, data=wrong))


class Sale(NamedTuple):
    shop: str
    cents: int = 0


def test_an_array_of_records_is_several_records(registry: str) -> None:
    sale = {"type": "record", "name": "Sale", "fields": [{"name": "shop", "type": "string"}]}
    data = message({"type": "array", "items": sale}, [{"shop": "a"}, {"shop": "b"}])
    sales = Avro({"url": registry}, Sale).decoder("topic", "value")(data)
    assert sales == [Sale("a"), Sale("b")]
    data = message({"type": "array", "items": "string"}, ["a"])
    with pytest.raises(UnreadableRecord, match=r"Sale\[0\]"):
        Avro({"url": registry}, Sale).decoder("topic", "value")(data)


class Color(Enum):
    RED = "RED"
    BLUE = "BLUE"


moments = st.datetimes()
LEAVES: list[tuple[Any, Any, st.SearchStrategy[Any], Callable[[Any], Any]]] = [
    (str, "string", st.text(st.characters(codec="utf-8")), lambda value: value),
    (int, "long", st.integers(-(2**63), 2**63 - 1), lambda value: value),
    (float, "double", st.floats(allow_nan=False), lambda value: value),
    (bool, "boolean", st.booleans(), lambda value: value),
    (bytes, "bytes", st.binary(), lambda value: value),
    (date, logical("int", "date"), st.dates(), lambda value: value),
    (datetime, MICROS, moments.map(lambda at: at.replace(tzinfo=UTC)), lambda value: value),
    (datetime, logical("long", "local-timestamp-micros"), moments, lambda value: value),
    (time, logical("long", "time-micros"), st.times(), lambda value: value),
    (
        Decimal,
        logical("bytes", "decimal", precision=12, scale=3),
        st.decimals(-999_999, 999_999, places=3),
        lambda value: value,
    ),
    (UUID, logical("string", "uuid"), st.uuids(), lambda value: value),
    (
        Color,
        {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]},
        st.sampled_from(Color),
        lambda value: value.value,
    ),
    (
        Sale,
        {
            "type": "record",
            "name": "Sale",
            "fields": [{"name": "shop", "type": "string"}, {"name": "cents", "type": "long"}],
        },
        st.builds(Sale, st.text(st.characters(codec="utf-8")), st.integers(0, 9)),
        lambda value: value._asdict(),
    ),
]


@given(st.data(), st.sampled_from(LEAVES), st.sampled_from(["one", "none", "list", "map"]))
def test_a_value_is_read_as_fastavro_has_written_it(
    registry: str, data: st.DataObject, leaf: Any, around: str
) -> None:
    annotation, schema, values, plain = leaf
    if around == "none":
        annotation, schema, values = annotation | None, ["null", schema], st.none() | values
        written = lambda item: None if item is None else plain(item)  # noqa: E731
    elif around == "list":
        annotation, schema = list[annotation], {"type": "array", "items": schema}
        values, written = st.lists(values, max_size=3), lambda many: [*map(plain, many)]
    elif around == "map":
        annotation, schema = dict[str, annotation], {"type": "map", "values": schema}
        values = st.dictionaries(st.sampled_from("ab"), values)
        written = lambda many: {name: plain(item) for name, item in many.items()}  # noqa: E731
    else:
        written = plain
    value = data.draw(values)
    read_value = read(registry, annotation, message(record_of(schema), {"value": written(value)}))
    assert (type(read_value), read_value) == (type(value), value)


EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "fields": [
        *({"name": f"f{index}", "type": leaf[1]} for index, leaf in enumerate(LEAVES)),
        {"name": "many", "type": {"type": "array", "items": ["null", "Sale"]}},
        {"name": "node", "type": NODE},
    ],
}
Everything = make_dataclass(
    "Everything",
    [
        *((f"f{index}", leaf[0]) for index, leaf in enumerate(LEAVES)),
        ("many", list[Sale | None]),
        ("node", Node),
    ],
)
VALUES = [
    *("a", 1, 1.5, True, b"b", date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)),
    *(datetime(2026, 1, 2), time(1), Decimal("1.500"), UUID(int=5), "RED"),  # noqa: DTZ001
    *({"shop": "a", "cents": 1}, [None, {"shop": "b", "cents": 2}]),
    {"value": Decimal(1), "next": {"value": Decimal(2), "next": None}},
]


@pytest.fixture
def everything(registry: str) -> tuple[Callable[[bytes], Any], bytes]:
    """The reader of messages with all types, and such a message."""
    names = [field["name"] for field in EVERYTHING["fields"]]
    data = message(EVERYTHING, dict(zip(names, VALUES, strict=True)))
    reader = Avro({"url": registry}, Everything).decoder("topic", "value")
    assert reader(data).many == [None, Sale("b", 2)]
    return reader, data


@seeds(100)
def test_a_mutated_message_is_read_or_refused(everything: Any, seed: int) -> None:
    (reader, data), chance = everything, random.Random(seed)
    for _ in range(10):
        with suppress(UnreadableRecord):  # any other error fails the test
            reader(data[:5] + mutated(data[5:], chance))


@pytest.mark.long
@seeds(100)
def test_a_mutated_message_takes_a_time_that_is_linear_in_its_bytes(
    everything: Any, seed: int
) -> None:
    (reader, data), chance = everything, random.Random(seed)
    for _ in range(10):
        changed = data[:5] + mutated(data[5:], chance)
        used_s = min(processor_s(reader, changed) for _ in range(ROUNDS))
        assert used_s <= MESSAGE_S + BYTE_S * len(changed), changed[:500]
