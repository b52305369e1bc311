"""Exact sums of numbers, or of durations, the same in every order and division into parts.

A sum is what a state keeps: None (of no values), an int, a float, a Decimal, a timedelta, or a list
of numbers whose exact sum is the value. In a list of floats the first is the rounded sum, and each
further one the rounded rest; so it is short, and equal sums are equal lists. Shewchuk, "Adaptive
precision floating-point arithmetic", 1997; `math.fsum`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, getcontext
from functools import reduce
from numbers import Rational
from typing import TYPE_CHECKING, Any, TypeAlias

from sunshower.errors import BadEmit
from sunshower.topologies.operators.values.ordering import plain

if TYPE_CHECKING:
    import pyarrow as pa

Sum: TypeAlias = int | float | Decimal | timedelta | list[Any] | None

_DIGITS_MAX = 10_000  # of a sum of Decimals
_LARGE = Context(prec=_DIGITS_MAX, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_WHOLE = 1 << 53  # integers up to here are floats, and floats from here on are integers


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
    made = _floats(floats)
    if isinstance(made, list):
        return [*made, exact]
    return [made, exact] if math.isfinite(made) else made


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
        made = first + value
        back = made - first
        rest = (first - (made - back)) + (value - back)
        if rest == 0.0:
            return made
        return [made, rest] if rest - rest == 0.0 else None
    if type(first) is not list or len(first) != 2 or type(first[1]) is not float:
        return None
    high, low = first
    made = high + value
    back = made - high
    rest = (high - (made - back)) + (value - back)
    small = low + rest
    back = small - low
    if (low - (small - back)) + (rest - back) != 0.0:
        return None
    large = made + small
    rest = small - (large - made)  # |made| >= |small|, or made is 0
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
    made = high + other
    back = made - high
    middle = (high - (made - back)) + (other - back)
    small = low + rest
    back = small - low
    least = (low - (small - back)) + (rest - back)
    both = middle + small
    back = both - middle
    if least != 0.0 or (middle - (both - back)) + (small - back) != 0.0:
        return None
    large = made + both
    back = large - made
    rest = (made - (large - back)) + (both - back)
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
    found = number(value)
    if isinstance(found, timedelta):
        return found / count
    if isinstance(found, Decimal):
        return Context(getcontext().prec, None, MIN_EMIN, MAX_EMAX, traps=[]).divide(found, count)
    if isinstance(found, int) or math.isfinite(found):
        try:
            return found / count
        except OverflowError:  # of integers
            return float(_LARGE.divide(Decimal(found), count))
    if type(value) is list and math.isfinite(value[0]):  # beyond a float, the mean is not
        return float(_LARGE.divide(_as_decimal(value), count))
    return found


def pieces(column: Any) -> list[pa.ChunkedArray] | None:
    """Columns whose sums, together, are the exact sum of any part of a column of floats: each has
    so few digits that no addition rounds. None if the numbers are too large for that. Rump, Ogita,
    Oishi, "Accurate floating-point summation", 2008."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rest, made = column.cast(pa.float64()), list[Any]()
    if not math.isfinite(bound := _sum_of_sizes(rest)):
        finite = pc.if_else(pc.is_finite(rest), rest, 0.0)
        made, rest = [pc.subtract(rest, finite)], finite
        bound = _sum_of_sizes(rest)
    while bound or not made:
        exponent = math.frexp(bound)[1] + 1
        if exponent > 1023 or bound == math.inf:
            return None
        large = math.ldexp(1.0, exponent)
        made.append(pc.subtract(pc.add(rest, large), large))
        rest = pc.subtract(rest, made[-1])
        bound = _sum_of_sizes(rest)
    return made


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
    way_out = "convert it in a .map before"
    if kind.__module__ == "numpy":
        way_out += " (to whole microseconds: value.astype('timedelta64[us]').item())"
    elif isinstance(value, timedelta):
        way_out += " (to whole microseconds: value.to_pytimedelta())"
    elif isinstance(value, Rational):
        way_out += " (float(value), or Decimal(value.numerator) / value.denominator)"
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return BadEmit(
        f"{where}: a value is a {name}, and sums are of int, float, Decimal and timedelta; "
        f"{way_out}, or filter it out"
    )


def _floats(values: Sequence[float]) -> float | list[Any]:
    try:
        made = math.fsum(values)
    except ValueError:  # inf and -inf
        return math.nan
    except OverflowError:  # of a part of them
        if others := [value for value in values if not math.isfinite(value)]:
            return sum(others)
        large = sum(int(value) for value in values if abs(value) >= _WHOLE)
        return _with_whole([value for value in values if abs(value) < _WHOLE], large)
    if not math.isfinite(made):
        return made
    parts, rest = [made], [*values, -made]
    while more := math.fsum(rest):
        parts.append(more)
        rest.append(-more)
    return parts if len(parts) > 1 else made


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
        made = reduce(context.add, values)
    except Inexact:
        raise BadEmit(
            f"{where}: the sum of these Decimals has more than {_DIGITS_MAX:,} digits; round them "
            "in a .map before"
        ) from None
    return Decimal("NaN") if made.is_nan() else made


def _as_decimal(parts: Sequence[Any]) -> Decimal:
    return reduce(_LARGE.add, map(Decimal, parts))
