"""Tumbling and sliding windows over the batches of a stream, by row count, time or calendar.

A window slides by whole panes: `sliding(seconds=60, every=10)` has six panes of ten seconds. Storm:
org.apache.storm.trident.windowing.config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from math import floor
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo

from sunshower.arguments import COUNT, FUNCTION, NONE, SECONDS, AnyOf, Values, check_all, checked
from sunshower.errors import ConfigError, TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.windows.event_times import (
    AHEAD_RULE,
    NEEDS_CALENDAR_UNIT,
    UNIT_RULE,
    UNITS,
    Ahead,
    Panes,
    ShiftedPanes,
    Time,
    TimeField,
    TimeReader,
    Unit,
    as_datetime,
    zone_named,
)
from sunshower.topologies.signatures import options_of
from sunshower.value_types import without_numpy

# ---- days, weeks and months of a time zone, as panes of windows ----------------------------------

# A pane begins at the first moment at which the clocks of its zone show its begin or a later time,
# and ends where the next one begins. So a day has 23 or 25 hours where the clock changes, a day
# without a midnight begins after the gap, and one that a zone has left out is empty. Where a change
# of the clock goes back over midnight, the repeated time belongs to the new day. What the clocks
# show is decided by zoneinfo. java.time.LocalDate.atStartOfDay has the same begins.

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


# ---- kinds of windows ----------------------------------------------------------------------------

AtEnd: TypeAlias = Literal["end", "keep"]
AnyPanes: TypeAlias = Panes | ShiftedPanes | CalendarPanes

_LATE = Values(float, least=0)
_GAP = Values(float, least=0, above=True)
_NUMBER: Any = int | float | Decimal
_EARLY = SECONDS.or_else("none", None)
_ROWS, _SECONDS = COUNT.or_else("none", None), _GAP.or_else("none", None)
_CALENDAR = replace(COUNT, most=1_000).or_else("none", None)
_LENGTHS: Mapping[str, Any] = {
    "count": _ROWS,
    "seconds": _SECONDS,
    "late": _LATE,
    "ahead": AHEAD_RULE,
    "unit": UNIT_RULE,
    "early": _EARLY,
    "allowed": _LATE,
    **dict.fromkeys(get_args(CalendarUnit), _CALENDAR),
}
_UNTIL = AnyOf((FUNCTION, NONE))
_OFFSET_MAX_S = 366 * 86_400


class Repeated(NamedTuple):
    """Windows with several results, each of which replaces the earlier one.

    `early`: the shortest time between two results of open windows, in seconds of the clock; None:
    there are none. `allowed`: how long after the end of a window, and `late`, a record still makes
    a result of it; in the unit of its event time.
    """

    early: float | None
    allowed: float


def _shown(number: float) -> str:
    """A number as text; equal ones have the same."""
    return str(int(number) if number == int(number) else number)


@dataclass(frozen=True)
class Window:
    """The length of windows, the distance between their starts, and the time that assigns rows.

    With `by_count`, lengths are numbers of rows of each group. Otherwise they are times: in the
    unit of `time`, the field with the event time of each row, or in seconds of Unix time (of a
    stream of batches: at the commit). A window of event time waits until a row `late` after
    its end was read; rows that come later are late. `at_end`: what the end of all sources does with
    windows of time that are open: "end" them, or "keep" them in their state for the next run.
    `repeated`: None: each window has one result. `until`: a window also ends when this is true of
    its result.
    """

    length: float
    every: float
    by_count: bool
    time: TimeField | None = None
    late: float = 0.0
    at_end: AtEnd = "end"
    repeated: Repeated | None = field(default=None, compare=False)
    until: Callable[[Any], bool] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_all(self, {"late": _LATE}, "window: ")
        unit = self.lengths_in
        whole = unit == "seconds" or (type(self.length) is int and type(self.every) is int)
        if not whole or not 0 < self.every <= self.length:
            raise ConfigError(
                f"window: {unit}={self.length!r}, every={self.every!r}; give positive "
                f"{'' if unit == 'seconds' else 'whole '}numbers, `every` the smaller one"
            )
        is_whole = type(self.length) is int and type(self.every) is int
        tolerance = 0.0 if is_whole else 1e-9 * self.length
        if abs(self.panes * self.every - self.length) > tolerance:
            raise ConfigError(
                f"window: {unit}={self.length!r} is not a multiple of every={self.every!r}; "
                "a window slides by whole parts of itself"
            )

    @property
    def lengths_in(self) -> str:
        """What lengths are numbers of: the name of the argument."""
        return "count" if self.by_count else "seconds"

    @property
    def field(self) -> str | None:
        """The name of the field with the event time."""
        return None if self.time is None else self.time.name

    @property
    def described_values(self) -> str:
        """By what its panes are divided, as a state stores it."""
        every = "" if self.every == self.length else f", every={_shown(self.every)}"
        of_field = "" if self.field is None else f", {self.field}"
        return f"window({self.lengths_in}={_shown(self.length)}{every}{of_field})"

    @property
    def panes(self) -> int:
        """The number of panes of a window."""
        return round(self.length / self.every)

    def divided(self) -> AnyPanes:
        """Divides event time into the panes of these windows."""
        return Panes(self.every)


@dataclass(frozen=True)
class AlignedWindow(Window):
    """Windows whose panes begin `offset` after multiples of their length, or with a day, week or
    month of a calendar: then lengths are numbers of these, the offset is in seconds by the clocks
    of the time zone, and ends are datetimes there.

    A class of its own, because stored states are compared with what a window declares.
    """

    offset: float = 0.0
    calendar: CalendarUnit | None = None
    zone: str = "UTC"

    @property
    def lengths_in(self) -> str:
        return self.calendar or "seconds"

    @property
    def described_values(self) -> str:
        zone = f" in {self.zone}" if self.calendar else ""
        offset = f" from {_shown(self.offset)}" if self.offset else ""
        return f"{super().described_values}{offset}{zone}"

    @property
    def per_s(self) -> int:
        """The unit of times, in a second, for a calendar."""
        return UNITS[(self.time and self.time.unit) or "s"]

    def divided(self) -> AnyPanes:
        if self.calendar is None:
            return ShiftedPanes(self.every, self.offset)
        every, offset_s = int(self.every), int(self.offset)
        return CalendarPanes(self.calendar, every, self.zone, offset_s, self.per_s)


@checked(until=_UNTIL, **_LENGTHS)
def tumbling(
    *,
    count: int | None = None,
    seconds: float | None = None,
    days: int | None = None,
    weeks: int | None = None,
    months: int | None = None,
    field: str | None = None,
    late: float = 0.0,
    zone: str | None = None,
    offset: float = 0.0,
    ahead: Ahead = "auto",
    unit: Unit = None,
    at_end: AtEnd = "end",
    early: float | None = None,
    allowed: float = 0.0,
    until: Callable[[Any], bool] | None = None,
) -> Window:
    """Consecutive windows of `count` rows, of `seconds`, or of days, weeks from Monday, or months
    of the time zone `zone`. Raises ConfigError."""
    lengths = {"count": count, "seconds": seconds, "days": days, "weeks": weeks, "months": months}
    window = _window(lengths, None, offset, field, late, zone, ahead, unit, at_end)
    return _repeating(window, early, allowed, until)


@checked(every=_GAP, until=_UNTIL, **_LENGTHS)
def sliding(
    *,
    count: int | None = None,
    seconds: float | None = None,
    days: int | None = None,
    weeks: int | None = None,
    months: int | None = None,
    every: float,
    field: str | None = None,
    late: float = 0.0,
    zone: str | None = None,
    offset: float = 0.0,
    ahead: Ahead = "auto",
    unit: Unit = None,
    at_end: AtEnd = "end",
    early: float | None = None,
    allowed: float = 0.0,
    until: Callable[[Any], bool] | None = None,
) -> Window:
    """Overlapping windows that start `every` rows, seconds, days, weeks or months. Raises
    ConfigError. As in Storm, the first windows start before the first row and have fewer rows."""
    lengths = {"count": count, "seconds": seconds, "days": days, "weeks": weeks, "months": months}
    window = _window(lengths, every, offset, field, late, zone, ahead, unit, at_end)
    return _repeating(window, early, allowed, until)


def _window(
    lengths: Mapping[str, float | None],
    every: float | None,
    offset: float,
    field: str | None,
    late: float,
    zone: str | None,
    ahead: Ahead,
    unit: Unit,
    at_end: AtEnd,
) -> Window:
    """A window of the only one of the lengths that is given."""
    given = {word: without_numpy(length) for word, length in lengths.items() if length is not None}
    if len(given) != 1:
        raise ConfigError(
            "window: give either count=… rows or seconds=…, or one of days=, weeks= and months="
        )
    ((word, length),) = given.items()
    if word == "count" and at_end != "end":
        raise ConfigError(
            "window: at_end= is for windows of time; one of count=… rows that is not full is kept "
            "in its state in any case"
        )
    by_count = word == "count"
    calendar: Any = word if word in get_args(CalendarUnit) else None
    if offset and by_count:
        raise ConfigError("window: offset= is for windows of time, not of count=… rows")
    if calendar and not (float(offset).is_integer() and abs(offset) < _OFFSET_MAX_S):
        raise ConfigError(
            f"window: offset is {offset!r}; with {word}= it is a whole number of seconds, of less "
            "than a year"
        )
    of_clock = calendar is not None and field is None  # then its zone is that of the days alone
    time = _time(field, late, None if of_clock else zone, ahead, unit, by_count=by_count)
    every = length if every is None else without_numpy(every)
    if not offset and not calendar:
        return Window(length, every, by_count, time, late, at_end)
    of_zone = zone_named(zone, "window") or "UTC"
    aligned: Any = {"offset": offset, "calendar": calendar, "zone": of_zone}
    return AlignedWindow(length, every, by_count, time, late, at_end, **aligned)


def _repeating(
    window: Window,
    early: float | None,
    allowed: float,
    until: Callable[[Any], bool] | None,
) -> Window:
    """The window with results before its end, or after it, or with an end of its own."""
    if early is None and not allowed and until is None:
        return window
    if window.by_count:
        raise ConfigError(
            "window: early=, allowed= and until= are for windows of time, not of count=… rows"
        )
    if allowed and window.time is None:
        raise ConfigError("window: allowed= needs field=, the one that holds the time of each row")
    repeated = Repeated(early, allowed) if early is not None or allowed else None
    return replace(window, repeated=repeated, until=until)


def _time(
    field: str | None, late: float, zone: str | None, ahead: Ahead, unit: Unit, *, by_count: bool
) -> TimeField | None:
    values = {"late": late, "zone": zone, "ahead": ahead != "auto", "unit": unit}
    given = [f"{name}=" for name, value in values.items() if value]
    if by_count and (given or field is not None):
        raise ConfigError(
            "window: field=, late=, ahead=, unit= and zone= are for windows of time, not of "
            "count=… rows"
        )
    if given and field is None:
        raise ConfigError(
            f"window: {given[0]} needs field=, the one that holds the time of each row"
        )
    if field is None:
        return None
    return TimeField(field, zone_named(zone, "window"), ahead, unit)


@dataclass(frozen=True)
class Sessions:
    """Sessions: the rows of a group, of which none is `gap` or more after the one before."""

    gap: float
    time: TimeField
    late: float = 0.0
    at_end: AtEnd = "end"
    repeated: Repeated | None = field(default=None, compare=False)

    @property
    def field(self) -> str:
        """The name of the field with the event time."""
        return self.time.name

    @property
    def described_values(self) -> str:
        """As of Window."""
        return f"sessions(gap={_shown(self.gap)}, {self.field})"


AnyWindow: TypeAlias = Window | Sessions


@checked(
    gap=_GAP,
    late=_LATE,
    ahead=AHEAD_RULE,
    unit=UNIT_RULE,
    early=_EARLY,
    allowed=_LATE,
    until=None,  # refused below
)
def sessions(
    *,
    gap: float,
    field: str,
    late: float = 0.0,
    zone: str | None = None,
    ahead: Ahead = "auto",
    unit: Unit = None,
    at_end: AtEnd = "end",
    early: float | None = None,
    allowed: float = 0.0,
    until: None = None,
) -> Sessions:
    """Sessions that end when a group has no row for `gap`, in the unit of `field`, which holds the
    time of each row. Raises ConfigError, also if `until` is given."""
    if until is not None:
        raise ConfigError(
            "sessions: until= is for tumbling and sliding windows. A session is known by its last "
            "row, so which row it ended with, and to which session later rows belong, would depend "
            "on the order in which rows arrive. Use .in_order(…).process(…), whose function ends "
            "a session as it likes"
        )
    time = TimeField(field, zone_named(zone, "sessions"), ahead, unit)
    repeated = Repeated(early, allowed) if early is not None or allowed else None
    return Sessions(gap, time, late, at_end, repeated)


def reader_of(window: AnyWindow, schema: Schema) -> TimeReader | None:
    """Reads the event times of records of `schema` for a window; None: it is by the clock."""
    if window.time is None:
        return None
    reader = window.time.reader(schema)
    if isinstance(window, AlignedWindow) and window.time.unit is None:
        reader.calendar = window.calendar
    return reader


def type_of_end(window: AnyWindow, schema: Schema, where: str) -> Any:
    """The type of the field `window` of the results, for records of `schema`. Raises TopologyError
    for a calendar over numbers whose unit is not known."""
    kinds = set() if window.field is None else {*options_of(schema.kind(window.field))}
    if isinstance(window, AlignedWindow) and window.calendar is not None:
        if kinds & {int, float, Decimal} and window.time is not None and window.time.unit is None:
            raise TopologyError(
                f"{where}: field {window.field!r} is a number, and {window.calendar}= "
                f"{NEEDS_CALENDAR_UNIT}"
            )
        return datetime
    if window.field is None:
        may_be_dates = not (isinstance(window, Window) and window.by_count)
    else:
        unit = None if window.time is None else window.time.unit
        may_be_dates = kinds <= {datetime, date, NoneType, Any} and unit in (None, "s")
    return _NUMBER | datetime if may_be_dates else _NUMBER


def with_dates(
    window: AnyWindow, out: Schema, width: int, rows: Iterable[Sequence[Any]]
) -> Iterable[Sequence[Any]]:
    """Rows whose field at `width`, the end of a window, is a datetime if `out` declares one, or the
    window has a calendar."""
    zone: tzinfo = UTC
    per_s = 1
    if isinstance(window, AlignedWindow) and window.calendar is not None:
        zone, per_s = ZoneInfo(window.zone), window.per_s
    elif {*options_of(out.kind(out.fields[width]))} - {NoneType} != {datetime}:
        return rows
    return (
        (*row[:width], as_datetime(row[width], per_s).astimezone(zone), *row[width + 1 :])
        for row in rows
    )
