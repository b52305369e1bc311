"""Scalars without a type in JSON or MessagePack, as texts: dates, decimals, UUIDs.

| type        | text                                                                               |
|-------------|------------------------------------------------------------------------------------|
| `datetime`  | ISO 8601, with the offset; then `[Europe/Berlin]` if its zone is a ZoneInfo        |
| `date`      | ISO 8601                                                                           |
| `time`      | as datetime                                                                        |
| `timedelta` | ISO 8601: `P-1DT3600.000000S`; days have the sign, seconds and micros are positive |
| `Decimal`   | all digits, also trailing zeros: `1.50`, `1E+3`, `NaN`                             |
| `UUID`      | `12345678-1234-5678-1234-567812345678`                                             |

A datetime or time with `fold=1`, in the hour that a change of the clock repeats, ends with `#1`. A
zone of another class than ZoneInfo and timezone becomes its offset at that moment.

A text of others may have an offset and a zone, as java.time.ZonedDateTime and JavaScript's Temporal
write it. The offset then decides which moment it is; one that the zone never has is refused, except
`Z`, which says that no offset is known (RFC 9557, section 2). More than microseconds are refused,
unless they are zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

_TEXT_MAX = 128  # characters of a text, except of a Decimal
_ZONED = re.compile(r"([^\[#]+)(?:\[([\w+-]+(?:/[\w+-]+){0,3})\])?(#1)?", re.ASCII)
_USUAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_DATE_AND_TIME = re.compile(r"[\dW-]+[T ]\d.*", re.ASCII)
_TIME = re.compile(r"T?\d.*", re.ASCII)
_NANOSECONDS = re.compile(r"[.,]\d{6}0*[1-9]", re.ASCII)
_DURATION = re.compile(
    r"([+-])?P(?:([+-]?\d+)W)?(?:([+-]?\d+)D)?"
    r"(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?)(\d+)(?:\.(\d{1,6})0*)?S)?)?",
    re.ASCII,
)
_DECIMAL = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?|Inf(?:inity)?|s?NaN\d*)", re.ASCII | re.IGNORECASE
)
_HEX = "[0-9a-f]"
_UUID = re.compile(
    rf"(?:urn:uuid:)?(\{{)?(?:{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}|{_HEX}{{32}})(?(1)\}})",
    re.IGNORECASE,
)
_LOCAL_ZONES = {"localtime", "posixrules"}  # ZoneInfo knows them, and does not list them
_YEARS = range(1900, 2038)  # in which an offset of a zone is looked for
_DIGITS_MAX = 4096  # of a Decimal that is compared with integers
Clock = TypeVar("Clock", datetime, time)


class Scalar(NamedTuple):
    """A type as text; `read` raises ValueError or ArithmeticError for other texts."""

    name: str
    text: Callable[[Any], str]
    read: Callable[[str], Any]


def _zoned(value: datetime | time) -> str:
    key = value.tzinfo.key if type(value.tzinfo) is ZoneInfo else None
    return f"{value.isoformat()}{f'[{key}]' if key else ''}{'#1' if value.fold else ''}"


def _read_zoned(kind: type[Clock], form: re.Pattern[str]) -> Callable[[str], Clock]:
    def read(text: str) -> Clock:
        if _USUAL.fullmatch(text):  # in half the time
            return kind.fromisoformat(text)
        match = _ZONED.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no {kind.__name__}")
        iso, key, fold = match[1].upper(), match[2], match[3]
        if _NANOSECONDS.search(iso):
            raise ValueError("a fraction of more than 6 digits would be cut")
        if not form.fullmatch(iso):
            raise ValueError(f"it is no {kind.__name__} of ISO 8601")
        value = kind.fromisoformat(iso)
        if key:
            return _in_zone(value, _zone(key), is_utc=iso[-1] == "Z", fold=int(bool(fold)))
        return value.replace(fold=1) if fold else value

    return read


def _in_zone(value: Clock, zone: ZoneInfo, *, is_utc: bool, fold: int) -> Clock:
    """A local time in its zone; the moment that its offset says, if it has one. Raises ValueError
    for an offset that the zone never has."""
    if value.tzinfo is None:
        return value.replace(tzinfo=zone, fold=fold)
    for side in (fold, 1 - fold):
        local = value.replace(tzinfo=zone, fold=side)
        if local.utcoffset() == value.utcoffset():
            return local
    if isinstance(value, time):
        raise ValueError(f"{zone.key} has another offset, or several")  # noqa: TRY004
    if not is_utc and value.utcoffset() not in _offsets(zone.key, value.year):
        raise ValueError(f"{zone.key} never has the offset {value.isoformat()[-6:]}")
    return value.astimezone(zone)


@lru_cache(1024)
def _zone(key: str) -> ZoneInfo:
    listed = key.removeprefix("posix/").removeprefix("right/")
    if listed not in _keys() and key not in _LOCAL_ZONES:
        raise ValueError(f"there is no time zone {key}")
    return ZoneInfo(key)


@lru_cache(1)
def _keys() -> frozenset[str]:
    """The known zones: looking for the files of one that is unknown takes long."""
    return frozenset(available_timezones())


@lru_cache(1024)
def _offsets(key: str, year: int) -> frozenset[timedelta | None]:
    """The offsets of a zone in each quarter of some decades, and each month around a year."""
    zone = ZoneInfo(key)
    months = [(any_year, month) for any_year in _YEARS for month in (1, 4, 7, 10)]
    near = (year - 1, year, year + 1)
    months += [(any_year, month) for any_year in near for month in range(1, 13)]
    return frozenset(
        datetime(any_year, month, 1, 12, tzinfo=zone).utcoffset()
        for any_year, month in months
        if 0 < any_year < 10_000
    )


def _duration(value: timedelta) -> str:
    return f"P{value.days}DT{value.seconds}.{value.microseconds:06}S"


def _read_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise ValueError(f"{text!r} is no duration, such as P1DT3600.5S")
    sign, *numbers, sign_of_seconds, seconds, micros = match.groups()
    weeks, days, hours, minutes = (int(number or 0) for number in numbers)
    exact = timedelta(seconds=int(seconds or 0), microseconds=int((micros or "0").ljust(6, "0")))
    value = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes)
    value += -exact if sign_of_seconds == "-" else exact
    return -value if sign == "-" else value


def _read_decimal(text: str) -> Decimal:
    if not _DECIMAL.fullmatch(text):  # Decimal reads 1_000, blanks, and the digits of any script
        raise ValueError("it is no number, such as 1.50")
    return Decimal(text)


def _read_uuid(text: str) -> UUID:
    if not _UUID.fullmatch(text):  # UUID reads dashes at any place
        raise ValueError("it is no UUID, such as 12345678-1234-5678-1234-567812345678")
    return UUID(text)


SCALARS: dict[type[Any], Scalar] = {
    datetime: Scalar("datetime", _zoned, _read_zoned(datetime, _DATE_AND_TIME)),
    date: Scalar("date", date.isoformat, date.fromisoformat),
    time: Scalar("time", _zoned, _read_zoned(time, _TIME)),
    timedelta: Scalar("timedelta", _duration, _read_duration),
    Decimal: Scalar("Decimal", str, _read_decimal),
    UUID: Scalar("UUID", str, _read_uuid),
}


def read_scalar(kind: type[Any], text: str) -> Any:
    """The value of such a text. Raises ValueError for anything else."""
    if type(text) is not str or (kind is not Decimal and len(text) > _TEXT_MAX):
        raise ValueError(f"a {kind.__name__} is a text of at most {_TEXT_MAX} characters")
    try:
        return SCALARS[kind].read(text)
    except ArithmeticError:
        raise ValueError(f"{text[:_TEXT_MAX]!r} is no {kind.__name__}") from None
    except (ValueError, LookupError, OSError) as error:  # a zone that is unknown
        raise ValueError(f"{text[:_TEXT_MAX]!r} is no {kind.__name__}: {error}") from None


def as_number(value: Decimal) -> int | float | Decimal:
    """The int or float that equals a Decimal, else the Decimal without trailing zeros; equal
    numbers have one result."""
    if not value.is_finite():
        return value if value.is_nan() else float(value)
    if not value:
        return 0
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    digits_left = text.rstrip("0")
    exponent = int(exponent) + len(text) - len(digits_left)
    if exponent >= 0 and exponent + len(digits_left) <= _DIGITS_MAX:
        return int(value)
    if (number := float(value)) == value:
        return number
    return Decimal(f"{'-' if sign else ''}{digits_left}E{exponent}")
