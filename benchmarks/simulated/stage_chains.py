"""Chains of stages over event time, and what a plain program makes of the same events.

Each row says which events it follows from.

    sources ──▶ stage ──▶ stage ──▶ …      each behind the one before, and some behind another, too
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple, cast

from sunshower import (
    KeyState,
    Match,
    PatternStep,
    Stream,
    collect,
    sessions,
    sliding,
    tumbling,
)
from sunshower.state import MemoryState

# Stages that are declared in the same way, and may be behind the same ones.
FAMILIES: dict[str, tuple[str, ...]] = {
    "window": ("tumbling", "sliding", "sessions", "days"),
    "join": ("pairs", "left", "between", "until", "semi", "anti"),
    "as of": ("as of",),
    "table": ("table",),
    "totals": ("totals",),
    "timers": ("timer", "connect", "distinct"),
    "order": ("ordered", "match"),
    "early": ("early",),
}
FAMILY_OF = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
_UPDATES = ("totals", "early")  # families whose rows replace earlier ones
_TIMED_BOTH = (*FAMILIES["join"], "as of", "connect")  # event times of two inputs
_BEHIND_TWO = (*_TIMED_BOTH, "table")
FIELDS = ("key", "at", "ids")
_PAIR = ("key", "at", "ids", "other_at", "other_ids")
# A zone without changes of its clocks, and a time after midnight: a day ends at second 36.
_ZONE, _OF_ZONE_S, _DAY_S, _DAY_BEGINS = "Africa/Lagos", 3_600, 86_400, 36


def followers(families: Sequence[str], *, in_batches: bool = False) -> tuple[str, ...]:
    """The families that may be behind stages of these. Windows, joins and timers would count each
    row of totals."""
    if not {*families} & {*_UPDATES}:
        return tuple(FAMILIES)
    if in_batches:
        return () if "early" in families else ("totals",)
    return () if families[-1] == "table" else ("table", "totals")


PAIRS = [(family, other) for family in FAMILIES for other in followers([family])]


class Row(NamedTuple):
    """What each stage makes: `ids` are the numbers of the events that it follows from."""

    key: int
    at: Any
    ids: tuple[int, ...]


class Left(NamedTuple):
    """A row of the first of two connected streams."""

    key: int
    at: int
    ids: tuple[int, ...]


class Right(NamedTuple):
    """A row of the second of two connected streams."""

    key: int
    at: int
    ids: tuple[int, ...]


def by_place(rows: Iterable[Row]) -> dict[tuple[int, Any], set[int]]:
    """(key, time) → ids."""
    ids: defaultdict[tuple[int, Any], set[int]] = defaultdict(set)
    for row in rows:
        ids[row.key, row.at].update(row.ids)
    return dict(ids)


# ---- plain program -------------------------------------------------------------------------------


def windowed(
    rows: list[Row], length: int, every: int, *, are_ends: bool, begin: int = 0
) -> list[Row]:
    ids: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for row in rows:
        first = ((row.at - begin - are_ends) // every + 1) * every + begin
        for end in range(first, first + length, every):
            ids[row.key, end].update(row.ids)
    return [Row(*place, tuple(sorted(ids_of_place))) for place, ids_of_place in ids.items()]


def in_sessions(rows: list[Row], gap: int) -> list[Row]:
    ended, groups = [], defaultdict(list)
    for row in sorted(rows, key=lambda row: row.at):
        groups[row.key].append(row)
    for key, group in groups.items():
        session: list[Row] = []
        for row in [*group, None]:
            if session and (row is None or row.at - session[-1].at >= gap):
                ids = {id for each in session for id in each.ids}
                ended.append(Row(key, session[-1].at + gap, tuple(sorted(ids))))
                session = []
            session += [row] if row is not None else []
    return ended


def joined(left: list[Row], right: list[Row], before: int, after: int, how: str) -> Iterator[Row]:
    """`before`, `after`: from when to when the partners of a left record are, beside its time."""
    for row in left:
        near = [other for other in right if other.key == row.key]
        partners = [other for other in near if -before <= other.at - row.at <= after]
        if how in ("inner", "left"):
            yield from (together(row, other.at, other.ids) for other in partners)
        if how == "semi" if partners else how in ("left", "anti"):
            yield row


def joined_as_of(left: list[Row], right: list[Row]) -> Iterator[Row]:
    """Of versions with one time that with the greater text counts."""
    for row in left:
        versions = [other for other in right if other.key == row.key and other.at <= row.at]
        last = max(versions, key=lambda other: (other.at, repr(other.ids)), default=row)
        yield together(row, row.at, last.ids)


def together(row: Row, at: Any, ids: tuple[int, ...]) -> Row:
    return Row(row.key, max(row.at, at), tuple(sorted({*row.ids, *ids})))


def timed(rows: list[Row], length: int) -> list[Row]:
    ids: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for row in rows:
        ids[row.key, (row.at // length + 1) * length].update(row.ids)
    ended = [Row(*place, tuple(sorted(ids_of_place))) for place, ids_of_place in ids.items()]
    return ended + [row for row in rows if passes(row)]


def in_order(rows: list[Row], length: int) -> Iterator[Row]:
    """Each row with the ids of those of its key that are less than `length` before it. Rows of one
    time have no order."""
    for row in rows:
        near = [other for other in rows if other.key == row.key]
        near = [other for other in near if 0 < row.at - other.at < length]
        ids = {id for other in (row, *near) for id in other.ids}
        yield Row(row.key, row.at, tuple(sorted(ids)))


def matched(rows: list[Row], length: int) -> Iterator[Row]:
    """Each row that passes, if none that does not is less than `length` after it."""
    for row in filter(passes, rows):
        others = [other for other in rows if other.key == row.key and not passes(other)]
        if not any(0 < other.at - row.at < length for other in others):
            yield row


def totalled(rows: list[Row]) -> list[Row]:
    ids: defaultdict[int, set[int]] = defaultdict(set)
    for row in rows:
        ids[row.key].update(row.ids)
    return [Row(key, 0, tuple(sorted(ids_of_key))) for key, ids_of_key in ids.items()]


def passes(row: Any) -> bool:
    """Whether a stage with timers emits a row at once, too; whether a row begins a match."""
    return bool(min(row[2]) % 3 == 0)


# ---- the same as stages --------------------------------------------------------------------------


def flat(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    """A window's row."""
    return row[0], row[1], tuple(sorted({id for row_ids in row[2] for id in row_ids}))


def flat_day(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    key, end, ids = flat(row)
    return key, int(end.timestamp()), ids


def flat_result(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    """A result before or after the end of a window."""
    return flat((*row[:2], row[4] or ()))


def flat_total(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    return flat((row[0], 0, row[1]))


def paired(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    key, at, ids, other_at, other_ids = row
    if other_at is None:
        return key, at, tuple(ids)
    return tuple(together(Row(key, at, tuple(ids)), other_at, tuple(other_ids)))


def alone(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    """A row of a stream that was joined with a table, as it was: which version it had depends on
    the moment."""
    return row[0], row[1], tuple(row[2])


def coarse(row: Any) -> tuple[int, Any, tuple[int, ...]]:
    return row[0] // 2, row[1], tuple(row[2])


def as_left(row: Any) -> Left:
    return Left(row[0], row[1], tuple(row[2]))


def as_right(row: Any) -> Right:
    return Right(row[0], row[1], tuple(row[2]))


def first_of(match: Match[Any]) -> tuple[int, Any, tuple[int, ...]]:
    return alone(match["first"][0])


def is_against(row: Any, match: Match[Any]) -> bool:
    """Whether a later row ends a match that has begun. Rows of one time have no order."""
    return bool(not passes(row) and row[1] > match["first"][0][1])


class Timed:
    """Gathers the ids of each part of event time, until a timer at its end."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, row: Any, state: KeyState[Any]) -> Iterator[tuple[Any, ...]]:
        ids = dict(state.value or ())
        end = (row[1] // self.length + 1) * self.length
        ids[end] = sorted({*ids.get(end, ()), *row[2]})
        state.value, state.timer = [[*each] for each in ids.items()], min(ids)
        if passes(row):
            yield tuple(row)

    def on_timer(self, key: Any, state: KeyState[Any]) -> Iterator[tuple[Any, ...]]:
        ids = dict(state.value or ())
        for end in sorted(end for end in ids if end <= state.time):
            yield key if type(key) is int else key[0], end, tuple(ids.pop(end))
        state.value, state.timer = [[*each] for each in ids.items()] or None, min(ids, default=None)


class Connected(Timed):
    """The same of two streams."""

    def __call__(self, row: Left | Right, state: KeyState[Any]) -> Iterator[tuple[Any, ...]]:
        return super().__call__(row, state)


class Ordered:
    """Gathers the ids of the last part of event time: right only if each row that comes is later
    than those before."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, row: Any, state: KeyState[Any]) -> Iterator[tuple[Any, ...]]:
        near = [each for each in state.value or () if row[1] - each[0] < self.length]
        assert near == [each for each in near if each[0] <= row[1]], "not in order"
        ids = {id for at, earlier in near if at < row[1] for id in earlier}
        state.value = [*near, [row[1], [*row[2]]]]
        yield row[0], row[1], tuple(sorted({*ids, *row[2]}))


# ---- chains --------------------------------------------------------------------------------------


@dataclass
class Part:
    """A stream of the program, and the rows that the plain program has for it."""

    stream: Stream[Any]
    rows: Callable[[], list[Row]]
    kind: str  # what made it
    are_ends: bool = False  # whether its times are ends of windows
    is_source: bool = False  # whether a record of a spout may reach it out of order
    is_update: bool = False  # whether its rows replace earlier ones


@dataclass
class StageChain:
    """Declares stages. `late`: of records of a source, and of changes of a table behind the stream;
    `note_late`: reads the late rows of a stage, by its name; `state`: makes that of a stage;
    `in_batches`: the streams are of exactly-once batches; `tasks`: another number of tasks than the
    one drawn for a stage."""

    draw: Random
    late: float
    table_late: float
    note_late: Callable[[str, Stream[Any]], None]
    state: Callable[[], Any] = MemoryState
    in_batches: bool = False
    tasks: Callable[[int], int] = int

    def stage(self, name: str, kind: str, last: Part, parts: Sequence[Part]) -> Part:
        """A stage behind the part before it, and perhaps behind another one."""
        draw = self.draw
        others = [part for part in parts if not part.is_update]
        other = draw.choice(others)
        if kind not in _BEHIND_TWO and draw.random() < 0.3:
            last = _merged(last, other) if other is not last and not last.is_update else last
        if draw.random() < 0.2:
            last = _coarse(last)
        is_source = last.is_source or (kind in _TIMED_BOTH and other.is_source)
        late = self.late if is_source else 0.0
        tasks = self.tasks(draw.randint(1, 2))
        settings = {"name": name, "state": self.state(), "parallelism": tasks}
        declare: dict[str, Any] = {
            **dict.fromkeys((*FAMILIES["window"], "early"), self._window),
            **dict.fromkeys(FAMILIES["join"], self._join),
            "as of": self._as_of,
            "table": self._table,
            "totals": self._totals,
            "timer": self._timer,
            "connect": self._connect,
            "distinct": self._distinct,
            **dict.fromkeys(FAMILIES["order"], self._in_order),
        }
        size = draw.choice((4, 6, 15))
        part: Part = declare[kind](kind, last, other, size, late, settings)
        part.kind = kind
        return part

    def _late_rows(self, settings: Any, stream: Any) -> None:
        self.note_late(f"{settings['name']}-late", stream.late)

    def _window(
        self, kind: str, last: Part, _: Part, size: int, late: float, settings: Any
    ) -> Part:
        rows, ends = last.rows, last.are_ends
        time: dict[str, Any] = {"field": "at", "late": late, "unit": "s"}
        window: Any = tumbling(seconds=size, **time)
        plain: Callable[[], Any] = lambda: windowed(rows(), size, size, are_ends=ends)  # noqa: E731
        fields, flatten = FIELDS, flat
        if kind == "sliding":
            window = sliding(seconds=3 * size, every=size, **time)
            plain = lambda: windowed(rows(), 3 * size, size, are_ends=ends)  # noqa: E731
        elif kind == "sessions":
            window = sessions(gap=size, **time)
            plain = lambda: in_sessions(rows(), size)  # noqa: E731
        elif kind == "days":
            window = tumbling(days=1, zone=_ZONE, offset=_OF_ZONE_S + _DAY_BEGINS, **time)
            days = partial(windowed, length=_DAY_S, every=_DAY_S, begin=_DAY_BEGINS)
            plain = lambda: days(rows(), are_ends=ends)  # noqa: E731
            flatten = flat_day
        elif kind == "early":
            window = tumbling(seconds=size, early=1.5, allowed=self.draw.choice((0, size)), **time)
            fields, flatten = ("key", "at", "kind", "number", "ids"), flat_result
        grouped = last.stream.group_by("key")
        ended = grouped.window(window, collect("ids"), fields=fields, **settings)
        self._late_rows(settings, ended)
        is_update = kind == "early"
        stream = ended.map(flatten, fields=FIELDS)
        return Part(stream, plain, kind, are_ends=True, is_update=is_update)

    def _timer(self, kind: str, last: Part, _: Part, size: int, late: float, settings: Any) -> Part:
        function, rows = Timed(size), last.rows
        times: Any = {"event_time": "at", "late": late, "unit": "s"}
        stream = last.stream.group_by("key").process(
            function, on_timer=function.on_timer, fields=FIELDS, **times, **settings
        )
        return Part(stream, lambda: timed(rows(), size), kind, are_ends=last.are_ends)

    def _connect(
        self, kind: str, last: Part, other: Part, size: int, late: float, settings: Any
    ) -> Part:
        function, left, right = Connected(size), last.rows, other.rows
        times: Any = {"event_time": "at", "late": late, "unit": "s"}
        first = last.stream.map(as_left, fields=Left).group_by("key")
        second = other.stream.map(as_right, fields=Right).group_by("key")
        stream = first.connect(second).process(
            function, on_timer=function.on_timer, fields=FIELDS, **times, **settings
        )
        are_ends = last.are_ends and other.are_ends
        return Part(stream, lambda: timed(left() + right(), size), kind, are_ends=are_ends)

    def _distinct(
        self, kind: str, last: Part, _: Part, size: int, late: float, settings: Any
    ) -> Part:
        times: Any = {"event_time": "at", "late": late, "unit": "s"}
        stream, rows = last.stream.distinct([*FIELDS], **times, **settings), last.rows
        return Part(stream, lambda: [*dict.fromkeys(rows())], kind, are_ends=last.are_ends)

    def _in_order(
        self, kind: str, last: Part, _: Part, size: int, late: float, settings: Any
    ) -> Part:
        rows, ordered = last.rows, last.stream.group_by("key").in_order("at", late, unit="s")
        if kind == "match":
            steps = PatternStep("first", passes), PatternStep("none", is_against, absent=True)
            about: Any = {"select": first_of, "skip": "to_next", "fields": FIELDS}
            stream = ordered.match(*steps, within=size, **about, **settings)
            plain = lambda: [*matched(rows(), size)]  # noqa: E731
        else:
            stream = ordered.process(Ordered(size), fields=FIELDS, **settings)
            plain = lambda: [*in_order(rows(), size)]  # noqa: E731
        self._late_rows(settings, stream)
        return Part(stream, plain, kind, are_ends=last.are_ends)

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
            settings |= {"fields": _PAIR}
        times: Any = {"within": within, "field": "at", "late": late, "unit": "s", "how": how}
        stream = last.stream.join(other.stream, "key", **times, **settings)
        self._late_rows(settings, stream)
        return Part(
            stream.map(paired, fields=FIELDS) if "fields" in settings else stream,
            lambda: [*joined(left(), right(), before, after, how)],
            kind,
            are_ends=last.are_ends and (other.are_ends or how in ("semi", "anti")),
        )

    def _as_of(
        self, kind: str, last: Part, other: Part, _: int, late: float, settings: Any
    ) -> Part:
        name, left, right = settings["name"], last.rows, other.rows
        has_state = self.in_batches or self.state is not MemoryState
        stored: Any = {"state": self.state()} if has_state else {}
        table = other.stream.group_by("key").table(field="at", name=f"{name}-table", **stored)
        about: Any = {"as_of": "at", "how": "left", "unit": "s", "fields": _PAIR}
        stream = last.stream.join(table, late=max(late, self.table_late), **about, **settings)
        self._late_rows(settings, stream)
        return Part(
            stream.map(paired, fields=FIELDS),
            lambda: [*joined_as_of(left(), right())],
            kind,
            are_ends=last.are_ends and other.are_ends,
        )

    def _table(self, kind: str, last: Part, other: Part, _: int, _late: float, given: Any) -> Part:
        given |= {} if self.in_batches else {"wait": False}
        table = other.stream.group_by("key").table(field="at", **given)
        stream = last.stream.join(table, how="left", fields=_PAIR).map(alone, fields=FIELDS)
        are_ends = last.are_ends and other.are_ends  # fields of both have the name "at"
        about: Any = {"are_ends": are_ends, "is_source": last.is_source}
        return Part(stream, last.rows, kind, is_update=last.is_update, **about)

    def _totals(self, kind: str, last: Part, _: Part, _size: int, _late: float, given: Any) -> Part:
        grouped, rows = last.stream.group_by("key"), last.rows
        totals = grouped.aggregate(collect("ids"), fields=("key", "ids"), **given)
        stream = totals.map(flat_total, fields=FIELDS)
        return Part(stream, lambda: totalled(rows()), kind, is_update=True)


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
        is_update=part.is_update,
    )
