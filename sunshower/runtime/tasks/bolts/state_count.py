"""Counts the entries of a bolt's state, seldom enough that the cost is negligible."""

from __future__ import annotations

from math import inf
from typing import Any

from sunshower.clock import Clock
from sunshower.errors import user_errors_suppressed

# In memory the number is there; SQLite counts keys, 0.15 s for a million.
_REST = 10_000  # how many times longer than the last count the time until the next is at least


class StateCount:
    """The entries of the state of one task."""

    def __init__(self) -> None:
        self._due_s = -inf
        self._last: int | None = None

    def of(self, bolt: Any, clock: Clock) -> int | None:
        """How many there are now, or were at the last count; None: no state, or not known."""
        if (count := getattr(bolt, "__sunshower_state_entries__", None)) is None:
            return None
        begun = clock.now()
        if begun >= self._due_s:
            # The store may be away, which the task reports when it writes.
            with user_errors_suppressed():
                self._last = count()
            ended = clock.now()
            self._due_s = ended + _REST * (ended - begun)
        return self._last
