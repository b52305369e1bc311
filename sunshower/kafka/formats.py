"""Formats of keys and values: bytes, text, JSON, MessagePack, Avro."""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from decimal import Context, Decimal
from operator import attrgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import msgpack

from sunshower.arguments import FLAG, Instance, Values, check_all
from sunshower.errors import (
    ConfigError,
    KafkaUnreachable,
    RecordMismatch,
    SunshowerError,
    UnreadableRecord,
)
from sunshower.field_types import record_fields
from sunshower.json_values import json_text
from sunshower.kafka.producing.record_writers import (
    Encode,
    SchemaIds,
    avro_encoder,
    is_repeated,
    json_encoder,
    missing,
    parsed_avro,
    parsed_json_schema,
    protobuf_encoder,
    record_type_of_input,
    registry_client,
)
from sunshower.record_reader import (
    json_reader,
    message_fields,
    messagepack_reader,
    read_json,
    records_reader,
)
from sunshower.records import Schema
from sunshower.secret import protected, without_secrets
from sunshower.texts import describe, did_you_mean, message_of, utf8
from sunshower.topologies.record_parts import RecordParts

if TYPE_CHECKING:
    from sunshower.arrow.record_columns import NestedRecords

Decode = Callable[[bytes], Any]

_CLIENT = Instance((Mapping,), 'the settings of its client: {"url": "http://…"}', is_secret=True)

_SCHEMA = Instance((str, Mapping, NoneType), "a schema, as a text in JSON or a dictionary")
_SUBJECT = Instance((str, NoneType), "the name of a subject", False)
# Of MessagePack: 0xd7, or 0xc7 … 0xc9 and a length of 8 or 12; then the type -1. Without it a
# timestamp has whole seconds.
_TIMESTAMP = re.compile(rb"(?:\xd7|\xc7[\x08\x0c]|\xc8\0[\x08\x0c]|\xc9\0\0\0[\x08\x0c])\xff")
_NO_SCHEMA = 40403  # the code of a registry that has no schema with the id of the message


class Format:
    """Decodes bytes. `record_type`: the type of the decoded values if they are records."""

    record_type: type[Any] | None = None

    @abstractmethod
    def decoder(self, topic: str, part: str) -> Decode | None:
        """The decoder of the `part` ("key" or "value") of a topic's messages; None: leave as is.

        A decoder may raise any exception for invalid bytes. It is not called for a message without
        that part (a tombstone).
        """

    def check_input(self, schema: Schema) -> None:
        """Check that it can write the records of a stream. Raises RecordMismatch for others, and
        ConfigError for a format that only reads."""
        name = type(self).__name__
        raise ConfigError(
            f"{name} reads messages; to write them give value=Json(), Avro(registry), "
            "JsonSchema(registry) or Protobuf(message), or a function that returns bytes"
        )

    def encoder(self, topic: str, part: str, schema: Schema) -> Encode:
        """The function that writes the records of a stream as the `part` of a topic's messages.
        Raises ConfigError, and KafkaUnreachable while a registry does not answer."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bytes(Format):
    """Bytes without decoding."""

    def decoder(self, topic: str, part: str) -> None:
        return None


def format_of(part: str, given: object) -> Format:
    """The format `given`, by default Bytes. Raises ConfigError for anything but a format."""
    if given is None:
        return Bytes()
    if isinstance(given, Format):
        return given
    shown = getattr(given, "__name__", repr(given))
    raise ConfigError(
        f"{part}={shown} is not a format; give one such as {part}=Text(), or Json(Sale) for records"
    )


@dataclass(frozen=True)
class Text(Format):
    """Text, by default in UTF-8."""

    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        check_all(self, {}, "Text: ")
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError) as error:
            raise ConfigError(f'Text: encoding: {error}; give a codec, such as "utf-8"') from None

    def decoder(self, topic: str, part: str) -> Decode:
        encoding = self.encoding
        return lambda data: data.decode(encoding)


@dataclass(frozen=True)
class Json(Format):
    """JSON. With a record type (docs/RECORDS.md lists them), objects become records by field
    name, and an array of objects several records.

    Unknown names are ignored; fields without a default must be present. Values become those of the
    fields' annotations (docs/RECORDS.md): `at: datetime` reads the text that KafkaBolt writes.
    A value that is not of its type makes the message one that cannot be read.
    """

    record_type: type[Any] | None = None

    def __post_init__(self) -> None:
        check_record_type(self)

    def decoder(self, topic: str, part: str) -> Decode:
        return read_json if self.record_type is None else json_reader(self.record_type)

    def check_input(self, schema: Schema) -> None:
        if self.record_type is not None:
            record_type_of_input("Json", self.record_type, schema)

    def encoder(self, topic: str, part: str, schema: Schema) -> Encode:
        parts = RecordParts("Json")
        parts.check(schema, [None])
        fields_of = parts.getter(None)
        return lambda record: utf8(json_text(fields_of(record)))


@dataclass(frozen=True)
class MessagePack(Format):
    """MessagePack. With a record type, maps become records as objects of JSON do, and an array of
    maps several records. A timestamp is a datetime in UTC, if it has whole microseconds."""

    record_type: type[Any] | None = None

    def __post_init__(self) -> None:
        check_record_type(self)

    def decoder(self, topic: str, part: str) -> Decode:
        if self.record_type is None:
            return decoder_of_records(_unpack, None)
        return messagepack_reader(self.record_type, decoder_of_records(_unpack, None))


def _unpack(data: bytes) -> Any:
    if (
        b"\xff" in data
        and _TIMESTAMP.search(data)
        and _has_nanoseconds(msgpack.unpackb(data, strict_map_key=False, timestamp=0))
    ):
        raise ValueError("a timestamp has nanoseconds, and a datetime has only microseconds")
    return msgpack.unpackb(data, strict_map_key=False, timestamp=3)


def _has_nanoseconds(value: Any) -> bool:
    """Whether a Timestamp of MessagePack in a value would be cut to whole microseconds."""
    if type(value) is dict:
        return any(map(_has_nanoseconds, [*value, *value.values()]))
    if type(value) in (list, tuple):
        return any(map(_has_nanoseconds, value))
    return bool(getattr(value, "nanoseconds", 0) % 1_000)


@dataclass(frozen=True)
class _Registered(Format):
    """What the formats of a schema registry have in common: its settings, and how they write."""

    registry: Mapping[str, Any] = field(default_factory=dict)
    record_type: type[Any] | None = None
    schema: str | Mapping[str, Any] | None = None
    subject: str | None = None
    register: bool = True

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_record_type(self)
        _CLIENT.check(f"{name}: registry", self.registry)
        _SCHEMA.check(f"{name}: schema", self.schema)
        _SUBJECT.check(f"{name}: subject", self.subject)
        FLAG.check(f"{name}: register", self.register)
        object.__setattr__(self, "registry", protected(self.registry))

    def check_input(self, schema: Schema) -> None:
        from sunshower.arrow.message_schemas import kind_of_records

        name = type(self).__name__
        kind = kind_of_records(record_type_of_input(name, self.record_type, schema))
        if why := self._mismatch(kind):
            raise RecordMismatch(
                f"{name}: schema: the one for subject {self.subject or '<topic>-value'!r} does not "
                f"fit the records: {why}. Correct it or the record type, or leave schema= out for "
                "that of the type"
            )

    def encoder(self, topic: str, part: str, schema: Schema) -> Encode:
        name = type(self).__name__
        ids = SchemaIds(name, self.registry, self.subject, register=self.register)
        return self._write(ids, schema.type, self.schema, topic, part)

    def _mismatch(self, kind: NestedRecords) -> str:
        """Why records do not fit `schema`; empty: they may. Raises RecordMismatch for records that
        have no schema, ConfigError for an invalid `schema`."""
        raise NotImplementedError

    _write: ClassVar[Callable[..., Encode]]


@dataclass(frozen=True)
class Avro(_Registered):
    """Avro in the framing of Confluent's schema registry: `registry` configures its client, such
    as {"url": "http://localhost:8081"}. Each message contains its schema id. A message whose schema
    the registry does not have is one that cannot be read. With any other answer, such as 401, 404
    of a proxy or a page in HTML, decoding raises KafkaUnreachable, and the task waits.

    A bolt writes records with the schema of their type, or with `schema`, a text in JSON or a
    dictionary. It is registered under `subject`, by default `<topic>-value`; with `register=False`
    it must be there already."""

    _write = staticmethod(avro_encoder)

    def _mismatch(self, kind: NestedRecords) -> str:
        from sunshower.arrow.message_schemas import avro_mismatch, avro_schema

        avro_schema(kind, {})
        if self.schema is None:
            return ""
        _, parsed, named = parsed_avro(self.schema)
        return avro_mismatch(kind, parsed, named)

    def decoder(self, topic: str, part: str) -> Decode:
        try:
            from confluent_kafka.schema_registry.avro import AvroDeserializer
            from confluent_kafka.serialization import MessageField, SerializationContext

        except ImportError as error:
            raise missing("Avro", error) from error
        url = self.registry.get("url")
        registry = _Registry(registry_client(self.registry, "Avro"))
        read = exact(AvroDeserializer)(registry)
        field = MessageField.VALUE if part == "value" else MessageField.KEY
        where = SerializationContext(topic, field)

        def decode(data: bytes) -> Any:
            try:
                return read(data, where)
            except Exception as error:
                refusal = registry.refusal(error)
                if refusal is None:
                    raise
                raise KafkaUnreachable(
                    f"the schema registry at {url} does not give a schema "
                    f"({without_secrets(message_of(refusal))})"
                ) from error

        return decoder_of_records(decode, self.record_type)


@dataclass(frozen=True)
class JsonSchema(_Registered):
    """JSON behind the id of its JSON Schema, in the framing of Confluent's schema registry. It is
    read as by `Json`, and the registry is not asked. A bolt writes it as `Avro` does. A message
    without this frame cannot be read."""

    _write = staticmethod(json_encoder)

    def decoder(self, topic: str, part: str) -> Decode:
        read = read_json if self.record_type is None else json_reader(self.record_type)

        def decode(data: bytes) -> Any:
            if len(data) <= _ID_BYTES or data[0] != 0:
                raise ValueError("it does not begin with a zero and the id of a schema")
            return read(data[_ID_BYTES:])

        return decode

    def _mismatch(self, kind: NestedRecords) -> str:
        from sunshower.arrow.message_schemas import json_mismatch, json_schema

        json_schema(kind)
        if self.schema is None:
            return ""
        parsed = parsed_json_schema(self.schema)
        try:
            return json_mismatch(kind, parsed)
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                f"JsonSchema: schema: it is not a JSON Schema ({message_of(error)}); correct it"
            ) from error


class _Registry:
    """A client of a schema registry that remembers its last error, which no message has caused."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return attribute(*arguments, **named)
            except Exception as error:
                self._error = error
                raise

        return call

    def refusal(self, error: BaseException | None) -> Exception | None:
        """The error of the registry that has led to `error`. None: there is none, or the registry
        says that the schema does not exist."""
        while error is not None and error is not self._error:
            error = error.__cause__ or error.__context__
        is_of_message = getattr(error, "error_code", None) == _NO_SCHEMA
        return None if error is None or is_of_message else self._error


def check_record_type(form: Format) -> None:
    """Raise RecordMismatch for a record type that is none."""
    if form.record_type is not None:
        try:
            record_fields(form.record_type)
        except RecordMismatch as error:
            raise RecordMismatch(f"{type(form).__name__}: record_type: {error}") from None


def decoder_of_records(read: Decode, kind: type[Any] | None) -> Decode:
    """A decoder that converts what `read` returns to records. It raises UnreadableRecord, and what
    `read` raises of this tree, such as KafkaUnreachable."""
    convert = _same if kind is None else records_reader(kind)

    def decode(data: bytes) -> Any:
        try:
            value = read(data)
        except SunshowerError:
            raise
        except Exception as error:
            raise UnreadableRecord(message_of(error) or type(error).__name__) from error
        return convert(value)

    return decode


def _same(value: Any) -> Any:
    return value


# ---- avro types ----------------------------------------------------------------------------------

# fastavro's dictionary is one for the process, so the readers have names of their own there.
_NOTHING = "sunshower-nothing"
_NOTHING_MAX = 10_000  # items of a message that have no bytes: a few bytes may say how many


def exact(deserializer: type[Any]) -> type[Any]:
    """A class of AvroDeserializer whose values are exact. It raises ValueError for a decimal with
    more digits than its precision, a duration with months, bytes that are left over, and more than
    10,000 items without bytes."""
    from confluent_kafka.schema_registry import dual_schema_id_deserializer
    from fastavro.read import LOGICAL_READERS  # which the extra `kafka` does not install

    class ExactDeserializer(deserializer):  # type: ignore[misc]
        def __init__(self, registry: Any) -> None:
            super().__init__(registry, conf={"schema.id.deserializer": self._payload_of})

        def _payload_of(self, *message: Any) -> Any:
            self._payload = dual_schema_id_deserializer(*message)
            self._first = self._payload.tell()
            return self._payload

        def __call__(self, data: bytes, context: Any = None) -> Any:
            _items.count = 0
            value = super().__call__(data, context)
            is_read = self._payload.tell() > self._first  # a rule of the schema may replace it
            if is_read and (left := len(self._payload.read())):
                raise ValueError(f"{left} bytes follow the value")
            return value

        def _get_parsed_schema(self, schema: Any) -> Any:
            parsed = super()._get_parsed_schema(schema)
            named = parsed.get(_NAMED, {}) if isinstance(parsed, dict) else {}
            return _with_own_types(parsed, named)

    if not hasattr(deserializer, "_get_parsed_schema"):
        raise ImportError("this release of confluent-kafka parses schemas elsewhere")
    for (kind, logical), read in _READERS.items():
        LOGICAL_READERS[f"{kind}-sunshower-{logical}"] = read
    for kind in ("null", "record", "error", "fixed"):
        LOGICAL_READERS[f"{kind}-{_NOTHING}"] = _count
    return ExactDeserializer


def _with_own_types(schema: Any, named: Any) -> Any:
    """A parsed schema, whose logical types are read by the functions below. `named`: its types."""
    if isinstance(schema, list):
        return [_with_own_types(part, named) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed, kind = dict(schema), schema.get("type")
    is_nothing = kind in ("record", "error", "fixed") and _is_nothing(schema, named)
    for name in set() if is_nothing else _PARTS & schema.keys():
        changed[name] = _with_own_types(schema[name], named)
    if _NAMED in schema:
        types = schema[_NAMED].items()
        changed[_NAMED] = {name: _with_own_types(kind, named) for name, kind in types}
    if kind == "array" and schema["items"] in ("null", {"type": "null"}):
        changed["items"] = {"type": "null", "logicalType": _NOTHING}
    elif is_nothing:
        changed["logicalType"] = _NOTHING
    elif isinstance(kind, str) and (kind, schema.get("logicalType")) in _READERS:
        changed["logicalType"] = f"sunshower-{schema['logicalType']}"
    return changed


_PARTS = {"type", "items", "values", "fields"}
_NAMED = "__named_schemas"


def _is_nothing(schema: Any, named: Any, around: tuple[Any, ...] = ()) -> bool:
    """Whether each value of a schema has no bytes."""
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if schema in around:  # a record that contains itself has no values
        return False
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        fields = (field["type"] for field in schema["fields"])
        return all(_is_nothing(field, named, (*around, schema)) for field in fields)
    if isinstance(kind, dict):
        return _is_nothing(kind, named, around)
    return kind == "null" or (kind == "fixed" and not schema["size"])


class _Items(threading.local):
    count = 0


_items = _Items()


def _count(value: Any, *_: Any) -> Any:
    _items.count += 1
    if _items.count > _NOTHING_MAX:
        raise ValueError(f"it has more than {_NOTHING_MAX:,} items without bytes")
    return value


def _read_decimal(data: bytes, schema: Any, *_: Any) -> Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    precision, scale = schema["precision"], schema.get("scale", 0)
    if abs(unscaled) >= 10**precision:
        raise ValueError(f"a decimal has more than its {precision} digits")
    return Decimal(unscaled).scaleb(-scale, Context(prec=max(precision, 1)))


def _read_uuid(data: bytes, *_: Any) -> UUID:
    return UUID(bytes=data)


def _read_duration(data: bytes, *_: Any) -> timedelta:
    months, days, millis = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))
    if months:
        raise ValueError(f"a duration has {months} months, which have no length")
    return timedelta(days=days, milliseconds=millis)


_READERS: dict[tuple[str, str], Any] = {
    ("bytes", "decimal"): _read_decimal,
    ("fixed", "decimal"): _read_decimal,
    ("fixed", "uuid"): _read_uuid,
    ("fixed", "duration"): _read_duration,
}


# ---- protobuf format -----------------------------------------------------------------------------

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
    by field name, as objects of JSON do; else they become dictionaries. docs/CONNECTORS.md has the
    value of each type.

    `framed`: messages begin with the id of their schema, as Confluent's schema registry defines it,
    which is not asked. `framed={7, 12}` reads messages with these ids only. Raises ConfigError for
    anything but a generated class.

    A bolt writes records as messages, by field name; with a `registry`, framed with the id of their
    schema, which `subject` and `register` give as for Avro.
    """

    message: type[Any]
    record_type: type[Any] | None = None
    framed: bool | Collection[int] = False
    registry: Mapping[str, Any] | None = None
    subject: str | None = None
    register: bool = True

    def __post_init__(self) -> None:
        is_generated = isinstance(self.message, type) and hasattr(self.message, "DESCRIPTOR")
        if not is_generated or not hasattr(self.message, "FromString"):
            shown = getattr(self.message, "__name__", repr(self.message))
            raise ConfigError(
                f"Protobuf({shown}) has no class that protoc has generated; give one, such as "
                "Protobuf(sale_pb2.Sale, Sale)"
            )
        check_record_type(self)
        _SUBJECT.check("Protobuf: subject", self.subject)
        FLAG.check("Protobuf: register", self.register)
        if self.registry is not None:
            _CLIENT.check("Protobuf: registry", self.registry)
            object.__setattr__(self, "registry", protected(self.registry))
            object.__setattr__(self, "framed", self.framed or True)
        if isinstance(self.framed, bool):
            return
        _IDS.check("Protobuf: framed", self.framed or None)
        for id in self.framed:
            _ID.check("Protobuf: an id in framed", id)
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

    def check_input(self, schema: Schema) -> None:
        record_type_of_input("Protobuf", self.record_type, schema)
        known, name = self.message.DESCRIPTOR.fields_by_name, self.message.DESCRIPTOR.full_name
        if unknown := [field for field in message_fields(schema.type) if field not in known]:
            raise RecordMismatch(
                f"Protobuf: {name} has no field {unknown[0]!r} of {schema.type.__name__}"
                f"{did_you_mean(unknown[0], known)}"
            )
        if self.framed and self.registry is None:
            raise ConfigError(
                "Protobuf: framed messages are written with the id that a registry gives: give "
                'registry={"url": "http://…"}, or leave out framed='
            )

    def encoder(self, topic: str, part: str, schema: Schema) -> Encode:
        ids = None
        if self.registry is not None:
            ids = SchemaIds("Protobuf", self.registry, self.subject, register=self.register)
        return protobuf_encoder(ids, self.message, schema.type, topic, part)


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
        return lambda message: {
            key: of_value(value_of_key) for key, value_of_key in get(message).items()
        }
    convert = None if kind is None else _converter(kind, known)
    if is_repeated(field):
        return lambda message: [*(map(convert, get(message)) if convert else get(message))]
    if not field.has_presence:
        return get
    has, convert = GetMessageClass(field.containing_type).HasField, convert or _same
    return lambda message: convert(get(message)) if has(message, name) else None


def _check_unknown(unknown: Any, fields: Mapping[int, str]) -> None:
    """Raise ValueError if one of them is a field after all: its value has another type, or is no
    member of its closed enum."""
    for sent in unknown:
        if sent.field_number in fields:
            field, value = fields[sent.field_number], describe(sent.data, _SHOWN_BYTES)
            raise ValueError(f"{field}: {value} is not a valid value of its type")


def _whole(message: Any) -> Any:
    """A Timestamp or Duration of whole microseconds. Raises ValueError for others."""
    if message.nanos % 1_000:
        raise ValueError(f"{message.nanos} nanoseconds would be cut to microseconds")
    return message


def _path(descriptor: Any) -> list[int]:
    """The indexes of a message type, and of the types around it, in its file."""
    path: list[int] = []
    while descriptor is not None:
        around = descriptor.containing_type
        types = around.nested_types if around else descriptor.file.message_types_by_name.values()
        path.insert(0, [kind.full_name for kind in types].index(descriptor.full_name))
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
    indexes = [] if count else [0]
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    if indexes != path:
        raise ValueError(f"it is message type {indexes} of its file, and {path} was expected")
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
