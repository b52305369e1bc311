"""Maps the annotations of record fields to the kinds of values that Spark can represent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from sunshower.errors import RecordMismatch
from sunshower.records import Schema
from sunshower.spark_integration.tables.field_kinds import (
    PLAIN,
    TIMESTAMP,
    Decimals,
    Dictionaries,
    EnumMembers,
    FieldKind,
    Lists,
    NestedRecords,
    Timestamps,
)

_ALL = (
    "int, float, bool, str, bytes, Decimal, date, datetime, an Enum of one of these, list[T], "
    "tuple[T, ...], dict[K, V], a NamedTuple or dataclass of these, or `… | None`"
)


@dataclass(frozen=True)
class Digits:
    """Precision and scale of a decimal, as in `price: Annotated[Decimal, Digits(12, 2)]`. Without
    it they are 38 and 18."""

    precision: int
    scale: int


def kind_of(annotation: Any, path: str, within: tuple[Any, ...] = ()) -> FieldKind:
    """The kind of an annotation. Raises RecordMismatch, naming `path`, if Spark has none."""
    digits = Digits(38, 18)
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        digits = next((note for note in notes if isinstance(note, Digits)), digits)
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    if NoneType in options and len(options) == 2:
        (inner,) = (option for option in options if option is not NoneType)
        return replace(kind_of(inner, path, within), optional=True)
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation in PLAIN:
        return FieldKind(path, PLAIN[annotation][0], False, *PLAIN[annotation][1:])
    if annotation is datetime:
        return Timestamps(path, TIMESTAMP, False, (datetime,))
    if annotation is Decimal:
        return _decimals(path, digits)
    if origin is list or (origin is tuple and len(args) == 2 and args[1] is ...):
        element = kind_of(args[0], f"{path}[]", within)
        return Lists(
            path, pa.list_(pa.field("element", element.type)), False, (origin,), element=element
        )
    if origin is dict:
        return _dictionaries(path, args, within)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _members(path, annotation)
    if is_dataclass(annotation) or hasattr(annotation, "_fields"):
        return records_of(annotation, path, within)
    raise RecordMismatch(
        f"{path} is {_readable(annotation)}, which has no place in Spark; it may be {_ALL}"
    )


def records_of(record_type: Any, path: str, within: tuple[Any, ...] = ()) -> NestedRecords:
    """The kind of a record type, with a kind for each of its fields. Raises RecordMismatch."""
    try:
        schema = Schema.of(record_type)
    except RecordMismatch as error:
        raise RecordMismatch(f"{path}: {error}") from None
    if record_type in within:
        raise RecordMismatch(f"{path} holds itself, and Spark has no endless types; keep an id")
    if not schema.fields:
        raise RecordMismatch(f"{path} has no fields, and Spark cannot count rows of none; give one")
    folded = [name.casefold() for name in schema.fields]
    if twice := [name for name in schema.fields if folded.count(name.casefold()) > 1]:
        raise RecordMismatch(f"{path}: to Spark {' and '.join(twice)} are one name; rename one")
    hints = get_type_hints(record_type, include_extras=True)
    inner = (*within, record_type)
    fields = tuple(kind_of(hints.get(one), f"{path}.{one}", inner) for one in schema.fields)
    # Nullable for Arrow: a non-null field is null where its record is. `FieldKind` checks it.
    type = pa.struct([(name, kind.type) for name, kind in zip(schema.fields, fields, strict=True)])
    return NestedRecords(path, type, False, (record_type, list), schema=schema, fields=fields)


def _readable(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(_readable, get_args(annotation)))
    return str(annotation if get_args(annotation) else getattr(annotation, "__name__", annotation))


def _decimals(path: str, digits: Digits) -> FieldKind:
    if not 0 <= digits.scale <= digits.precision <= 38:
        raise RecordMismatch(
            f"{path} has {digits}; Spark has up to 38 digits, and the scale is a part of them"
        )
    return Decimals(path, pa.decimal128(digits.precision, digits.scale), False, (Decimal,))


def _dictionaries(path: str, args: Sequence[Any], within: Any) -> FieldKind:
    key = kind_of(args[0], f"{path}.keys()", within)
    value = kind_of(args[1], f"{path}.values()", within)
    if key.optional or isinstance(key, Dictionaries | NestedRecords | Lists):
        raise RecordMismatch(
            f"{path}: keys of Spark's maps are never null, and here are plain values; "
            "make it a list of records"
        )
    type = pa.map_(key.type, value.type)
    return Dictionaries(path, type, False, (dict,), key=key, value=value)


def _members(path: str, members: type[Enum]) -> FieldKind:
    kinds = {type(member.value) for member in members}
    if len(kinds) != 1 or not kinds <= PLAIN.keys():
        raise RecordMismatch(
            f"{path} is the Enum {members.__name__}, whose values are not all of one plain type; "
            "give it values that are all strings, or all whole numbers"
        )
    plain = kind_of(kinds.pop(), path)
    inner = FieldKind(path, plain.type, True, plain.takes, plain.refuses)
    return EnumMembers(path, plain.type, False, (members,), members=members, inner=inner)
