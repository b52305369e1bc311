"""Texts with an offset and a zone are read as the moment that the offset says."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.scalars import SCALARS, read_scalar
from tests.runtime.field_values import exactly


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-10-26T02:30:00+02:00[Europe/Berlin]", "2025-10-26T00:30:00+00:00"),
        ("2025-10-26T02:30:00+01:00[Europe/Berlin]", "2025-10-26T01:30:00+00:00"),
        ("2025-10-26T02:30:00+01:00[Europe/Berlin]#1", "2025-10-26T01:30:00+00:00"),
        ("2025-10-26T02:30:00+02:00[Europe/Berlin]#1", "2025-10-26T00:30:00+00:00"),
        ("2025-11-02T01:00:00-08:00[America/Los_Angeles]", "2025-11-02T09:00:00+00:00"),
        ("2025-11-02T01:00:00-07:00[America/Los_Angeles]", "2025-11-02T08:00:00+00:00"),
        ("2026-04-05T01:45:00+10:30[Australia/Lord_Howe]", "2026-04-04T15:15:00+00:00"),
        ("2026-04-05T01:45:00+11:00[Australia/Lord_Howe]", "2026-04-04T14:45:00+00:00"),
        ("2026-07-02T03:04:05Z[Europe/Berlin]", "2026-07-02T03:04:05+00:00"),
        ("2026-07-02T03:04:05z[Europe/Berlin]", "2026-07-02T03:04:05+00:00"),
        ("2026-07-02T03:04:05Z[UTC]", "2026-07-02T03:04:05+00:00"),
        ("2026-07-02T03:04:05+01:00[Europe/Berlin]", "2026-07-02T02:04:05+00:00"),  # of winter
        ("2026-07-02T03:04:05+04:00[Europe/Moscow]", "2026-07-01T23:04:05+00:00"),  # until 2014
        ("2026-07-02T03:04:05[Europe/Berlin]", "2026-07-02T01:04:05+00:00"),
        ("1890-01-01T00:00:00+00:53:28[Europe/Berlin]", "1889-12-31T23:06:32+00:00"),
    ],
)
def test_the_offset_decides(text: str, moment: str) -> None:
    zoned = read_scalar(datetime, text)
    assert zoned.astimezone(UTC) == datetime.fromisoformat(moment)
    assert zoned.tzinfo.key == text.partition("[")[2].partition("]")[0]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05+05:00[Europe/Berlin]",
        "2026-01-02T03:04:05+00:00[Europe/Berlin]",
        "2026-01-02T03:04:05-01:00[Europe/Berlin]",
        "2026-01-02T03:04:05+01:30[Europe/Berlin]",
        "2026-01-02T03:04:05+01:00:01[Europe/Berlin]",
        "0001-01-01T00:00:00+05:00[Europe/Berlin]",
        "9999-12-31T23:59:59-12:00[Europe/Berlin]",
    ],
)
def test_an_offset_that_the_zone_never_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="never has the offset"):
        read_scalar(datetime, text)


@pytest.mark.parametrize("key", ["Europe/Paradise", "posix/Nowhere", "A", "Europe", "x/y/z"])
def test_an_unknown_zone_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"there is no time zone {key}"):
        read_scalar(datetime, f"2026-01-02T03:04:05[{key}]")


@pytest.mark.parametrize(
    "text", ["03:04:05Z[Europe/Berlin]", "03:04:05+02:00[Europe/Berlin]", "03:04+01:00[UTC]"]
)
def test_a_time_has_no_offset_that_its_zone_does_not_have(text: str) -> None:
    with pytest.raises(ValueError, match="has another offset, or several"):
        read_scalar(time, text)


@pytest.mark.parametrize("kind", [datetime, time])
@pytest.mark.parametrize("fraction", [".1234567", ",000000001", ".0000001", ".9999999999"])
def test_parts_of_microseconds_are_refused(kind: Any, fraction: str) -> None:
    day = "2026-01-02T" if kind is datetime else ""
    for end in ("", "Z", "+01:00", "[Europe/Berlin]", f"+01:00:00{fraction}"):
        with pytest.raises(ValueError, match="more than 6 digits"):
            read_scalar(kind, f"{day}03:04:05{fraction}{end}")


@pytest.mark.parametrize("kind", [datetime, time])
def test_zeros_after_microseconds_are_read(kind: Any) -> None:
    day = "2026-01-02T" if kind is datetime else ""
    assert read_scalar(kind, f"{day}03:04:05.123456000").microsecond == 123_456
    assert read_scalar(kind, f"{day}03:04:05.000000000Z").microsecond == 0


zones = st.sampled_from(
    ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]
).map(ZoneInfo)
changes = st.builds(  # near the changes of the clock in these zones
    lambda month, day, minutes, zone, fold: (
        datetime(2025, month, day, tzinfo=zone, fold=fold) + timedelta(minutes=minutes)
    ),
    st.sampled_from([3, 4, 10, 11]),
    st.integers(1, 28),
    st.integers(0, 6 * 60),
    zones,
    st.sampled_from([0, 1]),
)


@given(changes | st.datetimes(timezones=zones))
def test_a_datetime_is_read_as_it_was_written(value: datetime) -> None:
    assert exactly(read_scalar(datetime, SCALARS[datetime].text(value))) == exactly(value)
