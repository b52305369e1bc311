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
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

_TEXT_MAX = 128  # characters of a text, except of a Decimal
_ZONED = re.compile(r"([^\[#]+)(?:\[([\w+-]+(?:/[\w+-]+){0,3})\])?(#1)?", re.ASCII)
_DURATION = re.compile(
    r"(-)?P(?:(-?\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?", re.ASCII
)
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


def _read_zoned(kind: type[Clock]) -> Callable[[str], Clock]:
    def read(text: str) -> Clock:
        found = _ZONED.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no {kind.__name__}")
        iso, key, fold = found.groups()
        value = kind.fromisoformat(iso)
        if key:
            zone: tzinfo = ZoneInfo(key)
            value = value.replace(tzinfo=zone)
        return value.replace(fold=1) if fold else value

    return read


def _duration(value: timedelta) -> str:
    return f"P{value.days}DT{value.seconds}.{value.microseconds:06}S"


def _read_duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"{text!r} is no duration, such as P1DT3600.5S")
    sign, *numbers, micros = found.groups()
    days, hours, minutes, seconds = (int(number or 0) for number in numbers)
    value = timedelta(
        days, seconds, int((micros or "0").ljust(6, "0")), minutes=minutes, hours=hours
    )
    return -value if sign else value


SCALARS: dict[type[Any], Scalar] = {
    datetime: Scalar("datetime", _zoned, _read_zoned(datetime)),
    date: Scalar("date", date.isoformat, date.fromisoformat),
    time: Scalar("time", _zoned, _read_zoned(time)),
    timedelta: Scalar("timedelta", _duration, _read_duration),
    Decimal: Scalar("Decimal", str, Decimal),
    UUID: Scalar("UUID", str, UUID),
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


def for_json(value: Any) -> Any:
    """What JSON can have of a value that it has no type for: the text of a scalar, the value of an
    Enum, the fields of a dataclass. The `default` of json.dumps. Raises TypeError for others."""
    if type(value) in SCALARS:
        return SCALARS[type(value)].text(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    raise TypeError(f"a {type(value).__qualname__} is not for JSON")


# A value as JSON. Raises TypeError for a type that it has no text for, ValueError for NaN.
json_text: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, default=for_json
).encode


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
