"""Avro and JSON schemas of record types, what a writer of Avro takes, and what other schemas fit.

The types are those of columns: see `record_columns.kind_of`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from math import isfinite
from numbers import Real
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
_ALL_DIGITS = Context(prec=100)


def kind_of_records(record_type: type[Any]) -> NestedRecords:
    """The kinds of the fields of a record type. Raises RecordMismatch for a field of a type that a
    schema cannot say."""
    return records_of(record_type, record_type.__name__, PARQUET)


# ---- avro ---------------------------------------------------------------------------------------


Named = dict[tuple[type[Any], str], str]  # record type, arguments of its alias → its name


def avro_schema(kind: FieldKind, named: Named) -> Any:
    """The Avro schema of a kind. `named`: the names of the records that it has defined. Raises
    RecordMismatch for a name that Avro cannot have."""
    schema = _avro(kind, named)
    return ["null", schema] if kind.optional else schema


def _avro(kind: FieldKind, named: Named) -> Any:
    match kind:
        case NestedRecords():
            return _avro_record(kind, named)
        case EnumMembers():
            return _avro(kind.inner, named)
        case Lists():
            return {"type": "array", "items": avro_schema(kind.element, named)}
        case Dictionaries():
            if types.is_binary(kind.key.type):
                raise RecordMismatch(
                    f"{kind.key.path} are bytes, and keys of Avro's maps are texts: make it a list "
                    "of records"
                )
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


def _avro_record(kind: NestedRecords, named: Named) -> Any:
    key = kind.schema.type, repr(kind.arguments)
    if key in named:
        return named[key]
    name, names = kind.schema.type.__name__, [field.name for field in kind.type]
    number = sum(known.partition("_")[0] == name for known in named.values())
    for text in (name, *names):
        if not _NAME.fullmatch(text):
            raise RecordMismatch(
                f"{kind.path}: {text!r} cannot be a name in Avro; use letters, digits and _"
            )
    named[key] = f"{name}_{number + 1}" if number else name
    fields = [
        {"name": field, "type": avro_schema(inner, named)}
        for field, inner in zip(names, kind.fields, strict=True)
    ]
    return {"type": "record", "name": named[key], "fields": fields}


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
            of_value = avro_value(kind.value)
            of_key = _checked(kind.key) if isinstance(kind.key, Decimals) else avro_value(kind.key)
            return lambda entries: {
                _text_of_key(of_key(key)): of_value(value) for key, value in entries.items()
            }
        case Timestamps():
            return _checked(kind)
        case Decimals():
            check = _checked(kind)  # fastavro refuses zeros behind the last digit
            return lambda value: _ALL_DIGITS.normalize(check(value))
    if types.is_duration(kind.type):
        return for_json
    return _checked(kind) if types.is_time64(kind.type) or types.is_int64(kind.type) else _same


def _text_of_key(key: Any) -> str:
    if isinstance(key, float) and not isfinite(key):
        raise Unserialisable(f"a key is {key}, which is no number when it is read: leave it out")
    return str(key).lower() if isinstance(key, bool) else str(key)


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


_AVRO_TYPES = {  # of a plain value: what it can be written as
    "long": ("long", "int", "float", "double"),
    "double": ("double", "float"),
    "string": ("string", "enum"),
    "bytes": ("bytes", "fixed"),
}


def avro_mismatch(kind: FieldKind, schema: Any, named: dict[str, Any]) -> str:
    """Why values of a kind cannot be written with a parsed schema; empty: its names and types fit.
    `named`: the types that it has defined."""
    branches = schema if isinstance(schema, list) else [schema]
    branches = [
        named.get(branch, {"type": branch}) if isinstance(branch, str) else branch
        for branch in branches
    ]
    if kind.optional and all(branch["type"] != "null" for branch in branches):
        return f"{kind.path} may be None, and the schema has no null there"
    whys = [_avro_mismatch(kind, branch, named) for branch in branches]
    return "" if "" in whys else whys[-1] if whys else f"{kind.path} has an empty union"


def _avro_mismatch(kind: FieldKind, schema: dict[str, Any], named: dict[str, Any]) -> str:
    schema_type = schema["type"]
    if not isinstance(schema_type, str):
        return avro_mismatch(kind, schema_type, named)
    match kind:
        case EnumMembers():
            values = [member.value for member in kind.members]
            return _avro_mismatch(kind.inner, schema, named) or next(
                (
                    f"{kind.path} may be {value!r}, and the enum in the schema may not"
                    for value in (values if schema_type == "enum" else [])
                    if value not in schema["symbols"]
                ),
                "",
            )
        case NestedRecords() if schema_type in ("record", "error"):
            types_of = {field["name"]: field["type"] for field in schema["fields"]}
            names = [field.name for field in kind.type]
            if lacking := [name for name in types_of if name not in names]:
                return f"{kind.path} has no field {lacking[0]!r}, which the schema has"
            if lacking := [name for name in names if name not in types_of]:
                return f"the schema has no field {lacking[0]!r} of {kind.path}"
            fields = zip(names, kind.fields, strict=True)
            whys = (avro_mismatch(inner, types_of[name], named) for name, inner in fields)
            return next(filter(None, whys), "")
        case Lists() if schema_type == "array":
            return avro_mismatch(kind.element, schema["items"], named)
        case Dictionaries() if schema_type == "map":
            return avro_mismatch(kind.value, schema["values"], named)
    own_schema = _avro(kind, {})
    own_schema = own_schema if isinstance(own_schema, dict) else {"type": own_schema}
    logical, given_logical = (
        part.get("logicalType", "").removeprefix("local-").partition("-")[0]
        for part in (own_schema, schema)
    )
    fits = schema_type in _AVRO_TYPES.get(own_schema["type"], (own_schema["type"],))
    if logical == given_logical if logical else fits:
        return ""
    return (
        f"{kind.path} is written as {logical or own_schema['type']}, and the schema has "
        f"{given_logical or schema_type}"
    )


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
            if not issubclass(kind.key.takes[0], str | Real):
                raise RecordMismatch(
                    f"{kind.key.path}: keys of JSON are texts or numbers: use these, or a list of "
                    "records"
                )
            return {"type": "object", "additionalProperties": json_schema(kind.value)}
    if kind.takes == (Decimal,):
        return {"type": "string"}
    if kind.takes[0] in _FORMATS:
        return {"type": "string", "format": _FORMATS[kind.takes[0]]}
    name = next(name for fits, _, name in _PLAIN if fits(kind.type))
    if not name:
        raise RecordMismatch(f"{kind.path} is bytes, which JSON cannot have: make it a text")
    return {"type": name}


def json_mismatch(kind: FieldKind, schema: Any) -> str:
    """Why values of a kind are not valid under a JSON Schema; empty: the names and types that it
    states itself, without `$ref` and `allOf`, fit."""
    branches = [schema]
    if isinstance(schema, dict):
        branches = schema.get("oneOf") or schema.get("anyOf") or branches
    if kind.optional and not any(map(_takes_null, branches)):
        return f"{kind.path} may be None, and the schema has no null there"
    whys = [_json_mismatch(kind, branch) for branch in branches]
    return "" if "" in whys else whys[-1]


def _takes_null(schema: Any) -> bool:
    types_of = _json_types(schema)
    return not types_of or "null" in types_of


def _json_types(schema: Any) -> Any:
    """The types that a schema states; empty: none."""
    stated = schema.get("type", ()) if isinstance(schema, dict) else ()
    return [stated] if isinstance(stated, str) else stated


def _json_mismatch(kind: FieldKind, schema: Any) -> str:
    if not isinstance(schema, dict) or "$ref" in schema or "allOf" in schema:
        return ""
    if isinstance(kind, EnumMembers):
        values = [member.value for member in kind.members]
        if missing := [value for value in values if value not in schema.get("enum", values)]:
            return f"{kind.path} may be {missing[0]!r}, and the enum in the schema may not"
        return _json_mismatch(kind.inner, schema)
    own_type, stated = _json(kind)["type"], _json_types(schema)
    if stated and own_type not in stated and not (own_type == "integer" and "number" in stated):
        return f"{kind.path} is written as {own_type}, and the schema has {' or '.join(stated)}"
    match kind:
        case NestedRecords():
            return _json_record_mismatch(kind, schema)
        case Lists():
            return json_mismatch(kind.element, schema.get("items", True))
        case Dictionaries():
            return json_mismatch(kind.value, schema.get("additionalProperties", True))
    return ""


def _json_record_mismatch(kind: NestedRecords, schema: dict[str, Any]) -> str:
    names, properties = [field.name for field in kind.type], schema.get("properties", {})
    if lacking := [name for name in schema.get("required", ()) if name not in names]:
        return f"{kind.path} has no field {lacking[0]!r}, which the schema requires"
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if is_closed and (more := [name for name in names if name not in properties]):
        return f"the schema has no field {more[0]!r} of {kind.path}"
    fields = zip(names, kind.fields, strict=True)
    whys = (json_mismatch(inner, properties.get(name, True)) for name, inner in fields)
    return next(filter(None, whys), "")
