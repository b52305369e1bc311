"""Windows whose rows are aggregated: panes of time or of a count, and sessions."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, groupby, repeat
from math import inf
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from sunshower.clock import Clock
from sunshower.records import Schema, key_of
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregating import (
    GLOBAL,
    AggregatorOperator,
    group_keys,
    keys_of_partial,
    values_of_key,
)
from sunshower.topologies.operators.aggregators import AnyAggregator, count
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Attempt, Emit
from sunshower.topologies.operators.states import BEHIND, is_own
from sunshower.topologies.operators.updates import SHOWN
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeReader,
    as_float,
    highest,
    is_before,
    length_of,
    minus,
)
from sunshower.topologies.operators.windows.panes import (
    Content,
    OpenPanes,
    PanePlace,
    PaneValues,
    TimePanes,
    panes_of,
)
from sunshower.topologies.operators.windows.watermarks import ReachedTime
from sunshower.topologies.operators.windows.window_kinds import (
    AnyPanes,
    AnyWindow,
    Window,
    reader_of,
    with_dates,
)
from sunshower.topologies.operators.windows.window_operator import WindowOperator

# ---- several results of one window, numbered: each replaces those with lower numbers -------------

# early     while the window is open, at most each so many seconds of the clock
#     final     when it has ended
#     update    for a record that is late, but in the time that is allowed
#     removed   there is no such window any more: its session has grown, or is part of another one
#
# Stored beside the contents of windows:
#
#     (word, group, place)   the number of the last result, and what follows it

RESULT_FIELDS = {"kind": str, "number": int}  # of results, behind the window; and their types
NUMBERED = "result"  # begins the keys


class ResultKind(StrEnum):
    """What a result says of its window, in the field `kind`."""

    EARLY = "early"
    FINAL = "final"
    UPDATE = "update"
    REMOVED = "removed"
    LATE = "late"  # of the stream `late`, with the number 0


class ResultStage(StrEnum):
    """What follows the last result of a window."""

    OPEN = "open"  # further early ones, or the final one
    ENDED = "ended"  # nothing, unless a record comes
    CHANGED = "changed"  # a record has come after the end
    GONE = "gone"  # its removal
    FULL = "full"  # the final one, before its end; its records are late from now on
    CLOSED = "closed"  # nothing: that was emitted


class LastResult(NamedTuple):
    """The last result of a window: its number, from 1; 0: there is none."""

    number: int
    stage: ResultStage


_NONE = LastResult(0, ResultStage.OPEN)


class NumberedResults:
    """The last results of windows, in the store of their task. `place`: the last pane of a window,
    or the end of a session."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store
        self._due: dict[Any, tuple[Any, Any]] = {}  # (group, place) of those that need a result now

    def note(self, group: Any, place: Any, stored: Any) -> None:
        """Note what the store has."""
        self._note(group, place, LastResult(stored[0], ResultStage(stored[1])))

    def get(self, group: Any, place: Any) -> LastResult:
        stored = self._store.get((NUMBERED, group, place))
        return _NONE if stored is None else LastResult(stored[0], ResultStage(stored[1]))

    def put(self, group: Any, place: Any, number: int, stage: ResultStage) -> None:
        self._store.put((NUMBERED, group, place), [number, stage.value])
        self._note(group, place, LastResult(number, stage))

    def next(self, group: Any, place: Any, stage: ResultStage) -> int:
        """The number of the result that is emitted now."""
        number = self.get(group, place).number + 1
        self.put(group, place, number, stage)
        return number

    def remove(self, group: Any, place: Any) -> None:
        self._store.remove((NUMBERED, group, place))
        self._due.pop(key_of((group, place)), None)

    def due(self) -> list[tuple[Any, Any]]:
        """(group, place) of those that need a result now."""
        return [*self._due.values()]

    def _note(self, group: Any, place: Any, result: LastResult) -> None:
        if result.stage in (ResultStage.CHANGED, ResultStage.GONE, ResultStage.FULL):
            self._due[key_of((group, place))] = group, place
        else:
            self._due.pop(key_of((group, place)), None)


def updates_of(
    name: str, width: int, rows: Sequence[Sequence[Any]], records: Sequence[Any]
) -> list[Any]:
    """The updates that results are, see operators/updates.py. `width`: how many values say which
    window it is; `records`: those of the rows."""
    updates, hidden = list[Any](), list[Any]()

    def place(pair: tuple[Sequence[Any], Any]) -> Any:
        row, _ = pair
        return key_of(tuple(row[:width]) if width > 1 else row[0]), row[width + 1]

    for (key, number), pairs in groupby(zip(rows, records, strict=True), place):
        several = [*pairs]
        shown = [record for _, record in several]
        is_removal = several[0][0][width] == ResultKind.REMOVED
        updates.append(((name, key), number, [] if is_removal else shown))
        if is_removal:  # for readers of plain rows
            hidden.append(((name, key), SHOWN, shown))
    return [*updates, *hidden]


_LOG = logging.getLogger("sunshower")
W = TypeVar("W", bound=AnyWindow)
NO_BATCH = Attempt(0, 0, 0)  # for aggregators, where rows of several batches are in a window


# ---- aggregated windows --------------------------------------------------------------------------


class ResultsOfBatch(NamedTuple):
    """What windows make of a batch of an exactly-once stream, as rows."""

    time: Time  # up to where windows have ended
    late: Sequence[Sequence[Any]]  # what came too late
    late_count: int  # of how many records
    ended: Sequence[Sequence[Any]]
    opened: Sequence[Sequence[Any]]  # of windows that the end of all sources has ended
    early: Sequence[Sequence[Any]]


class AggregatedWindows(WindowOperator, Generic[W]):
    """Its rows are (fields of the group, the window, what the aggregators emit). Those of windows
    with several results have their kind and their number behind the window."""

    # Class attributes, because savepoints name those that a declaration has.
    is_repeated = False
    allowed: Time = 0  # after its end and `late`, the time in which a record updates a window
    emits_updates = False  # whether something reads its results as updates, see updates.py
    _early_s = 0.0  # when early results are due next
    in_batches = False  # whether its stream is exactly once: see run_batch
    _newest: Time = inf  # in batches: as `newest`
    place_word = ""  # begins the keys of the contents in the store
    place_fields = 1  # of a combined row, behind those of its group, that say its place

    def __init__(
        self,
        store: KeyedStore,
        window: W,
        contents: PaneValues,
        by: Sequence[str],
        out: Schema,
    ) -> None:
        super().__init__(store, by, out)
        self.window, self.contents = window, contents
        self.late = length_of(window.late)
        if window.time is not None:
            self.reader = reader_of(window, contents.schema)
        if window.repeated is not None:
            self.is_repeated, self.allowed = True, length_of(window.repeated.allowed)

    def let_update(self) -> None:
        """Let results be updates."""
        self.emits_updates = True

    def prepare(self, context: Context) -> None:
        self._early_s = context.clock.now() + self._every_s
        super().prepare(context)

    @property
    def _every_s(self) -> float:
        """The shortest time between early results; inf: there are none."""
        repeated = self.window.repeated
        return inf if repeated is None or repeated.early is None else repeated.early

    @property
    def keeps_open(self) -> bool:
        """Whether the end of all sources leaves open windows in the store."""
        return self.window.at_end == "keep"

    def records(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        return self.out.make(with_dates(self.window, self.out, self.width, rows))

    def ended_records(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        if not self.emits_updates:
            return self.records(rows)
        rows = [*with_dates(self.window, self.out, self.width, rows)]
        return updates_of(self.store.name, self.width + 1, rows, self.out.make(rows))

    def stored_rows(self, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """Those of a declaration without several results are the final ones, and the reverse."""
        first = self.width + 1
        more = [len(row) - len(self.out.fields) for row in rows]
        return [
            [*row[:first], ResultKind.FINAL.value, 1, *row[first:]]
            if number < 0
            else [*row[:first], *row[first + 2 :]]
            if number > 0
            else row
            for row, number in zip(rows, more, strict=True)
            if number <= 0 or row[first] != ResultKind.REMOVED
        ]

    def early(self) -> list[Sequence[Any]]:
        return self._committed(self._due_early) if self.is_early_due else []

    @property
    def is_early_due(self) -> bool:
        """Whether it is time for early results."""
        return self.clock.now() >= self._early_s and self.has_changed

    def _due_early(self) -> list[Sequence[Any]]:
        self._early_s = self.clock.now() + self._every_s
        return self.changed()

    @property
    def has_changed(self) -> bool:
        """Whether open windows have changed since their last early result."""
        raise NotImplementedError

    def changed(self) -> list[Sequence[Any]]:
        """The early results of these."""
        raise NotImplementedError

    def on_end_of_sources(self, ended: Sequence[Sequence[Any]]) -> None:
        complete = self._reached.time(self.late, keep=True)  # these would have ended anyway
        width = self.width
        opened = [row[: width + 1] for row in ended if is_before(complete, row[width])]
        if self.store.is_stored and opened:
            log_ended(self.store.shape[0], self.store.name, len(set(map(key_of, opened))))

    # ---- exactly-once batches --------------------------------------------------------------------

    def use_in_batches(self, word: str) -> None:
        """Let a stream of batches use it: `word` begins the keys in its store."""
        self.in_batches, self.place_word = True, word

    def open_in_batches(self, clock: Clock) -> None:
        """Begin without entries. `clock` has the time of the batch."""
        self.clock, self._time = clock, -inf
        self._early_s = clock.now() + self._every_s
        self.forget()

    def continue_at(self, time: Time) -> None:
        """Windows have ended up to `time`, as the store says."""
        self._time = time

    def run_batch(
        self, rows: Sequence[Any], attempt: Attempt, time: Time, newest: Time, *, ends_all: bool
    ) -> ResultsOfBatch:
        """Add the rows of a batch, and end windows up to `time`, or all. The caller writes the
        store. `newest`: the highest time that is not too far ahead of the clock; inf: of any."""
        self._newest = newest
        self._late_now.clear()
        late = list(self.add(rows, attempt))
        ended, opened = self.end(self._time, time), list[Sequence[Any]]()
        if ends_all:
            opened = self.end(time, inf)
            time = highest([time, self.last_ended(opened)])
        self._time = time
        self.drop(time)
        early = self._due_early() if self.is_early_due else []
        count = sum(records for records, _ in self._late_now)
        by = highest([self.late_records.by, *(by for _, by in self._late_now)])
        self.late_records.by = as_float(by)
        return ResultsOfBatch(time, late, count, ended, opened, early)

    @property
    def newest(self) -> Time:
        return self._newest if self.in_batches else super().newest

    def groups_of(self, rows: Sequence[Any]) -> Iterable[Any]:
        """The groups of rows as they come to it."""
        if self.contents.combines:
            return keys_of_partial(self.width, rows)
        return group_keys(self.contents.schema, self.by, rows)

    @property
    def next_change(self) -> Time:
        """Without records nothing changes before this time; -inf: it may at any."""
        return -inf

    def now(self) -> Time:
        """Up to where windows of the clock have ended."""
        raise NotImplementedError

    def add_stored(self, contents: Mapping[PanePlace, Content]) -> None:
        """Add the contents of panes that an earlier release has stored elsewhere."""
        raise NotImplementedError

    def note_behind(self, group: Any, time: Time) -> None:
        """Windows of a group have ended only up to `time`, before those of the others."""
        raise NotImplementedError

    # ---- what a kind of windows defines ----------------------------------------------------------

    def places_of(self, times: Sequence[Time]) -> Sequence[Any]:
        """Which parts of a window have rows of these event times."""
        raise NotImplementedError

    def place_now(self) -> Any:
        """Which part of a window has rows that come now, if they have no event time."""
        raise NotImplementedError

    def parts(self, rows: Sequence[Any], attempt: Attempt) -> dict[tuple[Any, Any], Content]:
        """The contents of these rows, by group and place. If the aggregators combine, the rows come
        from CombinePanes with their places, or without event time from Combine."""
        timed = self.reader is not None
        now = None if timed else self.place_now()
        if not self.contents.combines:
            groups = group_keys(self.contents.schema, self.by, rows)
            places: Sequence[Any] = [now] * len(rows)
            if self.reader is not None:
                places = self.places_of(self.reader.times(rows))
            return self.contents.gather([*zip(groups, places, strict=False)], rows, attempt)
        width, merged = self.width, self.contents.merged
        first = width + (self.place_fields + 1) * timed  # behind the place and a number of records
        of_rows = self._places_in(rows) if timed else repeat(now, len(rows))
        pairs = [*zip(keys_of_partial(width, rows), of_rows, strict=True)]
        parts = [[*row[first:]] for row in rows]
        contents = dict(zip(pairs, parts, strict=True))
        if len(contents) < len(rows):  # several tasks have sent some
            contents.clear()
            for place, content in zip(pairs, parts, strict=True):
                contents[place] = merged(contents[place], content) if place in contents else content
        return contents

    def _places_in(self, rows: Sequence[Any]) -> Iterable[Any]:
        """The places of combined rows."""
        return [*map(itemgetter(*range(self.width, self.width + self.place_fields)), rows)]

    def note_late(
        self,
        late: Mapping[tuple[Any, Any], Time],
        parts: Mapping[tuple[Any, Any], Content],
        rows: Sequence[Any],
    ) -> None:
        """Note late records for the counters. `late`: (group, place) → when their window has ended;
        `parts`: those of these rows."""
        self.late_records.in_time |= len(late) < len(parts)
        if not late:
            return
        counts: Counter[tuple[Any, Any]] = Counter()
        if not self.contents.combines:
            counts.update({place: len(parts[place]) for place in late})
        elif self.reader is None:  # the number of records is not known
            counts.update(late)
        else:
            groups, records = keys_of_partial(self.width, rows), self.width + self.place_fields
            for group, place, row in zip(groups, self._places_in(rows), rows, strict=True):
                counts[group, place] += row[records]
        for place, end in late.items():
            self._late_now.append((counts[place], minus(self._time, end)))

    def results(
        self,
        group: Any,
        window: Any,
        content: Content,
        attempt: Attempt = NO_BATCH,
        *,
        kind: ResultKind = ResultKind.LATE,
        number: int = 0,
    ) -> Iterable[Sequence[Any]]:
        """The rows of a group in a window with this content."""
        head = (*values_of_key(group, self.width), window)
        if self.is_repeated:
            head = (*head, kind.value, number)
        rows = [[*head, *row] for row in self.contents.results(group, content, attempt)]
        return rows or ([self.removal(group, window, number)] if number > 1 else ())

    def results_of_all(
        self, window: Any, groups: Sequence[Any], contents: Sequence[Content]
    ) -> list[Sequence[Any]]:
        """The rows of groups in a window that has one result, with these contents."""
        columns = self.contents.result_columns(contents)
        if columns is None:
            pairs = zip(groups, contents, strict=True)
            return [row for pair in pairs for row in self.results(pair[0], window, pair[1])]
        rows = zip(groups, zip(*columns, strict=True), strict=True)
        if self.width == 1:
            return [[group, window, *values] for group, values in rows]
        return [[*values_of_key(group, self.width), window, *values] for group, values in rows]

    def removal(self, group: Any, window: Any, number: int) -> list[Any]:
        """The row that takes the results of a window back."""
        head = [*values_of_key(group, self.width), window, ResultKind.REMOVED.value, number]
        return head + [None] * (len(self.out.fields) - len(head))


def log_ended(factory: Any, state: str, windows: int) -> None:
    """Say that the end of all sources has ended windows of a state, if there can be a next run."""
    if getattr(factory, "where", "") == "memory":
        return
    _LOG.warning(
        "state %r: the end of all sources has ended %s; records that a later run reads for them "
        'are late. at_end="keep" of the window leaves open ones in the state for the next run',
        *(state, "a window" if windows == 1 else f"{windows:,} windows"),
    )


# ---- pane windows --------------------------------------------------------------------------------

_PANE, _ROWS, _FULL = "pane", "rows", "full"
_FEW_PANES = 8  # of rows that have no group: those of each are gathered together
_ENDED_BY_VALUES = ResultStage.FULL, ResultStage.CLOSED  # of a window that `until` has ended


class CombinePanes(AggregatorOperator):
    """Emits this task's part of panes of event time: rows (fields of the group, pane, number of
    records, values)."""

    by_row = True  # the parts differ, but not what they are combined to behind it
    makes_parts = True

    def __init__(
        self,
        schema: Schema,
        by: Sequence[str],
        aggregators: Sequence[AnyAggregator],
        reader: TimeReader,
        panes: AnyPanes | None,
        *,
        are_ends: bool = False,
    ) -> None:
        """`panes`: None: `_panes_of` defines them. `are_ends`: the times are ends of windows."""
        super().__init__(schema, by, aggregators)
        counts = (type(each) is count and each.field is None for each in aggregators)
        self._counter = next((at for at, is_one in enumerate(counts) if is_one), None)
        self.reader, self.panes = reader, panes
        self._are_ends = are_ends

    def start(self, attempt: Attempt) -> Any:
        attempt, tables = super().start(attempt)
        own = self._counter
        return attempt, tables, Counter[Any]() if own is None else tables[own]

    def process(self, batch: Any, source: int, rows: Sequence[Any], emit: Emit) -> None:
        attempt, tables, counts = batch
        panes = self._panes_of(rows, self.reader.times(rows))
        if not self.by and len({*panes}) <= _FEW_PANES:
            for pane, of_pane in _by_pane(panes, rows):
                if self._counter is None:
                    counts[GLOBAL, pane] += len(of_pane)
                for aggregator, table in zip(self.aggregators, tables, strict=True):
                    aggregator.gather_group(table, (GLOBAL, pane), of_pane, attempt)
            return
        places = [*zip(group_keys(self.schema, self.by, rows), panes, strict=False)]
        if self._counter is None:
            counts.update(places)
        for aggregator, table in zip(self.aggregators, tables, strict=True):
            aggregator.gather(table, places, rows, attempt)

    def _panes_of(self, rows: Sequence[Any], times: Sequence[Time]) -> Sequence[Any]:
        assert self.panes is not None
        return panes_of(self.panes, times, are_ends=self._are_ends)

    def _columns_of(self, panes: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """What the rows have of their panes."""
        return (panes,)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        _, tables, counts = batch
        width = len(self.by)
        if not counts:
            return
        keys, panes = zip(*counts, strict=True)
        columns = [[*map(table.__getitem__, counts)] for table in tables]
        rows = zip(keys, *self._columns_of(panes), counts.values(), *columns, strict=True)
        if width == 1:
            emit([*rows])
            return
        emit([(*values_of_key(key, width), *values) for key, *values in rows])


def _by_pane(panes: Sequence[Any], rows: Sequence[Any]) -> Iterable[tuple[Any, Sequence[Any]]]:
    """The rows of each pane, in their order. `panes`: that of each row."""
    if panes and panes.count(panes[0]) == len(panes):
        return ((panes[0], rows),)
    of_panes: defaultdict[Any, list[Any]] = defaultdict(list)
    for pane, row in zip(panes, rows, strict=True):
        of_panes[pane].append(row)
    return of_panes.items()


class PaneWindows(AggregatedWindows[Window]):
    """Windows of time, each called by its end."""

    _shift: float | None = None  # of the clock, once it is read
    place_word = _PANE
    reads_ends = False  # whether its event times are ends of other windows

    def __init__(
        self,
        store: KeyedStore,
        window: Window,
        contents: PaneValues,
        by: Sequence[str],
        out: Schema,
    ) -> None:
        super().__init__(store, window, contents, by, out)
        self.panes = window.divided()

    def forget(self) -> None:
        waits = self.reads_ends and not self.in_batches  # a batch has all that end at its time
        self._open = TimePanes(self.place_word, self.contents, self.window, reads_ends=waits)
        self._behind: dict[Any, Time] = {}  # group → up to where its windows have ended
        self._changed: dict[PanePlace, None] = {}  # since their last early result: group, last pane
        if self.has_notes:
            self._results = NumberedResults(self.store)
            self._numbered: defaultdict[int, dict[Any, None]] = defaultdict(dict)  # last → groups

    def load(self, key: Any, stored: Any) -> None:
        if is_own(key):
            self._behind[key[1]] = self.store.read(stored)
            return
        word, group, pane, *_ = key
        if word == NUMBERED:
            if self.has_notes:
                self._results.note(group, pane, self.store.read(stored))
                self._numbered[pane][group] = None
            return
        self._open.note([(group, pane)])
        if self._every_s < inf:
            self._changed |= dict.fromkeys((group, last) for last in self._windows_of(pane))

    def time(self, reached: ReachedTime) -> Time:
        if self.reader is not None:
            return reached.time(self.late, keep=self.keeps_open)
        return inf if reached.has_ended and not self.keeps_open else self.now()

    @property
    def next_change(self) -> Time:
        ended = self._open.last_ended(self._time)
        if self.has_notes or ended in (inf, -inf):
            return -inf
        if self.reader is not None:  # from then on, rows of a further pane are late
            return self.panes.start(int(ended) + 2)
        first = min(self._open.groups, default=None)
        return inf if first is None else self.panes.start(max(first, int(ended) + 1) + 1)

    def add_stored(self, contents: Mapping[PanePlace, Content]) -> None:
        self._open.add(self.store, contents)
        self._open.note(contents)

    def note_behind(self, group: Any, time: Time) -> None:
        self._behind[group] = time

    def add(self, rows: Sequence[Any], attempt: Attempt) -> Iterable[Sequence[Any]]:
        parts = self.parts(rows, attempt)
        closed = self._open.last_ended(minus(self._time, self.allowed))
        late = self._full_ones(parts)
        taken = {place: parts[place] for place in parts if place not in late} if late else parts
        late |= self._open.take(self.store, taken, closed)
        self.note_late(late, parts, rows)
        places = [place for place in parts if place not in late] if self.has_notes else []
        if self.is_repeated:
            self._note_changed(places)
        if self.window.until is not None:
            self._note_full(places, self.window.until)
        for (group, pane), end in late.items():
            yield from self.results(group, end, parts[group, pane])

    def _note_changed(self, places: Iterable[PanePlace]) -> None:
        """Note which windows have records now that their last results do not have."""
        ended = self._open.last_ended(self._time)
        closed = self._open.last_ended(minus(self._time, self.allowed))
        changed = [(group, last) for group, pane in places for last in self._windows_of(pane)]
        late = {place: None for place in changed if closed < place[1] <= ended}
        self.store.fetch((NUMBERED, *place) for place in late)
        for place in late:
            number, stage = self._results.get(*place)
            if stage not in _ENDED_BY_VALUES:
                self._results.put(*place, number, ResultStage.CHANGED)
                self._numbered[place[1]][place[0]] = None
        if self._every_s < inf:
            self._changed |= {place: None for place in changed if ended < place[1]}

    @property
    def has_notes(self) -> bool:
        """Whether the store has notes of results."""
        return self.is_repeated or self.window.until is not None

    def _full_ones(self, places: Iterable[PanePlace]) -> dict[PanePlace, Time]:
        """The panes of which `until` has ended all windows, with the regular end of the last."""
        if self.window.until is None:
            return {}
        ended = self._open.last_ended(minus(self._time, self.allowed))
        windows = {
            (group, pane): [(group, last) for last in self._windows_of(pane) if ended < last]
            for group, pane in places
        }
        self.store.fetch((NUMBERED, *place) for place in chain.from_iterable(windows.values()))
        return {
            place: self.panes.start(open_ones[-1][1] + 1)
            for place, open_ones in windows.items()
            if open_ones and all(map(self._is_full, open_ones))
        }

    def _is_full(self, place: PanePlace) -> bool:
        """Whether `until` has ended a window."""
        return self._results.get(*place).stage in _ENDED_BY_VALUES

    def _note_full(self, places: Iterable[PanePlace], until: Callable[[Any], bool]) -> None:
        """Note which open windows have ended by their values: the next watermark brings these."""
        ended = self._open.last_ended(self._time)
        windows = {
            (group, last): None
            for group, pane in places
            for last in self._windows_of(pane)
            if ended < last
        }
        self.store.fetch((NUMBERED, *place) for place in windows)
        windows = {place: None for place in windows if not self._is_full(place)}
        for (group, last), content in self._open.windows(self.store, windows).items():
            number = self._results.get(group, last).number
            end = self.panes.start(last + 1)
            rows = self.results(group, end, content, kind=ResultKind.FINAL, number=number + 1)
            if any(map(until, self.records(rows))):
                self._results.put(group, last, number, ResultStage.FULL)
                self._numbered[last][group] = None

    def _windows_of(self, pane: int) -> Iterator[int]:
        """The windows that have a pane, each called by its last one."""
        return filter(self._open.is_window, range(pane, pane + self.window.panes))

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        behind, self._behind = self._behind, {}
        ended, _ = self._open.end(
            self.store,
            self._open.last_ended(before),
            self._open.last_ended(time),
            {group: self._open.last_ended(known) for group, known in behind.items()},
            removes=not self.allowed,
        )
        rows_of_windows: list[Sequence[Any]] = []
        if self.has_notes:
            rows_of_windows += self._final(ended)
        else:
            for last, windows in groupby(ended, itemgetter(0)):
                _, groups, contents = zip(*windows, strict=True)
                rows_of_windows += self.results_of_all(self.panes.start(last + 1), groups, contents)
        for group in behind:
            self.store.remove((BEHIND, group))
        return rows_of_windows

    def _final(self, ended: Iterable[tuple[int, Any, Content]]) -> Iterator[Sequence[Any]]:
        """The rows of windows that have ended, and of those that have changed since their end."""
        contents = {(group, last): content for last, group, content in ended}
        have_ended = {*contents}
        due = [place for place in self._results.due() if place not in contents]
        contents |= self._open.windows(self.store, due)
        self.store.fetch((NUMBERED, *place) for place in contents)
        for place, content in contents.items():
            self._changed.pop(place, None)
            number, stage = self._results.get(*place)
            is_full, is_over = stage is ResultStage.FULL, place in have_ended
            if stage is not ResultStage.CLOSED:
                is_update = number > 0 and not (is_full or is_over)
                yield from self._numbered_results(
                    place,
                    content,
                    ResultKind.UPDATE if is_update else ResultKind.FINAL,
                    ResultStage.CLOSED if is_full else ResultStage.ENDED,
                )
            if is_over and not self.allowed:
                self._forget_ended(place)
            elif is_full and not is_over and self.window.panes == 1:
                self._open.take_out(self.store, place)

    def _numbered_results(
        self, place: PanePlace, content: Content, kind: ResultKind, stage: ResultStage
    ) -> Iterable[Sequence[Any]]:
        group, last = place
        self._numbered[last][group] = None
        number = self._results.next(group, last, stage)
        return self.results(group, self.panes.start(last + 1), content, kind=kind, number=number)

    def _forget_ended(self, place: PanePlace) -> None:
        """Forget the results of a window that has ended; at the end of all sources not the number
        of one that is too far ahead of the clock, because a later run continues it."""
        if place[1] <= self._open.last_ended(self.newest_end):
            self._forget_result(place)
        elif not self._is_full(place):
            self._results.put(*place, self._results.get(*place).number, ResultStage.OPEN)

    def _forget_result(self, place: PanePlace) -> None:
        group, last = place
        self._results.remove(group, last)
        groups = self._numbered[last]
        groups.pop(group, None)
        if not groups:
            del self._numbered[last]

    def drop(self, time: Time) -> None:
        if self.has_notes:
            closed = self._open.last_ended(minus(time, self.allowed))
            self._open.drop(self.store, closed)
            for last in [last for last in self._numbered if last <= closed]:
                for group in [*self._numbered[last]]:
                    self._forget_result((group, last))

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def changed(self) -> list[Sequence[Any]]:
        ended = self._open.last_ended(self._time)
        changed = [place for place in self._changed if ended < place[1]]
        self._changed = {}
        self.store.fetch((NUMBERED, *place) for place in changed)
        rows: list[Sequence[Any]] = []
        changed = [
            place for place in changed if self._results.get(*place).stage is ResultStage.OPEN
        ]
        for place, content in self._open.windows(self.store, changed).items():
            rows += self._numbered_results(place, content, ResultKind.EARLY, ResultStage.OPEN)
        return rows

    def closing_time(self, newest: Time) -> Time:
        if not self.reads_ends:
            return self.end_of(newest)
        (pane,) = panes_of(self.panes, [newest], are_ends=True)
        return self.panes.start(pane + self.window.panes + 1)  # see TimePanes.last_ended

    @property
    def has_open(self) -> bool:
        if not self.allowed:
            return bool(self._open.groups)
        newest = max(self._open.groups, default=-inf)
        return newest + self.window.panes - 1 > self._open.last_ended(self._time)

    def end_of(self, time: Time) -> Time:
        if self.reader is None:
            return inf
        return self.panes.start(self.panes.of_time(time) + self.window.panes)

    def places_of(self, times: Sequence[Time]) -> Sequence[int]:
        return panes_of(self.panes, times, are_ends=self.reads_ends)

    def place_now(self) -> int:
        return self.panes.of_time(self.now())

    def now(self) -> float:
        """Unix time, shifted if the clock is behind that of a former life; it never goes back."""
        if self._shift is None:
            first = max(self._open.groups, default=None)
            known = -inf if first is None else as_float(self.panes.start(first))
            self._shift = max(0.0, max(as_float(self._time), known) - self.clock.wall())
        return max(self.clock.wall() + self._shift, as_float(self._time))


class CountWindows(AggregatedWindows[Window]):
    """Windows of a number of rows of each group, each called by its number."""

    def forget(self) -> None:
        self._full: list[Any] = []

    def load(self, key: Any, stored: Any) -> None:
        if key == (_FULL,):
            self._full = self.store.read(stored)

    def time(self, reached: ReachedTime) -> Time:
        return -inf

    def front(self, time: Time) -> Time:
        return self._reached.time(0, keep=True)  # its results have no time of their own

    @property
    def has_open(self) -> bool:
        return False  # no watermark makes rows of it

    def add(self, rows: Sequence[Any], attempt: Attempt) -> Iterable[Sequence[Any]]:
        """Add rows; full windows wait for the next watermark, which brings their rows."""
        store, panes = self.store, OpenPanes(_ROWS, self.contents, self.window.panes)
        groups = list(group_keys(self.contents.schema, self.by, rows))
        keys = {group: (_ROWS, group) for group in groups}
        store.fetch(keys.values())
        before: dict[Any, Any] = {}
        for group, key in keys.items():
            number, stored = store.get(key) or (0, None)  # panes, or None
            before[group] = number, (stored or {}).items()
        every = int(self.window.every)
        ended, counts = panes.count(store, every, before, groups, rows, attempt)
        for group, number in counts.items():  # releases before a row per pane refuse None
            store.put(keys[group], [number, None])
        full: list[Sequence[Any]] = []
        for last, group, content in ended:
            full += self.results(group, last, content, attempt)
        if full:
            self._full = [*self._full, *full]
            store.put((_FULL,), self._full)
        return ()

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        ended, self._full = self._full, []
        if ended:
            self.store.remove((_FULL,))
        return ended
