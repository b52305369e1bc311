"""Time as a parameter: the runtime is told what time it is and never looks for itself."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a clock that never goes back; where it starts means nothing."""

    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None:
        """Let time pass, for whoever calls."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that stands still until a test or a simulator moves it."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move on by `seconds` (≥ 0)."""
        assert seconds >= 0, f"a monotonic clock cannot go back by {seconds} s"
        self._now_s += seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
