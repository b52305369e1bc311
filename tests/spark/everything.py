"""A record with every type that Sunshower can exchange with Spark, a strategy, and a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

from hypothesis import strategies as st

from sunshower.arrow.record_columns import RecordColumns


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Inner:
    number: int
    names: list[str] | None


class Everything(NamedTuple):
    number: int
    share: float
    flag: bool
    text: str
    raw: bytes
    price: Decimal
    day: date
    at: datetime
    colour: Colour
    maybe_number: int | None
    maybe_share: float | None
    maybe_text: str | None
    maybe_at: datetime | None
    maybe_colour: Colour | None
    numbers: list[int | None]
    shares: tuple[float, ...]
    lists: list[list[str]] | None
    table: dict[str, float | None]
    inner: Inner
    maybe_inner: Inner | None
    inners: list[Inner]
    by_colour: dict[Colour, Inner | None]


EVERYTHING = RecordColumns.of(Everything)

_INTS = st.integers(-(2**63), 2**63 - 1)
_INNER = st.builds(Inner, _INTS, st.none() | st.lists(st.text(max_size=3), max_size=2))
_MOMENTS = st.datetimes(timezones=st.just(UTC))
_COLOURS = st.sampled_from(Colour)


def everything() -> st.SearchStrategy[Everything]:
    return st.builds(
        Everything,
        number=_INTS,
        share=st.floats(),
        flag=st.booleans(),
        text=st.text(max_size=5),
        raw=st.binary(max_size=5),
        price=st.decimals(
            allow_nan=False, allow_infinity=False, places=18, min_value=-(10**9), max_value=10**9
        ),
        day=st.dates(),
        at=_MOMENTS,
        colour=_COLOURS,
        maybe_number=st.none() | _INTS,
        maybe_share=st.none() | st.floats(),
        maybe_text=st.none() | st.text(max_size=3),
        maybe_at=st.none() | _MOMENTS,
        maybe_colour=st.none() | _COLOURS,
        numbers=st.lists(st.none() | _INTS, max_size=3),
        shares=st.lists(st.floats(), max_size=3).map(tuple),
        lists=st.none() | st.lists(st.lists(st.text(max_size=2), max_size=2), max_size=2),
        table=st.dictionaries(st.text(max_size=2), st.none() | st.floats(), max_size=2),
        inner=_INNER,
        maybe_inner=st.none() | _INNER,
        inners=st.lists(_INNER, max_size=2),
        by_colour=st.dictionaries(_COLOURS, st.none() | _INNER, max_size=2),
    )


def same(a: Any, b: Any) -> bool:
    """Whether both are equal and of the same type; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)
