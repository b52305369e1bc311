"""Formats of keys and values: bytes, text, JSON, MessagePack, Avro."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from sunshower.arguments import Instance, check_all
from sunshower.errors import (
    ConfigError,
    KafkaUnreachable,
    RecordMismatch,
    SunshowerError,
    UnreadableRecord,
)
from sunshower.field_types import record_fields
from sunshower.record_reader import json_reader, messagepack_reader, read_json, records_reader
from sunshower.secret import protected, revealed, without_secrets
from sunshower.texts import message_of

Decode = Callable[[bytes], Any]

_CLIENT = Instance((Mapping,), 'the settings of its client: {"url": "http://…"}', is_secret=True)

_REGISTRY = {"timeout": 4, "max.retries": 1}  # so that a call ends within 10 s
# Of MessagePack: 0xd7, or 0xc7 … 0xc9 and a length of 8 or 12; then the type -1. Without it a
# timestamp has whole seconds.
_TIMESTAMP = re.compile(rb"(?:\xd7|\xc7[\x08\x0c]|\xc8\0[\x08\x0c]|\xc9\0\0\0[\x08\x0c])\xff")
_RETRIED = {429, 500, 502, 503, 504}  # HTTP: the registry, or its Kafka, is unavailable


class Format:
    """Decodes bytes. `record_type`: the type of the decoded values if they are records."""

    record_type: type[Any] | None = None

    @abstractmethod
    def decoder(self, topic: str, part: str) -> Decode | None:
        """The decoder of the `part` ("key" or "value") of a topic's messages; None: leave as is.

        A decoder may raise any exception for invalid bytes. It is not called for a message without
        that part (a tombstone).
        """


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
        f"{part}={shown} is no format; give one such as {part}=Text(), or Json(Sale) for records"
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
    """JSON. With a record type (NamedTuple or dataclass), objects become records by field name, and
    an array of objects several records.

    Unknown names are ignored; fields without a default must be present. Values become those of the
    fields' annotations (docs/TOPOLOGIES.md): `at: datetime` reads the text that KafkaBolt writes.
    A value that is not of its type makes the message one that cannot be read.
    """

    record_type: type[Any] | None = None

    def __post_init__(self) -> None:
        check_record_type(self)

    def decoder(self, topic: str, part: str) -> Decode:
        return read_json if self.record_type is None else json_reader(self.record_type)


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
class Avro(Format):
    """Avro in the framing of Confluent's schema registry: `registry` configures its client, such
    as {"url": "http://localhost:8081"}. Each message contains its schema id. While the registry
    does not answer, decoding raises KafkaUnreachable, and the task waits."""

    registry: Mapping[str, Any] = field(default_factory=dict)
    record_type: type[Any] | None = None

    def __post_init__(self) -> None:
        check_record_type(self)
        _CLIENT.check("Avro: registry", self.registry)
        object.__setattr__(self, "registry", protected(self.registry))

    def decoder(self, topic: str, part: str) -> Decode:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
            from confluent_kafka.schema_registry.avro import AvroDeserializer
            from confluent_kafka.serialization import MessageField, SerializationContext

            from sunshower.kafka.avro_types import exact
        except ImportError as error:
            raise ConfigError(
                f"Avro needs {error.name}, which is not installed: "
                "pip install 'confluent-kafka[avro,schemaregistry]'"
            ) from error
        read = exact(AvroDeserializer)(
            SchemaRegistryClient({**_REGISTRY, **revealed(self.registry)})
        )
        field = MessageField.VALUE if part == "value" else MessageField.KEY
        where = SerializationContext(topic, field)
        url = self.registry.get("url")

        def decode(data: bytes) -> Any:
            try:
                return read(data, where)
            except Exception as error:
                status = error.http_status_code if isinstance(error, SchemaRegistryError) else None
                if status not in _RETRIED and not _is_of_transport(error):
                    raise
                raise KafkaUnreachable(
                    f"the schema registry at {url} does not answer ({without_secrets(str(error))})"
                ) from error

        return decoder_of_records(decode, self.record_type)


def _is_of_transport(error: Exception) -> bool:
    """Whether it is httpx's error for a server that does not answer; the client bundles httpx
    under several names."""
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)


def check_record_type(given: Format) -> None:
    """Raise RecordMismatch for a record type that is none."""
    if given.record_type is not None:
        try:
            record_fields(given.record_type)
        except RecordMismatch as error:
            raise RecordMismatch(f"{type(given).__name__}: record_type: {error}") from None


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
