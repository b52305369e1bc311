"""Readers of messages refuse what they cannot read, in a time that is linear in the bytes."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgpack
import pytest

from sunshower.errors import UnreadableRecord
from sunshower.json_values import json_text
from sunshower.kafka.formats import Json, MessagePack, Protobuf
from tests.kafka import sale_pb2
from tests.kafka.test_protobuf import Sale, sale
from tests.runtime.field_values import Access, Level, Unit
from tests.seeds import seeds
from tests.values.test_typed_reading import Comment, Named, Point, Timed, Tree

BYTE_S, MESSAGE_S = 1e-6, 1e-3  # of processor time
ROUNDS = 3


class Leaf(NamedTuple):
    x: int | str | None = None


@dataclass
class All:
    """Has a field of each kind of type."""

    number: int = 0
    ratio: float = 0.5
    text: str = ""
    flag: bool = True
    data: bytes = b""
    at: datetime | None = None
    day: date | str = ""
    hour: dt.time = dt.time(1)
    length: timedelta = timedelta(1)
    price: Decimal | None = None
    id: UUID = UUID(int=5)  # noqa: RUF009
    unit: Unit = Unit.METRE
    access: Access = Access.READ
    kind: Literal["a", 1] = "a"
    levels: dict[Level, list[Decimal]] = field(default_factory=dict)
    pairs: list[tuple[int, str]] = field(default_factory=list)
    tags: set[date | int] = field(default_factory=set)
    child: All | Leaf | Point | dict[str, All] | None = None
    children: list[All | Leaf | list[Leaf]] = field(default_factory=list)
    loose: Any = None


def valid(random: random.Random, depth: int = 3) -> All:
    child: Any = random.choice([None, Leaf(5), Point(1, 2), {"a": All()}])
    children: list[Any] = [Leaf("a")]
    if depth:
        child = random.choice([child, valid(random, depth - 1)])
        children += [valid(random, depth - 1)] if random.random() < 0.5 else [[Leaf(1)]]
    return All(
        number=random.randrange(-(2**40), 2**70),
        text="ä" * random.randrange(20),
        at=datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=UTC),
        day=random.choice(["new", date(2026, 1, 2)]),
        price=Decimal(random.randrange(10**9)).scaleb(-2),
        levels={Level.LOW: [Decimal(1)] * random.randrange(3)},
        pairs=[(1, "a")] * random.randrange(4),
        tags={1},
        child=child,
        children=children,
        loose=[{"a": None}] * random.randrange(5),
    )


def plain(record: All) -> Any:
    """What JSON has of a record; bytes and sets have no form there."""
    return json.loads(json_text(_listed(record)))


def _listed(value: Any) -> Any:
    if isinstance(value, All):
        named = {name: _listed(item) for name, item in vars(value).items()}
        return {**named, "data": "", "tags": [*value.tags]}
    if type(value) is dict:
        return {name: _listed(item) for name, item in value.items()}
    return [*map(_listed, value)] if type(value) is list else value


BITS = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"1e400", b"\xff", b"\xd7\xff", b"\x91")


def mutated(data: bytes, random: random.Random) -> bytes:
    """`data` with some bytes changed, left out, repeated or moved."""
    for _ in range(random.randrange(1, 5)):
        first = random.randrange(len(data) + 1)
        end = min(len(data), first + random.choice([0, 1, 8, 64, len(data)]))
        part = random.choice(
            [
                b"",
                random.randbytes(end - first),
                data[first:end] * random.choice([2, 50]),
                random.choice(BITS) * random.choice([1, 2_000]),
            ]
        )
        data = data[:first] + part + data[end:]
    return data[:100_000]


def deep(random: random.Random) -> Any:
    """An object of many levels, with a wrong value at some of them."""
    value: Any = random.choice([None, {}, [], 1, "2026-01-02T03:04:05Z", {"at": 1}, [1, 2]])
    names = ["reply", "left", "right", "child", "children"]
    name = random.choice(names)
    for _ in range(random.randrange(300)):
        name = random.choice([name, name, random.choice(names)])
        at = random.choice(["2026-01-02T03:04:05Z", "x", None])
        value = {name: [value, value] if name == "children" else value, "at": at}
        if name == "children":  # which doubles what is below
            names = [other for other in names if other != "children"]
            name = "child"
    return value


class Format(NamedTuple):
    kind: Any
    read: Callable[[bytes], Any]
    messages: Callable[[random.Random], Iterator[bytes]]


def of_json(random: random.Random) -> Iterator[bytes]:
    yield json.dumps(plain(valid(random))).encode()
    yield json.dumps(deep(random)).encode()
    yield b"[" + b",".join([json.dumps(plain(valid(random, 0))).encode()] * 5) + b"]"


def of_messagepack(random: random.Random) -> Iterator[bytes]:
    yield msgpack.packb(_without_data(plain(valid(random))))
    yield msgpack.packb(deep(random))
    yield msgpack.packb({"at": msgpack.Timestamp(1, 1_000), "levels": {1: ["1.0"]}, 5: 6})


def of_protobuf(random: random.Random) -> Iterator[bytes]:
    message = sale(random.randrange(100))
    for _ in range(random.randrange(50)):
        message.stops.add(place="a", days=[1] * random.randrange(20))
    yield message.SerializeToString()


def formats(*kinds: Any) -> list[Any]:
    return [
        *(Format(kind, Json(kind).decoder("t", "value"), of_json) for kind in kinds),
        *(Format(kind, MessagePack(kind).decoder("t", "value"), of_messagepack) for kind in kinds),
        Format(Sale, Protobuf(sale_pb2.Sale, Sale).decoder("t", "value"), of_protobuf),
    ]


FORMATS = formats(All, Comment, Tree, Timed, Named, None)
every_format = pytest.mark.parametrize(
    "form", FORMATS, ids=[f"{form.messages.__name__} {form.kind}" for form in FORMATS]
)


@every_format
@seeds(200)
def test_a_reader_returns_records_or_refuses(form: Format, seed: int) -> None:
    chance = random.Random(seed)
    for message in form.messages(chance):
        for data in (message, *(mutated(message, chance) for _ in range(10))):
            with suppress(UnreadableRecord):  # any other error fails the test
                form.read(data)


@every_format
@pytest.mark.long
@seeds(200)
def test_a_message_takes_a_time_that_is_linear_in_its_bytes(form: Format, seed: int) -> None:
    chance = random.Random(seed)
    for message in form.messages(chance):
        for data in (message, *(mutated(message, chance) for _ in range(10))):
            used_s = min(processor_s(form.read, data) for _ in range(ROUNDS))
            assert used_s <= MESSAGE_S + BYTE_S * len(data), data[:500]


def processor_s(read: Callable[[bytes], Any], data: bytes) -> float:
    began_s = time.process_time()
    with suppress(UnreadableRecord):
        read(data)
    return time.process_time() - began_s


@seeds(200)
def test_a_valid_message_is_read_as_it_was_written(seed: int) -> None:
    record = valid(random.Random(seed))
    assert Json(All).decoder("t", "value")(json.dumps(plain(record)).encode()) == record
    named = {name: value for name, value in plain(record).items() if name != "data"}
    named["number"] = 2**63
    decoded = MessagePack(All).decoder("t", "value")(msgpack.packb(_without_data(named)))
    assert (decoded.number, decoded.price, decoded.levels) == (2**63, record.price, record.levels)


def _without_data(value: Any) -> Any:
    """Bytes are no text in MessagePack, and a number has 64 bits at most."""
    if type(value) is dict:
        return {name: _without_data(item) for name, item in value.items() if name != "data"}
    if type(value) is list:
        return [*map(_without_data, value)]
    return value % 2**60 if type(value) is int and value > 2**64 else value
