"""Tumbling and sliding windows over the batches of a stream, by row count or by time.

A window slides by whole panes: `sliding(seconds=60, every=10)` has six panes of ten seconds. Storm:
org.apache.storm.trident.windowing.config.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from types import NoneType
from typing import Any, Literal, TypeAlias

from sunshower.arguments import COUNT, Values, check_all, checked
from sunshower.errors import ConfigError
from sunshower.records import Schema
from sunshower.topologies.operators.windows.event_times import (
    AHEAD_RULE,
    UNIT_RULE,
    Ahead,
    TimeField,
    Unit,
    as_datetime,
    zone_named,
)
from sunshower.topologies.signatures import options_of

AtEnd: TypeAlias = Literal["end", "keep"]

_LATE = Values(float, least=0)
_GAP = Values(float, least=0, above=True)
_NUMBER: Any = int | float | Decimal
_ROWS, _SECONDS = COUNT.or_else("none", None), _GAP.or_else("none", None)


@dataclass(frozen=True)
class Window:
    """The length of windows, the distance between their starts, and the time that assigns rows.

    With `by_count`, lengths are numbers of rows of each group. Otherwise they are times: in the
    unit of `time`, the field with the event time of each row, or in seconds of Unix time (of a
    stream of batches: at the commit). A window of event time waits until a row `late` after
    its end was read; rows that come later are late. `at_end`: what the end of all sources does with
    windows of time that are open: "end" them, or "keep" them in their state for the next run.
    """

    length: float
    every: float
    by_count: bool
    time: TimeField | None = None
    late: float = 0.0
    at_end: AtEnd = "end"

    def __post_init__(self) -> None:
        check_all(self, {"late": _LATE}, "window: ")
        unit = "count" if self.by_count else "seconds"
        whole = not self.by_count or (type(self.length) is int and type(self.every) is int)
        if not whole or not 0 < self.every <= self.length:
            raise ConfigError(
                f"window: {unit}={self.length!r}, every={self.every!r}; give positive "
                f"{'whole ' if self.by_count else ''}numbers, `every` the smaller one"
            )
        is_whole = type(self.length) is int and type(self.every) is int
        tolerance = 0.0 if is_whole else 1e-9 * self.length
        if abs(self.panes * self.every - self.length) > tolerance:
            raise ConfigError(
                f"window: {unit}={self.length!r} is not a multiple of every={self.every!r}; "
                "a window slides by whole parts of itself"
            )

    @property
    def field(self) -> str | None:
        """The name of the field with the event time."""
        return None if self.time is None else self.time.name

    @property
    def panes(self) -> int:
        """The number of panes of a window."""
        return round(self.length / self.every)


@checked(count=_ROWS, seconds=_SECONDS, late=_LATE, ahead=AHEAD_RULE, unit=UNIT_RULE)
def tumbling(
    *,
    count: int | None = None,
    seconds: float | None = None,
    field: str | None = None,
    late: float = 0.0,
    zone: str | None = None,
    ahead: Ahead = "auto",
    unit: Unit = None,
    at_end: AtEnd = "end",
) -> Window:
    """Consecutive windows of `count` rows or `seconds`. Raises ConfigError."""
    length = _length(count, seconds, at_end)
    time = _time(field, late, zone, ahead, unit, by_count=count is not None)
    return Window(length, length, count is not None, time, late, at_end)


@checked(count=_ROWS, seconds=_SECONDS, every=_GAP, late=_LATE, ahead=AHEAD_RULE, unit=UNIT_RULE)
def sliding(
    *,
    count: int | None = None,
    seconds: float | None = None,
    every: float,
    field: str | None = None,
    late: float = 0.0,
    zone: str | None = None,
    ahead: Ahead = "auto",
    unit: Unit = None,
    at_end: AtEnd = "end",
) -> Window:
    """Overlapping windows that start `every` rows or seconds. Raises ConfigError. As in Storm, the
    first windows start before the first row and have fewer rows."""
    length = _length(count, seconds, at_end)
    time = _time(field, late, zone, ahead, unit, by_count=count is not None)
    return Window(length, every, count is not None, time, late, at_end)


def _length(count: int | None, seconds: float | None, at_end: AtEnd) -> float:
    given = [value for value in (count, seconds) if value is not None]
    if len(given) != 1:
        raise ConfigError("window: give either count=… rows or seconds=…")
    if count is not None and at_end != "end":
        raise ConfigError(
            "window: at_end= is for windows of time; one of count=… rows that is not full is kept "
            "in its state in any case"
        )
    return given[0]


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

    @property
    def field(self) -> str:
        """The name of the field with the event time."""
        return self.time.name


AnyWindow: TypeAlias = Window | Sessions


@checked(gap=_GAP, late=_LATE, ahead=AHEAD_RULE, unit=UNIT_RULE)
def sessions(
    *,
    gap: float,
    field: str,
    late: float = 0.0,
    zone: str | None = None,
    ahead: Ahead = "auto",
    unit: Unit = None,
    at_end: AtEnd = "end",
) -> Sessions:
    """Sessions that end when a group has no row for `gap`, in the unit of `field`, which holds the
    time of each row. Raises ConfigError."""
    time = TimeField(field, zone_named(zone, "sessions"), ahead, unit)
    return Sessions(gap, time, late, at_end)


def type_of_end(window: AnyWindow, schema: Schema) -> Any:
    """The type of the field `window` of the results, for records of `schema`."""
    if window.field is None:
        may_be_dates = not (isinstance(window, Window) and window.by_count)
    else:
        may_be_dates = {*options_of(schema.kind(window.field))} <= {datetime, date, NoneType, Any}
    return _NUMBER | datetime if may_be_dates else _NUMBER


def with_dates(out: Schema, width: int, rows: Iterable[Sequence[Any]]) -> Iterable[Sequence[Any]]:
    """Rows whose field at `width`, the end of a window, is a datetime if `out` declares one."""
    if {*options_of(out.kind(out.fields[width]))} - {NoneType} == {datetime}:
        return ((*row[:width], as_datetime(row[width]), *row[width + 1 :]) for row in rows)
    return rows
