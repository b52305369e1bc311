"""The clocks of simulated processes, with offset and drift."""

from __future__ import annotations

from collections.abc import Callable

from sunshower.simulation.world import World

_OFFSET_MAX_S = 10_000.0


class ProcessClock:
    """The clock of one process, with a random offset and a random drift.

    During a slice it is ahead of the world by `ahead_s`: a slice is computed at one moment of the
    world's time, and its cost passes afterwards. `slept` is called when user code has slept, for
    the watchdog.
    """

    def __init__(self, world: World, drift: float) -> None:
        """`drift`: how much faster or slower than the world it may run: 0.01 is one percent."""
        self.ahead_s = 0.0
        self.slept: Callable[[], None] = _nothing
        self._world = world
        self._offset_s = world.between(0.0, _OFFSET_MAX_S)
        self._rate = 1.0 + world.between(-drift, drift)

    def now(self) -> float:
        return self._offset_s + (self._world.now_s + self.ahead_s) * self._rate

    def sleep(self, seconds: float) -> None:
        self.ahead_s += seconds / self._rate
        self.slept()

    def in_world_s(self, seconds: float) -> float:
        """`seconds` of this clock, converted to the world's time."""
        return seconds / self._rate


class HistoryClock:
    """The world's time plus the cost of the current slice: for the event log."""

    def __init__(self, world: World, clock: ProcessClock) -> None:
        self._world = world
        self._clock = clock

    def now(self) -> float:
        return self._world.now_s + self._clock.ahead_s

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


def _nothing() -> None:
    """Do nothing: there is no watchdog yet."""
