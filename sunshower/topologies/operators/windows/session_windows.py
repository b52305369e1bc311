"""Sessions of an ordinary stream: the rows of a group until none comes for a while."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from sunshower.records import Schema
from sunshower.topologies.operators.grouping import group_keys, keys_of_partial, values_of_key
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.pane_values import Content, PaneValues
from sunshower.topologies.operators.windows.watermarks import ReachedTime, event_time
from sunshower.topologies.operators.windows.window_kinds import Sessions
from sunshower.topologies.operators.windows.window_operator import WindowOperator

_SESSIONS = "sessions"
_LATEST = Attempt(0, 0, 0)
Session = list[Any]  # the times of its first and its last row, and its content


class SessionWindows(WindowOperator):
    """Its rows are (fields of the group, end of the session, what the aggregators emit). The end is
    `gap` after the last row. If the aggregators combine, rows come from CombinePanes."""

    def __init__(
        self,
        store: KeyedStore,
        window: Sessions,
        contents: PaneValues,
        by: Sequence[str],
        out: Schema,
    ) -> None:
        super().__init__(store, by, out)
        self.window, self.contents = window, contents
        self._event_time = contents.schema.key([window.field])

    def forget(self) -> None:
        self._ends: list[tuple[float, int, Any]] = []  # a heap: end, a tie-breaker, group
        self._order = count()

    def load(self, key: Any, value: Any) -> None:
        for _, last, _ in value:
            self._ends.append((last + self.window.gap, next(self._order), key[1]))
        heapify(self._ends)

    def time(self, reached: ReachedTime) -> float:
        return reached.time(self.window.late)

    def add(self, rows: Sequence[Any], attempt: Attempt) -> Iterable[Sequence[Any]]:
        parts = self._parts(rows, attempt)
        keys = {group: (_SESSIONS, group) for group, _ in parts}
        self.store.fetch(keys.values())
        changed: dict[Any, list[Session]] = {}
        for (group, time), content in parts.items():
            if group not in changed:
                changed[group] = self.store.get(keys[group]) or []
            sessions = changed[group]
            near = [one for one in sessions if self._is_near(one, time)]
            if not near and time + self.window.gap <= self._time:
                yield from self._results(group, [time, time, content])
                continue
            session: Session = [time, time, content]
            for one in near:
                sessions.remove(one)
                first, last = min(one[0], session[0]), max(one[1], session[1])
                session = [first, last, self.contents.merged(one[2], session[2])]
            sessions.append(session)
            end = session[1] + self.window.gap
            heappush(self._ends, (end, next(self._order), group))
        for group, sessions in changed.items():
            if sessions:
                self.store.put(keys[group], sessions)

    def end(self, before: float, time: float) -> list[Sequence[Any]]:
        groups: dict[Any, None] = {}
        while self._ends and self._ends[0][0] <= time:
            groups[heappop(self._ends)[2]] = None
        self.store.fetch((_SESSIONS, group) for group in groups)
        made: list[Sequence[Any]] = []
        for group in groups:
            left = []
            for session in sorted(self.store.get((_SESSIONS, group)) or [], key=_first):
                if session[1] + self.window.gap <= time:
                    made += self._results(group, session)
                else:
                    left.append(session)
            if left:
                self.store.put((_SESSIONS, group), left)
            else:
                self.store.remove((_SESSIONS, group))
        return made

    def _is_near(self, session: Session, time: float) -> bool:
        return bool(session[0] - self.window.gap < time < session[1] + self.window.gap)

    def _parts(self, rows: Sequence[Any], attempt: Attempt) -> dict[tuple[Any, float], Content]:
        """The contents of these rows, by group and event time."""
        width = self.width
        if self.contents.combines:
            parts: dict[tuple[Any, float], Content] = {}
            for group, row in zip(keys_of_partial(width, rows), rows, strict=True):
                place, content = (group, row[width]), list(row[width + 1 :])
                old = parts.get(place)
                parts[place] = content if old is None else self.contents.merged(old, content)
            return parts
        groups = group_keys(self.contents.schema, self.by, rows)
        times = [event_time(self._event_time(row)) for row in rows]
        return self.contents.gather([*zip(groups, times, strict=True)], rows, attempt)

    def _results(self, group: Any, session: Session) -> Iterable[Sequence[Any]]:
        head = (*values_of_key(group, self.width), session[1] + self.window.gap)
        return [(*head, *row) for row in self.contents.results(group, session[2], _LATEST)]


def _first(session: Session) -> Any:
    return session[0]
