"""Clocks: the runtime takes the time from a parameter, never from the machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from sunshower.errors import ConfigError

# The date at which virtual clocks start, so that the event times of ordinary test data are before
# it, and not ahead of the clock.
VIRTUAL_DATE = datetime(2100, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Seconds on a monotonic clock; its starting point has no meaning."""

    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass for the caller."""

    def wall(self) -> float:
        """Unix time in seconds, for people to read. It may jump: measure nothing with it."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that only a test or a simulator moves. `date`: that at its second 0."""

    def __init__(self, start_s: float = 0.0, *, date: datetime = VIRTUAL_DATE) -> None:
        self._now_s, self._date_s = start_s, unix_time(date)

    def now(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move on by `seconds` (≥ 0)."""
        assert seconds >= 0, f"a monotonic clock cannot go back by {seconds} s"
        self._now_s += seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def wall(self) -> float:
        return self._date_s + self._now_s


def unix_time(date: datetime) -> float:
    """The Unix time of a date. Raises ConfigError for one without a time zone."""
    if not isinstance(date, datetime) or date.utcoffset() is None:
        raise ConfigError(
            f"date is {date!r:.200}; give a datetime with a time zone: datetime(2100, 1, 1, "
            "tzinfo=UTC)"
        )
    return date.timestamp()
