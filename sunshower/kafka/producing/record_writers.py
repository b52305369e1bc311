"""Writes records in the formats of a schema registry: its ids, and Avro, JSON Schema and Protobuf.

A message is a zero byte, the id of its schema in four bytes, and the record.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from io import BytesIO
from typing import Any

from sunshower.errors import ConfigError, KafkaUnreachable, RecordMismatch, Unserialisable
from sunshower.json_values import for_json, json_text, named
from sunshower.record_types import ModelClass, record_type_of
from sunshower.records import Schema as RecordSchema
from sunshower.records import record_class
from sunshower.secret import revealed, without_secrets
from sunshower.texts import describe, message_of, utf8

Encode = Callable[[Any], bytes]

_SETTINGS = {"timeout": 4, "max.retries": 1}  # so that a call ends within 10 s
_REFUSED = (409, 422)  # an incompatible schema, an invalid one
_SHOWN_BYTES = 128  # of a value in an error
_UNKNOWN = (40401, 40402, 40403)  # there is no such subject, version or schema


def registry_client(registry: Mapping[str, Any], format: str) -> Any:  # noqa: A002
    """A client of a registry. Raises ConfigError for invalid settings, or a missing package."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise missing(format, error) from error
    try:
        return SchemaRegistryClient({**_SETTINGS, **revealed(registry)})
    except Exception as error:
        raise ConfigError(
            f"{format}: registry: invalid settings of the registry at {registry.get('url')} "
            f"({without_secrets(message_of(error))})"
        ) from None


def missing(format: str, error: ImportError) -> ConfigError:  # noqa: A002
    """The error for a package that is not installed."""
    return ConfigError(
        f"{format} needs {error.name}, which is not installed: "
        "pip install 'confluent-kafka[avro,schemaregistry]'"
    )


class SchemaIds:
    """The ids that a registry gives the schemas of one format. `subject`: None: `<topic>-key` or
    `<topic>-value`. `register`: whether an unknown schema is registered."""

    def __init__(
        self,
        format: str,  # noqa: A002
        registry: Mapping[str, Any],
        subject: str | None,
        *,
        register: bool,
    ) -> None:
        self.client = registry_client(registry, format)
        self.register = register
        self._format, self._url, self._subject = format, registry.get("url"), subject

    def subject(self, topic: str, part: str) -> str:
        return self._subject or f"{topic}-{part}"

    def frame(self, topic: str, part: str, text: str, kind: str) -> bytes:
        """What a message with this schema begins with. Raises as `call`."""
        from confluent_kafka.schema_registry import Schema

        subject, schema = self.subject(topic, part), Schema(text, kind)
        if self.register:
            id = self.call(subject, lambda: self.client.register_schema(subject, schema))
        else:
            id = self.call(subject, lambda: self.client.lookup_schema(subject, schema).schema_id)
        return struct.pack(">bI", 0, id)

    def call(self, subject: str, request: Callable[[], Any]) -> Any:
        """What the registry answers. Raises ConfigError for a schema that it refuses or does not
        have, KafkaUnreachable for any other answer."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return request()
        except Exception as error:
            why, where = without_secrets(message_of(error)), f"the registry at {self._url}"
            if isinstance(error, SchemaRegistryError):
                if error.http_status_code in _REFUSED:
                    raise ConfigError(
                        f"{self._format}: {where} refuses the schema for subject {subject!r} "
                        f"({why}): change the record type as its compatibility allows, or give "
                        "another subject="
                    ) from error
                if error.error_code in _UNKNOWN and not self.register:
                    raise ConfigError(
                        f"{self._format}: {where} does not have this schema under subject "
                        f"{subject!r} ({why}): register it there, or give register=True"
                    ) from error
            raise KafkaUnreachable(
                f"{where} gives no id for subject {subject!r} ({why})"
            ) from error


def record_type_of_input(
    format: str,  # noqa: A002
    declared: type[Any] | None,
    schema: RecordSchema,
) -> type[Any]:
    """The type of the records that are written. Raises RecordMismatch."""
    if schema.type is tuple:
        raise RecordMismatch(
            f"{format} writes records with types, and these are plain tuples "
            f"({', '.join(schema.fields)}): make records of them, as in aggregate(…, fields=Total) "
            "or map(Total._make, fields=Total)"
        )
    if declared is not None and schema.type is not declared:
        raise RecordMismatch(
            f"{format} writes {declared.__name__}, and the records are {schema.type.__name__}"
        )
    return schema.type


def parsed_avro(schema: Any) -> tuple[Any, Any, dict[str, Any]]:
    """An Avro schema, a text or a dictionary: as a value of JSON, as fastavro has parsed it, and
    the types that it defines, by name. Raises ConfigError for an invalid one, or without fastavro.
    """
    try:
        from fastavro import parse_schema
    except ImportError as error:
        raise missing("Avro", error) from error
    named: dict[str, Any] = {}
    try:
        parsed = json.loads(schema) if isinstance(schema, str) else schema
        return parsed, parse_schema(parsed, named_schemas=named), named
    except Exception as error:
        raise ConfigError(
            f"Avro: schema: it is not one of Avro ({message_of(error)}); correct it, or leave it "
            "out for that of the record type"
        ) from None


def parsed_json_schema(schema: Any) -> Any:
    """A JSON Schema, a text or a dictionary, as a value of JSON. Raises ConfigError for a text that
    is none."""
    parsed = None
    try:
        parsed = json.loads(schema) if isinstance(schema, str) else schema
        why = "" if isinstance(parsed, Mapping | bool) else f"it is {parsed!r:.100}"
    except ValueError as error:
        why = message_of(error)
    if why:
        raise ConfigError(
            f"JsonSchema: schema: it is not a JSON Schema ({why}); correct it, or leave it out for "
            "that of the record type"
        )
    return parsed


def avro_encoder(
    ids: SchemaIds, record_type: type[Any], schema: Any, topic: str, part: str
) -> Encode:
    """Writes records of a type in Avro. `schema`: None: that of the type. Raises as
    `SchemaIds.frame`, and ConfigError for an invalid schema."""
    from fastavro import schemaless_writer
    from fastavro.validation import validate

    from sunshower.arrow.message_schemas import avro_schema, avro_value, kind_of_records

    kind = kind_of_records(record_type)
    schema_given, parsed, _ = parsed_avro(avro_schema(kind, {}) if schema is None else schema)
    text = json.dumps(schema_given)
    start, value_of = ids.frame(topic, part, text, "AVRO"), avro_value(kind)
    has_ints = '"int"' in text and schema is not None  # which fastavro writes with 64 bits

    def encode(record: Any) -> bytes:
        out = BytesIO()
        out.write(start)
        value = value_of(record)
        try:
            if has_ints:
                validate(value, parsed)
            schemaless_writer(out, parsed, value, strict=True)
        except Exception as error:
            errors = getattr(error, "errors", ())  # of a ValidationError
            why = ", ".join(map(str, errors)) or message_of(error)
            raise Unserialisable(
                f"Avro: a {record_type.__name__} does not fit the schema for subject "
                f"{ids.subject(topic, part)!r} ({why}): change schema=, or the record"
            ) from error
        return out.getvalue()

    return encode


def json_encoder(
    ids: SchemaIds, record_type: type[Any], schema: Any, topic: str, part: str
) -> Encode:
    """Writes records of a type as JSON, behind the id of their JSON Schema. Raises as
    `SchemaIds.frame`."""
    from sunshower.arrow.message_schemas import json_schema, kind_of_records

    if schema is None:
        draft = "http://json-schema.org/draft-07/schema#"
        schema = {"$schema": draft, **json_schema(kind_of_records(record_type))}
    text = schema if isinstance(schema, str) else json.dumps(schema)
    start = ids.frame(topic, part, text, "JSON")
    message = record_class(record_type).message

    def encode(record: Any) -> bytes:
        return start + utf8(json_text(record if type(record) is dict else message(record)))

    return encode


# ---- protobuf -----------------------------------------------------------------------------------


def protobuf_encoder(
    ids: SchemaIds | None, message: type[Any], record_type: type[Any], topic: str, part: str
) -> Encode:
    """Writes records of a type as messages of a class, framed if there are `ids`. Raises as
    `SchemaIds.call`."""
    known = record_class(record_type)
    values = known.message if known.is_custom else _content

    def build(record: Any) -> Any:
        built = message()
        _fill(built, record if type(record) is dict else values(record))
        return built

    if ids is None:
        return lambda record: build(record).SerializeToString()
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    subject = ids.subject(topic, part)
    settings = {
        "auto.register.schemas": ids.register,
        "subject.name.strategy": lambda *_: subject,
        "use.deprecated.format": False,
    }
    write = ProtobufSerializer(message, ids.client, settings)
    field = MessageField.VALUE if part == "value" else MessageField.KEY
    where = SerializationContext(topic, field)
    ids.call(subject, lambda: write(message(), where))  # it asks for the id once
    return lambda record: write(build(record), where)


def _fill(message: Any, values: Mapping[str, Any]) -> None:
    """Set the fields of a message. Raises ValueError for one that it does not have, or a value that
    its type cannot hold."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        if name not in fields:
            raise ValueError(f"{message.DESCRIPTOR.full_name} has no field {name!r}")
        if value is not None:
            try:
                _set(message, fields[name], named(value))
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{message.DESCRIPTOR.full_name}.{name}: {error}") from error


def _set(message: Any, field: Any, value: Any) -> None:
    target = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of_value = kind.fields_by_name["value"]
        for key, item in _mapping(value).items():
            if of_value.message_type is None:
                target[_plain(key)] = _plain(item)
            else:
                _set_message(target[_plain(key)], item)
    elif is_repeated(field):
        if isinstance(value, str | bytes | Mapping):
            raise TypeError(f"it takes a list, and the value is {describe(value, _SHOWN_BYTES)}")
        if kind is None:
            target.extend(map(_plain, value))
        else:
            for item in value:
                _set_message(target.add(), item)
    elif kind is None:
        setattr(message, field.name, _plain(value))
    else:
        _set_message(target, value)


def _set_message(message: Any, value: Any) -> None:
    """Set a message that is the value of a field."""
    kind = message.DESCRIPTOR.full_name
    message.SetInParent()
    if isinstance(value, datetime) and kind == "google.protobuf.Timestamp":
        if value.utcoffset() is None:
            raise ValueError(f"{value} has no zone")
        message.FromDatetime(value)
    elif isinstance(value, timedelta) and kind == "google.protobuf.Duration":
        message.FromTimedelta(value)
    elif kind in _OF_JSON:
        from google.protobuf.json_format import ParseDict, ParseError

        try:
            ParseDict(value, message)
        except (ParseError, AttributeError) as error:
            shown = describe(value, _SHOWN_BYTES)
            raise ValueError(f"it takes JSON for {kind}, and the value is {shown}") from error
    elif kind.startswith("google.protobuf.") and kind.endswith("Value"):
        message.value = _plain(value)
    else:
        _fill(message, _mapping(value, _TAKEN.get(kind, f"a record or a dict for {kind}")))


def _mapping(value: Any, taken: str = "a dict") -> Mapping[str, Any]:
    """A dict, or the fields of a record. Raises TypeError for anything else."""
    with suppress(TypeError):
        value = value if isinstance(value, Mapping) else _content(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"it takes {taken}, and the value is {describe(value, _SHOWN_BYTES)}")
    return value


def _content(record: Any) -> Any:
    """The fields of a record, with values of Python's types. Raises TypeError for anything else."""
    described = record_type_of(type(record))
    if isinstance(described, ModelClass):
        return described.message(record, "python")
    return for_json(record)


def is_repeated(field: Any) -> bool:
    """Whether a field is a list. Protobuf has the property since 6.31; 7 has no labels."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)


_TAKEN = {
    "google.protobuf.Timestamp": "a datetime",
    "google.protobuf.Duration": "a timedelta",
}
_OF_JSON = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}


def _plain(value: Any) -> Any:
    """A value of a field that is no message: of an Enum its value, of a scalar its text."""
    is_plain = isinstance(value, str | int | float | bytes) and not isinstance(value, Enum)
    return value if is_plain else for_json(value)
