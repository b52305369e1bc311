"""Sessions of an ordinary stream: the rows of a group until none arrives for a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.aggregated_windows import AggregatedWindows
from sunshower.topologies.operators.windows.event_times import (
    Time,
    exact,
    excess,
    is_before,
    length_of,
    plus,
)
from sunshower.topologies.operators.windows.watermarks import ReachedTime
from sunshower.topologies.operators.windows.window_kinds import Sessions

_SESSIONS = "sessions"
Session = list[Any]  # the times of its first and its last row, and its content


class SessionWindows(AggregatedWindows[Sessions]):
    """Sessions, each called by its end, which is `gap` after its last row."""

    @cached_property
    def _gap(self) -> Time:
        return length_of(self.window.gap)

    def forget(self) -> None:
        self._ends: list[tuple[Time, int, Any]] = []  # a heap: a time, a tie-breaker, group
        self._expected: dict[Any, Time] = {}  # group → its time there: no session ends before
        self._order = count()

    def load(self, key: Any, value: Any) -> None:
        for _, last, _ in value:
            self._expect(key[1], self.end_of(last))

    def time(self, reached: ReachedTime) -> Time:
        return reached.time(self.late, keep=self.keeps_open)

    def add(self, rows: Sequence[Any], attempt: Attempt) -> Iterable[Sequence[Any]]:
        parts, late = self.parts(rows, attempt), dict[tuple[Any, Time], Time]()
        keys = {group: (_SESSIONS, group) for group, _ in parts}
        self.store.fetch(keys.values())
        changed: dict[Any, list[Session]] = {}
        for (group, time), content in parts.items():
            if group not in changed:
                changed[group] = self.store.get(keys[group]) or []
            sessions = changed[group]
            near = [one for one in sessions if self._is_near(one, time)]
            if not near:
                if not is_before(self._time, end := self.end_of(time)):
                    late[group, time] = end
                    yield from self.results(group, end, content)
                    continue
                self._expect(group, end)
            session: Session = [time, time, content]
            for one in near:
                sessions.remove(one)
                first = one[0] if is_before(one[0], session[0]) else session[0]
                last = one[1] if is_before(session[1], one[1]) else session[1]
                session = [first, last, self.contents.merged(one[2], session[2])]
            sessions.append(session)
        for group, sessions in changed.items():
            if sessions:
                self.store.put(keys[group], sessions)
        self.note_late(late, parts, rows)

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        groups: dict[Any, None] = {}
        while self._ends and not is_before(time, self._ends[0][0]):
            at, _, group = heappop(self._ends)
            if self._expected.get(group) == at:
                del self._expected[group]
                groups[group] = None
        self.store.fetch((_SESSIONS, group) for group in groups)
        made: list[Sequence[Any]] = []
        for group in groups:
            left = []
            sessions = self.store.get((_SESSIONS, group)) or []
            for session in sorted(sessions, key=lambda one: exact(one[0])):
                if not is_before(time, end := self.end_of(session[1])):
                    made += self.results(group, end, session[2])
                else:
                    left.append(session)
                    self._expect(group, end)
            if left:
                self.store.put((_SESSIONS, group), left)
            else:
                self.store.remove((_SESSIONS, group))
        return made

    def _expect(self, group: Any, time: Time) -> None:
        """Look at the sessions of a group at `time`."""
        if is_before(time, self._expected.get(group, inf)):
            self._expected[group] = time
            heappush(self._ends, (time, next(self._order), group))

    def _is_near(self, session: Session, time: Time) -> bool:
        first, last, _ = session
        return excess(time, first, self._gap) < 0 and excess(last, time, self._gap) < 0

    def end_of(self, time: Time) -> Time:
        return plus(time, self._gap)

    def places_of(self, times: Sequence[Time]) -> Sequence[Time]:
        return times
