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
from typing import Any, TypeAlias

from sunshower.arguments import COUNT, Values, check_all, checked
from sunshower.errors import ConfigError
from sunshower.records import Schema
from sunshower.topologies.operators.windows.event_times import as_datetime, zone_named
from sunshower.topologies.signatures import options_of

_LATE = Values(float, least=0)
_GAP = Values(float, least=0, above=True)
_NUMBER: Any = int | float | Decimal
_ROWS, _SECONDS = COUNT.or_else("none", None), _GAP.or_else("none", None)


@dataclass(frozen=True)
class Window:
    """The length of windows, the distance between their starts, and the time that assigns rows.

    With `by_count`, lengths are numbers of rows of each group. Otherwise they are times: in the
    unit of `field`, which holds the event time of each row, or in seconds of the topology's clock
    (of a stream of batches: at the commit). A window of event time waits until a row `late` after
    its end was read; rows that come later are late. `zone`: of times without a time zone.
    """

    length: float
    every: float
    by_count: bool
    field: str | None = None
    late: float = 0.0
    zone: str | None = None

    def __post_init__(self) -> None:
        check_all(self, {"late": _LATE}, "window: ")
        zone_named(self.zone, "window")
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
    def panes(self) -> int:
        """The number of panes of a window."""
        return round(self.length / self.every)


@checked(count=_ROWS, seconds=_SECONDS, late=_LATE)
def tumbling(
    *,
    count: int | None = None,
    seconds: float | None = None,
    field: str | None = None,
    late: float = 0.0,
    zone: str | None = None,
) -> Window:
    """Consecutive windows of `count` rows or `seconds`. Raises ConfigError."""
    length = _length(count, seconds, field, late, zone)
    return Window(length, length, count is not None, field, late, zone)


@checked(count=_ROWS, seconds=_SECONDS, every=_GAP, late=_LATE)
def sliding(
    *,
    count: int | None = None,
    seconds: float | None = None,
    every: float,
    field: str | None = None,
    late: float = 0.0,
    zone: str | None = None,
) -> Window:
    """Overlapping windows that start `every` rows or seconds. Raises ConfigError. As in Storm, the
    first windows start before the first row and have fewer rows."""
    length = _length(count, seconds, field, late, zone)
    return Window(length, every, count is not None, field, late, zone)


def _length(
    count: int | None, seconds: float | None, field: str | None, late: float, zone: str | None
) -> float:
    given = [value for value in (count, seconds) if value is not None]
    if len(given) != 1:
        raise ConfigError("window: give either count=… rows or seconds=…")
    if count is not None and (field is not None or late or zone):
        raise ConfigError(
            "window: field=, late= and zone= are for windows of time, not of count=… rows"
        )
    for name, value in (("late", late), ("zone", zone)):
        if value and field is None:
            raise ConfigError(
                f"window: {name}= needs field=, the one that holds the time of each row"
            )
    return given[0]


@dataclass(frozen=True)
class Sessions:
    """Sessions: the rows of a group, of which none is `gap` or more after the one before."""

    gap: float
    field: str
    late: float = 0.0
    zone: str | None = None

    def __post_init__(self) -> None:
        zone_named(self.zone, "sessions")


AnyWindow: TypeAlias = Window | Sessions


@checked(gap=_GAP, late=_LATE)
def sessions(*, gap: float, field: str, late: float = 0.0, zone: str | None = None) -> Sessions:
    """Sessions that end when a group has no row for `gap`, in the unit of `field`, which holds the
    time of each row. Raises ConfigError."""
    return Sessions(gap, field, late, zone)


def type_of_end(window: AnyWindow, schema: Schema) -> Any:
    """The type of the field `window` of the results, for records of `schema`."""
    kinds = set() if window.field is None else {*options_of(schema.kind(window.field))}
    are_dates = kinds and kinds <= {datetime, date, NoneType}
    return _NUMBER | datetime if are_dates else _NUMBER


def with_dates(out: Schema, width: int, rows: Iterable[Sequence[Any]]) -> Iterable[Sequence[Any]]:
    """Rows whose field at `width`, the end of a window, is a datetime if `out` declares one."""
    if {*options_of(out.kind(out.fields[width]))} - {NoneType} == {datetime}:
        return ((*row[:width], as_datetime(row[width]), *row[width + 1 :]) for row in rows)
    return rows
