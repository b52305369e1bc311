"""Sessions of an ordinary stream: the rows of a group until none arrives for a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter
from typing import Any

from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.aggregated_windows import AggregatedWindows
from sunshower.topologies.operators.windows.watermarks import ReachedTime
from sunshower.topologies.operators.windows.window_kinds import Sessions

_SESSIONS = "sessions"
Session = list[Any]  # the times of its first and its last row, and its content


class SessionWindows(AggregatedWindows[Sessions]):
    """Sessions, each called by its end, which is `gap` after its last row."""

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
        parts = self.parts(rows, attempt)
        keys = {group: (_SESSIONS, group) for group, _ in parts}
        self.store.fetch(keys.values())
        changed: dict[Any, list[Session]] = {}
        for (group, time), content in parts.items():
            if group not in changed:
                changed[group] = self.store.get(keys[group]) or []
            sessions = changed[group]
            near = [one for one in sessions if self._is_near(one, time)]
            if not near and time + self.window.gap <= self._time:
                yield from self.results(group, time + self.window.gap, content)
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
            for session in sorted(self.store.get((_SESSIONS, group)) or [], key=itemgetter(0)):
                if (end := session[1] + self.window.gap) <= time:
                    made += self.results(group, end, session[2])
                else:
                    left.append(session)
            if left:
                self.store.put((_SESSIONS, group), left)
            else:
                self.store.remove((_SESSIONS, group))
        return made

    def _is_near(self, session: Session, time: float) -> bool:
        return bool(session[0] - self.window.gap < time < session[1] + self.window.gap)

    def place_of(self, time: float) -> float:
        return time
