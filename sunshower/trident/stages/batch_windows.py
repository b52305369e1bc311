"""Windows of exactly-once batches: their contents are in a state, written in the commit phase.

There is a row for each group and pane, or session: a batch writes those of its own groups and of
the windows that it ends. Two more rows say how far a task is, or a group of count windows:

    "$windows"           {"time": 31, "late": 0, "fired": […]}
    ("$windows", group)  {"rows": 8, "fired": […]}

`fired` are the rows that the last batch has emitted, if the state is transactional: a batch that is
committed again finds them. With an opaque state it computes them from the values before. A state
that has moved to another number of tasks may have two more entries under "$windows", until the
next batch: "half" and "behind", see `moved_windows`.

A window of event time ends by the watermark of the batch: see trident/spouts/reached_times.py.
Storm keeps windows outside the batch, and counts the rows of each attempt again (STORM-3280):
org.apache.storm.trident.windowing.WindowTridentProcessor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import Any

from sunshower.json_values import hashable, listed, texts_of_keys
from sunshower.records import Schema, key_of
from sunshower.runtime.transport.routing import task_index
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregating import group_keys, values_of_key
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import StateDraft
from sunshower.topologies.operators.states import FoundPart, Key, MapState, StateKind
from sunshower.topologies.operators.totals import Persist
from sunshower.topologies.operators.windows.aggregated_windows import (
    AggregatedWindows,
    log_ended,
)
from sunshower.topologies.operators.windows.event_times import (
    Time,
    highest,
    is_before,
    length_of,
    lowest,
    minus,
    plus,
)
from sunshower.topologies.operators.windows.panes import OpenPanes, PaneValues
from sunshower.topologies.operators.windows.window_kinds import AnyWindow, Window
from sunshower.trident.coordination.attempts import SourceTime, had_ended, watermark
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.stages.plan import Timed

KEY = "$windows"
ON_TIME, LATE = 0, 1  # branches: rows of windows that have ended; rows that came too late
_NOTHING_YET: Mapping[str, Any] = {"time": None, "late": 0, "fired": []}


class _BatchClock:
    """A clock that stands at the time when the batch has begun."""

    time_s = 0.0  # Unix time

    def now(self) -> float:
        return self.time_s

    def wall(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None: ...


# ---- windows of time -----------------------------------------------------------------------------


class WindowBatch(list[Any]):
    """The rows of a batch. It is true if the state has to be written."""

    time: Time = -inf  # the watermark; of windows of the clock, when the batch has begun
    earlier: Time = -inf  # what it was when the order for the batch was given
    newest: Time = inf  # the highest time of a row that is not too far ahead of the clock
    begun_s = 0.0  # as SourceTime.begun_s
    is_idle = False  # no source holds it back, because all are idle
    has_ended = False  # there are no rows after this batch
    had_ended = False  # nor in it
    ends_all = False  # open windows end with it
    first: Time = inf  # the lowest end of a window whose row leaves with it
    writes = False  # also without rows

    def __bool__(self) -> bool:
        return self.writes or len(self) > 0


class Windows(Persist, Timed):
    """Emits (branch, row), with the rows of `operator`, whose store is the state of the slot."""

    def __init__(
        self, slot: BatchSlot, operator: AggregatedWindows[Any], sources: Collection[str]
    ) -> None:
        """`sources`: what sends it times, see Timed."""
        super().__init__(slot)
        self.slot: BatchSlot = slot
        self.operator, self.sources = operator, tuple(sources)
        self.window, self.contents = operator.window, operator.contents
        self.time = operator.window.time
        self.sends = f"window {slot.stored_name}"
        self.whose = f" of a row of {' or '.join(map(_named, sources))}"  # for errors about times
        operator.store.slot = slot
        if operator.reader is not None:
            operator.reader.what += self.whose
        operator.use_in_batches(KEY)
        self._keeps_rows = slot.factory.kind is StateKind.TRANSACTIONAL

    @property
    def store(self) -> KeyedStore:
        """What reads and writes the values of the state."""
        return self.operator.store

    @property
    def by(self) -> tuple[str, ...]:
        return self.operator.by

    @property
    def out(self) -> Schema:
        return self.operator.out

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._clock = context.clock
        self._begun = _BatchClock()
        self._begun.time_s = context.clock.wall()
        self.operator.open_in_batches(self._begun)
        self._is_known = False  # whether memory has what is stored
        self._last: tuple[int, Attempt | None] = (0, None)  # the batch, and who has written it
        self._written: Time = -inf  # up to where windows had ended then
        self._late_before: int | None = None  # how many were late when the task began
        self._ended_open = 0  # windows that the end of all sources has ended in this batch

    @property
    def late_records(self) -> Any:
        return self.operator.late_records

    def start(self, attempt: Attempt) -> WindowBatch:
        return WindowBatch()

    def note_times(self, batch: WindowBatch, times: Mapping[str, SourceTime]) -> None:
        sources = [times.get(source) for source in self.sources]
        known = [source for source in sources if source is not None]
        batch.has_ended = len(known) == len(sources) and all(source.ended for source in known)
        batch.had_ended = had_ended(sources)
        batch.ends_all = batch.has_ended and not self.operator.keeps_open
        batch.begun_s = max((source.begun_s for source in known), default=0.0)
        if self.time is None:
            batch.time = batch.earlier = batch.begun_s or self._clock.wall()
            return
        batch.time, batch.earlier = watermark(sources), watermark(sources, before=True)
        batch.newest = highest(inf if source is None else source.newest for source in sources)
        batch.is_idle = len(known) == len(sources) and all(
            source.idle and source.reached == inf for source in known
        )

    def sent_time(self, batch: WindowBatch) -> SourceTime:
        operator, newest = self.operator, batch.newest
        newest = newest if newest in (inf, -inf) else operator.end_of(newest)
        about: Any = {"ended": batch.has_ended, "newest": newest, "begun_s": batch.begun_s}
        if batch.is_idle and self._is_known and not operator.has_open:
            return SourceTime(inf, batch.first, idle=True, **about)
        front = self._ended_at(batch.time)
        if batch.had_ended:
            return SourceTime(front, batch.first, idle=False, **about)
        if self.time is None:
            return SourceTime(front, front, idle=False, **about)
        # A source that is idle now may have held back in the batch before: then rows leave that are
        # before what the others had reached.
        earlier = lowest([minus(batch.earlier, operator.late), batch.first])
        return SourceTime(front, earlier, idle=False, **about)

    def _ended_at(self, time: Time) -> Time:
        """Up to where windows have ended when their watermark is `time`."""
        is_clock = self.time is None and self._is_known
        return self.operator.now() if is_clock else minus(time, self.operator.late)

    def finish(self, batch: Any, attempt: Attempt, emit: Any) -> None:
        self._begun.time_s = batch.begun_s or self._clock.wall()
        last = self.slot.last_attempt  # an earlier attempt may have fired, and moved the next end
        is_again = attempt.attempt > 0 or (last is not None and last.txid == attempt.txid)
        batch.writes = is_again or batch.ends_all or self._is_due(batch)
        self._ended_open = 0
        try:
            super().finish(batch, attempt, emit)
        except BaseException:
            self._is_known = False
            self.store.forget()
            raise
        self._last = self._last[0], self.slot.last_attempt
        if batch.ends_all:
            self.late_records.say_if_all(f"window {self.slot.name!r}")
        if self._ended_open:
            log_ended(self.slot.factory, self.slot.name, self._ended_open)

    def _is_due(self, batch: WindowBatch) -> bool:
        """Whether something changes without rows."""
        if not self._is_known:
            return batch.is_idle or batch.time > -inf
        time, operator = self._ended_at(batch.time), self.operator
        has_moved = is_before(self._written, time) and not is_before(time, operator.next_change)
        return has_moved or operator.is_early_due

    def figures(self) -> Mapping[str, float]:
        reader = self.operator.reader
        return {} if reader is None else reader.figures()

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        before: dict[Any, Any] = {}
        (value,) = state.multi_update([KEY], [partial(_note, before, KEY)])
        # A transactional state keeps what an earlier attempt has written, and calls nothing.
        half, store = None if before else value.get("half"), self.store
        self.slot.changes = {}
        if before:
            value, fired, late = self._by_time(state, before[KEY], batch, attempt)
        else:
            value = store.values.value(value)
            fired, late = self._rows_in(value, "fired"), self._rows_in(value, "late_rows")
        if half:
            value, fired, late = self._by_half(state, value, batch, attempt)
        if before or half:
            store.put(KEY, value)
            store.commit()
        self._late_before = value["late"] if self._late_before is None else self._late_before
        self.late_records.count = value["late"] - self._late_before
        batch.first = lowest(row[len(self.by)] for row in fired)
        ended = self.operator.ended_records(self._in_order(fired))
        too_late = self.operator.records(late)
        return [*((ON_TIME, row) for row in ended), *((LATE, row) for row in too_late)]

    def _rows_in(self, value: Mapping[str, Any], name: str) -> list[Any]:
        """The rows that a value has, see `_with_rows`."""
        width = len(self.by)
        return [(*map(hashable, row[:width]), *row[width:]) for row in value.get(name, ())]

    def _with_rows(
        self, value: dict[str, Any], fired: Sequence[Any], late: Sequence[Any]
    ) -> dict[str, Any]:
        """The value of the task with what it has emitted, if its state needs that."""
        width, rows = len(self.by), {"fired": fired, "late_rows": late}
        listed_rows = {
            name: [[*map(listed, row[:width]), *row[width:]] for row in several]
            for name, several in rows.items()
            if several and self._keeps_rows
        }
        return {"fired": [], **value, **listed_rows}

    def _in_order(self, rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
        """Rows in the order of their groups and windows, which is the same in each attempt."""
        width = len(self.by)
        placed = [((*row[:width],), row[width], row) for row in rows]
        groups = [*dict.fromkeys(group for group, _, _ in placed)]
        texts = dict(zip(groups, texts_of_keys(groups), strict=True))
        placed.sort(key=lambda each: (texts[each[0]], each[1]))
        return [row for _, _, row in placed]

    def _by_half(
        self, state: MapState, value: Any, batch: WindowBatch, attempt: Attempt
    ) -> tuple[dict[str, Any], Sequence[Any], Sequence[Any]]:
        """As `_by_time`, for a batch that some of the former tasks had written before the state
        moved: what is left are the rows and windows of the other ones."""
        half = value["half"]
        rows = [*zip(self.operator.groups_of(batch), batch, strict=False)]
        batch[:] = [row for group, row in rows if not _is_done(half, group)]
        counts, fired, late = self._by_time(state, half["value"], batch, attempt, half)
        self._is_known = False  # memory has the other groups alone
        whole = {**counts, "late": value["late"] + counts["late"] - half["value"]["late"]}
        times = [of["time"] for of in (value, counts) if of["time"] is not None]
        whole["time"] = highest(times) if times else None
        fired = [*self._rows_in(value, "fired"), *fired]
        late = [*self._rows_in(value, "late_rows"), *late]
        return self._with_rows(whole, fired, late), fired, late

    def _by_time(
        self,
        state: MapState,
        old: Any,
        batch: WindowBatch,
        attempt: Attempt,
        half: Any = None,
    ) -> tuple[dict[str, Any], Sequence[Any], Sequence[Any]]:
        """The value of the task after a batch, and the rows of windows that have ended, and late
        ones. `half`: without the groups that are done."""
        operator, old = self.operator, old or _NOTHING_YET
        known: Time = -inf if old["time"] is None else old["time"]
        self._load(state, attempt, half)
        operator.continue_at(minus(known, operator.late))
        if self._late_before is None:
            self._late_before = old["late"]
            self.late_records.loaded(minus(known, operator.late))
        for group, _, panes in _stored_before(old):
            operator.add_stored({(group, pane): content for pane, content in panes})
        for group, at in old.get("behind", ()):
            operator.note_behind(hashable(group), minus(at, operator.late))
        time = highest([known, operator.now() if self.time is None else batch.time])
        until = minus(time, operator.late)
        results = operator.run_batch(batch, attempt, until, batch.newest, ends_all=batch.ends_all)
        if batch.ends_all:
            time = highest([time, plus(results.time, operator.late)])
            width = len(self.by)
            self._ended_open = len({key_of((*row[: width + 1],)) for row in results.opened})
        self._last, self._written = (attempt.txid, None), minus(time, operator.late)
        late_count = old["late"] + results.late_count
        value = {"time": None if time == -inf else time, "late": late_count}
        if not hasattr(state, "written_by"):
            removed = [listed(key) for key, put in self.store.changed.items() if put is None]
            value |= {"txid": attempt.txid, "removed": sorted(removed, key=repr)}
        fired = [*results.ended, *results.opened, *results.early]
        return self._with_rows(value, fired, results.late), fired, results.late

    def _load(self, state: MapState, attempt: Attempt, half: Any) -> None:
        """Read which windows are open, unless memory has what the state has. If this batch has been
        written before, that is what they were before it."""
        txid, last = self._last
        if self._is_known and last == self.slot.last_attempt and txid != attempt.txid:
            return
        operator, entries = self.operator, state.items()
        self.store.forget()
        operator.forget()
        again: Iterable[Key] = ()
        if (written_by := getattr(state, "written_by", None)) is not None:
            again = written_by(attempt)
        else:  # a state of a user
            stored = dict(entries)
            entries, value = iter(stored.items()), stored.get(KEY) or {}
            if value.get("txid", attempt.txid) == attempt.txid:
                panes = ([KEY, *place] for place in value.get("ended", ()))  # before "removed"
                again = [*stored, *map(hashable, value.get("removed", panes))]
        again = {key: None for key in again if type(key) is tuple}
        for key, value in chain(
            (item for item in entries if item[0] not in again),
            zip(again, state.multi_get([*again]), strict=True),
        ):
            is_done = half is not None and type(key) is tuple and _is_done(half, key[1])
            if type(key) is tuple and value is not None and not is_done:
                operator.load(key, value)
        self._is_known = True


# ---- windows of a number of rows -----------------------------------------------------------------


class CountedWindows(Persist):
    """Emits (branch, row), with rows (fields of the group, window, what the aggregators emit).
    `window` is the number of the window, from 0."""

    def __init__(
        self,
        slot: BatchSlot,
        window: Window,
        schema: Schema,
        by: Sequence[str],
        aggregators: Sequence[AnyAggregator],
        out: Schema,
    ) -> None:
        super().__init__(slot)
        self.window, self.schema, self.by, self.out = window, schema, tuple(by), out
        self.contents = PaneValues(schema, aggregators)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        groups = list(group_keys(self.schema, self.by, batch))
        keys = {(KEY, group): None for group in groups}
        before: dict[Any, Any] = {}
        notes = [partial(_note, before, key) for key in keys]
        values = dict(zip(keys, state.multi_update(list(keys), notes), strict=True))
        if before:  # else a transactional state has what an earlier attempt has written
            store = StateDraft(state, copies=True)
            values |= self._counted(store, before, groups, batch, attempt)
            for key in before:
                store.put(key, values[key])
            store.write()
        width = len(self.by)
        fired = [row for key in keys for row in values[key]["fired"]]
        hashed = [(*map(hashable, row[:width]), *row[width:]) for row in fired]
        return [(ON_TIME, row) for row in self.out.make(hashed)]

    def _counted(
        self,
        store: StateDraft,
        before: Mapping[Any, Any],
        groups: Sequence[Any],
        rows: Sequence[Any],
        attempt: Attempt,
    ) -> dict[Any, Any]:
        """The values of groups after these rows."""
        stored: dict[Any, tuple[int, Any]] = {}
        for key, old in before.items():
            stored[key[1]] = 0 if old is None else old.get("rows", 0), ()
            for group, number, panes in _stored_before(old):
                stored[group] = number, panes
        open_panes = OpenPanes(KEY, self.contents, self.window.panes)
        every = int(self.window.every)
        ended, counts = open_panes.count(store, every, stored, groups, rows, attempt)
        fired: dict[Any, list[Any]] = {key: [] for key in before}
        for last, group, content in ended:
            fired[KEY, group] += self._results(group, last, content, attempt)
        return {key: {"rows": counts[key[1]], "fired": rows} for key, rows in fired.items()}

    def _results(self, key: Any, name: Any, content: Any, attempt: Attempt) -> list[Any]:
        """The rows of a group in a window with this content, as they are stored."""
        head = (*map(listed, values_of_key(key, len(self.by))), name)
        return [[*head, *row] for row in self.contents.results(key, content, attempt)]


def _named(source: str) -> str:
    """What sends times, for errors."""
    return repr(source) if " " in source else f"spout {source!r}"


# ---- values of tasks -----------------------------------------------------------------------------


def _note(before: dict[Any, Any], key: Any, old: Any) -> dict[str, Any]:
    """Note the value of a key from before this batch, which replaces it later."""
    before[key] = old
    return {}


def _stored_before(old: Any) -> Iterator[tuple[Any, int, Any]]:
    """(group, rows so far, [[pane, content], …]) of a value that has the panes itself, as in
    releases before a row per pane."""
    for group, rows, panes in (old or {}).get("groups", ()):
        yield hashable(group), rows, panes


def moved_windows(
    parts: Sequence[FoundPart], *, width: int, window: AnyWindow, kind: StateKind
) -> dict[Key, Any]:
    """What a new task has of the values beside the panes of former tasks; `width`: the number of
    fields of the groups.

    The time is the latest. Windows that a former task has not ended by then, as its clock was
    behind, end with the next batch: "behind" has the time of their groups. A transactional state
    has lost what was there before the last batch, which some of the tasks may not have written.
    Then "half" has what the others had before it, and which former tasks have written it: if the
    batch is repeated, only rows and windows of the others are processed.
    """
    if all(KEY not in part.beside for part in parts):
        return {}
    last = max(part.txid for part in parts)
    value = _moved(parts, width, window)
    done = [part for part in parts if part.txid == last and not _half_of(part, last)]
    others = [part for part in parts if part not in done]
    if kind is StateKind.TRANSACTIONAL and (done or any(_half_of(part, last) for part in others)):
        tasks = [[part.tasks, part.task] for part in done]
        halves = [half for part in others if (half := _half_of(part, last))]
        tasks += [pair for half in halves for pair in half["tasks"]]
        before = [
            part._replace(beside={KEY: half["value"]}) if (half := _half_of(part, last)) else part
            for part in others
        ]
        if others:
            value["half"] = {"txid": last, "tasks": tasks, "value": _moved(before, width, window)}
    return {KEY: value}


def _moved(parts: Sequence[FoundPart], width: int, window: AnyWindow) -> dict[str, Any]:
    """The value of a new task from those of former tasks. Only rows and panes of the last batch can
    be asked for again."""
    former = [(part, part.beside.get(KEY) or _NOTHING_YET) for part in parts]
    latest = highest(old["time"] for _, old in former if old["time"] is not None)
    lists: dict[str, list[Any]] = {name: [] for name in ("fired", "late_rows", "groups", "behind")}
    late = length_of(window.late)
    panes = window.divided() if isinstance(window, Window) else None
    for part, old in former:
        for name in ("fired", "late_rows") if KEY in part.latest else ():
            rows = old.get(name, ())
            lists[name] += [row for row in rows if part.gets(_group_of(row, width))]
        lists["groups"] += [each for each in old.get("groups", ()) if part.gets(hashable(each[0]))]
        time = old["time"]
        if time is not None and is_before(time, latest) and panes is not None:
            ended = [panes.of_time(minus(at, late)) for at in (time, latest)]
            groups = {key[1]: None for key, _ in part.items() if type(key) is tuple}
            if ended[0] < ended[1]:
                lists["behind"] += [[listed(group), time] for group in groups]
    count = sum(old["late"] for part, old in former if part.is_heir)
    more = {name: values for name, values in lists.items() if values or name == "fired"}
    return {"time": None if latest == -inf else latest, "late": count, **more}


def _half_of(part: FoundPart, txid: int) -> Any:
    """What a former task had of a batch that it has not repeated since it was moved itself."""
    half = part.beside.get(KEY, _NOTHING_YET).get("half")
    return half if half and half["txid"] == txid else None


def _is_done(half: Any, group: Any) -> bool:
    """Whether a former task has written the rows of a group."""
    return any(task_index(group, tasks) == task for tasks, task in half["tasks"])


def _group_of(row: Sequence[Any], width: int) -> Any:
    """The group of a row that was fired."""
    group = hashable(row[:width])
    return group[0] if width == 1 else group
