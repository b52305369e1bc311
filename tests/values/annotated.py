"""Annotations that a field may have, with strategies for their values, and comparisons of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from math import isnan
from types import new_class
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    TypedDict,
    TypeVar,
    get_origin,
)
from uuid import UUID

import attrs
import msgspec
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from sunshower.connectors import Digits
from tests.runtime.field_values import datetimes, times
from tests.values.kinds import names_of

Kind = tuple[Any, st.SearchStrategy[Any]]  # an annotation, and values of it


class Shade(Enum):
    RED = "rot"
    BLUE = "blau"


class Rank(IntEnum):
    LOW = 1
    HIGH = 1 << 62


class Huge(IntEnum):
    SMALL = 1
    LARGE = 1 << 70


class Size(StrEnum):
    S = "s"


class Right(IntFlag):
    READ = 1
    WRITE = 2


class Mixed(Enum):
    ONE = 1
    TWO = "two"


T = TypeVar("T")


@dataclass
class Boxed(Generic[T]):
    value: T
    number: int


class BoxedTuple(NamedTuple, Generic[T]):
    value: T
    number: int


class BoxedStruct(msgspec.Struct, Generic[T]):
    value: T
    number: int


Cents = NewType("Cents", int)
texts = st.text(st.characters(), max_size=4)  # with lone surrogates
decimals = st.decimals(allow_nan=True, allow_infinity=True) | st.decimals(-9, 9, places=2)
SCALARS: tuple[Kind, ...] = (
    (int, st.integers()),
    (int, st.integers(-9, 9)),
    (float, st.floats() | st.integers(-9, 9)),
    (bool, st.booleans()),
    (str, texts),
    (bytes, st.binary(max_size=4)),
    (Decimal, decimals),
    (Annotated[Decimal, Digits(5, 2)], decimals),
    (Annotated[Decimal, Digits(60, 10)], decimals),
    (date, st.dates()),
    (datetime, st.datetimes(timezones=st.just(UTC)) | datetimes),
    (time, st.times() | times),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Shade, st.sampled_from(Shade)),
    (Rank, st.sampled_from(Rank)),
    (Huge, st.sampled_from(Huge)),
    (Size, st.sampled_from(Size)),
    (Right, st.sampled_from([Right.READ, Right.READ | Right.WRITE, Right(0)])),
    (Mixed, st.sampled_from(Mixed)),
    (Cents, st.integers(-9, 9)),
    (Literal["a", "b"], st.sampled_from("ab")),
    (set[int], st.sets(st.integers(-9, 9), max_size=2)),
    (tuple[int, str], st.tuples(st.integers(-9, 9), texts)),
    (int | str, st.integers(-9, 9) | texts),
    (Any, st.integers(-9, 9) | texts),
)
_KEYS = [(float, st.floats()), *(kind for kind in SCALARS if kind[0] not in (set[int], Any, float))]


INNER: list[Callable[[Any], Any]] = [  # of a record with the fields `value` and `number`
    lambda annotation: NamedTuple("Inner", [("value", annotation), ("number", int)]),
    lambda annotation: make_dataclass("Inner", [("value", annotation), ("number", int)]),
    lambda annotation: new_class("Inner", (Boxed[annotation],)),
    *(lambda annotation, generic=generic: generic[annotation] for generic in (Boxed, BoxedTuple)),
    lambda annotation: BoxedStruct[annotation],
]


def _record(kind: Kind, make: Callable[[Any], Any]) -> Kind:
    annotation, values = kind
    record = make(annotation)
    return record, st.builds(get_origin(record) or record, values, st.integers(-9, 9))


def _alias(kind: Kind) -> Kind:
    return TypeAliasType("Alias", kind[0]), kind[1]  # type: ignore[misc]


def _list(kind: Kind) -> Kind:
    return list[kind[0]], st.lists(kind[1], max_size=3)  # type: ignore[valid-type]


def _tuple(kind: Kind) -> Kind:
    return tuple[kind[0], ...], st.lists(kind[1], max_size=2).map(tuple)  # type: ignore[valid-type]


def _optional(kind: Kind) -> Kind:
    return kind[0] | None, st.none() | kind[1]


def _dict(key: Kind, kind: Kind) -> Kind:
    keys = key[1].filter(lambda value: "sNaN" not in repr(value))
    annotation: Any = dict
    return annotation[key[0], kind[0]], st.dictionaries(keys, kind[1], max_size=3)


def _larger(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    parts: list[Callable[[Kind], Kind]] = [_list, _tuple, _optional, _alias]
    return (
        st.builds(lambda make, kind: make(kind), st.sampled_from(parts), inner)
        | st.builds(_dict, st.sampled_from(_KEYS), inner)
        | st.builds(_record, inner, st.sampled_from(INNER))
    )


kinds = st.recursive(st.sampled_from(SCALARS), _larger, max_leaves=3)
kinds |= _larger(st.sampled_from(SCALARS))


@st.composite
def records(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """A record type of one field, and some records of it."""
    annotation, values = draw(kinds)
    kind: Any = draw(st.sampled_from(MAKERS))(annotation)
    rows = values.map(lambda value: kind(value=value))
    return kind, draw(st.lists(rows, min_size=1, max_size=4))


MAKERS: list[Callable[[Any], Any]] = [  # of a class Row with the field `value`
    lambda annotation: NamedTuple("Row", [("value", annotation)]),
    lambda annotation: make_dataclass("Row", [("value", annotation)]),
    lambda annotation: attrs.make_class("Row", {"value": attrs.field(type=annotation)}),
    lambda annotation: msgspec.defstruct("Row", [("value", annotation)]),
    lambda annotation: TypedDict("Row", {"value": annotation}),  # type: ignore[operator]
]


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a record that is no tuple and no dictionary; None: it is another value."""
    names = names_of(type(value))
    return None if names is None else {name: getattr(value, name) for name in names}


def plain(value: Any) -> Any:
    """What another program reads: Enums are their values, records are dictionaries, tuples lists;
    times are moments, and equal numbers are one."""
    if isinstance(value, Enum):
        return plain(value.value)
    if (fields := fields_of(value)) is not None:
        return plain(fields)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {plain(key): plain(part) for key, part in value.items()}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, float) and isnan(value):
        return "NaN"
    return value


def is_same(actual: Any, value: Any) -> bool:
    """Whether a value is equal and of the same type, at every depth; an int may be a float."""
    if isinstance(value, float) or (type(actual) is float and type(value) is int):
        return type(actual) is float and (actual == value or (isnan(actual) and isnan(value)))
    if type(actual) is not type(value):
        return False
    if (fields := fields_of(value)) is not None:
        return is_same(fields_of(actual), fields)
    if isinstance(value, list | tuple):
        return len(actual) == len(value) and all(map(is_same, actual, value))
    if isinstance(value, dict):
        pairs = zip(actual.items(), value.items(), strict=False)
        return len(actual) == len(value) and all(is_same([*a], [*b]) for a, b in pairs)
    if isinstance(value, datetime) and value.tzinfo:
        return bool(plain(actual) == plain(value))
    if isinstance(value, Decimal) and not value.is_finite():
        return repr(actual) == repr(value)
    return bool(actual == value)


def may_misfit(value: Any) -> bool:
    """Whether a column may have no place for a value, or for one within it."""
    if isinstance(value, Enum):
        return may_misfit(value.value)
    if (fields := fields_of(value)) is not None:
        return may_misfit(fields)
    if isinstance(value, list | tuple):
        return any(map(may_misfit, value))
    if isinstance(value, dict):
        return any(map(may_misfit, (*value, *value.values())))
    match value:
        case bool() | None:
            return False
        case int():
            return not -(2**63) <= value < 2**63
        case str():
            return any("\ud800" <= character <= "\udfff" for character in value)
        case Decimal():
            return not value.is_finite() or abs(value) > 9 or value != round(value, 2)
        case datetime():
            return value.tzinfo is None or not _in_utc(value)
        case time():
            return value.tzinfo is not None
        case timedelta():
            return abs(value // timedelta(microseconds=1)) >= 2**63
    return False


def _in_utc(value: datetime) -> bool:
    try:
        value.astimezone(UTC)
    except OverflowError:
        return False
    return True
