"""Days, weeks and months of a time zone, as panes of windows.

A pane begins at the first moment at which the clocks of its zone show its begin or a later time,
and ends where the next one begins. So a day has 23 or 25 hours where the clock changes, a day
without a midnight begins after the gap, and one that a zone has left out is empty. Where a change
of the clock goes back over midnight, the repeated time belongs to the new day. What the clocks show
is decided by zoneinfo. java.time.LocalDate.atStartOfDay has the same begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from sunshower.topologies.operators.windows.event_times import Time

CalendarUnit: TypeAlias = Literal["days", "weeks", "months"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)
_SECOND = timedelta(seconds=1)
_ZERO = timedelta(0)
_DAY_0 = _EPOCH.toordinal()
_MONDAY_0 = datetime(1969, 12, 29, tzinfo=UTC).toordinal()
_MONTH_0 = 1970 * 12
# Times beyond are in the first or the last pane.
_FIRST_S, _LAST_S = (
    int((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) for year in (400, 9600)
)
_STARTS_MAX = 10_000  # that are known at a time


class CalendarPanes:
    """Divides event time into days, weeks or months, which are numbered: those of 1970-01-01 are in
    pane 0. As `Panes`."""

    def __init__(
        self, unit: CalendarUnit, length: int, zone: str, offset_s: int, per_s: int
    ) -> None:
        """`length`: of a pane, in days, weeks or months; `offset_s`: how much later than midnight
        by the clocks of the zone a pane begins; `per_s`: the unit of times, in a second."""
        self.unit, self.length, self.per_s = unit, length, per_s
        self.zone, self._offset = ZoneInfo(zone), timedelta(seconds=offset_s)
        self._starts: dict[int, int] = {}
        self._first, self._last = (self._of_second(second) for second in (_FIRST_S, _LAST_S))

    def of_time(self, number: Time) -> int:
        pane = max(self._first, min(self._last, self._of_second(floor(number) // self.per_s)))
        while pane < self._last and self.start(pane + 1) <= number:
            pane += 1
        return pane

    def of_times(self, times: Sequence[Time]) -> list[int]:
        panes, pane = list[int](), 0
        begin = end = 0
        for number in times:
            if not begin <= number < end:
                pane = self.of_time(number)
                begin, end = self.start(pane), self.start(pane + 1)
            panes.append(pane)
        return panes

    def start(self, pane: int) -> int:
        """The time at which a pane begins."""
        pane = max(self._first, min(self._last + 1, pane))
        start = self._starts.get(pane)
        if start is None:
            if len(self._starts) >= _STARTS_MAX:
                self._starts.clear()
            start = self._starts[pane] = self._first_second(self._begin(pane)) * self.per_s
        return start

    def _of_second(self, second: int) -> int:
        """The pane that the clocks of the zone show at a second since 1970, within the years of a
        datetime."""
        moment = _EPOCH + timedelta(seconds=max(_FIRST_S, min(_LAST_S, second)))
        local = moment.astimezone(self.zone) - self._offset  # by its clocks
        match self.unit:
            case "days":
                return (local.toordinal() - _DAY_0) // self.length
            case "weeks":
                return (local.toordinal() - _MONDAY_0) // (7 * self.length)
            case "months":
                return (local.year * 12 + local.month - 1 - _MONTH_0) // self.length

    def _begin(self, pane: int) -> datetime:
        """What the clocks of the zone show when a pane begins."""
        first = pane * self.length
        if self.unit == "months":
            year, month = divmod(_MONTH_0 + first, 12)
            return datetime(year, month + 1, 1) + self._offset  # noqa: DTZ001
        day = _DAY_0 + first if self.unit == "days" else _MONDAY_0 + 7 * first
        return datetime.fromordinal(day) + self._offset

    def _first_second(self, local: datetime) -> int:
        """The first second since 1970 at which the clocks of the zone show `local` or a later
        time."""
        before, after = (
            (local.replace(tzinfo=self.zone, fold=fold).utcoffset() or _ZERO) // _SECOND
            for fold in (0, 1)
        )
        since = (local - _NAIVE_EPOCH) // _SECOND
        low, high = since - after, since - before
        if high <= low:  # clocks show it, perhaps twice
            return high
        while high - low > 1:  # they skip it, between these two seconds
            middle = (low + high) // 2
            shown = (_EPOCH + timedelta(seconds=middle)).astimezone(self.zone).replace(tzinfo=None)
            low, high = (low, middle) if shown >= local else (middle, high)
        return high
