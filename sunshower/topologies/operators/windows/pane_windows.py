"""Tumbling and sliding windows of an ordinary stream, by event time, by the clock, or by count."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from math import inf
from typing import Any

from sunshower.records import Schema
from sunshower.topologies.operators.aggregating import AggregatorOperator
from sunshower.topologies.operators.aggregators import AnyAggregator, count
from sunshower.topologies.operators.grouping import group_keys, values_of_key
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.keyed.moved_parts import BEHIND, is_own
from sunshower.topologies.operators.port import Attempt, Emit
from sunshower.topologies.operators.windows.aggregated_windows import AggregatedWindows
from sunshower.topologies.operators.windows.event_times import (
    Panes,
    Time,
    TimeReader,
    as_float,
    lowest,
)
from sunshower.topologies.operators.windows.pane_values import PaneValues
from sunshower.topologies.operators.windows.watermarks import ReachedTime
from sunshower.topologies.operators.windows.window_kinds import Window

_PANE, _ROWS, _FULL = "pane", "rows", "full"


class CombinePanes(AggregatorOperator):
    """Emits this task's part of panes of event time: rows (fields of the group, pane, number of
    records, values)."""

    def __init__(
        self,
        schema: Schema,
        by: Sequence[str],
        aggregators: Sequence[AnyAggregator],
        reader: TimeReader,
        every: float | None,
    ) -> None:
        """`every`: the length of a pane; None: each time is a pane of its own."""
        super().__init__(schema, by, aggregators)
        counts = (type(each) is count and each.field is None for each in aggregators)
        self._counter = next((at for at, is_one in enumerate(counts) if is_one), None)
        self.reader, self.panes = reader, None if every is None else Panes(every)

    def start(self, attempt: Attempt) -> Any:
        attempt, tables = super().start(attempt)
        own = self._counter
        return attempt, tables, Counter[Any]() if own is None else tables[own]

    def process(self, batch: Any, source: int, rows: Sequence[Any], emit: Emit) -> None:
        attempt, tables, counts = batch
        times = self.reader.times(rows)
        panes = times if self.panes is None else self.panes.of_times(times)
        places = [*zip(group_keys(self.schema, self.by, rows), panes, strict=False)]
        if self._counter is None:
            counts.update(places)
        for aggregator, table in zip(self.aggregators, tables, strict=True):
            aggregator.gather(table, places, rows, attempt)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        _, tables, counts = batch
        width = len(self.by)
        made = [
            (*values_of_key(key, width), pane, number, *(table[key, pane] for table in tables))
            for (key, pane), number in counts.items()
        ]
        if made:
            emit(made)


class PaneWindows(AggregatedWindows[Window]):
    """Windows of time, each called by its end."""

    _shift: float | None = None  # of the clock, once it is read

    def __init__(
        self,
        store: KeyedStore,
        window: Window,
        contents: PaneValues,
        by: Sequence[str],
        out: Schema,
    ) -> None:
        super().__init__(store, window, contents, by, out)
        self.panes = Panes(window.every)

    def forget(self) -> None:
        self._open: defaultdict[int, dict[Any, None]] = defaultdict(dict)  # pane → its groups
        self._behind: dict[Any, Time] = {}  # group → up to where its windows have ended

    def load(self, key: Any, value: Any) -> None:
        if is_own(key):
            self._behind[key[1]] = value
            return
        _, group, pane = key
        self._open[pane][group] = None

    def time(self, reached: ReachedTime) -> Time:
        if self.reader is not None:
            return reached.time(self.late, keep=self.keeps_open)
        return inf if reached.has_ended and not self.keeps_open else self._now()

    def add(self, rows: Sequence[Any], attempt: Attempt) -> Iterable[Sequence[Any]]:
        parts, merged = self.parts(rows, attempt), self.contents.merged
        last = self._last_ended(self._time) - self.window.panes + 1  # no open window has panes
        late = {  # up to here
            place: self.panes.start(place[1] + self.window.panes)
            for place in parts
            if place[1] <= last
        }
        self.note_late(late, parts, rows)
        keys = {place: (_PANE, *place) for place in parts if place[1] > last}
        self.store.fetch(keys.values())
        for place, key in keys.items():
            old = self.store.get(key)
            self.store.put(key, parts[place] if old is None else merged(old, parts[place]))
            self._open[place[1]][place[0]] = None
        for (group, pane), end in late.items():
            yield from self.results(group, end, parts[group, pane])

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        width, opened = self.window.panes, self._open
        ended = max(opened, default=0) + width if time == inf else self._last_ended(time)
        lasts = {pane + more for pane in opened for more in range(width)}
        behind, self._behind = self._behind, {}
        first = lowest([before, *behind.values()])
        due = sorted(last for last in lasts if self._last_ended(first) < last <= ended)
        made: list[Sequence[Any]] = []
        for last in due:
            end = self.panes.start(last + 1)
            panes = [pane for pane in range(last - width + 1, last + 1) if pane in opened]
            groups = {
                group: None
                for pane in panes
                for group in opened[pane]
                if self._last_ended(behind.get(group, before)) < last
            }
            self.store.fetch((_PANE, group, pane) for pane in panes for group in opened[pane])
            for group in groups:
                within = [
                    self.store.get((_PANE, group, pane)) for pane in panes if group in opened[pane]
                ]
                content = reduce(self.contents.merged, within)
                made += self.results(group, end, content)
        for pane in [pane for pane in opened if pane + width - 1 <= ended]:
            for group in opened.pop(pane):
                self.store.remove((_PANE, group, pane))
        for group in behind:
            self.store.remove((BEHIND, group))
        return made

    def end_of(self, time: Time) -> Time:
        if self.reader is None:
            return inf
        return self.panes.start(self.panes.of_time(time) + self.window.panes)

    def places_of(self, times: Sequence[Time]) -> Sequence[int]:
        return self.panes.of_times(times)

    def place_now(self) -> int:
        return self.panes.of_time(self._now())

    def _last_ended(self, time: Time) -> Time:
        """The last pane whose windows have ended at `time`."""
        return time if time in (inf, -inf) else self.panes.of_time(time) - 1

    def _now(self) -> float:
        """The time of the clock, but none before the time of a former life."""
        if self._shift is None:
            first = max(self._open, default=None)
            known = -inf if first is None else as_float(self.panes.start(first))
            self._shift = max(0.0, max(as_float(self._time), known) - self.clock.now())
        return self.clock.now() + self._shift


class CountWindows(AggregatedWindows[Window]):
    """Windows of a number of rows of each group, each called by its number."""

    def forget(self) -> None:
        self._full: list[Any] = []

    def load(self, key: Any, value: Any) -> None:
        if key == (_FULL,):
            self._full = value

    def time(self, reached: ReachedTime) -> Time:
        return -inf

    def add(self, rows: Sequence[Any], attempt: Attempt) -> Iterable[Sequence[Any]]:
        """Add rows; full windows wait for the next watermark, which brings their rows."""
        every, width, store = int(self.window.every), self.window.panes, self.store
        groups = list(group_keys(self.contents.schema, self.by, rows))
        store.fetch((_ROWS, group) for group in groups)
        known = {group: store.get((_ROWS, group)) or [0, {}] for group in dict.fromkeys(groups)}
        before = {group: rows_so_far for group, (rows_so_far, _) in known.items()}
        places, seen = [], Counter[Any]()
        for group in groups:
            places.append((group, (before[group] + seen[group]) // every))
            seen[group] += 1
        for (group, pane), content in self.contents.gather(places, rows, attempt).items():
            panes = known[group][1]
            old = panes.get(pane)
            panes[pane] = content if old is None else self.contents.merged(old, content)
        full: list[Sequence[Any]] = []
        for group, more in seen.items():
            panes, after = known[group][1], before[group] + more
            for last in range(before[group] // every, after // every):
                within = [panes[p] for p in range(last - width + 1, last + 1) if p in panes]
                content = reduce(self.contents.merged, within)
                full += self.results(group, last, content, attempt)
            left = {pane: panes[pane] for pane in panes if pane + width > after // every}
            store.put((_ROWS, group), [after, left])
        if full:
            self._full = [*self._full, *full]
            store.put((_FULL,), self._full)
        return ()

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        ended, self._full = self._full, []
        if ended:
            self.store.remove((_FULL,))
        return ended
