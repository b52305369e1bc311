"""Arrow types of record fields, and the conversion of their values, a column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from numbers import Integral, Real
from types import NoneType
from typing import Any

import pyarrow as pa

from sunshower.errors import ResultMismatch, Unserialisable

MOMENT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Kind:
    """The type of a field or of its elements. `path` names it: `Order.lines[].price`."""

    path: str
    type: pa.DataType
    optional: bool
    takes: tuple[Any, ...]  # accepted classes of values
    refuses: tuple[Any, ...] = ()  # refused ones: Arrow would convert them without an error

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column. Raises Unserialisable for one that is not of this kind."""
        for found in set(map(type, values)):
            if found is NoneType:
                if not self.optional:
                    raise Unserialisable(
                        f"{self.path} is None: annotate it as `… | None`, or fill it"
                    )
            elif not issubclass(found, self.takes) or issubclass(found, self.refuses):
                wanted = " or ".join(one.__name__ for one in self.takes)
                raise Unserialisable(f"{self.path} is a {found.__name__}, and {wanted} is declared")
        try:
            return self.encode(values)
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
            raise Unserialisable(f"{self.path}: {error}") from error

    def values(self, array: pa.Array) -> list[Any]:
        """A column as values, None for null. Raises ResultMismatch for nulls in a non-optional
        field."""
        if array.null_count and not self.optional:
            raise ResultMismatch(
                f"{self.path} is null in {array.null_count} of {len(array)} rows: annotate it as "
                "`… | None`, or leave these rows out"
            )
        return self.decode(array)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Implements `array` for values whose classes have been checked."""
        return pa.array(values, self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        """Implements `values` for a column whose nulls have been checked."""
        values: list[Any] = array.to_pylist()
        return values


PLAIN: dict[Any, tuple[pa.DataType, tuple[Any, ...], tuple[Any, ...]]] = {
    int: (pa.int64(), (Integral,), (bool,)),
    float: (pa.float64(), (Real,), (bool,)),
    bool: (pa.bool_(), (bool,), ()),
    str: (pa.string(), (str,), ()),
    bytes: (pa.binary(), (bytes,), ()),
    date: (pa.date32(), (date,), (datetime,)),
}


@dataclass(frozen=True)
class Moments(Kind):
    """Timestamps of any time zone; they come back in UTC."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        if any(value is not None and value.utcoffset() is None for value in values):
            raise Unserialisable(
                f"{self.path} has no zone, and Spark would guess one: give it, as in "
                "moment.replace(tzinfo=UTC)"
            )
        moments = [None if value is None else value.astimezone(UTC) for value in values]
        return pa.array(moments, self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        return [None if value is None else value.astimezone(UTC) for value in array.to_pylist()]


@dataclass(frozen=True)
class Decimals(Kind):
    """Decimal numbers; one with too many digits is refused, not rounded."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        for value in values:
            if isinstance(value, Decimal) and not value.is_finite():
                raise Unserialisable(f"{self.path} is {value}, which Spark's decimals cannot be")
        return pa.array(values, self.type)


@dataclass(frozen=True, kw_only=True)
class Members(Kind):
    """Members of an Enum, stored as their values."""

    members: type[Enum]
    inner: Kind

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return self.inner.array([None if value is None else value.value for value in values])

    def decode(self, array: pa.Array) -> list[Any]:
        known: dict[Any, Any] = {None: None}
        try:
            for value in array.unique().to_pylist():
                known[value] = None if value is None else self.members(value)
        except ValueError as error:
            raise ResultMismatch(f"{self.path}: {error}") from None
        return [known[value] for value in array.to_pylist()]
