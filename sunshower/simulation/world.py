"""The event loop of a simulation: virtual time, one seed, and a queue of events."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, log
from random import Random
from typing import Any


class World:
    """A discrete-event loop: time jumps from one event to the next.

    The seed determines the order of events at the same time.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_s = 0.0
        self._random = Random(seed)
        self.draw = self._random.random  # in [0, 1)
        self._events: list[tuple[float, float, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time_s: float, event: Callable[..., None], *given: Any) -> None:
        """Schedule `event(*given)` at `time_s`, which must not be in the past."""
        heappush(self._events, (time_s, self.draw(), event, given))

    def after(self, seconds: float, event: Callable[..., None], *given: Any) -> None:
        """Schedule `event(*given)` in `seconds` from now."""
        heappush(self._events, (self.now_s + seconds, self.draw(), event, given))

    @property
    def next_s(self) -> float:
        """The time of the next event; ∞ if there is none."""
        return self._events[0][0] if self._events else inf

    def step(self) -> None:
        """Run the next event; there must be one."""
        self.now_s, _, event, given = heappop(self._events)
        event(*given)

    def run_until(self, time_s: float) -> None:
        """Run all events that are due by `time_s`."""
        events = self._events
        while events and events[0][0] <= time_s:
            self.now_s, _, event, given = heappop(events)
            event(*given)
        self.now_s = max(self.now_s, time_s)

    def about(self, mean: float) -> float:
        """A random duration, exponentially distributed around `mean`."""
        return -mean * log(1.0 - self.draw())

    def between(self, least: float, most: float) -> float:
        """A random value between the two."""
        return least + (most - least) * self.draw()
