"""Avro and JSON schemas of record types, and the values that a writer of Avro takes.

The types are those of columns: see `record_columns.kind_of`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyarrow import types

from sunshower.arrow.record_columns import (
    PARQUET,
    Decimals,
    Dictionaries,
    EnumMembers,
    FieldKind,
    Lists,
    NestedRecords,
    Timestamps,
    records_of,
)
from sunshower.errors import RecordMismatch, Unserialisable
from sunshower.json_values import for_json

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # of Avro
_PLAIN: tuple[tuple[Callable[[Any], bool], str, str], ...] = (  # column, in Avro, in JSON
    (types.is_int64, "long", "integer"),
    (types.is_float64, "double", "number"),
    (types.is_boolean, "boolean", "boolean"),
    (types.is_string, "string", "string"),
    (types.is_binary, "bytes", ""),
)
_FORMATS = {datetime: "date-time", date: "date", time: "time", timedelta: "duration", UUID: "uuid"}
_LONG = 1 << 63


def kind_of_records(record_type: type[Any]) -> NestedRecords:
    """The kinds of the fields of a record type. Raises RecordMismatch for a field of a type that a
    schema cannot say."""
    return records_of(record_type, record_type.__name__, PARQUET)


# ---- avro ---------------------------------------------------------------------------------------


def avro_schema(kind: FieldKind, named: dict[type[Any], str]) -> Any:
    """The Avro schema of a kind. `named`: the names of the records that it has defined. Raises
    RecordMismatch for a name that Avro cannot have."""
    schema = _avro(kind, named)
    return ["null", schema] if kind.optional else schema


def _avro(kind: FieldKind, named: dict[type[Any], str]) -> Any:
    match kind:
        case NestedRecords():
            return _avro_record(kind, named)
        case EnumMembers():
            return _avro(kind.inner, named)
        case Lists():
            return {"type": "array", "items": avro_schema(kind.element, named)}
        case Dictionaries():
            return {"type": "map", "values": avro_schema(kind.value, named)}
        case Decimals():
            digits = {"precision": kind.type.precision, "scale": kind.type.scale}
            return {"type": "bytes", "logicalType": "decimal", **digits}
        case Timestamps():
            return {"type": "long", "logicalType": "timestamp-micros"}
    if kind.takes == (UUID,):
        return {"type": "string", "logicalType": "uuid"}
    if types.is_time64(kind.type):
        return {"type": "long", "logicalType": "time-micros"}
    if types.is_date32(kind.type):
        return {"type": "int", "logicalType": "date"}
    if types.is_duration(kind.type):
        return "string"
    return next(avro for fits, avro, _ in _PLAIN if fits(kind.type))


def _avro_record(kind: NestedRecords, named: dict[type[Any], str]) -> Any:
    record_type = kind.schema.type
    if record_type in named:
        return named[record_type]
    name, names = record_type.__name__, [field.name for field in kind.type]
    number = sum(known.partition("_")[0] == name for known in named.values())
    for text in (name, *names):
        if not _NAME.fullmatch(text):
            raise RecordMismatch(
                f"{kind.path}: {text!r} cannot be a name in Avro; use letters, digits and _"
            )
    named[record_type] = f"{name}_{number + 1}" if number else name
    fields = [
        {"name": field, "type": avro_schema(inner, named)}
        for field, inner in zip(names, kind.fields, strict=True)
    ]
    return {"type": "record", "name": named[record_type], "fields": fields}


def avro_value(kind: FieldKind) -> Callable[[Any], Any]:
    """A function that makes of a value what fastavro writes for it. It raises Unserialisable, which
    names the field, for a value of another type."""
    convert = _avro_value(kind)

    def value_of(value: Any) -> Any:
        kind.check_class(type(value))
        return None if value is None else convert(value)

    return value_of


def _avro_value(kind: FieldKind) -> Callable[[Any], Any]:
    match kind:
        case NestedRecords():
            parts = [
                (field.name, avro_value(inner))
                for field, inner in zip(kind.type, kind.fields, strict=True)
            ]
            return lambda record: {
                name: of(value)
                for (name, of), value in zip(parts, kind.values_of(record), strict=True)
            }
        case EnumMembers():
            inner = avro_value(kind.inner)
            return lambda member: inner(member.value)
        case Lists():
            element = avro_value(kind.element)
            return lambda items: [element(item) for item in items]
        case Dictionaries():
            of_key, of_value = avro_value(kind.key), avro_value(kind.value)
            return lambda entries: {
                str(of_key(key)): of_value(value) for key, value in entries.items()
            }
        case Timestamps() | Decimals():
            return _checked(kind)
    if types.is_duration(kind.type):
        return for_json
    return _checked(kind) if types.is_time64(kind.type) or types.is_int64(kind.type) else _same


def _checked(kind: FieldKind) -> Callable[[Any], Any]:
    """Values as they are, if a column can have them: a datetime has a zone, a decimal fits into its
    digits, an int has 64 bits."""

    def check(value: Any) -> Any:
        kind.encode([value]) if not isinstance(value, int) else _check_int(kind, value)
        return value

    return check


def _check_int(kind: FieldKind, value: int) -> None:
    if not -_LONG <= value < _LONG:
        raise Unserialisable(f"{kind.path} is {value}, and an int of Avro has 64 bits")


def _same(value: Any) -> Any:
    return value


# ---- json ---------------------------------------------------------------------------------------


def json_schema(kind: FieldKind) -> Any:
    """The JSON Schema of what `json_text` writes of a kind. Raises RecordMismatch for bytes."""
    schema = _json(kind)
    return {"oneOf": [{"type": "null"}, schema]} if kind.optional else schema


def _json(kind: FieldKind) -> Any:
    match kind:
        case NestedRecords():
            properties = {
                field.name: json_schema(inner)
                for field, inner in zip(kind.type, kind.fields, strict=True)
            }
            return {
                "title": kind.schema.type.__name__,
                "type": "object",
                "properties": properties,
                "required": [*properties],
            }
        case EnumMembers():
            return {"enum": [member.value for member in kind.members]}
        case Lists():
            return {"type": "array", "items": json_schema(kind.element)}
        case Dictionaries():
            return {"type": "object", "additionalProperties": json_schema(kind.value)}
    if kind.takes == (Decimal,):
        return {"type": "string"}
    if kind.takes[0] in _FORMATS:
        return {"type": "string", "format": _FORMATS[kind.takes[0]]}
    name = next(name for fits, _, name in _PLAIN if fits(kind.type))
    if not name:
        raise RecordMismatch(f"{kind.path} is bytes, which JSON cannot have: make it a text")
    return {"type": name}
