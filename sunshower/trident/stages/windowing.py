"""Windows whose contents are in a state, written in the commit phase, so each row counts once.

The open time windows of a task are one value of its state. Count windows have one value per group,
so a batch reads and writes only its own groups. The value includes the rows that the last batch
fired: a batch that is committed again finds them, or computes them from the value before. Storm
keeps windows outside the batch, and counts the rows of each attempt again (STORM-3280):
org.apache.storm.trident.windowing.WindowTridentProcessor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from math import inf
from typing import Any

from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.grouping import group_keys, values_of_key
from sunshower.topologies.operators.keyed.stored_texts import hashable, listed
from sunshower.topologies.operators.persisting import Persist
from sunshower.topologies.operators.port import Attempt, Emit
from sunshower.topologies.operators.states import MapState
from sunshower.topologies.operators.windows.event_times import (
    Panes,
    Time,
    TimeField,
    TimeReader,
    highest,
    length_of,
    minus,
)
from sunshower.topologies.operators.windows.pane_values import PaneValues
from sunshower.topologies.operators.windows.window_kinds import Window, with_dates
from sunshower.trident.stages.persisting import StateSlot

KEY = "$windows"
Contents = dict[int, list[Any]]  # pane → a value per aggregator, or its rows


class WindowContents:
    """The stored value: the open panes of each group, the time reached, and the rows last fired."""

    def __init__(self, stored: Any) -> None:
        stored = stored or {"time": None, "late": 0, "groups": []}
        self.time: Time | None = stored["time"]  # of the latest row, or batch
        self.late: int = stored["late"]  # rows that arrived after their windows had ended
        self.groups: dict[Any, tuple[int, Contents]] = {  # group → (rows so far, panes)
            hashable(key): (
                rows,
                {pane: [*values] for pane, values in panes},  # a copy: `stored` must not change
            )
            for key, rows, panes in stored["groups"]
        }

    def stored(self, fired: list[Any]) -> dict[str, Any]:
        groups = [
            [listed(key), rows, [[pane, values] for pane, values in panes.items()]]
            for key, (rows, panes) in self.groups.items()
        ]
        return {"time": self.time, "late": self.late, "groups": groups, "fired": fired}


class Windows(Persist):
    """Emits rows (fields of the group, window, what the aggregators emit for its rows). `window` is
    the end of a time window, or the number of a count window, from 0."""

    def __init__(
        self,
        slot: StateSlot,
        window: Window,
        schema: Schema,
        by: Sequence[str],
        aggregators: Sequence[AnyAggregator],
        out: Schema,
        spout: str,
    ) -> None:
        """`spout`: the one whose rows these are, for errors."""
        super().__init__(slot)
        self.window, self.schema, self.by, self.out = window, schema, tuple(by), out
        self.contents = PaneValues(schema, aggregators)
        self.panes, self._late = Panes(window.every), length_of(window.late)
        self.reader: TimeReader | None = None
        if window.field is not None:
            self.reader = TimeField(window.field, window.zone).reader(schema)
            self.reader.what += f" of a row of spout {spout!r}"

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._clock = context.clock
        self._shift: float | None = None  # a new life's clock may be behind the old one's
        self._next_end: Time = -inf  # no window ends before this batch time

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        by_batch = self.reader is None and not self.window.by_count
        again = attempt.attempt > 0  # an earlier attempt may have fired and moved the next end
        if not batch and by_batch and (again or self._now() >= self._next_end):
            batch = _Nothing()  # windows may end without a row, because time has passed
        try:
            super().finish(batch, attempt, emit)
        except BaseException:
            self._next_end = -inf  # the computed end was not stored
            raise

    def figures(self) -> Mapping[str, float]:
        """How many times were read that occur twice in their zone, or never."""
        return {} if self.reader is None else self.reader.figures()

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        if self.window.by_count:
            groups: dict[Any, list[Any]] = {}
            for key, row in zip(group_keys(self.schema, self.by, batch), batch, strict=True):
                groups.setdefault((KEY, key), []).append(row)
        else:
            groups = {KEY: batch}
        updates = [partial(self._update, rows, attempt) for rows in groups.values()]
        values = state.multi_update(list(groups), updates)
        fired = [row for value in values for row in value["fired"]]
        width = len(self.by)
        rows = [(*map(hashable, row[:width]), *row[width:]) for row in fired]
        return self.out.make(with_dates(self.out, width, rows))

    def _now(self) -> float:
        return self._clock.now() + (self._shift or 0.0)

    def _update(self, rows: Sequence[Any], attempt: Attempt, old: Any) -> Any:
        contents = WindowContents(old)
        if self.window.by_count:
            fired = self._by_count(contents, rows, attempt)
        else:
            fired = self._by_time(contents, rows, attempt)
        return contents.stored(fired)

    def _by_count(
        self, contents: WindowContents, rows: Sequence[Any], attempt: Attempt
    ) -> list[Any]:
        """Process rows of one group."""
        every, key = int(self.window.every), next(iter(group_keys(self.schema, self.by, rows)))
        before, panes = contents.groups.get(key, (0, {}))
        after = before + len(rows)
        contents.groups[key] = (after, panes)
        places = [(key, count // every) for count in range(before, after)]
        self._add(contents, places, rows, attempt)
        return self._fire(key, panes, before // every - 1, after // every - 1, attempt)

    def _by_time(
        self, contents: WindowContents, rows: Sequence[Any], attempt: Attempt
    ) -> list[Any]:
        before = -inf if contents.time is None else self._last_ended(contents.time)
        times = self._times(contents, rows)
        keys = group_keys(self.schema, self.by, rows)
        places = [*zip(keys, self.panes.of_times(times), strict=False)]
        last = before - self.window.panes + 1  # no open window has panes up to here
        on_time = [place[1] > last for place in places]
        if not all(on_time):
            contents.late += on_time.count(False)
            places = [place for place, good in zip(places, on_time, strict=True) if good]
            rows = [row for row, good in zip(rows, on_time, strict=True) if good]
        self._add(contents, places, rows, attempt)
        contents.time = highest([*times, -inf if contents.time is None else contents.time])
        ended = self._last_ended(contents.time)
        fired = []
        for key in list(contents.groups):
            panes = contents.groups[key][1]
            fired += self._fire(key, panes, before, ended, attempt)
            if not panes:
                del contents.groups[key]
        first = min((min(panes) for _, panes in contents.groups.values()), default=None)
        self._next_end = inf if first is None else self.panes.start(max(first, ended + 1) + 1)
        return fired

    def _last_ended(self, time: Time) -> int:
        """The last pane that has ended when a row of this time is read."""
        return self.panes.of_time(minus(time, self._late)) - 1

    def _times(self, contents: WindowContents, rows: Sequence[Any]) -> list[Time]:
        if self.reader is not None:
            return self.reader.times(rows)
        if self._shift is None:
            behind = 0.0 if contents.time is None else float(contents.time) - self._clock.now()
            self._shift = max(0.0, behind)
        return [self._now()] * max(1, len(rows))

    def _add(
        self,
        contents: WindowContents,
        places: Sequence[tuple[Any, int]],
        rows: Sequence[Any],
        attempt: Attempt,
    ) -> None:
        """Add rows to the panes of their groups."""
        for (key, pane), content in self.contents.gather(places, rows, attempt).items():
            panes = self._panes(contents, key)
            panes[pane] = self.contents.merged(panes[pane], content) if pane in panes else content

    def _panes(self, contents: WindowContents, key: Any) -> Contents:
        return contents.groups.setdefault(key, (0, {}))[1]

    def _fire(
        self, key: Any, panes: Contents, before: float, ended: float, attempt: Attempt
    ) -> list[Any]:
        """The rows of windows that have ended; panes that no window needs are removed."""
        count = self.window.panes
        lasts = {pane + more for pane in panes for more in range(count)}  # last panes of windows
        fired: list[Any] = []
        for last in sorted(last for last in lasts if before < last <= ended):
            within = [panes[pane] for pane in range(last - count + 1, last + 1) if pane in panes]
            name = last if self.window.by_count else self.panes.start(last + 1)
            head = (*map(listed, values_of_key(key, len(self.by))), name)
            content = reduce(self.contents.merged, within)
            fired += [[*head, *row] for row in self.contents.results(key, content, attempt)]
        for pane in [pane for pane in panes if pane + count - 1 <= ended]:
            del panes[pane]
        return fired


class _Nothing(list[Any]):
    """An empty list that is true, so that `write` is called without rows."""

    def __bool__(self) -> bool:
        return True
