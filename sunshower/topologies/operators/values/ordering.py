"""The order of the values of a field, in which equal values of several types have places too.

`place_of` orders values: numbers of all types by their value, datetimes with a zone by their
moment. `tie_of` orders equal values: of 1, 1.0, Decimal(1) and True the int comes first, then
float, Decimal, bool; of one type the one whose text comes first. So what is chosen from some
values depends neither on the order in which they arrive nor on the tasks in which they are
compared.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from heapq import nlargest, nsmallest
from typing import Any

from sunshower.errors import BadEmit
from sunshower.records import DictKey, key_of

Place = tuple[Any, ...]  # what is compared, and the value among what is compared with it

_UNORDERED = "values without an order"
_KINDS: tuple[tuple[Any, str], ...] = (
    ((int, float, Decimal), "numbers"),
    (str, "texts"),
    (bytes, "bytes"),
    (date, "dates"),
    (timedelta, "durations"),
)
_CONVERTED = ("numpy", "pandas")
_NUMBERS = (int, float, Decimal, bool)
_PLAIN = (
    *(object, int, float, Decimal, str, bytes, bytearray, memoryview, tuple, list, dict, set),
    *(frozenset, date, datetime, time, timedelta),
)
_LESS = operator.attrgetter("__lt__")
_KNOWN = frozenset(map(_LESS, _PLAIN))  # the comparisons that `place_of` makes


def is_nan(value: Any) -> bool:
    """Whether a number is NaN, also a signalling one, which cannot be compared."""
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float) and math.isnan(value)


def place_of(value: Any) -> Place:
    """What a value is compared by; equal values have equal places. Within a list or record NaN is
    the greatest number, and values of different kinds have an order, too."""
    if not isinstance(value, int | float | str) and _has_its_order(type(value)):
        return (f"values of {type(value).__qualname__}", value)
    if isinstance(value, Enum) and not isinstance(value, int | float | str):
        return (_UNORDERED, type(value).__qualname__, value.name)
    key = key_of(value)
    for kinds, name in _KINDS:
        if isinstance(key, kinds):
            return _place_of_scalar(name, key)
    if isinstance(key, time):
        return ("times" if key.tzinfo is None else "times with a zone", key)
    if isinstance(key, tuple):
        return ("lists", tuple(map(place_of, key)))
    if isinstance(key, DictKey):
        return (_UNORDERED, "dict", sorted(map(place_of, key.items())))
    if isinstance(key, frozenset):
        return (_UNORDERED, "set", sorted(map(place_of, key)))
    return (_UNORDERED, type(key).__qualname__, "" if key is None else repr(key))


def _has_its_order(kind: type[Any]) -> bool:
    """Whether a class defines an order; not one of NumPy and pandas, which is that of Python."""
    return _LESS(kind) not in _KNOWN and kind.__module__.partition(".")[0] not in _CONVERTED


def _place_of_scalar(name: str, key: Any) -> Place:
    if name == "numbers":
        return (name, 1, 0) if is_nan(key) else (name, 0, key)
    if isinstance(key, datetime):
        return ("datetimes" if key.tzinfo is None else "datetimes with a zone", key)
    return (name, key)


def tie_of(value: Any) -> Any:
    """The order of values with equal places."""
    kind = type(value)
    if kind in _NUMBERS:
        return (_NUMBERS.index(kind), repr(value))
    if kind.__module__ == "numpy" and hasattr(value, "tolist") and type(value.tolist()) is not kind:
        return tie_of(value.tolist())
    if isinstance(value, dict):
        return (len(_NUMBERS), "", sorted((tie_of(n), tie_of(one)) for n, one in value.items()))
    if isinstance(value, set | frozenset):
        return (len(_NUMBERS), "", sorted(map(tie_of, value)))
    if isinstance(value, list | tuple):
        return (len(_NUMBERS), "", [*map(tie_of, value)])
    if is_dataclass(value):
        return (len(_NUMBERS), "", [tie_of(getattr(value, one.name)) for one in fields(value)])
    return (len(_NUMBERS), repr(value))


def plain(value: Any) -> Any:
    """A value of NumPy as Python's; others as they are, and a time or duration that Python does not
    have, such as one with nanoseconds."""
    if type(value).__module__ != "numpy" or not hasattr(value, "tolist"):
        return value
    made = value.tolist()
    if type(made) is not int or value.dtype.kind not in "mM":
        return made
    if value.dtype.str[1:] != "m8" and "[ns]" in value.dtype.str:
        rounded = value.astype(value.dtype.str.replace("[ns]", "[us]"))
        if rounded == value:
            return rounded.tolist()
    return value


def chosen(first: Any, second: Any, *, greatest: bool, where: str) -> Any:
    """The greater, or less, of two values: NaN and None are passed over, and of equal values the
    first in the order of `tie_of` is chosen. Raises BadEmit for values without a common order."""
    kind = type(first)
    if kind is type(second) and (kind is int or kind is float or kind is str):
        if first > second:
            return first if greatest else second
        if first < second:
            return second if greatest else first
        if first == second:  # not NaN
            return first
    elif first is None or second is None:
        return first if second is None else second
    missing = is_nan(first), is_nan(second)
    if any(missing):
        if all(missing):
            return min(first, second, key=tie_of)
        return second if missing[0] else first
    one, other = place_of(first), place_of(second)
    _check_kinds({one[0], other[0]}, where)
    if one == other:
        return min(first, second, key=tie_of)
    return first if (one > other) is greatest else second


def ranked(
    rows: Sequence[Any],
    get: Callable[[Any], Any],
    count: int,
    *,
    greatest: bool,
    where: str,
) -> list[Any]:
    """The `count` rows with the greatest, or least, values, in this order; rows with equal values
    are in the order of their fields. Rows whose value is NaN or None are passed over; if all are,
    they are what there is: those with NaN, or else those with None. Raises BadEmit for values
    without a common order."""
    values = [*map(get, rows)]
    kinds = {*map(type, values)}
    if kinds <= {int} or kinds <= {str} or (kinds <= {float} and are_finite(values)):
        rows = [*rows]
    else:
        absent = [2 if value is None else int(is_nan(value)) for value in values]
        least = min(absent)
        rows = [row for row, more in zip(rows, absent, strict=True) if more == least]
        values = [plain(value) for value, more in zip(values, absent, strict=True) if more == least]
        if least:
            return sorted(rows, key=_place_and_tie)[:count]
        values = [*map(place_of, values)]
        _check_kinds({place[0] for place in values}, where)
    if len(rows) > count:
        limit = (nlargest if greatest else nsmallest)(count, values)[-1]
        reaches = operator.ge if greatest else operator.le
        rows = [row for row, value in zip(rows, values, strict=True) if reaches(value, limit)]
    if len(rows) > 1:
        rows.sort(key=_place_and_tie)
        rows.sort(key=lambda row: place_of(get(row)), reverse=greatest)
    return rows[:count]


def are_finite(numbers: Iterable[float]) -> bool:
    """Whether floats have neither NaN nor infinity, and no sum that is not finite; at C speed."""
    return math.isfinite(sum(numbers))


def _place_and_tie(row: Any) -> tuple[Any, Any]:
    return place_of(row), tie_of(row)


def _check_kinds(kinds: set[str], where: str) -> None:
    if len(kinds) > 1 or _UNORDERED in kinds:
        raise BadEmit(
            f"{where}: {' and '.join(sorted(kinds))} cannot be compared; convert them in a .map "
            "before, or filter them out"
        )
