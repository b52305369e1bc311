"""Strategies for values of all types that a field may have, and an exact comparison of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from sunshower.records import Schema


class Color(Enum):
    RED = "red"
    GREEN = ("not", "a", "name")


class Level(IntEnum):
    LOW = 1
    HIGH = 1 << 70


class Unit(StrEnum):
    METRE = "m"


class Access(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: Any
    color: Color | None = None


@dataclass(frozen=True)
class Line:
    ends: tuple[Point, ...]
    access: Access = Access.READ


class Field(NamedTuple):
    """A record of one field, which may have any type."""

    value: Any | Color | Level | Unit | Line


SCHEMA = Schema.of(Field)

# Also those that a clock shows twice or never, and offsets with seconds.
zones = st.timezones() | st.integers(-86_399, 86_399).map(lambda s: timezone(timedelta(seconds=s)))
folds = st.sampled_from([0, 1])
datetimes = st.builds(
    lambda at, fold: at.replace(fold=fold), st.datetimes(timezones=st.none() | zones), folds
)
times = st.builds(
    lambda at, fold: at.replace(fold=fold), st.times(timezones=st.none() | zones), folds
)
dated = st.dates() | datetimes | times | st.timedeltas() | st.uuids()
plain = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9)
)
simple = plain | st.binary(max_size=9) | dated | st.decimals(allow_nan=True)
enums = st.sampled_from([*Color, *Level, *Unit, *Access, Access.READ | Access.WRITE, Access(0)])
keys = simple.filter(lambda key: "sNaN" not in repr(key))  # which Python cannot hash


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What Python can hash, with these leaves."""
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3).map(tuple)
            | st.frozensets(inner, max_size=3)
            | st.builds(Point, inner, st.none())
        ),
        max_leaves=5,
    )


points = st.builds(Point, nested(keys | enums), st.none() | st.sampled_from(Color))
lines = st.builds(Line, st.lists(points, max_size=2).map(tuple), st.just(Access.WRITE))
hashables = nested(keys | enums) | points | lines
values = st.recursive(
    hashables | simple,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.sets(hashables, max_size=3)
        | st.dictionaries(hashables, inner, max_size=3)
        | st.dictionaries(hashables, st.integers(0, 9), max_size=3).map(Counter)
        | st.builds(Point, inner, st.just(Color.RED))
        | st.builds(Line, st.tuples(st.builds(Point, inner, st.none())))
    ),
    max_leaves=8,
)


def exactly(value: Any) -> Any:
    """Return a key that is equal only for values of the same type, with the same zone, fold, digits
    and parts, also if they are NaN."""
    kind = type(value)
    if isinstance(value, Enum):
        return kind, value.name
    if isinstance(value, dict):
        return kind, [(exactly(name), exactly(item)) for name, item in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(exactly(item)) for item in value)
    if isinstance(value, tuple | list):
        return kind, [exactly(item) for item in value]
    if isinstance(value, Line):
        return kind, exactly(value.ends), value.access
    if isinstance(value, datetime | time):
        return kind, value.isoformat(), str(value.tzinfo), value.fold
    if isinstance(value, date | timedelta | UUID | Decimal | float):
        return kind, repr(value)
    return kind, value
