"""Values that protobuf has written are read with the types of the record's fields, or refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from functools import cache
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.internal.encoder import _VarintBytes
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import UnreadableRecord
from sunshower.kafka.formats import Json, MessagePack, Protobuf
from tests.values import annotated

WELL_KNOWN = ("timestamp", "duration", "struct", "wrappers")
KEYS = [
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"),
    *("sfixed32", "sfixed64", "bool", "string"),
]
FORMS = ["plain", "optional", "oneof", "repeated", *(f"map of {key}" for key in KEYS)]
NUMBERS = count()  # of the files
NAMES = ["value", "HasField", "DESCRIPTOR", "seconds"]  # of fields, and of what a message has


class Color(IntEnum):
    NONE = 0
    RED = 1
    BLUE = -5


@dataclass
class Leaf:
    text: str = ""
    many: list[Leaf] = field(default_factory=list)
    next: Leaf | None = None


def described(name: str, kind: str, number: int, package: str, **more: Any) -> Any:
    """The description of a field."""
    simple = {"name": name, "number": number, "label": "LABEL_OPTIONAL", **more}
    if kind in KINDS and kind.islower():
        return {**simple, "type": f"TYPE_{kind.upper()}"}
    of = "ENUM" if kind == "Color" else "MESSAGE"
    path = kind if "." in kind else f"{package}.{kind}"
    return {**simple, "type": f"TYPE_{of}", "typeName": f".{path}"}


@cache
def message_class(
    kind: str, form: str = "plain", syntax: str = "proto3", name: str = "value"
) -> Any:
    """The class of messages Sent, with one field that has such values."""
    package = f"values_{message_class.cache_info().misses}"
    sent: dict[str, Any] = {"name": "Sent"}
    more: dict[str, Any] = {}
    if form == "repeated" or form.startswith("map"):
        more["label"] = "LABEL_REPEATED"
    elif form == "oneof" or (form == "optional" and syntax == "proto3"):
        more["oneofIndex"] = 0
        more["proto3Optional"] = form == "optional"
        sent["oneofDecl"] = [{"name": "_chosen"}]
    if form.startswith("map"):
        entry = [
            described("key", form.removeprefix("map of "), 1, package),
            described("value", kind, 2, package),
        ]
        nested = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        sent["nestedType"] = [{"name": nested, "options": {"mapEntry": True}, "field": entry}]
        kind = f"{package}.Sent.{nested}"
    sent["field"] = [described(name, kind, 1, package, **more)]
    repeated = {"label": "LABEL_REPEATED"}
    leaf = [
        described("text", "string", 1, package),
        described("many", "Leaf", 2, package, **repeated),
        described("next", "Leaf", 3, package),
    ]
    members = [{"name": f"{package}_{color.name}", "number": color.value} for color in Color]
    described_file = {
        "name": f"{package}.proto",
        "package": package,
        "syntax": syntax,
        "dependency": [f"google/protobuf/{known}.proto" for known in WELL_KNOWN],
        "messageType": [sent, {"name": "Leaf", "field": leaf}],
        "enumType": [{"name": "Color", "value": members}],
    }
    file = ParseDict(described_file, FileDescriptorProto())
    Default().AddSerializedFile(file.SerializeToString())
    return GetMessageClass(Default().FindMessageTypeByName(f"{package}.Sent"))


def same(value: Any) -> Any:
    return value


def filled(kind: Any, method: str) -> Callable[[Any], Any]:
    def write(value: Any) -> Any:
        message = kind()
        getattr(message, method)(value)
        return message

    return write


def as_dict(leaf: Leaf) -> dict[str, Any]:
    more = {} if leaf.next is None else {"next": as_dict(leaf.next)}
    return {"text": leaf.text, "many": [*map(as_dict, leaf.many)], **more}


signed32, signed64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
unsigned32, unsigned64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=4)
leaves = st.recursive(
    st.builds(Leaf, texts),
    lambda inner: st.builds(Leaf, texts, st.lists(inner, max_size=2), st.none() | inner),
    max_leaves=4,
)
in_json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
lengths = st.timedeltas(timedelta(days=-3_652_500), timedelta(days=3_652_500))
moments = st.datetimes(timezones=st.just(UTC))
# Of each type: the annotation, the values, and how protobuf writes one.
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    "double": (float, st.floats(), same),
    "float": (float, st.floats(width=32), same),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (int, signed32, same)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (int, signed64, same)),
    **dict.fromkeys(("uint32", "fixed32"), (int, unsigned32, same)),
    **dict.fromkeys(("uint64", "fixed64"), (int, unsigned64, same)),
    "bool": (bool, st.booleans(), same),
    "string": (str, texts, same),
    "bytes": (bytes, st.binary(max_size=4), same),
    "Color": (Color, st.sampled_from(Color), same),
    "Leaf": (Leaf, leaves, as_dict),
    "google.protobuf.Timestamp": (
        datetime,
        moments,
        filled(timestamp_pb2.Timestamp, "FromDatetime"),
    ),
    "google.protobuf.Duration": (
        timedelta,
        lengths,
        filled(duration_pb2.Duration, "FromTimedelta"),
    ),
    "google.protobuf.Struct": (
        dict[str, Any],
        st.dictionaries(texts, in_json, max_size=2),
        filled(struct_pb2.Struct, "update"),
    ),
    **{
        f"google.protobuf.{name}Value": (
            annotation,
            values,
            lambda value, name=name: getattr(wrappers_pb2, f"{name}Value")(value=value),
        )
        for name, annotation, values in (
            *(("Int32", int, signed32), ("Int64", int, signed64), ("UInt64", int, unsigned64)),
            *(("Float", float, st.floats(width=32)), ("Double", float, st.floats())),
            *(("Bool", bool, st.booleans()), ("String", str, texts), ("Bytes", bytes, st.binary())),
        )
    },
}


class Sent(NamedTuple):
    kind: Any  # of the messages
    name: str  # of the field
    annotation: Any  # which fits the values
    value: Any
    data: bytes

    def read(self, annotation: Any = None) -> Any:
        record = make_dataclass("Sent", [(self.name, annotation or self.annotation)])
        decoded = Protobuf(self.kind, record).decoder("topic", "value")(self.data)
        return getattr(decoded, self.name)


@st.composite
def sent(draw: st.DrawFn) -> Sent:
    """A message of one field, as protobuf has written it."""
    kind, form = draw(st.sampled_from([*KINDS])), draw(st.sampled_from(FORMS))
    syntax, name = draw(st.sampled_from(["proto2", "proto3"])), draw(st.sampled_from(NAMES))
    annotation, values, write = KINDS[kind]
    message = message_class(kind, form, syntax, name)
    has_presence = syntax == "proto2" or "optional" in form or form == "oneof" or "." in kind
    written: Any = write
    if form == "repeated":
        annotation = list[annotation]  # type: ignore[valid-type]
        values = st.lists(values, max_size=3)
        written = lambda many: [*map(write, many)]  # noqa: E731
    elif form.startswith("map"):
        key_of, keys, _ = KINDS[form.removeprefix("map of ")]
        annotation = dict[key_of, annotation]  # type: ignore[valid-type]
        values = st.dictionaries(keys, values, max_size=3)
    elif has_presence or kind == "Leaf":
        annotation, values = annotation | None, st.none() | values
    value = draw(values)
    instance = message()
    if form.startswith("map"):
        for key, item in value.items():
            if kind == "Leaf":
                ParseDict(as_dict(item), getattr(instance, name)[key])
            elif "." in kind:
                getattr(instance, name)[key].CopyFrom(write(item))
            else:
                getattr(instance, name)[key] = write(item)
    elif value is not None:
        instance = message(**{name: written(value)})
    return Sent(message, name, annotation, value, message.SerializeToString(instance))


@given(sent())
def test_a_value_is_read_as_protobuf_has_written_it(message: Sent) -> None:
    assert annotated.is_same(in_order(message.read()), in_order(message.value)), message.read()
    untyped = Protobuf(message.kind).decoder("topic", "value")(message.data)
    assert annotated.is_same(plain(untyped[message.name]), plain(message.value))


def in_order(value: Any) -> Any:
    """The value with its dictionaries sorted: the entries of a map have no order."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value, key=repr)}
    return [*map(in_order, value)] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """The value without the types of records and Enums, which a reader without types has not."""
    if isinstance(value, Leaf):
        return plain(vars(value))
    if isinstance(value, list):
        return [*map(plain, value)]
    if isinstance(value, dict):
        return in_order({plain(key): plain(item) for key, item in value.items()})
    return value.value if isinstance(value, Enum) else value


@given(sent(), annotated.kinds)
def test_a_value_of_another_type_is_the_same_or_refused(message: Sent, kind: Any) -> None:
    try:
        read_value = message.read(kind[0])
    except UnreadableRecord:
        return
    assert is_equal(read_value, plain(message.value)), read_value


def is_equal(actual: Any, sent: Any) -> bool:
    """Whether the value that a record has is the one that was sent."""
    if isinstance(actual, list | tuple | set) and isinstance(sent, list):
        if isinstance(actual, set):
            return actual == {*sent}
        return len(actual) == len(sent) and all(map(is_equal, actual, sent))
    if isinstance(actual, dict) and isinstance(sent, dict):
        pairs = zip(plain(actual).items(), plain(sent).items(), strict=True)
        return all(is_equal([*item], [*other]) for item, other in pairs)
    if isinstance(sent, str):  # a type of texts, or the key of a dict
        texts = (Decimal, date, datetime, time, timedelta, UUID, int, float)
        return type(actual) in texts or plain(actual) == sent
    return annotated.is_same(plain(actual), sent)


class Right(IntFlag):
    READ = 1
    WRITE = 2


@pytest.mark.parametrize("number", [-1, -2, -4, -(2**31)])
def test_a_negative_number_is_no_flag(number: int) -> None:
    record = make_dataclass("Sent", [("value", Right)])
    message = message_class("int64")
    for data, form in (
        (message(value=number).SerializeToString(), Protobuf(message, record)),
        (b'{"value": %d}' % number, Json(record)),
        (
            b"\x81\xa5value" + bytes([0xD2]) + number.to_bytes(4, "big", signed=True),
            MessagePack(record),
        ),
    ):
        with pytest.raises(UnreadableRecord, match=f"{number} is no Right"):
            form.decoder("topic", "value")(data)


def entry(data: bytes) -> bytes:
    return b"\x0a" + bytes([len(data)]) + data


@pytest.mark.parametrize(
    ("kind", "form", "data"),
    [
        ("Color", "optional", b"\x08\x63"),
        ("Color", "repeated", b"\x08\x01\x08\x63"),
        ("Color", "repeated", entry(b"\x01\x63")),  # packed
        ("Color", "map of string", entry(b"\x0a\x01k\x10\x63")),
        ("int64", "plain", entry(b"7")),  # the schema of the sender has a text here
        ("string", "plain", b"\x08\x07"),
        ("double", "plain", b"\x0d" + bytes(4)),
        ("Leaf", "plain", b"\x08\x07"),
        ("google.protobuf.Timestamp", "plain", entry(entry(b"7"))),
        ("google.protobuf.Int64Value", "repeated", entry(entry(b"7"))),
    ],
)
def test_a_value_that_the_class_does_not_have_is_refused(kind: str, form: str, data: bytes) -> None:
    for record in (None, make_dataclass("Sent", [("value", Any)])):
        read = Protobuf(message_class(kind, form, "proto2"), record).decoder("topic", "value")
        with pytest.raises(UnreadableRecord, match="is not a valid value of its type"):
            read(data)
        assert read(b"\x98\x06\x07") == read(b""), "field 99, which the class does not know"


def test_a_number_that_an_open_enum_does_not_have_is_a_number_and_no_member() -> None:
    message = message_class("Color", "repeated")
    sent = Sent(message, "value", list[Color], [1, 99], message(value=[1, 99]).SerializeToString())
    assert sent.read(list[int]) == [1, 99]
    with pytest.raises(UnreadableRecord, match=r"Sent\.value\[1\]: 99 is no Color"):
        sent.read()


@given(
    st.sampled_from(["Timestamp", "Duration"]),
    signed64 | st.integers(-(2**33), 2**38),
    signed32 | st.integers(-(10**6), 10**6).map(lambda micros: micros * 1_000),
)
def test_a_moment_is_exact_or_refused(name: str, seconds: int, nanos: int) -> None:
    kind = {"Timestamp": timestamp_pb2.Timestamp, "Duration": duration_pb2.Duration}[name]
    sent = kind(seconds=seconds, nanos=nanos)
    with suppress(UnreadableRecord):
        value = Protobuf(kind).decoder("topic", "value")(sent.SerializeToString())
        length = value if name == "Duration" else value - datetime(1970, 1, 1, tzinfo=UTC)
        assert length // timedelta(microseconds=1) * 1_000 == seconds * 10**9 + nanos


@pytest.mark.parametrize("depth", [30, 80, 120])
def test_a_message_is_as_deep_as_a_record_may_be_or_refused(depth: int) -> None:
    message, leaf = message_class("Leaf"), b"\x0a\x03end"
    value: Any = Leaf("end")
    for _ in range(depth - 1):
        leaf, value = b"\x1a" + _VarintBytes(len(leaf)) + leaf, Leaf(next=value)
    sent = Sent(message, "value", Leaf, value, b"\x0a" + _VarintBytes(len(leaf)) + leaf)
    if depth == 30:
        assert sent.read() == value
        return
    with pytest.raises(UnreadableRecord, match="nested more than" if depth == 80 else "pars"):
        sent.read()
