"""Clocks: the runtime takes the time from a parameter, never from the machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

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
        assert date.tzinfo is not None, f"{date!r} has no time zone"
        self._now_s, self._date_s = start_s, date.timestamp()

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
