"""Exact sums of numbers, the same in every order and however their parts were combined.

A sum is what a state keeps: None (of no values), an int, a float, a Decimal, or a list of numbers
whose exact sum is the value. In a list of floats the first is the rounded sum, and each further one
the rounded rest; so it is short, and equal sums are equal lists. Shewchuk, "Adaptive precision
floating-point arithmetic", 1997; `math.fsum`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, getcontext
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from sunshower.errors import BadEmit
from sunshower.topologies.operators.values.ordering import plain

if TYPE_CHECKING:
    import pyarrow as pa

Sum: TypeAlias = int | float | Decimal | list[Any] | None

_DIGITS_MAX = 10_000  # of a sum of Decimals
_SIMPLE = frozenset((int, float))
_LARGE = Context(prec=_DIGITS_MAX, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_WHOLE = 1 << 53  # integers up to here are floats, and floats from here on are integers


def total(values: Sequence[Any], where: str) -> Sum:
    """The sum of numbers and sums; None is passed over. Raises BadEmit for other values, and for
    Decimals whose sum has more than 10,000 digits."""
    if len(values) == 1 and type(values[0]) in _SIMPLE:
        return values[0] + 0  # type: ignore[no-any-return]  # -0.0 is 0.0
    kinds = {*map(type, values)}
    if kinds == {float}:
        return _floats(values)
    if kinds == {int}:
        return int(sum(values))
    return _mixed(values, where)


def _mixed(values: Sequence[Any], where: str) -> Sum:
    whole, floats, decimals = 0, list[float](), list[Decimal]()
    is_empty = True
    for value in _each(values):
        is_empty = False
        if isinstance(value, float):
            floats.append(float(value))
        elif isinstance(value, int):
            whole += value
        elif isinstance(value, Decimal):
            decimals.append(value)
        else:
            raise BadEmit(
                f"{where}: a value is a {type(value).__qualname__}, and no number; convert it in a "
                ".map before, or filter it out"
            )
    if is_empty:
        return None
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
    kind, other = type(first), type(second)
    if kind is other:
        if kind is int:
            return first + second  # type: ignore[operator]
        if kind is float:
            made, rest = _two(first, second)  # type: ignore[arg-type]
            if rest == 0.0:
                return made
            if math.isfinite(rest):
                return [made, rest]
    if first is None or second is None:
        return second if first is None else first
    parts: list[Any] = [*first] if isinstance(first, list) else [first]
    parts += second if isinstance(second, list) else [second]
    if {*map(type, parts)} != {float}:
        return total(parts, where)
    return _pair(*parts) if len(parts) == 3 else _floats(parts)


def _pair(first: float, second: float, third: float) -> float | list[Any]:
    """The sum of three floats: in most cases two floats have it exactly."""
    large, rest = _two(first, third)
    small, more = _two(second, rest)
    if more == 0.0:  # not NaN
        made, rest = _two(large, small)
        if math.isfinite(made):
            return [made, rest] if rest else made
    return _floats([first, second, third])


def _two(first: float, second: float) -> tuple[float, float]:
    """The rounded sum of two floats, and the rest. Knuth, TAOCP, volume 2, 4.2.2, theorem B."""
    made = first + second
    back = made - first
    return made, (first - (made - back)) + (second - back)


def number(value: Sum) -> Any:
    """A sum as one number: an int, a Decimal, or the nearest float."""
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
    is_finite = pc.is_finite(rest)
    if pc.all(is_finite).as_py() is False:
        finite = pc.if_else(is_finite, rest, 0.0)
        made, rest = [pc.subtract(rest, finite)], finite
    digits = (len(column) + 2).bit_length()
    while True:
        ends = pc.min_max(rest).as_py().values()
        greatest = max((abs(end) for end in ends if end is not None), default=0.0)
        if not greatest and made:
            return made
        exponent = digits + math.frexp(greatest)[1]
        if exponent > 1023:
            return None
        large = math.ldexp(1.0, exponent)
        made.append(pc.subtract(pc.add(rest, large), large))
        rest = pc.subtract(rest, made[-1])


def _each(values: Iterable[Any]) -> Iterable[Any]:
    """The numbers of sums."""
    for value in values:
        if type(value) is list:
            yield from _each(value)
        elif value is not None:
            yield plain(value)


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
