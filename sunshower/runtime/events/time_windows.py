"""The counts of a topology in the last minute, ten minutes and hour, from cumulative counters.

The master copies the totals of each component before they change: at most every five seconds for
the minute, every 50 s for the ten minutes, and every five minutes for the hour. A window is the
difference of the totals of now and the newest copy that is old enough. So a window is up to a
twelfth longer than its name says; `Activity.for_s` is its length. In a topology that is younger, it
begins with the topology; after a restart of the master, with the first complete reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sunshower.runtime.events.metrics import Activity, Totals

WINDOWS_S = {"1m": 60.0, "10m": 600.0, "1h": 3600.0}  # the names, and the lengths in seconds
ALL = "all"  # the name of the time since the topology was submitted
NAMES = (*WINDOWS_S, ALL)
_PARTS = 12  # copies in each window


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
                component: one.since(before.totals.get(component, Totals()), for_s)
                for component, one in totals.items()
            }
        return found
