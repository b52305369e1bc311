"""Random chains of windows, joins, timers and ordered records, and what they make."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Any, ClassVar, NamedTuple, cast

from sunshower import Bolt, Context, KeyState, Topology, collect, sessions, sliding, tumbling
from sunshower.runtime.events.event_log import What
from sunshower.simulation.cluster import SimRun
from sunshower.state import MemoryState
from sunshower.topologies.streams import Stream
from tests.topologies.operators.windows.event_time_swarm import (
    LATE,
    SETTINGS,
    Event,
    EventLog,
    EventProgram,
    LogReader,
)

JOINS = ("join", "left", "between", "until", "semi", "anti")
KINDS = ("tumbling", "sliding", "sessions", "timer", *JOINS, "ordered")
FIELDS = ("key", "at", "ids")


class Row(NamedTuple):
    """What each stage makes: `ids` are the numbers of the events that it follows from."""

    key: int
    at: Any
    ids: tuple[int, ...]


# ---- plain program -------------------------------------------------------------------------------


def pane_of(at: int, length: int, *, are_ends: bool) -> int:
    return (at - 1 if are_ends else at) // length


def windowed(rows: list[Row], length: int, every: int, *, are_ends: bool) -> list[Row]:
    ids: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for row in rows:
        first = (pane_of(row.at, every, are_ends=are_ends) + 1) * every
        for end in range(first, first + length, every):
            ids[row.key, end].update(row.ids)
    return [Row(*place, tuple(sorted(some))) for place, some in ids.items()]


def in_sessions(rows: list[Row], gap: int) -> list[Row]:
    made, groups = [], defaultdict(list)
    for row in sorted(rows, key=lambda row: row.at):
        groups[row.key].append(row)
    for key, group in groups.items():
        session: list[Row] = []
        for row in [*group, None]:
            if session and (row is None or row.at - session[-1].at >= gap):
                ids = {one for some in session for one in some.ids}
                made.append(Row(key, session[-1].at + gap, tuple(sorted(ids))))
                session = []
            session += [row] if row is not None else []
    return made


def joined(left: list[Row], right: list[Row], before: int, after: int, how: str) -> Iterator[Row]:
    """`before`, `after`: from when to when the partners of a left record are, beside its time."""
    for row in left:
        near = [one for one in right if one.key == row.key]
        partners = [one for one in near if -before <= one.at - row.at <= after]
        if how in ("inner", "left"):
            yield from (together(row, one.at, one.ids) for one in partners)
        if how == "semi" if partners else how in ("left", "anti"):
            yield row


def together(row: Row, at: Any, ids: tuple[int, ...]) -> Row:
    return Row(row.key, max(row.at, at), tuple(sorted({*row.ids, *ids})))


def timed(rows: list[Row], length: int) -> list[Row]:
    ids: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for row in rows:
        ids[row.key, (row.at // length + 1) * length].update(row.ids)
    made = [Row(*place, tuple(sorted(some))) for place, some in ids.items()]
    return made + [row for row in rows if passes(row)]


def in_order(rows: list[Row], length: int) -> Iterator[Row]:
    """Each row with the ids of those of its key that are less than `length` before it."""
    for row in rows:
        near = [one for one in rows if one.key == row.key and 0 <= row.at - one.at < length]
        yield Row(row.key, row.at, tuple(sorted({id for one in near for id in one.ids})))


def passes(row: Row) -> bool:
    """Whether a stage with timers emits a row at once, too."""
    return min(row.ids) % 3 == 0


# ---- the same as stages --------------------------------------------------------------------------


def relay(event: Event) -> tuple[int, int, tuple[int, ...]]:
    return event.number % 3, event.at, (event.number,)


def flat(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    return row[0], row[1], tuple(sorted({one for some in row[2] for one in some}))


def paired(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    key, at, ids, other_at, other_ids = row
    if other_at is None:
        return key, at, tuple(ids)
    return tuple(together(Row(key, at, tuple(ids)), other_at, tuple(other_ids)))


def coarse(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    return row[0] // 2, row[1], tuple(row[2])


class Timed:
    """Gathers the ids of each part of event time, until a timer at its end."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, row: Any, state: KeyState[Any]) -> Iterator[tuple[Any, ...]]:
        ids = dict(state.value or ())
        end = (row[1] // self.length + 1) * self.length
        ids[end] = sorted({*ids.get(end, ()), *row[2]})
        state.value, state.timer = [[*one] for one in ids.items()], min(ids)
        if passes(Row(*row)):
            yield tuple(row)

    def on_timer(self, key: Any, state: KeyState[Any]) -> Iterator[tuple[Any, ...]]:
        ids = dict(state.value or ())
        for end in sorted(end for end in ids if end <= state.time):
            yield key if type(key) is int else key[0], end, tuple(ids.pop(end))
        state.value, state.timer = [[*one] for one in ids.items()] or None, min(ids, default=None)


class Ordered:
    """Gathers the ids of the last part of event time: right only if each row that comes is later
    than those before."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, row: Any, state: KeyState[Any]) -> Iterator[tuple[Any, ...]]:
        before = [one for one in state.value or () if row[1] - one[0] < self.length]
        state.value = [*before, [row[1], [*row[2]]]]
        assert before == [one for one in before if one[0] <= row[1]], "not in order"
        yield row[0], row[1], tuple(sorted({id for one in state.value for id in one[1]}))


def numbers_in(values: Any) -> set[int]:
    """The numbers of events in lists, which may be in lists."""
    lists = [value for value in values if isinstance(value, tuple | list)]
    return {
        number
        for some in lists
        for one in some
        for number in (one if isinstance(one, tuple | list) else [one])
    }


class Note(Bolt[Any, None]):
    """Writes its rows to the event log."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        ids = tuple(sorted(numbers_in(record[2:])))
        self.context.wrote(self.kind, (record[0], record[1], ids))


@dataclass
class Part:
    """A stream of the program, and the rows that the plain program has for it."""

    stream: Stream[Any]
    rows: Callable[[], list[Row]]
    kind: str  # what made it
    are_ends: bool  # whether its times are ends of windows
    is_source: bool  # whether a record of a spout may reach it out of order


def other_numbers(run: SimRun, draw: Random) -> None:
    """Give a stage another number of tasks."""
    stage = draw.choice([bolt.id for bolt in run.plan.graph.bolts if re.fullmatch(r"s\d", bolt.id)])
    run.rebalance(tasks={stage: draw.randint(1, 3)}, wait_s=draw.choice((0.0, 5.0)))


class StageProgram(EventProgram):
    """Two to four stages, each behind the one before, or behind that and a source or another."""

    faults: ClassVar = {"other numbers": other_numbers, **EventProgram.faults}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.pairs = Counter[tuple[str, str]]()  # neighbouring kinds
        self.last: Part | None = None

    def _write(self, log: EventLog, part: int, at: float, kind: set[int] | None = None) -> None:
        super()._write(log, part, ceil(at), kind)

    def topology(self) -> Topology:
        draw, topology = self.draw, Topology("stages", spout_pending=64, **SETTINGS)
        sources = [
            self._source(topology, n, log, tasks)
            for n, (log, tasks) in enumerate(zip(self.logs, self.tasks, strict=True))
        ]
        parts, last = [*sources], sources[0]
        for number in range(draw.randint(2, 4)):
            first = KINDS[self.seed // (1 if not number else len(KINDS)) % len(KINDS)]
            kind = first if number < 2 else draw.choice(KINDS)
            self.pairs[last.kind, kind] += number > 0
            last = self._stage(f"s{number}", kind, last, draw.choice(parts))
            parts.append(last)
        last.stream.shuffle().bolt("note", Note("row"))
        self.last = last
        return topology

    def expected(self) -> dict[tuple[int, Any], set[int]]:
        """The rows of the last stage: (key, time) → ids."""
        assert self.last is not None
        return by_place(self.last.rows())

    def _source(self, topology: Topology, number: int, log: EventLog, tasks: int) -> Part:
        reader = LogReader(log, self.draw.choice((1, 4, 50)))
        stream = topology.spout(f"in-{number}", reader, parallelism=tasks).map(relay, fields=FIELDS)

        def rows() -> list[Row]:
            events = (event for part in log.partitions for event in part)
            return [Row(*relay(one)) for one in events if one.number in self.on_time]

        return Part(stream, rows, "source", are_ends=False, is_source=True)

    def _stage(self, name: str, kind: str, last: Part, other: Part) -> Part:
        draw = self.draw
        if kind not in JOINS and draw.random() < 0.3 and other is not last:
            last = _merged(last, other)
        if draw.random() < 0.2:
            last = _coarse(last)
        is_source = last.is_source or (kind in JOINS and other.is_source)
        late, settings = LATE if is_source else 0.0, dict[str, Any](name=name, state=MemoryState())
        settings["parallelism"] = draw.randint(1, 2)
        size, rows, are_ends = draw.choice((4, 6, 15)), last.rows, last.are_ends
        if kind == "tumbling":
            window = tumbling(seconds=size, field="at", late=late, unit="s")
            made = lambda: windowed(rows(), size, size, are_ends=are_ends)  # noqa: E731
        elif kind == "sliding":
            window = sliding(seconds=3 * size, every=size, field="at", late=late, unit="s")
            made = lambda: windowed(rows(), 3 * size, size, are_ends=are_ends)  # noqa: E731
        elif kind == "sessions":
            window = sessions(gap=size, field="at", late=late, unit="s")
            made = lambda: in_sessions(rows(), size)  # noqa: E731
        elif kind == "timer":
            return self._timers(last, size, late, settings)
        elif kind == "ordered":
            ordered = last.stream.group_by("key").in_order("at", late, unit="s")
            after = ordered.process(Ordered(size), fields=FIELDS, **settings)
            after.late.shuffle().bolt(f"{name}-late", Note("late"))
            made = lambda: [*in_order(rows(), size)]  # noqa: E731
            return Part(after, made, kind, are_ends=are_ends, is_source=False)
        else:
            return self._join(kind, last, other, size, late, settings)
        grouped = last.stream.group_by("key")
        found = grouped.window(window, collect("ids"), fields=FIELDS, **settings)
        found.late.shuffle().bolt(f"{name}-late", Note("late"))
        return Part(found.map(flat, fields=FIELDS), made, kind, are_ends=True, is_source=False)

    def _timers(self, last: Part, size: int, late: float, settings: Any) -> Part:
        function, rows = Timed(size), last.rows
        times: Any = {"event_time": "at", "late": late, "unit": "s"}
        stream = last.stream.group_by("key").process(
            function, on_timer=function.on_timer, fields=FIELDS, **times, **settings
        )
        made = lambda: timed(rows(), size)  # noqa: E731
        return Part(stream, made, "timer", are_ends=last.are_ends, is_source=False)

    def _join(
        self, kind: str, last: Part, other: Part, size: int, late: float, settings: Any
    ) -> Part:
        left, right = last.rows, other.rows
        how = kind if kind in ("left", "semi", "anti") else "inner"
        before, after, within = size, size, cast("Any", size)
        if kind in ("between", "semi"):
            within = before, after = size // 2, size
        elif kind == "until":
            before, within = 0, lambda row: (row[1], row[1] + size)
        if how in ("inner", "left"):
            settings |= {"fields": ("key", "at", "ids", "other_at", "other_ids")}
        found = last.stream.join(
            other.stream,
            "key",
            within=within,
            field="at",
            late=late,
            unit="s",
            how=how,
            **settings,
        )
        found.late.shuffle().bolt(f"{settings['name']}-late", Note("late"))
        return Part(
            found.map(paired, fields=FIELDS) if "fields" in settings else found,
            lambda: [*joined(left(), right(), before, after, how)],
            kind,
            are_ends=last.are_ends and (other.are_ends or how in ("semi", "anti")),
            is_source=False,
        )


def _merged(first: Part, second: Part) -> Part:
    return Part(
        first.stream.merge(second.stream),
        lambda: first.rows() + second.rows(),
        first.kind,
        are_ends=first.are_ends and second.are_ends,
        is_source=first.is_source or second.is_source,
    )


def _coarse(part: Part) -> Part:
    return Part(
        part.stream.map(coarse, fields=FIELDS),
        lambda: [Row(*coarse(row)) for row in part.rows()],
        part.kind,
        are_ends=part.are_ends,
        is_source=part.is_source,
    )


def by_place(rows: list[Row]) -> dict[tuple[int, Any], set[int]]:
    ids: defaultdict[tuple[int, Any], set[int]] = defaultdict(set)
    for row in rows:
        ids[row.key, row.at].update(row.ids)
    return dict(ids)


def written(run: SimRun, kind: str, old: set[int]) -> dict[tuple[int, Any], set[int]]:
    """The rows of a kind of note: (key, time) → ids, without those of `old` events."""
    details = (entry.detail for entry in run.history() if entry.what is What.WROTE)
    rows = [Row(*row) for place, row in details if place == kind]
    return by_place([Row(row.key, row.at, ids) for row in rows if (ids := _but(row.ids, old))])


def _but(ids: tuple[int, ...], old: set[int]) -> tuple[int, ...]:
    return tuple(one for one in ids if one not in old)
