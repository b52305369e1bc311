"""Records are read from JSON and MessagePack with the types of their fields, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Self,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import msgpack
import msgspec
import pytest
from pydantic import field_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from sunshower import record_reader
from sunshower.errors import UnreadableRecord
from sunshower.json_values import json_text
from sunshower.kafka.formats import Json, MessagePack
from tests.values.records_before import FILE, RECORDS

Read = Callable[[Any, Any], Any]
T = TypeVar("T")


def from_json(kind: Any, value: Any) -> Any:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Json(kind).decoder("topic", "value")(data)


def from_messagepack(kind: Any, value: Any) -> Any:
    data = value if isinstance(value, bytes) else msgpack.packb(value, datetime=True)
    return MessagePack(kind).decoder("topic", "value")(data)


every_format = pytest.mark.parametrize("read", [from_json, from_messagepack])


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Place:
    name: str
    point: Point | None = None


class Order(NamedTuple):
    shop: str
    cents: int
    points: list[Point] = []  # noqa: RUF012
    place: Place | None = None


# ---- arrays -------------------------------------------------------------------------------------


@every_format
def test_an_array_of_objects_is_several_records(read: Read) -> None:
    orders = read(Order, [{"shop": "a", "cents": 1}, {"shop": "b", "cents": 2}])
    assert orders == [Order("a", 1), Order("b", 2)]
    assert read(Order, []) == []
    assert read(Order, [{"shop": "a", "cents": 1}]) == [Order("a", 1)]


@every_format
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([["a", 1], ["b", 2]], r"Order\[0\]: "),
        ([{"shop": "a", "cents": 1}, None], r"Order\[1\]: "),
        ([{"shop": "a", "cents": 1}, {"shop": "b"}], r"Order\[1\]: Order without cents"),
        ([[{"shop": "a", "cents": 1}]], r"Order\[0\]: "),
        (["a", 1], r"Order\[0\]: "),
        ("a", "Order"),
        (None, "Order"),
    ],
)
def test_what_is_no_object_is_refused_as_a_record(read: Read, value: Any, expected: str) -> None:
    with pytest.raises(UnreadableRecord, match=expected):
        read(Order, value)


@every_format
def test_a_named_tuple_within_a_record_may_be_a_list_of_its_values(read: Read) -> None:
    """Earlier versions wrote it so."""
    order = {"shop": "a", "cents": 1, "points": [[1, 2], {"x": 3, "y": 4}], "place": {"name": "b"}}
    assert read(Order, order) == Order("a", 1, [Point(1, 2), Point(3, 4)], Place("b"))
    for wrong in ([1], [1, 2, 3], [{"x": 1, "y": 2}, {"x": 1, "y": 2}], []):
        with pytest.raises(UnreadableRecord, match=r"Order\.points\[0\]"):
            read(Order, order | {"points": [wrong]})
    with pytest.raises(UnreadableRecord, match=r"Order\.place: Place was expected"):
        read(Order, order | {"place": ["b", None]})


def test_records_are_written_as_objects_at_every_depth() -> None:
    order = Order("a", 1, [Point(1, 2)], Place("b", Point(3, 4)))
    for value in (order, {"order": order}, [order], {"orders": {"x": (order,)}}):
        text = json_text(value)
        assert '"points": [{"x": 1, "y": 2}]' in text
        assert '"place": {"name": "b", "point": {"x": 3, "y": 4}}' in text
    assert from_json(Order, json_text(order).encode()) == order


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_what_earlier_versions_wrote_is_read(number: int) -> None:
    record, line = RECORDS[number], FILE.read_bytes().splitlines()[number]
    assert b"[" in line or number == 2
    for read in (
        Json(type(record)).decoder("topic", "value")(line),
        from_messagepack(type(record), json.loads(line)),
        from_json(type(record), json_text(record).encode()),
    ):
        assert (type(read), repr(read)) == (type(record), repr(record))


# ---- values -------------------------------------------------------------------------------------


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Shape(Enum):
    ROUND = (1, 2)
    FLAT = "flat"


class Share(Enum):
    HALF = 0.5
    ALL = 1.0


class Note(TypedDict):
    by: str
    on: NotRequired[date]


class Values(NamedTuple):
    number: int = 0
    ratio: float = 0.0
    text: str = ""
    flag: bool = False
    data: bytes = b""
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    hour: time = time(1)
    length: timedelta = timedelta(0)
    price: Decimal = Decimal(0)
    id: UUID = UUID(int=0)
    level: Level = Level.LOW
    shape: Shape = Shape.FLAT
    kind: Literal["a", 1, None] = None
    numbers: dict[int, str] = {}  # noqa: RUF012
    ratios: dict[float, int] = {}  # noqa: RUF012
    levels: dict[Level, int] = {}  # noqa: RUF012
    tags: set[int] = set()  # noqa: RUF012
    pair: tuple[int, str] = (0, "")
    note: Note = {"by": ""}  # noqa: RUF012
    loose: Any = None
    share: Share = Share.ALL
    seen: AbstractSet[int] = frozenset()


@every_format
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *(("number", wrong, f"{wrong} is no int") for wrong in (True, 1.5, None)),
        ("number", "1", "'1' is no int"),
        ("ratio", "1.5", "'1.5' is no float"),
        ("ratio", True, "True is no float"),
        ("text", 1, "1 is no str"),
        ("text", None, "None is no str"),
        ("flag", 1, "1 is no bool"),
        ("data", 1, "1 is no bytes"),
        ("at", "2026-01-02", "is no datetime"),
        ("at", "2026-01-02X03:04:05Z", "is no datetime"),
        ("at", "2026-01-02T03:04:05.1234567Z", "more than 6 digits"),
        ("at", "2026-01-02T03:04:05,000000001Z", "more than 6 digits"),
        ("hour", "03:04:05.123456789", "more than 6 digits"),
        ("length", "PT0.1234567S", "is no timedelta"),
        *(("price", wrong, "is no Decimal") for wrong in ("1_000", " 1", "١٢", 1.5, 1, "")),
        ("id", "0-0000000000000000000000000000005", "is no UUID"),
        ("level", True, "True is no Level"),
        ("level", 1.0, "1.0 is no Level"),
        ("level", "1", "'1' is no Level"),
        ("shape", [1], r"\[1\] is no Shape"),
        ("share", 2, "2 is no Share"),
        ("kind", "b", "'b' is none of 'a', 1, None"),
        ("kind", True, "True is none of"),
        ("pair", [1, "a", 2], "length 2"),
        ("pair", [1, 2], "2 is no str"),
        ("tags", ["a"], r"\[0\]: 'a' is no int"),
        ("note", {"on": "2026-01-02"}, "Note without by"),
        ("note", {"by": 1}, r"\.by: 1 is no str"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_field(
    read: Read, name: str, value: Any, expected: str
) -> None:
    with pytest.raises(UnreadableRecord, match=rf"^Values\.{name}.*{expected}"):
        read(Values, {name: value})


@every_format
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ratio", 7, 7),
        ("ratio", 2**60 + 1, 2**60 + 1),
        ("at", "2026-01-02T03:04:05.123456000Z", datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)),
        ("at", "2026-01-02 03:04:05z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("length", "PT-1.5S", timedelta(seconds=-1.5)),
        ("length", "PT-8H-30M", timedelta(hours=-8.5)),
        ("length", "P1W", timedelta(weeks=1)),
        ("price", "-1.50", Decimal("-1.50")),
        ("level", 2, Level.HIGH),
        ("shape", [1, 2], Shape.ROUND),
        ("kind", 1, 1),
        ("tags", [1, 1], {1}),
        ("note", {"by": "a", "more": 1}, {"by": "a", "more": 1}),
        ("loose", {"a": [1, None]}, {"a": [1, None]}),
        *(("share", number, Share.ALL) for number in (1, 1.0)),
        ("seen", [1, 1], frozenset({1})),
    ],
)
def test_a_value_of_its_type_is_read(read: Read, name: str, value: Any, expected: Any) -> None:
    read_value = getattr(read(Values, {name: value}), name)
    assert (type(read_value), read_value) == (type(expected), expected)


class Limits(msgspec.Struct):
    most: int = 1


@dataclass
class Fixed:
    on: Final[date]
    limits: Limits = Limits()  # noqa: RUF009
    next: Self | None = None


@dataclass
class Chain(Generic[T]):
    value: T
    next: Self | None = None
    of_lists: Chain[list[T]] | None = None  # a type without an end


@dataclass
class Chained:
    dates: Chain[date]


@every_format
def test_a_final_field_and_self_are_converted_and_a_default_may_be_changeable(read: Read) -> None:
    inner = Fixed(date(2026, 1, 3), Limits())
    value = {"on": "2026-01-02", "next": {"on": "2026-01-03"}}
    assert read(Fixed, value) == Fixed(date(2026, 1, 2), Limits(), inner)
    day, last = "2026-01-02", {"value": "2026-01-03"}
    chain = Chain(date(2026, 1, 2), Chain(date(2026, 1, 3)), Chain([date(2026, 1, 2)]))
    value = {"dates": {"value": day, "next": last, "of_lists": {"value": [day]}}}
    assert read(Chained, value) == Chained(chain)


@dataclass(frozen=True)
class Corner:
    x: int


class Corners(Corner, Enum):
    LEFT = 1


UserId = NewType("UserId", int)


class Drawn(NamedTuple):
    corner: Corners
    by: Annotated[UserId, ["who drew it"]]


def test_a_record_in_an_enum_is_read_by_its_value() -> None:
    written = json_text(Drawn(Corners.LEFT, UserId(7))).encode()
    assert from_json(Drawn, written) == Drawn(Corners.LEFT, UserId(7))


def test_what_annotated_says_may_be_a_list() -> None:
    with pytest.raises(UnreadableRecord, match="by"):
        from_json(Drawn, json_text({"corner": {"x": 1}, "by": "x"}).encode())


@pytest.mark.parametrize("data", ["1e400", "-1e400", "NaN", "Infinity", "-Infinity", "9" * 5_000])
@pytest.mark.parametrize("kind", [Values, None])
def test_json_without_a_value_of_python_is_refused(data: str, kind: Any) -> None:
    for text in (f'{{"ratio": {data}}}', f'{{"loose": [{data}]}}'):
        with pytest.raises(UnreadableRecord):
            from_json(kind, text.encode())


@pytest.mark.parametrize(
    "data",
    [b'{"text": "\\ud800"}', b'{"text": "\xed\xa0\x80"}', b'{"text": "\xff"}', b"{} {}", b""],
)
@pytest.mark.parametrize("kind", [Values, None])
def test_bytes_that_are_no_json_are_refused(data: bytes, kind: Any) -> None:
    with pytest.raises(UnreadableRecord):
        from_json(kind, data)
    for encoding in ("utf-16", "utf-16-le", "utf-32"):
        with pytest.raises(UnreadableRecord):
            from_json(kind, '{"text": "a"}'.encode(encoding))


def test_json_may_begin_with_a_byte_order_mark_and_blanks() -> None:
    for data in (
        b'\xef\xbb\xbf{"text": "a"}',
        b' \r\n\t{"text": "a"} ',
        b'\xef\xbb\xbf\n{"text":"a"}',
    ):
        assert from_json(Values, data).text == "a"
        assert from_json(None, data) == {"text": "a"}
    assert from_json(Values, b'\xef\xbb\xbf [{"text": "a"}]')[0].text == "a"


def test_bytes_are_base64_in_json_only() -> None:
    assert from_json(Values, {"data": "YQ=="}).data == b"a"
    assert from_messagepack(Values, {"data": b"a"}).data == b"a"
    with pytest.raises(UnreadableRecord, match="is no bytes, which are base64 in JSON"):
        from_json(Values, {"data": "Y!"})
    with pytest.raises(UnreadableRecord, match="is no bytes"):
        from_messagepack(Values, {"data": "YQ=="})


# ---- keys ---------------------------------------------------------------------------------------


def test_keys_of_json_are_what_their_texts_say() -> None:
    assert from_json(Values, {"numbers": {"1": "a", "-2": "b"}}).numbers == {1: "a", -2: "b"}
    assert from_json(Values, {"ratios": {"1.0": 1, "2.5": 2}}).ratios == {1.0: 1, 2.5: 2}
    assert from_json(Values, {"levels": {"1": 5}}).levels == {Level.LOW: 5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("numbers", {"1": "a", "01": "b"}),
        ("numbers", {"1": "a", " 1": "b"}),
        ("numbers", {"1.0": "a"}),
        ("ratios", {"1": 1}),
        ("ratios", {"1.0": 1, "1.00": 2}),
        ("ratios", {"nan": 1}),
        ("levels", {"3": 1}),
        ("levels", {"LOW": 1}),
    ],
)
def test_a_text_that_is_no_key_of_the_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UnreadableRecord, match=rf"^Values\.{name}"):
        from_json(Values, {name: value})


# ---- MessagePack --------------------------------------------------------------------------------


def test_maps_of_messagepack_may_have_any_keys() -> None:
    record = from_messagepack(
        Values, {"numbers": {1: "a"}, "loose": {2: {b"b": 3}}, 5: 6, "x": {7: 8}}
    )
    assert (record.numbers, record.loose) == ({1: "a"}, {2: {b"b": 3}})
    assert from_messagepack(Values, {"levels": {1: 5}}).levels == {Level.LOW: 5}
    assert from_messagepack(None, {1: 2}) == {1: 2}
    assert from_messagepack(Values, {"numbers": {"1": "a"}}).numbers == {1: "a"}


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"), [(0, 0), (1, 1_000), (2**33, 999_999_000), (-5, 3_000), (2**35, 0)]
)
def test_a_timestamp_of_messagepack_is_a_datetime(seconds: int, nanoseconds: int) -> None:
    expected = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        seconds=seconds, microseconds=nanoseconds // 1_000
    )
    stamp = msgpack.Timestamp(seconds, nanoseconds)
    for kind in (Values, None):
        record = from_messagepack(kind, {"at": stamp, "loose": [stamp]})
        values = record if kind is None else record._asdict()
        assert values["at"] == values["loose"][0] == expected


@pytest.mark.parametrize(
    "data",
    [
        msgpack.packb({"at": msgpack.Timestamp(1, 1)}),
        msgpack.packb({"at": msgpack.Timestamp(2**35, 1)}),
        msgpack.packb({"loose": {1: [msgpack.Timestamp(1, 1_001)]}}),
        b"\x81\xa2at\xc7\x08\xff" + msgpack.Timestamp(1, 1).to_bytes(),
        b"\x81\xa2at\xc8\x00\x08\xff" + msgpack.Timestamp(1, 1).to_bytes(),
    ],
)
def test_nanoseconds_of_messagepack_are_refused(data: bytes) -> None:
    for kind in (Values, None):
        with pytest.raises(UnreadableRecord, match="nanoseconds"):
            from_messagepack(kind, data)


# ---- unions -------------------------------------------------------------------------------------


class A(NamedTuple):
    x: int


class B(NamedTuple):
    x: int
    y: int = 0


@dataclass
class C:
    x: str


class Of(NamedTuple):
    value: A | B | C | None


class Others(NamedTuple):
    value: dict[str, int] | B | list[int] | date | str | None


@every_format
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Of, {"x": 1, "y": 2}, B(1, 2)),
        (Of, {"x": 1}, A(1)),
        (Of, {"x": "a"}, C("a")),
        (Of, None, None),
        (Others, {"x": 1, "y": 2}, B(1, 2)),
        (Others, {"x": 1, "z": 2}, {"x": 1, "z": 2}),
        (Others, [1, 2, 3], [1, 2, 3]),
        (Others, "2026-01-02", date(2026, 1, 2)),
        (Others, "soon", "soon"),
    ],
)
def test_a_value_is_read_as_the_member_of_a_union_that_it_fits(
    read: Read, kind: Any, value: Any, expected: Any
) -> None:
    read_value = read(kind, {"value": value}).value
    assert (type(read_value), read_value) == (type(expected), expected)


@every_format
@pytest.mark.parametrize(
    "value", [{"x": 1, "z": 2}, {"x": 1, "y": 2, "z": 3}, {}, {"y": 1}, {"x": None}, 5, "a"]
)
def test_an_unknown_name_in_a_union_of_records_is_refused(read: Read, value: Any) -> None:
    with pytest.raises(UnreadableRecord, match=r"^Of\.value: .* is no A \| B \| C \| None"):
        read(Of, {"value": value})


class Same(NamedTuple):
    x: int


class Two(NamedTuple):
    value: A | Same


@every_format
def test_a_value_that_may_be_a_record_of_two_types_is_refused(read: Read) -> None:
    with pytest.raises(UnreadableRecord, match="may be a record of A and Same"):
        read(Two, {"value": {"x": 1}})
    with pytest.raises(UnreadableRecord, match="may be a record of A and Same"):
        read(Two, {"value": [1]})


@dataclass
class Optional:
    value: B | None = None


@every_format
def test_other_unknown_names_are_ignored(read: Read) -> None:
    assert read(Optional, {"value": {"x": 1, "z": 1}, "more": 2}) == Optional(B(1))


# ---- constructors -------------------------------------------------------------------------------

constructed: list[str] = []


@dataclass
class Checked:
    name: str
    cents: InitVar[int] = 7
    words: list[str] = field(default_factory=list)

    def __post_init__(self, cents: int) -> None:
        constructed.append(f"Checked {self.name} {cents}")
        if cents < 0:
            raise KeyError("cents")


@pydantic_dataclass
class Valid:
    name: str
    cents: int = 1

    @field_validator("cents")
    @classmethod
    def to_cents(cls, euros: int) -> int:
        constructed.append(f"Valid {euros}")
        return euros * 100


class _Pair(NamedTuple):
    name: str
    count: int = 0


class Pair(_Pair):
    __slots__ = ()

    def __new__(cls, name: str, count: int = 5) -> Pair:
        constructed.append(f"Pair {name} {count}")
        return super().__new__(cls, name, count + 1)


class Holds(NamedTuple):
    first: Checked | Valid | None = None
    many: list[Pair | Checked] = []  # noqa: RUF012
    one: Pair | None = None


@every_format
def test_a_constructor_runs_once_for_each_record(read: Read) -> None:
    constructed.clear()
    record = read(
        Holds,
        {
            "first": {"name": "a", "cents": 2, "words": ["b"]},
            "many": [{"name": "c", "count": 1}, {"name": "d", "words": []}],
            "one": {"name": "e"},
        },
    )
    assert constructed == ["Checked a 2", "Pair c 1", "Checked d 7", "Pair e 5"]
    assert record.first.words == ["b"]
    assert [*record.many[0]] == ["c", 2]
    constructed.clear()
    assert read(Valid, {"name": "a", "cents": 2}).cents == 200
    assert read(Valid, {"name": "a"}).cents == 1
    assert constructed == ["Valid 2"]


@dataclass
class Exact:
    name: str

    def __post_init__(self) -> None:
        constructed.append(f"Exact {self.name}")


@dataclass
class Wider(Exact):
    count: int = 0


class OneOf(NamedTuple):
    value: Wider | Exact | dict[str, str]


@every_format
def test_only_the_constructor_of_the_member_of_a_union_runs(read: Read) -> None:
    constructed.clear()
    assert read(OneOf, {"value": {"name": "a"}}) == OneOf(Exact("a"))
    assert read(OneOf, {"value": {"name": "b", "count": 1}}) == OneOf(Wider("b", 1))
    assert read(OneOf, {"value": {"name": "c", "more": "d"}}).value == {"name": "c", "more": "d"}
    assert constructed == ["Exact a", "Exact a", "Exact b", "Exact b"]  # each once by the test


@every_format
def test_no_constructor_runs_for_values_of_other_types(read: Read) -> None:
    constructed.clear()
    for wrong in ({"name": 1}, {"name": "a", "cents": "2"}, {"cents": 1}):
        for kind in (Checked, Valid):
            with pytest.raises(UnreadableRecord):
                read(kind, wrong)
    assert constructed == []


@every_format
def test_braces_in_a_message_stay(read: Read) -> None:
    with pytest.raises(UnreadableRecord, match=r"Values\.price: '\{\}' is no Decimal"):
        read(Values, {"price": "{}"})


@every_format
def test_what_a_constructor_raises_is_a_refusal(read: Read) -> None:
    with pytest.raises(UnreadableRecord, match="Checked: 'cents'"):
        read(Checked, {"name": "a", "cents": -1})
    with pytest.raises(UnreadableRecord, match=r"Holds\.many\[0\]"):
        read(Holds, {"many": [{"name": "a", "cents": -1, "words": []}]})


# ---- nesting ------------------------------------------------------------------------------------


class Comment(NamedTuple):
    at: datetime
    reply: Comment | None = None


@dataclass
class Tree:
    at: datetime
    left: Tree | None = None
    right: Tree | Comment | None = None


class Timed(NamedTuple):
    at: datetime
    child: Timed | Named | None = None


class Named(NamedTuple):
    at: str
    child: Timed | Named | None = None
    children: list[Timed | Named] | dict[str, Named | Timed] | None = None


def nested(kind: Any, depth: int, last: Any) -> Any:
    """An object of `depth` levels, with `last` at the innermost one."""
    names = {Comment: ["reply"], Tree: ["right", "left"], Timed: ["child"], Named: ["child"]}[kind]
    value: Any = {"at": last}
    for level in range(depth):
        value = {"at": "2026-01-02T03:04:05+00:00", names[level % len(names)]: value}
    return value


@every_format
@pytest.mark.parametrize("kind", [Comment, Tree, Timed, Named])
@pytest.mark.parametrize("last", ["2026-01-02T03:04:05+00:00", "yesterday", None, [], {}])
def test_each_value_is_read_once_for_each_record_type(
    read: Read, kind: Any, last: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads(depth: int) -> int:
        count = 0
        original = record_reader._RecordReader._read

        def counting(self: Any, value: Any) -> Any:
            nonlocal count
            count += 1
            return original(self, value)

        with monkeypatch.context() as patch:
            patch.setattr(record_reader._RecordReader, "_read", counting)
            with suppress(UnreadableRecord):
                read(kind, nested(kind, depth, last))
        return count

    assert reads(30) <= 2 * 30 + 2
    expected = "more than 32 deep" if kind is Comment else "Comment|Timed"
    with pytest.raises(UnreadableRecord, match=expected):
        read(kind, nested(kind, 80, "2026-01-02T03:04:05+00:00"))
    children = {"children": [nested(Named, 3, last) for _ in range(20)]}
    if kind is Named:
        for value in (children, {"children": {"a": children | {"at": "x"}}}):
            with pytest.raises(UnreadableRecord):
                read(Named, value | {"unknown": 1, "at": last and 1})


@every_format
def test_a_message_that_is_nested_too_deeply_is_refused(read: Read) -> None:
    opened = b'{"at":"2026-01-02T03:04:05Z","reply":' * 5_000
    with pytest.raises(UnreadableRecord):
        read(Comment, opened + b"null" + b"}" * 5_000)
    for data in (b"[" * 100_000, b'{"loose":' * 100_000, b"\x91" * 100_000, b"\x81\x01" * 100_000):
        for kind in (Values, None):
            with pytest.raises(UnreadableRecord):
                read(kind, data)
