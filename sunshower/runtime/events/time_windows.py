"""The counts of a topology in the last minute, ten minutes and hour, from cumulative counters.

The master copies the totals of each component before they change: at most every five seconds for
the minute, every 50 s for the ten minutes, and every five minutes for the hour. A window is the
difference of the totals of now and the newest copy that is old enough. So a window is up to a
twelfth longer than its name says; `Activity.for_s` is its length. In a topology that is younger, it
begins with the topology; after a restart of the master, with the first complete reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sunshower.runtime.events.latencies import Latencies, LatencyKind
from sunshower.runtime.events.metrics import Activity, Counts, TaskStats

WINDOWS_S = {"1m": 60.0, "10m": 600.0, "1h": 3600.0}  # the names, and the lengths in seconds
ALL = "all"  # the name of the time since the topology was submitted
NAMES = (*WINDOWS_S, ALL)
_PARTS = 12  # copies in each window


@dataclass(frozen=True)
class Totals:
    """What one component has done since the topology was submitted."""

    counts: Counts = field(default_factory=Counts)
    latencies: Mapping[LatencyKind, Latencies] = field(default_factory=dict)

    def since(self, before: Totals, for_s: float) -> Activity:
        """What it has done in the `for_s` since `before`."""
        found = {
            kind: latencies.since(before.latencies.get(kind, _NONE))
            for kind, latencies in self.latencies.items()
        }
        return Activity(for_s, self.counts.since(before.counts), found)


_NONE = Latencies()
_NOTHING = Totals()


def add_up(kept: Mapping[str, Totals], tasks: Iterable[TaskStats]) -> dict[str, Totals]:
    """The totals of each component: those `kept` of former processes, and those of `tasks`."""
    parts = {component: [totals] for component, totals in kept.items()}
    for task in tasks:
        own = Totals(task.counts, task.latencies_by_kind)
        parts.setdefault(task.component, []).append(own)
    return {component: _sum(found) for component, found in parts.items()}


def _sum(totals: list[Totals]) -> Totals:
    latencies = {
        kind: Latencies.sum_of(one.latencies[kind] for one in totals if kind in one.latencies)
        for kind in dict.fromkeys(kind for one in totals for kind in one.latencies)
    }
    return Totals(Counts.sum_of(one.counts for one in totals), latencies)


class _Copy(NamedTuple):
    """The totals as they were from `from_s` to `to_s`."""

    from_s: float
    to_s: float
    totals: Mapping[str, Totals]


class TimeWindows:
    """Copies of the totals, for the windows. Memory is bounded: 14 copies for each window."""

    def __init__(self, begin_s: float | None) -> None:
        """`begin_s`: when counting began, all totals zero; None: unknown."""
        self._copies: dict[str, deque[_Copy]] = {name: deque() for name in WINDOWS_S}
        self._changed_s = begin_s  # when the totals changed the last time
        if begin_s is not None:
            for copies in self._copies.values():
                copies.append(_Copy(begin_s, begin_s, {}))

    def change(
        self, now: float, totals: Callable[[], Mapping[str, Totals]], *, is_complete: bool
    ) -> None:
        """The totals change now; `totals` returns them as they are before that. `is_complete`:
        whether all tasks are among them; without a known begin, the first complete ones are it."""
        if self._changed_s is None and not is_complete:
            return
        since_s = now if self._changed_s is None else self._changed_s
        self._changed_s = now
        copy: _Copy | None = None
        for name, length_s in WINDOWS_S.items():
            copies = self._copies[name]
            if not copies or now - copies[-1].to_s >= length_s / _PARTS:
                copy = copy or _Copy(since_s, now, totals())
                copies.append(copy)
                while len(copies) > 1 and copies[1].from_s <= now - length_s:
                    copies.popleft()

    def at(self, now: float, totals: Mapping[str, Totals]) -> dict[str, dict[str, Activity]]:
        """The activity of each component by window, if `totals` are those of now; empty before the
        first copy."""
        if self._changed_s is None:
            return {}
        found, last = {}, _Copy(self._changed_s, now, totals)
        for name, length_s in WINDOWS_S.items():
            begin_s, copies = now - length_s, [*self._copies[name], last]
            before = next((one for one in reversed(copies) if one.from_s <= begin_s), copies[0])
            for_s = now - min(max(begin_s, before.from_s), before.to_s)
            found[name] = {
                component: one.since(before.totals.get(component, _NOTHING), for_s)
                for component, one in totals.items()
            }
        return found
