"""Which records of two streams are partners, by their times, and how long they wait for each other.

    Distance   the times are close: `within=60`, `within=(0, 60)`
    Interval   a left record says from when to when its partners are: `within=lambda a: (a.at, …)`
    Age        all that are still there: `keep_s=3600`, `keep_s=None`

The records of a key and a side wait in orders of positions, which are their times as floats: the
float of a later time is never lower. So few records are looked at that are no partners, and only
they are compared exactly.
"""

from __future__ import annotations

from math import frexp, inf, isinf, ldexp
from sys import float_info
from typing import Any

from sunshower.topologies.operators.windows.event_times import (
    Time,
    as_float,
    excess,
    is_before,
    length_of,
)

LEFT, RIGHT = 0, 1


class PartnerTimes:
    """Decides which records are partners. A `time` is what a row has in its field of that name: an
    event time; of a left record of an Interval [event time, from, to]; of an Age [Unix time].

    `gaps`: how much later than a record of either side its last partner may come; None: its own
    time says it.
    """

    gaps: tuple[Time | None, Time | None]

    def fits(self, side: int, time: Any) -> bool:
        """Whether such bounds have stored this time."""
        raise NotImplementedError

    def position(self, side: int, time: Any) -> tuple[float, float]:
        """The order that a record waits in, as the length of its longest interval, and its position
        there."""
        return 0.0, as_float(time_of(time))

    def near(self, side: int, time: Any, reach: float) -> tuple[float, float]:
        """Where the partners of a record wait in an order of the other side: the first and the last
        position."""
        raise NotImplementedError

    def are_partners(self, left: Any, right: Any) -> bool:
        """Whether records with these times, near each other, are partners."""
        raise NotImplementedError

    def is_over(self, side: int, time: Any, reached: Time) -> bool:
        """Whether no partner can come any more that is not late. `reached`: a finite time."""
        gap = self.gaps[side]
        if gap is None:
            return is_before(time[2], reached)
        return gap != inf and excess(time_of(time), reached, gap) > 0

    def due(self, side: int, time: Any) -> float:
        """About when it is over."""
        gap = self.gaps[side]
        return as_float(time[2]) if gap is None else as_float(time_of(time)) + as_float(gap)


class Distance(PartnerTimes):
    """Partners on the right are at most `before` earlier and `after` later than a left record."""

    def __init__(self, before: Any, after: Any) -> None:
        self.gaps = length_of(after), length_of(before)
        self._lengths = [as_float(self.gaps[0]), as_float(self.gaps[1])]

    def fits(self, side: int, time: Any) -> bool:
        return type(time) is not list

    def near(self, side: int, time: Any, reach: float) -> tuple[float, float]:
        number = as_float(time)
        later, earlier = self._lengths[side], self._lengths[1 - side]
        return _below(number, earlier), -_below(-number, later)

    def are_partners(self, left: Any, right: Any) -> bool:
        after, before = self.gaps
        assert after is not None
        assert before is not None
        return excess(left, right, after) <= 0 and excess(right, left, before) <= 0


class Interval(PartnerTimes):
    """A left record has its partners from one time to another one, both included, which are not
    before its own. Left records wait by the powers of two that their intervals fit in, so those
    that contain a time are near each other."""

    gaps = None, 0

    def fits(self, side: int, time: Any) -> bool:
        return (type(time) is list and len(time) == 3) == (side == LEFT)

    def position(self, side: int, time: Any) -> tuple[float, float]:
        if side == RIGHT:
            return 0.0, as_float(time)
        first, last = as_float(time[1]), as_float(time[2])
        length = last - first
        if length <= 0:
            return 0.0, first
        return (inf if isinf(length) else _power_above(length)), first

    def near(self, side: int, time: Any, reach: float) -> tuple[float, float]:
        if side == LEFT:
            return as_float(time[1]), as_float(time[2])
        number = as_float(time)
        return _below(number, reach), number

    def are_partners(self, left: Any, right: Any) -> bool:
        return not is_before(right, left[1]) and not is_before(left[2], right)


class Age(PartnerTimes):
    """All records are partners. Each waits for `keep_s` of the clock; inf: for ever."""

    def __init__(self, keep_s: float) -> None:
        self.gaps = keep_s, keep_s
        self._keep_s = keep_s

    def fits(self, side: int, time: Any) -> bool:
        return type(time) is list and len(time) == 1

    def position(self, side: int, time: Any) -> tuple[float, float]:
        return 0.0, time[0]

    def near(self, side: int, time: Any, reach: float) -> tuple[float, float]:
        return time[0] - self._keep_s, inf

    def are_partners(self, left: Any, right: Any) -> bool:
        return True


def time_of(time: Any) -> Time:
    """The time of a record itself."""
    moment: Time = time[0] if type(time) is list else time
    return moment


def _below(number: float, length: float) -> float:
    """A number that is a little below `number - length`, more than their roundings."""
    if isinf(number):
        return number if number < 0 else float_info.max / 2
    return number - length - (abs(number) + length) * 2.0**-50


def _power_above(length: float) -> float:
    """The lowest power of two above a length; inf: there is none."""
    exponent = frexp(length)[1]
    return inf if exponent > float_info.max_exp - 1 else ldexp(1.0, exponent)
