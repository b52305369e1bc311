"""Sessions of the records of a group; separate because their ends move, unlike those of panes.

A session ends when its group has had no record for a gap; two of them become one if a record is
near both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count as count_from
from itertools import islice
from math import inf
from typing import Any, Self, TypeAlias

from sunshower.records import Schema, key_of
from sunshower.topologies.operators.aggregating import group_keys
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Key
from sunshower.topologies.operators.windows.aggregated_windows import (
    NUMBERED,
    AggregatedWindows,
    CombinePanes,
    NumberedResults,
    ResultKind,
    ResultStage,
)
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeReader,
    exact,
    excess,
    is_before,
    length_of,
    lowest,
    minus,
    plus,
)
from sunshower.topologies.operators.windows.panes import PARTS, Content
from sunshower.topologies.operators.windows.watermarks import ReachedTime
from sunshower.topologies.operators.windows.window_kinds import Sessions
from sunshower.topologies.operators.windows.window_operator import DueTimes

_DEPTH = 3  # of the lists of sessions: all of a group, each, and its content
Session: TypeAlias = list[Any]  # the times of its first and its last row, and its content


@dataclass
class _Growing:
    """The content of a session that grows with its rows: as in panes, that of each batch is stored
    apart. A session has parts of several numbers if sessions have become one."""

    parts: dict[int, int]  # a number, and how many parts have it, in their order
    new: list[Content]  # what is not stored yet

    @classmethod
    def of(cls, stored: Any) -> Self:
        """The content that is stored so; before parts, all of it."""
        if isinstance(stored, dict):
            return cls(dict(stored[PARTS]), [])
        return cls({}, [stored])

    def keys(self, word: str, group: Any) -> list[tuple[Any, ...]]:
        every = self.parts.items()
        return [(word, group, number, part) for number, count in every for part in range(count)]


class CombineSessions(CombinePanes):
    """Emits this task's parts of sessions: rows (fields of the group, times of the first and the
    last record, number of records, values)."""

    def __init__(
        self,
        schema: Schema,
        by: Sequence[str],
        aggregators: Sequence[AnyAggregator],
        reader: TimeReader,
        gap: Time,
    ) -> None:
        super().__init__(schema, by, aggregators, reader, None)
        self._gap = gap

    def _panes_of(self, rows: Sequence[Any], times: Sequence[Any]) -> Sequence[Any]:
        kinds, gap = {*map(type, times)}, self._gap
        if kinds not in ({int}, {float}):  # rare: each record is a part of its own
            return [*zip(times, times, strict=True)]
        are_ints = kinds == {int} and type(gap) is int
        groups = [*islice(group_keys(self.schema, self.by, rows), len(times))]
        spans = [list[Any]()] * len(times)  # of each row: first and last time of its part
        newest: dict[Any, list[Any]] = {}  # by group
        for at in sorted(range(len(times)), key=times.__getitem__):
            time, group = times[at], groups[at]
            span = newest.get(group)
            if span is None or (
                time - span[1] >= gap if are_ints else excess(span[1], time, gap) >= 0
            ):
                newest[group] = spans[at] = [time, time]
            else:
                span[1] = time
                spans[at] = span
        return [*map(tuple, spans)]

    def _columns_of(self, panes: Sequence[Any]) -> Iterable[Sequence[Any]]:
        return zip(*panes, strict=True)


class SessionWindows(AggregatedWindows[Sessions]):
    """Sessions, each called by its end, which is `gap` after its last row. A place is the times of
    the first and the last row of a part of one."""

    place_word, place_fields = "sessions", 2

    @cached_property
    def _gap(self) -> Time:
        return length_of(self.window.gap)

    def forget(self) -> None:
        self._ends = DueTimes()  # no session of a group ends before its time
        self._ended = DueTimes()  # the same of sessions that have ended, and are kept
        self._changed: dict[Any, tuple[Any, Time]] = {}  # since their last early result: group, end
        if self.is_repeated:
            self._results = NumberedResults(self.store)

    def load(self, key: Any, stored: Any) -> None:
        if key[0] == NUMBERED:
            if self.is_repeated:
                self._results.note(key[1], key[2], self.store.read(stored))
            return
        for _, last, _ in self.store.read(stored) if len(key) == 2 else ():  # not of parts
            end = self.end_of(last)
            self._ends.expect(key[1], end)
            if self.allowed:
                self._ended.expect(key[1], end)
            if self._every_s < inf:
                self._changed[key_of((key[1], end))] = key[1], end

    def time(self, reached: ReachedTime) -> Time:
        return reached.time(self.late, keep=self.keeps_open)

    @property
    def has_open(self) -> bool:
        return self._ends.first < inf

    def add(self, rows: Sequence[Any], attempt: Attempt) -> Iterable[Sequence[Any]]:
        parts, late = self.parts(rows, attempt), dict[tuple[Any, Any], Time]()
        groups = [*dict.fromkeys(group for group, _ in parts)]
        before = dict(zip(groups, self._stored_all(groups), strict=True))
        changed = {group: [*sessions] for group, sessions in before.items()}
        closed, is_near, grows = minus(self._time, self.allowed), self._is_near, self.contents.grows
        too_late: dict[Any, list[Session]] = {}  # by group
        for (group, (first, last)), content in self._in_order(parts, closed):
            sessions = changed[group]
            joined: Session = [first, last, _Growing({}, [content]) if grows else content]
            if len(sessions) == 1 and is_near(sessions[0], first, last):  # most records
                sessions[0] = self._joined(sessions[0], joined)
                continue
            near = [at for at, session in enumerate(sessions) if is_near(session, first, last)]
            if not near:
                if not is_before(closed, end := self.end_of(last)):
                    late[group, (first, last)] = end
                    self._add_late(too_late.setdefault(group, []), first, last, content)
                    continue
                self._ends.expect(group, end)
            for at in near:
                joined = self._joined(sessions[at], joined)
            for at in reversed(near):
                del sessions[at]
            sessions.append(joined)
        for group, sessions in too_late.items():
            for _, last, content in sessions:
                yield from self.results(group, self.end_of(last), content)
        if self.is_repeated:
            for group, sessions in changed.items():
                self._note_changed(group, before[group], sessions)
        self._put({group: sessions for group, sessions in changed.items() if sessions})
        self.note_late(late, parts, rows)

    def _add_late(self, sessions: list[Session], first: Time, last: Time, content: Content) -> None:
        """Add a part that is late, and not after those before it: it is one row with what is near
        to it, whichever task has combined that."""
        if sessions and self._is_near(sessions[-1], first, last):
            begin, end, more = sessions[-1]
            begin = first if is_before(first, begin) else begin
            sessions[-1] = [begin, end, self.contents.merged(more, content)]
        else:
            sessions.append([first, last, content])

    def _in_order(
        self, parts: Mapping[tuple[Any, Any], Content], closed: Time
    ) -> Iterable[tuple[tuple[Any, Any], Content]]:
        """Parts of sessions in an order in which what is late does not depend on how records were
        combined: if some may be, the last ones first, which those before them may be near to."""
        if is_before(closed, self.end_of(lowest(last for _, (_, last) in parts))):
            return parts.items()
        return sorted(parts.items(), key=lambda part: exact(part[0][1][1]), reverse=True)

    def _note_changed(
        self, group: Any, before: Sequence[Session], sessions: Sequence[Session]
    ) -> None:
        """Note which sessions of a group need another result, or have become others."""
        are_there = {*map(id, before)}
        ends = {exact(self.end_of(session[1])) for session in sessions}
        self.store.fetch((NUMBERED, group, self.end_of(session[1])) for session in before)
        for end in (self.end_of(session[1]) for session in before):
            if exact(end) not in ends:
                self._changed.pop(key_of((group, end)), None)
                if number := self._results.get(group, end).number:
                    self._results.put(group, end, number, ResultStage.GONE)
        for end in (self.end_of(other[1]) for other in sessions if id(other) not in are_there):
            number, stage = self._results.get(group, end)
            self._ends.expect(group, end)
            if stage is ResultStage.ENDED:
                self._results.put(group, end, number, ResultStage.CHANGED)
            elif self._every_s < inf:
                self._changed[key_of((group, end))] = group, end

    def _joined(self, session: Session, other: Session) -> Session:
        """The session that two of them become."""
        (first, last, content), (other_first, other_last, more) = session, other
        if self.contents.grows:
            content = _Growing(content.parts | more.parts, content.new + more.new)
        else:
            content = self.contents.merged(content, more)
        return [
            first if is_before(first, other_first) else other_first,
            last if is_before(other_last, last) else other_last,
            content,
        ]

    def _stored(self, group: Any) -> Sequence[Session]:
        (sessions,) = self._stored_all([group])
        return sessions

    def _stored_all(self, groups: Iterable[Any]) -> Iterable[Sequence[Session]]:
        """The sessions of groups. They may be those of the store: do not change them."""
        for sessions in self.store.view([(self.place_word, group) for group in groups], _DEPTH):
            if not sessions:
                yield ()
            elif not self.contents.grows:
                yield sessions
            else:
                yield [[first, last, _Growing.of(content)] for first, last, content in sessions]

    def _put(self, sessions: Mapping[Any, Sequence[Session]]) -> None:
        """Put the sessions of groups; none: there are none left."""
        changes: dict[Key, Any] = {}
        for group, several in sessions.items():
            listed: Any = several or None
            if several and self.contents.grows:
                changes |= self._new_parts(group, [session[2] for session in several])
                listed = [
                    [first, last, {PARTS: [[*pair] for pair in content.parts.items()]}]
                    for first, last, content in several
                ]
            changes[self.place_word, group] = listed
        self.store.replace(changes, _DEPTH)

    def _new_parts(self, group: Any, contents: Sequence[_Growing]) -> dict[Key, Any]:
        """What is new in the contents of all sessions of a group: the entries with it."""
        unused = count_from(max(max(each.parts, default=-1) for each in contents) + 1)
        parts: dict[Key, Any] = {}
        for each in contents:
            if each.new:
                number = next(reversed(each.parts)) if each.parts else next(unused)
                part = each.parts.get(number, 0)
                parts[self.place_word, group, number, part] = self.contents.merged_all(each.new)
                each.parts[number] = part + 1
        return parts

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        groups = [group for _, group in self._ends.due(time)]
        rows, remaining = self._removals() if self.is_repeated else [], dict[Any, list[Session]]()
        for group, sessions in zip(groups, self._stored_all(groups), strict=True):
            left = remaining[group] = []
            for session in sorted(sessions, key=lambda session: exact(session[0])):
                if is_before(time, end := self.end_of(session[1])):
                    left.append(session)
                    self._ends.expect(group, end)
                elif self.is_repeated:
                    rows += self._final(group, end, session[2])
                    if self.allowed:
                        left.append(session)
                        self._ended.expect(group, end)
                else:
                    rows += self.results(group, end, self._taken(group, session[2]))
        self._put(remaining)
        return rows

    def _removals(self) -> list[Sequence[Any]]:
        """The rows that take back the results of sessions that have become others."""
        rows: list[Sequence[Any]] = []
        for group, end in self._results.due():
            number, stage = self._results.get(group, end)
            if stage is ResultStage.GONE:
                rows.append(self.removal(group, end, number + 1))
                self._results.remove(group, end)
        return rows

    def _final(self, group: Any, end: Time, content: Any) -> Iterable[Sequence[Any]]:
        """The rows of a session that has ended, or has changed since; none if neither is so."""
        self._changed.pop(key_of((group, end)), None)
        stage = self._results.get(group, end).stage
        if stage is ResultStage.ENDED:
            return ()
        kind = ResultKind.UPDATE if stage is ResultStage.CHANGED else ResultKind.FINAL
        number = self._results.next(group, end, ResultStage.ENDED)
        taken = self._taken(group, content, removes=not self.allowed)
        if not self.allowed:
            self._results.remove(group, end)
        return self.results(group, end, taken, kind=kind, number=number)

    def drop(self, time: Time) -> None:
        closed = minus(time, self.allowed)
        for _, group in [*self._ended.due(closed)]:
            left = []
            for session in self._stored(group):
                end = self.end_of(session[1])
                if self._results.get(group, end).stage is not ResultStage.ENDED:
                    left.append(session)
                elif is_before(closed, end):
                    left.append(session)
                    self._ended.expect(group, end)
                else:
                    self._taken(group, session[2])
                    self._results.remove(group, end)
            self._put({group: left})

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def changed(self) -> list[Sequence[Any]]:
        changed, self._changed = self._changed, {}
        self.store.fetch((self.place_word, group) for group, _ in changed.values())
        rows: list[Sequence[Any]] = []
        for group, end in changed.values():
            for session in self._stored(group):
                if exact(self.end_of(session[1])) == exact(end) and is_before(self._time, end):
                    content = self._taken(group, session[2], removes=False)
                    number = self._results.next(group, end, ResultStage.OPEN)
                    rows += self.results(group, end, content, kind=ResultKind.EARLY, number=number)
        return rows

    def _taken(self, group: Any, content: Any, *, removes: bool = True) -> Content:
        """The content of a session; its parts are removed if it has ended."""
        if not self.contents.grows:
            return content  # type: ignore[no-any-return]
        keys = content.keys(self.place_word, group)
        self.store.fetch(keys)
        contents = [*map(self.store.get, keys), *content.new]
        for key in keys if removes else ():
            self.store.remove(key)
        return self.contents.merged_all(contents)

    def _is_near(self, session: Session, begin: Time, end: Time) -> bool:
        """Whether rows from `begin` to `end` belong to a session."""
        first, last, _ = session
        gap = self._gap
        if type(begin) is type(end) is int and type(first) is type(last) is type(gap) is int:
            return first - gap < end and begin < last + gap
        return excess(end, first, gap) < 0 and excess(last, begin, gap) < 0

    def end_of(self, time: Time) -> Time:
        return plus(time, self._gap)

    def places_of(self, times: Sequence[Time]) -> Sequence[Any]:
        return [*zip(times, times, strict=True)]
