"""Virtual time: the event loop of a simulation, the clocks of its processes, its conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from math import inf, log
from random import Random
from typing import Any

from sunshower.arguments import COUNT, MOMENT, SECONDS, Values, check_all
from sunshower.clock import VIRTUAL_DATE

_OFFSET_MAX_S = 10_000.0  # of a clock
_LATENCIES_S = (0.000_1, 0.01)  # from one rack to one continent
_CALLS_S = (0.000_01, 0.003)
_NODES_MAX = 3
_DRIFTS = (0.000_1, 0.03)
_DRIFT = Values(float, least=0, most=0.99)


class World:
    """A discrete-event loop: time jumps from one event to the next.

    The seed determines the order of events at the same time.
    """

    def __init__(self, seed: int, date: datetime = VIRTUAL_DATE) -> None:
        """`date`: that of all wall clocks at second 0. Raises ConfigError for one without a time
        zone."""
        self.seed = seed
        MOMENT.check("date", date)
        self.now_s, self.date_s = 0.0, date.timestamp()
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


class ProcessClock:
    """The clock of one process, with a random offset and a random drift.

    During a slice it is ahead of the world by `ahead_s`: a slice is computed at one moment of the
    world's time, and its cost passes afterwards. `slept` is called when user code has slept, for
    the watchdog.
    """

    def __init__(self, world: World, drift: float) -> None:
        """`drift`: how much faster or slower than the world it may run: 0.01 is one percent."""
        self.ahead_s = 0.0
        self.slept: Callable[[], None] = lambda: None  # there is no watchdog yet
        self._world = world
        self._offset_s = world.between(0.0, _OFFSET_MAX_S)
        self._rate = 1.0 + world.between(-drift, drift)

    def now(self) -> float:
        return self._offset_s + (self._world.now_s + self.ahead_s) * self._rate

    def sleep(self, seconds: float) -> None:
        self.ahead_s += seconds / self._rate
        self.slept()

    def wall(self) -> float:
        return self._world.date_s + self._world.now_s

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

    def wall(self) -> float:
        return self._clock.wall()


@dataclass(frozen=True, kw_only=True)
class SimConditions:
    """The seed draws every value that is not set. Times are averages.

    Raises ConfigError for invalid values.
    """

    nodes: int = 1
    latency_s: float  # of a message between two processes
    call_s: float  # of a call of user code, besides its own sleeps
    drift: float = 0.01  # largest relative error of a clock's rate
    down_s: tuple[float, float] = (0.05, 0.6)  # from a death to the start of the next process
    notice_s: tuple[float, float] = (0.0, 0.7)  # until a caller learns that its call has failed

    def __post_init__(self) -> None:
        rules = {"nodes": COUNT, "drift": _DRIFT, "latency_s": SECONDS, "call_s": SECONDS}
        check_all(self, rules)


def drawn(
    world: World,
    *,
    nodes: int | None,
    drift: float | None,
    latency_s: float | None,
    call_s: float | None,
) -> SimConditions:
    """SimConditions for one seed, which draws each value that is None."""
    latency_s = _any_magnitude(world, *_LATENCIES_S) if latency_s is None else latency_s
    call_s = _any_magnitude(world, *_CALLS_S) if call_s is None else call_s
    nodes = 1 + int(world.draw() * _NODES_MAX) if nodes is None else nodes
    drift = _any_magnitude(world, *_DRIFTS) if drift is None else drift
    return SimConditions(nodes=nodes, drift=drift, latency_s=latency_s, call_s=call_s)


def _any_magnitude(world: World, least: float, most: float) -> float:
    return float(least * (most / least) ** world.draw())
