"""Exact sums of numbers, or of durations, the same in every order and division into parts.

A sum is what a state keeps: None (of no values), an int, a float, a Decimal, a timedelta, or a list
of numbers whose exact sum is the value. In a list of floats the first is the rounded sum, and each
further one the rounded rest; so it is short, and equal sums are equal lists. Shewchuk, "Adaptive
precision floating-point arithmetic", 1997; `math.fsum`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, getcontext
from enum import Enum
from functools import reduce
from heapq import nlargest, nsmallest
from itertools import compress
from numbers import Rational
from typing import TYPE_CHECKING, Any, TypeAlias

from sunshower.errors import BadEmit, type_name
from sunshower.record_types import record_type_of
from sunshower.records import DictKey, key_of

if TYPE_CHECKING:
    import pyarrow as pa

Sum: TypeAlias = int | float | Decimal | timedelta | list[Any] | None

_DIGITS_MAX = 10_000  # of a sum of Decimals
_LARGE = Context(prec=_DIGITS_MAX, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_WHOLE = 1 << 53  # integers up to here are floats, and floats from here on are integers


# ---- ordering ------------------------------------------------------------------------------------
# The order of the values of a field, in which equal values of several types have places too.
#
# `place_of` orders values: numbers of all types by their value, datetimes with a zone by their
# moment. `tie_of` orders equal values: of 1, 1.0, Decimal(1) and True the int comes first, then
# float, Decimal, bool; of one type the one whose text comes first. So what is chosen from some
# values depends neither on the order in which they arrive nor on the tasks in which they are
# compared.

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
        return (
            len(_NUMBERS),
            "",
            sorted((tie_of(n), tie_of(element)) for n, element in value.items()),
        )
    if isinstance(value, set | frozenset):
        return (len(_NUMBERS), "", sorted(map(tie_of, value)))
    if isinstance(value, list | tuple):
        return (len(_NUMBERS), "", [*map(tie_of, value)])
    if (described := record_type_of(kind)) is not None:
        return (len(_NUMBERS), "", [tie_of(getattr(value, name)) for name in described.fields])
    return (len(_NUMBERS), repr(value))


def plain(value: Any) -> Any:
    """A value of NumPy as Python's; others as they are, and a time or duration that Python does not
    have, such as one with nanoseconds."""
    if type(value).__module__ != "numpy" or not hasattr(value, "tolist"):
        return value
    number = value.tolist()
    if type(number) is not int or value.dtype.kind not in "mM":
        return number
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
    place, other_place = place_of(first), place_of(second)
    _check_kinds({place[0], other_place[0]}, where)
    if place == other_place:
        return min(first, second, key=tie_of)
    return first if (place > other_place) is greatest else second


def ranked(
    rows: Sequence[Any],
    gets: Sequence[Callable[[Any], Any]],
    count: int,
    *,
    greatest: bool,
    where: str,
    ties: bool = False,
) -> list[Any]:
    """The `count` rows with the greatest, or least, values, in this order; rows with equal values
    are in the order of their fields. `gets`: the first gets the value of a row, and each further
    one what decides between rows that are equal so far. Rows whose value is NaN or None are passed
    over; if all are, they are what there is: those with NaN, or else those with None. Further
    values that are NaN or None come last. `ties`: also the rows with the values of the last one.
    Raises BadEmit for values without a common order."""
    first, *others = gets
    values = [*map(first, rows)]
    kinds = {*map(type, values)}
    if kinds <= {int} or kinds <= {str} or (kinds <= {float} and are_finite(values)):
        rows = [*rows]
    else:
        absent = [*map(_absence, values)]
        least = min(absent)
        rows = [row for row, more in zip(rows, absent, strict=True) if more == least]
        values = [plain(value) for value, more in zip(values, absent, strict=True) if more == least]
        values = [0] * len(rows) if least else [*map(place_of, values)]
        _check_kinds({place[0] for place in values} if not least else set(), where)
    if others:
        further = (_places_of([get(row) for get in others], greatest=greatest) for row in rows)
        values = [*zip(values, further, strict=True)]
    pairs = [*zip(values, rows, strict=True)]
    if len(rows) > count:
        limit = (nlargest if greatest else nsmallest)(count, values)[-1]
        reaches = operator.ge if greatest else operator.le
        pairs = [pair for pair in pairs if reaches(pair[0], limit)]
    if len(pairs) > 1:
        pairs.sort(key=lambda pair: _place_and_tie(pair[1]))
        pairs.sort(key=operator.itemgetter(0), reverse=greatest)
    return [row for _, row in (pairs if ties else pairs[:count])]


def leading(rows: Sequence[Any], get: Callable[[Any], Any], count: int) -> Iterable[Any]:
    """The rows among which `ranked` finds the `count` greatest by this value, with their ties: all,
    unless a look at the values alone leaves out most of them."""
    values = [*map(get, rows)]
    kinds = {*map(type, values)}
    are_numbers = kinds == {int} or (kinds == {float} and are_finite(values))
    if not are_numbers or len(values) <= count:
        return rows
    return compress(rows, map(nlargest(count, values)[-1].__le__, values))


def _absence(value: Any) -> int:
    """0 of a value; 1 of NaN, 2 of None."""
    return 2 if value is None else int(is_nan(value))


def _places_of(values: Sequence[Any], *, greatest: bool) -> list[Place]:
    """What values of any kind are compared by, so that those that are absent come last."""
    absent = map(_absence, values)
    return [
        (-more if greatest else more, *(() if more else place_of(plain(value))))
        for value, more in zip(values, absent, strict=True)
    ]


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


# ---- sums ----------------------------------------------------------------------------------------


def total(values: Sequence[Any], where: str) -> Sum:
    """The sum of numbers and sums, or of durations; None is passed over. Raises BadEmit for other
    values, for durations and numbers, for Decimals whose sum has more than 10,000 digits, and for
    durations whose sum is beyond a timedelta."""
    if len(values) == 1:
        if type(values[0]) is float or type(values[0]) is int:
            return values[0] + 0  # -0.0 is 0.0
        return _mixed(values, where)
    if type(values[0]) is int:
        try:
            if type(whole := sum(values)) is int:
                return whole
        except (TypeError, ArithmeticError):  # other values follow
            return _mixed(values, where)
    kinds = [*map(type, values)]
    floats, count = kinds.count(float), len(kinds)  # 23 ns per value, a set of them 42 ns
    if floats == count:
        return _floats(values)
    if floats + kinds.count(int) == count:
        numbers = [value for value in values if type(value) is float]
        return _with_whole(numbers, sum(value for value in values if type(value) is int))
    if kinds.count(Decimal) == count:
        return _decimals([*values, Decimal(0)], where)  # -0 is 0
    return _mixed(values, where)


def _mixed(values: Sequence[Any], where: str) -> Sum:
    numbers, durations = list[Any](), list[timedelta]()
    for value in _each(values):
        if isinstance(value, float | int | Decimal):
            numbers.append(value)
        elif isinstance(value, timedelta) and not getattr(value, "nanoseconds", 0):  # of pandas
            durations.append(value)
        else:
            raise _refused(value, where)
    if not durations:
        return _numbers(numbers, where) if numbers else None
    if any(numbers):  # 0 is the sum of no rows, whose type is not known
        raise BadEmit(
            f"{where}: some values are numbers, and some are timedeltas; convert them in a .map "
            "before, or filter them out"
        )
    return _durations(durations, where)


def _numbers(values: Sequence[Any], where: str) -> Sum:
    floats = [float(value) for value in values if isinstance(value, float)]
    decimals = [value for value in values if isinstance(value, Decimal)]
    whole = sum(int(value) for value in values if isinstance(value, int))
    exact = _decimals([*decimals, Decimal(whole)], where) if decimals else None
    if not floats:
        return whole if exact is None else exact
    if exact is None:
        return _with_whole(floats, whole)
    if not exact.is_finite():
        return _floats([*floats, float(exact)])
    total = _floats(floats)
    if isinstance(total, list):
        return [*total, exact]
    return [total, exact] if math.isfinite(total) else total


def add(first: Sum, second: Sum, where: str) -> Sum:
    """The sum of two sums. Raises as `total`."""
    if type(first) is int and type(second) is int:
        return first + second
    if type(first) is float and type(second) is list:
        first, second = second, first
    exact: Sum = None
    if type(second) is float:
        exact = _plus(first, second)
    elif type(first) is list and type(second) is list:
        exact = _plus_pair(first, second)
    if exact is not None:
        return exact
    if first is None or second is None:
        return second if first is None else first
    parts = first if type(first) is list else [first]
    return total([*parts, *second] if type(second) is list else [*parts, second], where)


def _plus(first: Any, value: float) -> Any:
    """The sum of a float, or of a sum of two floats, and a float; None if it is not finite, or no
    sum of two floats. Knuth's theorem B (TAOCP, volume 2, 4.2.2) written out costs a third of
    `math.fsum` with the list that it needs."""
    if type(first) is float:
        total = first + value
        back = total - first
        rest = (first - (total - back)) + (value - back)
        if rest == 0.0:
            return total
        return [total, rest] if rest - rest == 0.0 else None
    if type(first) is not list or len(first) != 2 or type(first[1]) is not float:
        return None
    high, low = first
    total = high + value
    back = total - high
    rest = (high - (total - back)) + (value - back)
    small = low + rest
    back = small - low
    if (low - (small - back)) + (rest - back) != 0.0:
        return None
    large = total + small
    rest = small - (large - total)  # |total| >= |small|, or total is 0
    if rest == 0.0:
        return large
    return [large, rest] if rest - rest == 0.0 else None


def _plus_pair(first: list[Any], second: list[Any]) -> Any:
    """The sum of two sums of two floats. None if it is not finite, or no sum of two floats."""
    if len(first) != 2 or len(second) != 2:
        return None
    (high, low), (other, rest) = first, second
    if type(low) is not float or type(rest) is not float:
        return None
    total = high + other
    back = total - high
    middle = (high - (total - back)) + (other - back)
    small = low + rest
    back = small - low
    least = (low - (small - back)) + (rest - back)
    both = middle + small
    back = both - middle
    if least != 0.0 or (middle - (both - back)) + (small - back) != 0.0:
        return None
    large = total + both
    back = large - total
    rest = (total - (large - back)) + (both - back)
    if rest == 0.0:
        return large
    return [large, rest] if rest - rest == 0.0 else None


def number(value: Sum) -> Any:
    """A sum as one value: an int, a Decimal, the nearest float, or a timedelta."""
    if type(value) is not list:
        return value
    if {*map(type, value)} == {float}:
        return math.fsum(value)
    return float(_as_decimal(value))


def mean(value: Sum, count: int) -> Any:
    """A sum divided by how many values it has; None of no values."""
    if not count or value is None:
        return None
    total = number(value)
    if isinstance(total, timedelta):
        return total / count
    if isinstance(total, Decimal):
        return Context(getcontext().prec, None, MIN_EMIN, MAX_EMAX, traps=[]).divide(total, count)
    if isinstance(total, int) or math.isfinite(total):
        try:
            return total / count
        except OverflowError:  # of integers
            return float(_LARGE.divide(Decimal(total), count))
    if type(value) is list and math.isfinite(value[0]):  # beyond a float, the mean is not
        return float(_LARGE.divide(_as_decimal(value), count))
    return total


def pieces(column: Any) -> list[pa.ChunkedArray] | None:
    """Columns whose sums, together, are the exact sum of any part of a column of floats: each has
    so few digits that no addition rounds. None if the numbers are too large for that. Rump, Ogita,
    Oishi, "Accurate floating-point summation", 2008."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rest, parts = column.cast(pa.float64()), list[Any]()
    if not math.isfinite(bound := _sum_of_sizes(rest)):
        finite = pc.if_else(pc.is_finite(rest), rest, 0.0)
        parts, rest = [pc.subtract(rest, finite)], finite
        bound = _sum_of_sizes(rest)
    while bound or not parts:
        exponent = math.frexp(bound)[1] + 1
        if exponent > 1023 or bound == math.inf:
            return None
        large = math.ldexp(1.0, exponent)
        parts.append(pc.subtract(pc.add(rest, large), large))
        rest = pc.subtract(rest, parts[-1])
        bound = _sum_of_sizes(rest)
    return parts


def _sum_of_sizes(column: Any) -> float:
    """About the sum of |value|, which no sum of a part exceeds: 3 ns per value; `min_max`: 8 ns."""
    import pyarrow.compute as pc

    return float(pc.sum(pc.abs(column)).as_py() or 0.0)


def _each(values: Iterable[Any]) -> Iterable[Any]:
    """The numbers of sums."""
    for value in values:
        if type(value) is list:
            yield from _each(value)
        elif value is not None:
            yield plain(value)


def _durations(values: Sequence[timedelta], where: str) -> timedelta:
    microseconds = sum(
        (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds for value in values
    )
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise BadEmit(
            f"{where}: the sum of these timedeltas has more than 999,999,999 days; convert them to "
            "numbers in a .map before (value.total_seconds())"
        ) from None


def _refused(value: Any, where: str) -> BadEmit:
    """The error for a value that has no sum here."""
    kind = type(value)
    remedy = "convert it in a .map before"
    if kind.__module__ == "numpy":
        remedy += " (to whole microseconds: value.astype('timedelta64[us]').item())"
    elif isinstance(value, timedelta):
        remedy += " (to whole microseconds: value.to_pytimedelta())"
    elif isinstance(value, Rational):
        remedy += " (float(value), or Decimal(value.numerator) / value.denominator)"
    return BadEmit(
        f"{where}: a value is a {type_name(kind)}, and sums are of int, float, "
        f"Decimal and timedelta; {remedy}, or filter it out"
    )


def _floats(values: Sequence[float]) -> float | list[Any]:
    try:
        total = math.fsum(values)
    except ValueError:  # inf and -inf
        return math.nan
    except OverflowError:  # of a part of them
        if others := [value for value in values if not math.isfinite(value)]:
            return sum(others)
        large = sum(int(value) for value in values if abs(value) >= _WHOLE)
        return _with_whole([value for value in values if abs(value) < _WHOLE], large)
    if not math.isfinite(total):
        return total
    parts, rest = [total], [*values, -total]
    while more := math.fsum(rest):
        parts.append(more)
        rest.append(-more)
    return parts if len(parts) > 1 else total


def _with_whole(floats: Sequence[float], whole: int) -> float | list[Any]:
    """The sum of floats and an integer, as a float or a list of floats. Beyond what a float can be,
    the integer is the last of the list."""
    parts = [*floats, 0.0]
    try:
        while whole:
            parts.append(float(whole))
            whole -= int(parts[-1])
    except OverflowError:
        small = _floats(parts)
        if isinstance(small, float) and not math.isfinite(small):
            return small
        return [*(small if isinstance(small, list) else [small]), whole]
    return _floats(parts)


def _decimals(values: Sequence[Decimal], where: str) -> Decimal:
    context = _LARGE.copy()
    context.traps[Inexact] = True
    try:
        total = reduce(context.add, values)
    except Inexact:
        raise BadEmit(
            f"{where}: the sum of these Decimals has more than {_DIGITS_MAX:,} digits; round them "
            "in a .map before"
        ) from None
    return Decimal("NaN") if total.is_nan() else total


def _as_decimal(parts: Sequence[Any]) -> Decimal:
    return reduce(_LARGE.add, map(Decimal, parts))
