"""Event times: which values are times, and exact arithmetic with them for windows and joins.

A time is an int, a float that stands for its shortest decimal (0.1 is a tenth), or a Decimal that
no such float equals. A datetime is its seconds since 1970, exact to its microsecond. So a sum, a
difference or a pane has no rounding, whatever the unit of a field.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from functools import partial
from math import ceil, floor, inf, isfinite, isinf, nextafter
from numbers import Integral, Number
from operator import attrgetter
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

from sunshower.arguments import Values
from sunshower.errors import BadEmit, ConfigError, TopologyError, TopologyFailed, user_errors
from sunshower.records import Schema

T = TypeVar("T")
Time: TypeAlias = int | float | Decimal
Ahead: TypeAlias = float | Literal["auto"] | None
Unit: TypeAlias = Literal["s", "ms", "us", "ns"] | None

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}  # in a second
AHEAD_RULE = Values(float, "a number", least=0).or_else("auto", "auto").or_else("none", None)
UNIT_RULE = Values(words={unit: unit for unit in UNITS} | {"none": None})
_AHEAD_S = 3600
_NUMBERS = {int, float, Decimal}
_DIGITS = 1_000  # before and after the point
_INT_MAX = 10**_DIGITS
_WHOLE = 2.0**53  # floats from here on are whole, and their shortest decimal is another integer
# Up to here, in seconds, floats are closer to each other than microseconds: years 1697 to 2242.
_MICROS_FIT = 2.0**33
_EXACT = Context(prec=4 * _DIGITS, Emax=10 * _DIGITS, Emin=-10 * _DIGITS, traps=[Inexact])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)
_ZERO = timedelta(0)
_TICKS = {  # the units of numpy.datetime64, in seconds
    **{f"{unit}s": Decimal(1).scaleb(-3 * place) for place, unit in enumerate(("", *"munpfa"))},
    "m": Decimal(60),
    "h": Decimal(3600),
    "D": Decimal(86400),
    "W": Decimal(7 * 86400),
}
_tzinfo_of = attrgetter("tzinfo")
_LOG = logging.getLogger("sunshower")
_NO_TIME: Time = inf


def zone_named(name: str | None, where: str) -> str | None:
    """`name`, if it is None or a time zone that zoneinfo knows. Raises ConfigError."""
    if name is not None:
        try:
            ZoneInfo(name)
        except (LookupError, ValueError, OSError, TypeError) as error:
            raise ConfigError(
                f"{where}: zone is {name!r:.100}, which is no time zone that this machine knows; "
                'give a name such as "Europe/Berlin" or "UTC"'
            ) from error
    return name


class TimeField(NamedTuple):
    """The field with the event time of records.

    `zone`: of its times that have none. `ahead`: how far ahead of the clock a time may be and move
    the watermark, in the unit of the field; "auto": an hour for datetimes, and for numbers with a
    `unit`; None: as far as it likes. `unit`: of numbers, which count from 1970 on. `other_zones`:
    of a spout, in which further windows read its times.
    """

    name: str
    zone: str | None = None
    ahead: Ahead = "auto"
    unit: Unit = None
    other_zones: tuple[str | None, ...] = ()

    @property
    def zones(self) -> tuple[str | None, ...]:
        """All zones in which it is read."""
        return self.zone, *self.other_zones

    @property
    def declared_shape(self) -> tuple[Any, ...]:
        """What the shape of a state has of it, as in earlier releases."""
        return tuple(self) if self.other_zones else self[:4]

    def read_as(self, other: TimeField | None) -> TimeField:
        """This field of a spout, if another window reads it as `other`."""
        if other is None or other.zone in self.zones:
            return self
        return self._replace(other_zones=(*self.other_zones, other.zone))

    def reader(self, schema: Schema) -> TimeReader:
        """Reads it from records of a schema."""
        return self.reader_by(f"field {self.name!r}", schema.key([self.name]))

    def reader_by(self, what: str, get: Callable[[Any], Any]) -> TimeReader:
        """Reads what `get` returns of records as it; `what`: as of TimeReader."""
        return TimeReader(what, get, *self.zones, unit=self.unit)


def declared_time(name: str, settings: Mapping[str, Any], where: str) -> TimeField:
    """The field `name` with the `zone`, `ahead` and `unit` of settings. Raises TopologyError, and
    ConfigError for an unknown zone."""
    ahead, unit = settings.get("ahead", "auto"), settings.get("unit")
    AHEAD_RULE.check(f"{where}: ahead", ahead, TopologyError)
    UNIT_RULE.check(f"{where}: unit", unit, TopologyError)
    return TimeField(name, zone_named(settings.get("zone"), where), ahead, unit)


class TimeReader:
    """Reads the event times of records.

    `what`: where values come from, for errors. `get`: of a record. `zones`: of datetimes without a
    zone, and of dates; None: such a datetime ends the topology, and a date is midnight in UTC. In
    several zones such a value is the first of its moments. `unit`: of numbers; datetimes, whose
    unit is the second, end the topology then.
    """

    calendar: str | None = None  # days, weeks or months of numbers whose unit is not known

    def __init__(
        self, what: str, get: Callable[[Any], Any], *zones: str | None, unit: Unit = None
    ) -> None:
        self.what, self._get, self._unit = what, get, unit
        self._zones = [None if zone is None else ZoneInfo(zone) for zone in zones]
        self.spread_s = 0  # the longest time from the first to the last moment of a value
        self.kinds: set[type] = set()  # the types of the values that it has read last
        self._ambiguous = self._skipped = 0

    @property
    def declared_shape(self) -> dict[str, Any]:
        """What the shape of a state has of it, as in earlier releases."""
        further = {"spread_s", "calendar", "_unit"}
        own = {name: value for name, value in vars(self).items() if name not in further}
        if len(self._zones) > 1:
            return own
        return {{"_zones": "_zone"}.get(name, name): own[name] for name in own} | {
            "_zone": self._zones[0]
        }

    def time(self, record: Any) -> Time:
        """The event time of a record. Raises BadEmit for a value that is no time, and
        TopologyFailed for a datetime without a zone."""
        return self.of_value(self._get(record))

    def times(self, records: Iterable[Any]) -> list[Time]:
        return self.of_values(self.values(records))

    def values(self, records: Iterable[Any]) -> list[Any]:
        """The values that are the event times of records."""
        return [*map(self._get, records)]

    def of_values(self, values: list[Any]) -> list[Time]:
        """The event times that values are. Raises as `time`."""
        self.kinds = kinds = set(map(type, values))
        if self.calendar is not None and kinds != {datetime}:
            self._refuse_numbers(values)
        if kinds == {int}:
            if min(values) > -_INT_MAX and max(values) < _INT_MAX:
                return values
        elif kinds == {float}:
            is_finite = isfinite(sum(values))
            if is_finite and min(values) > -_WHOLE and max(values) < _WHOLE:
                return values
        elif (
            kinds == {datetime}
            and self._unit in (None, "s")
            and None not in {*map(_tzinfo_of, values)}
        ):
            try:
                times = [value.timestamp() for value in values]
            except TypeError:  # the zone gives no offset
                times = [inf]
            if min(times) > -_MICROS_FIT and max(times) < _MICROS_FIT:
                return times
        return [*map(self.of_value, values)]

    def of_value(self, value: Any) -> Time:
        """The event time that a value is. Raises as `time`."""
        number: Time = value
        kind = type(value)
        if kind is float and -_WHOLE < number < _WHOLE:
            return number
        if kind is int and -_INT_MAX < number < _INT_MAX:
            return number
        if isinstance(value, datetime):
            if value == value:  # noqa: PLR0124  # pandas.NaT is a datetime, too
                return self._of_datetime(value)
        elif isinstance(value, date):
            return self._of_datetime(datetime.combine(value, time()), is_date=True)
        elif hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
            return self._of_numpy(value)
        elif (of_number := _of_number(value)) is not None:
            return of_number
        raise BadEmit(
            f"{self.what}: {_shown(value)} is no event time; give a finite number of at most "
            f"{_DIGITS:,} digits, a datetime or a date"
        )

    def figures(self) -> Mapping[str, float]:
        if not any(self._zones):
            return {}
        return {"ambiguous times": self._ambiguous, "skipped times": self._skipped}

    def _refuse_numbers(self, values: Sequence[Any]) -> None:
        """Raise TopologyFailed if a value is a number that is a time."""
        numbers = (value for value in values if isinstance(value, Number))
        times = (n for n in numbers if _or_else(None, partial(self.of_value, n)) is not None)
        if (number := next(times, None)) is not None:
            raise TopologyFailed(
                f"{self.what} is {number!r:.200}, a number, and {self.calendar}= of the window "
                f"{NEEDS_CALENDAR_UNIT}"
            )

    def _refuse_dates(self) -> None:
        """Raise TopologyFailed if the unit is one of numbers alone."""
        if self._unit not in (None, "s"):
            raise TopologyFailed(
                f"{self.what} is a datetime, which is in seconds, and unit={self._unit!r} is for "
                "numbers; give a number, or leave it out (of the window, join or process)"
            )

    def _of_datetime(self, value: datetime, *, is_date: bool = False) -> Time:
        self._refuse_dates()
        nanos = getattr(value, "nanosecond", 0)  # of pandas, whose methods differ, too
        if type(value) is not datetime:
            day, clock = (value.year, value.month, value.day), (value.hour, value.minute)
            seconds = value.second, value.microsecond
            value = datetime(*day, *clock, *seconds, tzinfo=value.tzinfo, fold=value.fold)
        try:
            since = None if value.tzinfo is None else value - _EPOCH
        except TypeError:  # the zone gives no offset
            value, since = value.replace(tzinfo=None), None
        if since is None:
            since = value - _NAIVE_EPOCH - self._offset(value, is_utc=is_date)
        result = _of_delta(since)
        return plus(result, Decimal(nanos).scaleb(-9, _EXACT)) if nanos else result

    def _offset(self, value: datetime, *, is_utc: bool) -> timedelta:
        """The offset of a datetime without a zone. `is_utc`: without `zone` it is one of UTC."""
        offsets = [self._offset_in(zone, value, is_utc=is_utc) for zone in self._zones]
        if len(offsets) > 1:
            spread_s = ceil((max(offsets) - min(offsets)).total_seconds())
            self.spread_s = max(self.spread_s, spread_s)
        return max(offsets)

    def _offset_in(self, zone: ZoneInfo | None, value: datetime, *, is_utc: bool) -> timedelta:
        if zone is None:
            return _ZERO if is_utc else self._refuse(value)
        before = value.replace(tzinfo=zone, fold=0).utcoffset() or _ZERO
        after = value.replace(tzinfo=zone, fold=1).utcoffset() or _ZERO
        if before != after:
            self._note_transition(value, zone, is_twice=before > after)
        return after if value.fold else before

    def _refuse(self, value: datetime) -> NoReturn:
        raise TopologyFailed(
            f"{self.what} is {value!r}, which has no time zone, so its moment would depend on the "
            'machine. Declare the zone that such times are in, as zone="Europe/Berlin" or '
            'zone="UTC" (of the window, join or process), or make datetimes with a zone'
        )

    def _note_transition(self, value: datetime, zone: ZoneInfo, *, is_twice: bool) -> None:
        first = not (self._ambiguous if is_twice else self._skipped)
        if is_twice:
            self._ambiguous += 1
        else:
            self._skipped += 1
        if first:
            how = "occurs twice" if is_twice else "does not occur"
            taken = "the first" if is_twice else "the offset before the change"
            _LOG.warning(
                "%s is %s, which %s in %s because the clock changes. It is taken as fold=%d says "
                "(0: %s). Further ones are counted, not logged",
                *(self.what, value, how, zone, value.fold, taken),
            )

    def _of_numpy(self, value: Any) -> Time:
        import numpy as np

        if value.dtype.kind != "M":
            kinds: dict[str, Any] = {"b": int, "i": int, "u": int, "f": float}
            convert = kinds.get(value.dtype.kind, str)  # a text is no time
            return self.of_value(convert(value))
        self._refuse_dates()
        unit, count = np.datetime_data(value.dtype)
        if unit in ("Y", "M"):
            return self._of_numpy(value.astype("datetime64[D]"))
        if np.isnat(value) or unit not in _TICKS:
            return self.of_value(str(value))
        ticks = Decimal(int(value.astype(np.int64)) * count)
        seconds = _EXACT.multiply(ticks, _TICKS[unit])
        if not any(self._zones):  # NumPy counts from 1970 in UTC
            return from_decimal(seconds)
        try:
            whole = _NAIVE_EPOCH + timedelta(seconds=floor(seconds))
        except OverflowError:
            return self.of_value(str(value))
        return minus(from_decimal(seconds), _of_delta(self._offset(whole, is_utc=True)))


def _of_number(value: Any) -> Time | None:
    """A number of any other type, or of any size, as a time; None for a value that is none."""
    if isinstance(value, int):  # also a bool, or a member of an IntEnum
        return int(value) if -_INT_MAX < value < _INT_MAX else None
    if isinstance(value, float) and isfinite(value):
        value = Decimal(repr(float(value)))
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    fits = value.adjusted() < _DIGITS and int(value.as_tuple().exponent) > -_DIGITS
    return from_decimal(value) if fits else None


def _shown(value: Any) -> str:
    is_long = isinstance(value, int) and not -_INT_MAX < value < _INT_MAX
    return "an int" if is_long else f"{value!r:.200}"


def values_or_none(reader: TimeReader, records: Any) -> list[Any]:
    """The values that are the event times of records; None for a record whose method raised.
    Raises TopologyFailed, as the method may."""
    try:
        return reader.values(records)
    except TopologyFailed:
        raise
    except user_errors():
        values = (_or_else(None, partial(reader.values, [record])) for record in records)
        return [None if value is None else value[0] for value in values]


def times_or_inf(reader: TimeReader, values: list[Any]) -> list[Time]:
    """The event times that values are, as a new list; inf for one that is none: its window fails
    it. Raises TopologyFailed, as `TimeReader.time`."""
    try:
        return [*reader.of_values(values)]
    except TopologyFailed:
        raise
    except user_errors():
        return [_or_else(_NO_TIME, partial(reader.of_value, value)) for value in values]


def _or_else(default: T, call: Callable[[], T]) -> T:
    try:
        return call()
    except TopologyFailed:
        raise
    except user_errors():
        return default


class OrderReader(TimeReader):
    """Reads what orders records, and is nothing else: event times, or datetimes without a zone."""

    def time(self, record: Any) -> Any:
        """The event time of a record; a datetime without a zone as it is. Raises BadEmit."""
        value = self._get(record)
        is_moment = isinstance(value, datetime) and value == value  # noqa: PLR0124  # not NaT
        if is_moment and value.utcoffset() is None:
            return value.replace(tzinfo=None, fold=0)
        return self.of_value(value)

    def is_before(self, first: Any, second: Any) -> bool:
        """Whether a time is lower than another one. Raises BadEmit if one of both has no zone."""
        are_naive = isinstance(first, datetime), isinstance(second, datetime)
        if all(are_naive):
            return bool(first < second)
        if any(are_naive):
            naive = first if are_naive[0] else second
            raise BadEmit(
                f"{self.what} is {naive!r}, which has no time zone, in one record of a key, and a "
                "number, or a datetime with a zone, in another one; give all of them a zone"
            )
        return is_before(first, second)


def _of_delta(since: timedelta) -> Time:
    seconds = since.total_seconds()  # rounded once
    if -_MICROS_FIT < seconds < _MICROS_FIT or not since.microseconds:
        return seconds
    return from_decimal(Decimal(since // _MICROSECOND).scaleb(-6, _EXACT))


class ClockLimit:
    """Tells which event times of a field are too far ahead of the clock.

    `what`: where values come from, for errors.
    """

    def __init__(self, what: str, field: TimeField) -> None:
        self._what, self._ahead, self._unit = what, field.ahead, field.unit

    @property
    def text(self) -> str:
        """How far ahead a time may be, such as `1 h`."""
        if self._ahead in ("auto", None):
            return span(_AHEAD_S)
        return span(float(self._ahead) / UNITS[self._unit or "s"])

    def per_s(self, kinds: set[type]) -> int | None:
        """How many units of the field a second has, if values of these types are times since 1970;
        None: they are numbers without a unit."""
        return UNITS[self._unit] if self._unit else 1 if datetime in kinds else None

    def beyond(
        self, values: Sequence[Any], kinds: set[type], times: Sequence[Time], wall_s: float
    ) -> Sequence[int]:
        """The indices of those that are too far ahead. `kinds`: the types of `values`; `times`:
        what they are, inf for one that is no time; `wall_s`: Unix time. Raises TopologyFailed if
        what is declared does not fit the values."""
        if self._ahead is None:
            return ()
        if kinds <= _NUMBERS or kinds == {datetime}:
            limit = self._limit(wall_s, is_moment=kinds == {datetime})
            if limit == inf or not is_before(limit, highest(times)):
                return ()
            return [at for at, time in enumerate(times) if time != inf and is_before(limit, time)]
        limits: dict[bool, Time] = {}
        places = []
        for at, (value, event_time) in enumerate(zip(values, times, strict=True)):
            if event_time == inf:
                continue
            if (is_moment := is_date(value)) not in limits:
                limits[is_moment] = self._limit(wall_s, is_moment=is_moment)
            if is_before(limits[is_moment], event_time):
                places.append(at)
        return places

    def _limit(self, wall_s: float, *, is_moment: bool) -> Time:
        """The highest time that is not too far ahead; inf: there is none."""
        if self._unit is None and not is_moment:
            if self._ahead != "auto":
                raise TopologyFailed(f"{self._what} {NEEDS_UNIT}")
            return inf
        per_s = UNITS[self._unit or "s"]
        return wall_s * per_s + (_AHEAD_S * per_s if self._ahead == "auto" else self._ahead or 0)


NO_LIMIT = ClockLimit("", TimeField("", ahead=None))


def span(seconds: float) -> str:
    """A length of time, such as `1 h`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length and not seconds % length:
            return f"{seconds / length:,g} {unit}"
    return f"{seconds:,g} s"


NEEDS_CALENDAR_UNIT = 'needs its unit since 1970: give unit="s", "ms", "us" or "ns"'
NEEDS_UNIT = (
    "is a number, and ahead= compares it with the clock: declare its unit since 1970 beside it, as "
    'unit="s", "ms", "us" or "ns", or use ahead=None'
)


def is_date(value: Any) -> bool:
    """Whether a value is a datetime or a date, of Python or of NumPy."""
    return isinstance(value, date) or getattr(getattr(value, "dtype", None), "kind", "") == "M"


# ---- arithmetic ----------------------------------------------------------------------------------


def from_decimal(value: Decimal, *, whole: type[int] | type[float] = int) -> Time:
    """A finite Decimal as a time; `whole`: the type of a whole number, if it is not too large."""
    if value == value.to_integral_value(context=_EXACT):
        return float(value) if whole is float and value.copy_abs() < _WHOLE else int(value)
    number = float(value)
    return number if Decimal(repr(number)) == value else value


def exact(number: Time) -> int | Decimal:
    """The number that a time stands for, with which Python computes and compares exactly in the
    context of this module."""
    return Decimal(repr(number)) if isinstance(number, float) else number


def plus(first: Time, second: Time) -> Time:
    """The sum. `first` may be infinite."""
    if type(first) is int and type(second) is int:
        return first + second
    if _is_plain(first) and _is_plain(second):
        return first + second  # type: ignore[operator]
    if first in (inf, -inf):
        return first
    whole = float if float in (type(first), type(second)) else int
    return from_decimal(_EXACT.add(exact(first), exact(second)), whole=whole)


def minus(first: Time, second: Time) -> Time:
    """The difference. `first` may be infinite."""
    return plus(first, second.copy_negate() if type(second) is Decimal else -second)


def _is_plain(number: Time) -> bool:
    """Whether the sum with another such number is exact."""
    if isinstance(number, float) and not number.is_integer():
        return False
    return not isinstance(number, Decimal) and abs(number) < _WHOLE / 2


def excess(low: Time, high: Time, gap: Time) -> Time:
    """A number with the sign of `high - low - gap`."""
    if type(low) is float and type(high) is float:
        about = high - low - float(gap)
        if abs(about) > (abs(low) + abs(high) + float(gap)) * 2.0**-51:
            return about
    elif type(low) is int and type(high) is int and type(gap) is int:
        return high - low - gap
    return _EXACT.subtract(_EXACT.subtract(exact(high), exact(low)), exact(gap))


def is_before(first: Time, second: Time) -> bool:
    """Whether a time is lower than another one. Both may be infinite."""
    if type(first) is Decimal or type(second) is Decimal:
        return exact(first) < exact(second)
    return first < second  # Python compares ints and floats without rounding


def lowest(times: Iterable[Time], default: Time = inf) -> Time:
    """The lowest of times."""
    times = list(times)
    mixed = Decimal in set(map(type, times))
    return min(times, key=exact, default=default) if mixed else min(times, default=default)


def highest(times: Iterable[Time], default: Time = -inf) -> Time:
    """The highest of times."""
    times = list(times)
    mixed = Decimal in set(map(type, times))
    return max(times, key=exact, default=default) if mixed else max(times, default=default)


def place_of_time(time: Time) -> tuple[float, int | Decimal]:
    """What orders times of all types in a heap: the float of a time, and what that leaves of it.
    Python itself would compare a Decimal with the binary value of a float."""
    about = as_float(time)
    if type(time) is float or (type(time) is int and -_WHOLE <= time <= _WHOLE):
        return about, 0
    number = exact(time)
    return about, Decimal(number) if isinf(about) else _EXACT.subtract(number, exact(about))


def just_after(time: Time) -> Time:
    """A time that is later, by little."""
    return time + 1 if type(time) is int and abs(time) >= 2**53 else nextafter(time, inf)


def as_float(number: Time) -> float:
    """A time as a float, for people to read."""
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def as_datetime(number: Time, per_s: int = 1) -> datetime:
    """The moment in UTC of a time since 1970, to the microsecond; for one that no datetime has, the
    first or the last. `per_s`: the unit of the time, in a second."""
    try:
        micros = round(Fraction(*exact(number).as_integer_ratio()) * 1_000_000 / per_s)
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        last = number > 0
        return datetime.max.replace(tzinfo=UTC) if last else datetime.min.replace(tzinfo=UTC)


def length_of(value: Any) -> Time:
    """A length of time as a time. `value`: any finite real number."""
    return READ_NUMBER.of_value(int(value) if isinstance(value, Integral) else float(value))


class Panes:
    """Divides event time into panes of one length, which are numbered: pane 0 begins at 0."""

    def __init__(self, length: float) -> None:
        """`length`: any positive number."""
        self.length = length_of(length)
        self._ratio = exact(self.length).as_integer_ratio()
        self._about = as_float(self.length)

    def of_time(self, number: Time) -> int:
        length, parts = self._ratio
        if type(number) is int:
            return number * parts // length
        if type(number) is float:
            place = number / self._about
            if abs(place) < _WHOLE:
                pane = floor(place)
                margin = abs(place) * 2.0**-50
                if margin < place - pane < 1.0 - margin:
                    return pane
        numerator, denominator = exact(number).as_integer_ratio()
        return numerator * parts // (denominator * length)

    def of_times(self, times: Sequence[Time]) -> list[int]:
        length, parts = self._ratio
        kinds = set(map(type, times))
        if kinds == {int}:
            if parts == 1:
                return [number // length for number in times]  # type: ignore[misc]
        elif kinds == {float}:
            about = self._about
            places = [number / about for number in times]  # type: ignore[operator]
            margin = max(abs(max(places)), abs(min(places))) * 2.0**-50
            if margin < 0.25:
                most = 1.0 - margin
                return [
                    pane if margin < place - pane < most else self.of_time(number)
                    for place, pane, number in zip(places, map(floor, places), times, strict=True)
                ]
        return [*map(self.of_time, times)]

    def split(self, number: Time) -> tuple[int, float]:
        """The pane that a time is in, and which part of the pane is before it, from 0 to 1."""
        pane = self.of_time(number)
        if type(number) is float and abs(place := number / self._about) < _WHOLE:
            return pane, min(max(place - pane, 0.0), 1.0)
        (above, below), (length, parts) = exact(number).as_integer_ratio(), self._ratio
        return pane, (above * parts - pane * below * length) / (below * length)

    def start(self, pane: int) -> Time:
        """The time at which a pane begins: an int, if the length is one."""
        if type(self.length) is int:
            return pane * self.length
        return from_decimal(_EXACT.multiply(pane, exact(self.length)), whole=float)


class ShiftedPanes:
    """Panes of one length, of which pane 0 begins at `offset`. As `Panes`."""

    def __init__(self, length: float, offset: float) -> None:
        """`length`: any positive number; `offset`: any finite one."""
        self._panes, self._offset = Panes(length), length_of(offset)

    def of_time(self, number: Time) -> int:
        return self._panes.of_time(minus(number, self._offset))

    def of_times(self, times: Sequence[Time]) -> list[int]:
        offset = self._offset
        return self._panes.of_times([minus(number, offset) for number in times])

    def start(self, pane: int) -> Time:
        return plus(self._panes.start(pane), self._offset)


READ_NUMBER = TimeReader("the time", lambda value: value, None)


def all_late(count: int, had_ended: float) -> str:
    """Say that all records of a window were late, and what helps."""
    return (
        f"everything was late: the state says that windows up to {had_ended:,.6f} had ended before "
        f"this run, and all records ({count:,}) belong to these. If the same records are read "
        "again to compute their windows again, give the window a new state or name="
    )
