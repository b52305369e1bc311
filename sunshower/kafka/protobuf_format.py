"""Protobuf as a format: messages of a generated class become records, or dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC
from operator import attrgetter
from typing import Any

from sunshower.arguments import Instance, Values
from sunshower.errors import ConfigError
from sunshower.kafka.formats import Decode, Format, check_record_type, decoder_of_records
from sunshower.texts import describe

_Convert = Callable[[Any], Any]

_JSON = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
}
_IDS = Instance((set, frozenset, list, tuple), "True, False, or ids of schemas, such as {7}", False)
_ID = Values(int, "the id of a schema, a whole number", least=0)
_SHOWN_BYTES = 128  # of a value in an error
_ID_BYTES = 5  # of Confluent's framing: a zero, and the id of the schema


@dataclass(frozen=True)
class Protobuf(Format):
    """Messages of a class that `protoc` has generated. With a record type, messages become records
    by field name, as objects of JSON do; else they become dictionaries.

    A field without a value is None if its presence is tracked (a message, `optional`, `oneof`), and
    its default otherwise. A Timestamp is a datetime in UTC, a Duration a timedelta; with parts of
    microseconds, the message cannot be read. An enum is its number, a wrapper its value, a Struct a
    dictionary. Unknown fields are ignored; a message with a value that its field cannot have, such
    as a text for a number or an unknown number of a closed enum, cannot be read.

    `framed`: messages begin with the id of their schema, as Confluent's schema registry defines it.
    The registry is not asked, because `message` has the schema; a message of another type of the
    same file is one that cannot be read. A message of another file may be read with wrong
    values: `framed={7, 12}` reads messages with these ids only. Raises ConfigError for anything
    but a generated class.
    """

    message: type[Any]
    record_type: type[Any] | None = None
    framed: bool | Collection[int] = False

    def __post_init__(self) -> None:
        is_generated = isinstance(self.message, type) and hasattr(self.message, "DESCRIPTOR")
        if not is_generated or not hasattr(self.message, "FromString"):
            shown = getattr(self.message, "__name__", repr(self.message))
            raise ConfigError(
                f"Protobuf({shown}) has no class that protoc has generated; give one, such as "
                "Protobuf(sale_pb2.Sale, Sale)"
            )
        check_record_type(self)
        if isinstance(self.framed, bool):
            return
        _IDS.check("Protobuf: framed", self.framed or None)
        for one in self.framed:
            _ID.check("Protobuf: an id in framed", one)
        object.__setattr__(self, "framed", frozenset(self.framed))

    def decoder(self, topic: str, part: str) -> Decode:
        parse, convert = self.message.FromString, _converter(self.message.DESCRIPTOR, {})
        if not self.framed:
            return decoder_of_records(lambda data: convert(parse(data)), self.record_type)
        path = _path(self.message.DESCRIPTOR)
        ids = None if isinstance(self.framed, bool) else frozenset(self.framed)

        def decode(data: bytes) -> Any:
            return convert(parse(_payload(data, path, ids)))

        return decoder_of_records(decode, self.record_type)


def _converter(descriptor: Any, known: dict[str, _Convert]) -> _Convert:
    """A function that makes plain values of a message. `known`: those of the types around it. It
    raises ValueError if a value was sent for a field that cannot have it."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    kind = descriptor.full_name
    if kind in known:
        return known[kind]
    fields = {field.number: field.name for field in descriptor.fields}
    getters: list[tuple[str, _Convert]] = []
    plain = _plain(kind)

    def convert(message: Any) -> Any:
        if unknown := UnknownFieldSet(message):
            _check_unknown(unknown, fields)
        return plain(message) if plain else {name: get(message) for name, get in getters}

    known[kind] = convert  # a message may have a field of its own type
    if plain is None:
        getters += [(field.name, _getter(field, known)) for field in descriptor.fields]
    return convert


def _plain(kind: str) -> _Convert | None:
    """The function for a type of google.protobuf. None: it is another type."""
    if kind == "google.protobuf.Timestamp":
        return lambda message: _whole(message).ToDatetime(tzinfo=UTC)
    if kind == "google.protobuf.Duration":
        return lambda message: _whole(message).ToTimedelta()
    if kind in _WRAPPERS:
        return lambda message: message.value
    if kind in _JSON:
        from google.protobuf.json_format import MessageToDict

        to_dict: _Convert = MessageToDict
        return to_dict
    return None


def _getter(field: Any, known: dict[str, _Convert]) -> _Convert:
    """A function that returns the value of a message's field."""
    from google.protobuf.message_factory import GetMessageClass

    name, kind, get = field.name, field.message_type, attrgetter(field.name)
    if kind is not None and kind.GetOptions().map_entry:
        value = kind.fields_by_name["value"].message_type
        of_value = _same if value is None else _converter(value, known)
        return lambda message: {key: of_value(one) for key, one in get(message).items()}
    convert = None if kind is None else _converter(kind, known)
    if _is_repeated(field):
        return lambda message: [*(map(convert, get(message)) if convert else get(message))]
    if not field.has_presence:
        return get
    has, convert = GetMessageClass(field.containing_type).HasField, convert or _same
    return lambda message: convert(get(message)) if has(message, name) else None


def _is_repeated(field: Any) -> bool:
    """Whether a field is a list. Protobuf has the property since 6.31; 7 has no labels."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)


def _check_unknown(unknown: Any, fields: Mapping[int, str]) -> None:
    """Raise ValueError if one of them is a field after all: its value has another type, or is no
    member of its closed enum."""
    for sent in unknown:
        if sent.field_number in fields:
            value = describe(sent.data, _SHOWN_BYTES)
            raise ValueError(f"{fields[sent.field_number]}: {value} is no value of its type")


def _whole(message: Any) -> Any:
    """A Timestamp or Duration of whole microseconds. Raises ValueError for others."""
    if message.nanos % 1_000:
        raise ValueError(f"{message.nanos} nanoseconds would be cut to microseconds")
    return message


def _same(value: Any) -> Any:
    return value


def _path(descriptor: Any) -> list[int]:
    """The indexes of a message type, and of the types around it, in its file."""
    path: list[int] = []
    while descriptor is not None:
        around = descriptor.containing_type
        types = around.nested_types if around else descriptor.file.message_types_by_name.values()
        path.insert(0, [one.full_name for one in types].index(descriptor.full_name))
        descriptor = around
    return path


def _payload(data: bytes, path: list[int], ids: frozenset[int] | None) -> bytes:
    """The message in Confluent's framing. Raises ValueError for another one, or another type."""
    if len(data) <= _ID_BYTES or data[0] != 0:
        raise ValueError("it does not begin with a zero and the id of a schema")
    schema = int.from_bytes(data[1:_ID_BYTES], "big")
    if ids is not None and schema not in ids:
        raise ValueError(f"its schema has the id {schema}; expected: {sorted(ids)}")
    count, at = _varint(data, _ID_BYTES)
    found = [] if count else [0]
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(index)
    if found != path:
        raise ValueError(f"it is message type {found} of its file, and {path} was expected")
    return data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag encoding, and where the next one begins. Raises ValueError."""
    value = shift = 0
    for index in range(at, min(at + 5, len(data))):
        value |= (data[index] & 0x7F) << shift
        shift += 7
        if data[index] < 0x80:
            return (value >> 1) ^ -(value & 1), index + 1
    raise ValueError("the indexes of its message type are not complete")
