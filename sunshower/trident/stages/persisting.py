"""States of exactly-once batches: written in the commit phase, or queried.

A batch without rows in a task is begun and committed there too, because an earlier attempt may have
had some, whose writes the state then undoes (Storm does not, and counts them twice). Storm:
org.apache.storm.trident.planner.processor.PartitionPersistProcessor, StateQueryProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from sunshower.errors import BatchError
from sunshower.json_values import hashable, listed, texts_of_keys
from sunshower.records import Schema, key_of
from sunshower.runtime.transport.routing import task_index
from sunshower.topologies.components import Context
from sunshower.topologies.graph import own_copy
from sunshower.topologies.operators.aggregating import group_keys, values_of_key
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.port import Attempt, Emit, Gathering
from sunshower.topologies.operators.state_slot import Join, StateDraft, StateSlot, nothing_else
from sunshower.topologies.operators.states import (
    FoundPart,
    Key,
    MapState,
    Moving,
    Place,
    RecognisedState,
    Spread,
    StateFactory,
    StateKind,
)
from sunshower.topologies.operators.steps import check_rows, keys_of, prepare_code
from sunshower.topologies.operators.totals import Persist
from sunshower.topologies.operators.windows.aggregated_windows import (
    OpenPanes,
    PanePlace,
    PaneValues,
    TimePanes,
    log_ended,
    panes_of,
)
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeField,
    TimeReader,
    as_float,
    highest,
    is_before,
    length_of,
    lowest,
    minus,
    plus,
)
from sunshower.topologies.operators.windows.watermarks import LateRecords
from sunshower.topologies.operators.windows.window_kinds import Window, with_dates
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.stages.plan import Timed
from sunshower.trident.states.stored_map import CountedIn, LastWrite


class BatchSlot(StateSlot):
    """The state of one task of batches: its writes have the numbers of the batches, and are noted
    in the store of the batches."""

    is_of_batches = True
    factory: StateFactory

    def __init__(
        self,
        factory: StateFactory,
        name: str,
        join: Join = nothing_else,
        *,
        spread: Spread = Spread.BY_KEY,
        by: Sequence[str] = (),
        exactly_once: bool = True,
        can_move: bool = True,
    ) -> None:
        """`join` and `spread`: as of StateSlot; `by`: the fields of its keys; `can_move`: whether
        its keys choose the task of a row."""
        super().__init__(factory, name, f"state {name!r}", join, spread=spread)
        self.by, self.exactly_once, self.can_move = tuple(by), exactly_once, can_move
        self.counted: CountedIn | None = None  # set by GroupBuilder.freeze
        self._noted: LastWrite | None = None  # of states that are exactly once

    def begin_commit(self, attempt: Attempt) -> None:
        self.state.begin_commit(attempt)
        self._check()

    def commit(self, attempt: Attempt) -> None:
        self.state.commit(attempt)
        if self._noted is not None and (last := self.last_attempt) is not None:
            self._noted.note(last)

    def number(self, attempt: Attempt) -> int:
        return attempt.txid

    def close(self) -> None:
        super().close()
        if self._noted is not None:
            self._noted.close()
        self._noted = None

    def _begin(self, context: Context) -> None:
        counted = self.counted
        batches = counted.incarnation() if counted is not None else ""
        moving = Moving(self._spread, self._join, not self._was_open, self._check_former)
        place = Place(context.topology, self.name, context.index, context.parallelism, batches)
        self._noted = self._note_of(context.index)
        self._told = self._told_of(context.index)
        self._state = self.factory.make(replace(place, moving=moving) if self.can_move else place)
        if self._noted is not None and not isinstance(self._state, RecognisedState):
            self._noted.close()
            self._noted = None
        self._check()

    def _check(self) -> None:
        if self._noted is not None:
            self._noted.check(self.last_attempt, self._told)

    def _check_former(self, task: int, last: Attempt | None) -> None:
        """Raise StateMismatch if a task has noted a later write than the last one of its part."""
        if (noted := self._note_of(task)) is not None:
            with closing(noted):
                noted.check(last, self._told_of(task))

    def _note_of(self, task: int) -> LastWrite | None:
        if self.counted is None or not self.exactly_once:
            return None
        return self.counted.last_write(self.stored_name, task)

    def _told_of(self, task: int) -> str:
        return f"state {self.stored_name!r}, task {task}"

    @property
    def stored_name(self) -> str:
        """By which a later run finds it; no two states of a topology have the same."""
        return getattr(self.factory, "name", None) or self.name


class PersistPartition(Persist):
    """Calls a user function with the state and the rows of a batch."""

    def __init__(self, slot: BatchSlot, updater: Callable[..., Any], out: Schema | None) -> None:
        super().__init__(slot)
        self.updater, self.out = own_copy(updater, "the updater of a state"), out

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        prepare_code(self.updater, context)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        outputs = list(self.updater(state, batch) or ())
        if self.out is not None:
            check_rows(outputs, self.out, self.updater)
        return outputs if self.out is not None else ()


class TimedRows(list[Any]):
    """The rows of a batch, and the time by which states expire: that of the batch. It is true if
    the state has to be written: also if an earlier attempt of it may have changed states."""

    time: float = -inf
    is_again = False

    def __bool__(self) -> bool:
        return self.is_again or len(self) > 0


class ProcessByKey(Persist, Timed):
    """Calls a function with each row of a batch and the state of its key.

    An opaque state gives a batch that is repeated the values from before the batch. States expire
    by the event time of the row, or the watermark when the batch began if that is later; or by the
    clock, as it was when the batch began.
    """

    def __init__(
        self,
        slot: BatchSlot,
        process: KeyedProcess,
        sources: Collection[str] = (),
        event_time: TimeField | None = None,
    ) -> None:
        """`sources`: the spouts whose rows these are, if states expire; `event_time`: by which;
        None: by the clock."""
        super().__init__(slot)
        self.calls, self.sources, self.event_time = process, tuple(sources), event_time
        process.store.slot = slot

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.calls.prepare(context)
        self._reader = self.event_time and self.event_time.reader(self.calls.reads)
        if self.sources:
            self.calls.store.expire_in_batches()

    def start(self, attempt: Attempt) -> TimedRows:
        batch, last = TimedRows(), self.slot.last_attempt
        batch.is_again = bool(self.sources) and last is not None and last.txid == attempt.txid
        return batch

    def note_times(self, batch: TimedRows, times: Mapping[str, SourceTime]) -> None:
        known = [times.get(source) for source in self.sources]
        if self.event_time is not None:
            batch.time = as_float(_watermark(known, before=True))
        else:
            begun = [time.begun_s for time in known if time is not None and time.begun_s]
            batch.time = max(begun, default=-inf)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        calls, store, outputs = self.calls, self.calls.store, list[Any]()
        reader = self._reader
        try:
            calls.announce(batch)
            if self.sources:
                calls.set_time(batch.time)
            for row in batch:
                if reader is not None:
                    calls.set_time(max(batch.time, as_float(reader.time(row))))
                outputs += calls.expand(row)
            if self.sources:
                calls.set_time(batch.time)
                written_by = getattr(state, "written_by", None)
                store.expire_in_batch(written_by(attempt) if written_by is not None else ())
            changed = store.changed
        finally:
            store.forget()
        state.multi_put([*changed], [*changed.values()])
        return outputs

    def figures(self) -> Mapping[str, float]:
        return self.calls.figures()

    def cleanup(self) -> None:
        try:
            self.calls.cleanup()
        finally:
            super().cleanup()


class QueryState(Gathering):
    """Queries a state for all rows of a batch at once and emits each row with its answer. With
    `commits` it runs in the commit phase and sees what the batches before have written."""

    blocks_lineage = "a state_query"

    def __init__(
        self,
        slot: BatchSlot,
        query: Callable[..., Any],
        schema: Schema,
        out: Schema,
        *,
        commits: bool,
    ) -> None:
        self.slot, self.schema, self.out = slot, schema, out
        self.query = own_copy(query, "the query of a state")
        self.commits = commits

    def prepare(self, context: Context) -> None:
        self.slot.open(context)
        prepare_code(self.query, context)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        if not batch:
            return
        answers = list(self.query(self.slot.state, batch))
        if len(answers) != len(batch):
            raise BatchError(
                f"a query of state {self.slot.name!r} gave {len(answers)} answers to {len(batch)} "
                "rows; give one for each row, in their order, None where there is none"
            )
        several = len(self.out.fields) - len(self.schema.fields) > 1
        rows = keys_of(self.schema, self.schema.fields, batch)
        answered = zip(rows, answers, strict=True)
        if several:
            emit(self.out.make([(*row, *answer) for row, answer in answered]))
        else:
            emit(self.out.make([(*row, answer) for row, answer in answered]))

    def cleanup(self) -> None:
        self.slot.close()


class Lookup:
    """The query for the value of each row's group. Storm: MapGet, SnapshotGet."""

    def __init__(
        self, schema: Schema, by: Sequence[str], result: Callable[[Any], Any] | None = None
    ) -> None:
        self.schema, self.by, self.result = schema, tuple(by), result

    def __call__(self, state: MapState, rows: Sequence[Any]) -> list[Any]:
        keys = list(group_keys(self.schema, self.by, rows))
        values = dict.fromkeys(keys)
        for key, value in zip(values, state.multi_get(list(values)), strict=True):
            known = self.result is not None and value is not None
            values[key] = self.result(value) if known else value  # type: ignore[misc]
        return [values[key] for key in keys]


# ---- windowing -----------------------------------------------------------------------------------
# Windows whose contents are in a state, written in the commit phase, so each row counts once.
#
# There is a row for each group and pane: a batch writes those of its own groups and of the windows
# that it ends. Two more rows say how far a task is, or a group of count windows:
#
#   "$windows"           {"time": 31, "late": 0, "fired": […], "ended": […]}
#   ("$windows", group)  {"rows": 8, "fired": […]}
#
# A state that has moved to another number of tasks may have two more entries under "$windows",
# until the next batch: "half" and "behind", see `moved_windows`.
#
# Both include the rows that the last batch fired: a batch that is committed again finds them, or
# computes them from the values before. A window of event time ends by the watermark of the batch:
# see trident/spouts/reached_times.py. Storm keeps windows outside the batch, and counts the rows of
# each attempt again (STORM-3280): org.apache.storm.trident.windowing.WindowTridentProcessor.

KEY = "$windows"
ON_TIME, LATE = 0, 1  # branches: rows of windows that have ended; rows that came too late
_NOTHING_YET: Mapping[str, Any] = {"time": None, "late": 0}
_NONE_BEHIND: Mapping[Any, Time] = {}
_ALWAYS = ("fired", "ended")  # in a value that was written


class WindowBatch(list[Any]):
    """The rows of a batch. It is true if the state has to be written."""

    time: Time = -inf  # the watermark, also of those of the clock
    earlier: Time = -inf  # what it was when the order for the batch was given
    newest: Time = inf  # the highest time of a row that is not too far ahead of the clock
    begun_s = 0.0  # as SourceTime.begun_s
    is_idle = False  # no source holds it back, because all are idle
    has_ended = False  # there are no rows after this batch
    ends_all = False  # open windows end with it
    writes = False  # also without rows

    def __bool__(self) -> bool:
        return self.writes or len(self) > 0


class Windows(Persist, Timed):
    """Emits (branch, row), with rows (fields of the group, window, what the aggregators emit).
    `window` is the end of a time window, or the number of a count window, from 0."""

    reads_ends = False  # whether its event times are ends of other windows

    def __init__(
        self,
        slot: BatchSlot,
        window: Window,
        schema: Schema,
        by: Sequence[str],
        aggregators: Sequence[AnyAggregator],
        out: Schema,
        sources: Collection[str],
    ) -> None:
        """`sources`: what sends it times, see Timed."""
        super().__init__(slot)
        self.sources = tuple(sources)
        self.window, self.schema, self.by, self.out = window, schema, tuple(by), out
        self.time = window.time
        self.sends = None if window.by_count else f"window {slot.stored_name}"
        self.contents = PaneValues(schema, aggregators)
        self.panes, self._late = window.divided(), length_of(window.late)
        self.reader: TimeReader | None = None
        if window.time is not None:
            self.reader = window.time.reader(schema)
            self.reader.what += f" of a row of {' or '.join(map(_named, self.sources))}"

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._clock = context.clock
        self._shift: float | None = None  # a new life's clock may be behind the old one's
        self._next_end: Time = -inf  # without rows nothing changes before this time
        self._ended_open = 0  # windows that the end of all sources has ended in this batch
        self._late_before: int | None = None  # how many were late when the task began
        self.late_records = LateRecords()
        self._is_known = False  # whether memory has what is stored
        self._last: Attempt | None = None  # that has written it, if the state says so
        self._ended: tuple[int, list[PanePlace]] = (0, [])  # a txid, and the panes that it removed

    def start(self, attempt: Attempt) -> WindowBatch:
        return WindowBatch()

    def note_times(self, batch: WindowBatch, times: Mapping[str, SourceTime]) -> None:
        sources = [times.get(source) for source in self.sources]
        known = [source for source in sources if source is not None]
        batch.has_ended = len(known) == len(sources) and all(source.ended for source in known)
        batch.ends_all = batch.has_ended and self.window.at_end == "end"
        batch.begun_s = max((source.begun_s for source in known), default=0.0)
        if self.reader is None:
            batch.time = batch.earlier = batch.begun_s or self._clock.wall()
            return
        batch.time, batch.earlier = _watermark(sources), _watermark(sources, before=True)
        batch.newest = highest(inf if source is None else source.newest for source in sources)
        batch.is_idle = len(known) == len(sources) and all(
            source.idle and source.reached == inf for source in known
        )

    def sent_time(self, batch: WindowBatch) -> SourceTime:
        about: Any = {"ended": batch.has_ended, "begun_s": batch.begun_s}
        if batch.is_idle and self._is_known and not self._open.groups:
            return SourceTime(inf, inf, idle=True, newest=self._newest_end(batch), **about)
        front, earlier = (minus(time, self._late) for time in (batch.time, batch.earlier))
        return SourceTime(front, earlier, idle=False, newest=self._newest_end(batch), **about)

    def _newest_end(self, batch: WindowBatch) -> Time:
        """The end of the last window that has a row which is not too far ahead of the clock."""
        if batch.newest in (inf, -inf):
            return batch.newest
        (pane,) = self._panes_of([batch.newest])
        return self.panes.start(pane + self.window.panes)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        if not self.window.by_count:
            time = plus(batch.time, self._shift or 0.0) if self.reader is None else batch.time
            # An earlier attempt may have fired, and moved the next end.
            again = attempt.attempt > 0 or batch.ends_all
            reads = batch.is_idle and not self._is_known  # which windows are open
            is_due = time != -inf and not is_before(time, self._next_end)
            batch.writes = again or reads or is_due
        self._ended_open = 0
        try:
            super().finish(batch, attempt, emit)
        except BaseException:
            self._next_end = -inf  # the computed end was not stored
            self._is_known = False
            raise
        self._last = self._last_attempt
        if batch.ends_all:
            self.late_records.say_if_all(f"window {self.slot.name!r}")
        if self._ended_open:
            factory = getattr(self.slot, "factory", None)
            log_ended(factory, self.slot.name, self._ended_open)

    def figures(self) -> Mapping[str, float]:
        return {} if self.reader is None else self.reader.figures()

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        keys: dict[Any, None] = {KEY: None}
        groups = list(group_keys(self.schema, self.by, batch)) if self.window.by_count else []
        if self.window.by_count:
            keys = {(KEY, group): None for group in groups}
        before: dict[Any, Any] = {}
        notes = [partial(_note, before, key) for key in keys]
        values = dict(zip(keys, state.multi_update(list(keys), notes), strict=True))
        # A transactional state keeps what an earlier attempt has written, and calls nothing.
        half = None if before or self.window.by_count else values[KEY].get("half")
        if before or half:
            store = StateDraft(state, copies=True)
            if self.window.by_count:
                values |= self._by_count(store, before, groups, batch, attempt)
            elif half:
                values[KEY] = self._by_half(store, state, values[KEY], batch, attempt)
            else:
                values[KEY] = self._by_time(store, state, before[KEY], batch, attempt)
            for key in before or values:
                store.put(key, values[key])
            store.write()
        if not self.window.by_count:
            count = values[KEY]["late"]
            self._late_before = count if self._late_before is None else self._late_before
            self.late_records.count = count - self._late_before
        fired = self._records(row for key in keys for row in values[key]["fired"])
        late = self._records(row for key in keys for row in values[key].get("late_rows", ()))
        return [*((ON_TIME, row) for row in fired), *((LATE, row) for row in late)]

    def _records(self, rows: Iterable[Any]) -> list[Any]:
        width = len(self.by)
        hashed = [(*map(hashable, row[:width]), *row[width:]) for row in rows]
        return self.out.make(with_dates(self.window, self.out, width, hashed))

    def _by_count(
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

    def _by_half(
        self, store: StateDraft, state: MapState, value: Any, batch: WindowBatch, attempt: Attempt
    ) -> dict[str, Any]:
        """The value of the task after a batch that some of the former tasks had written before the
        state moved: what is left are the rows and windows of the other ones."""
        half, keys = value["half"], group_keys(self.schema, self.by, batch)
        others = [row for key, row in zip(keys, batch, strict=False) if not _is_done(half, key)]
        batch[:] = others
        counts = self._by_time(store, state, half["value"], batch, attempt, half)
        self._is_known, self._next_end = False, -inf  # memory has the other groups alone
        whole = {**counts, "late": value["late"] + counts["late"] - half["value"]["late"]}
        times = [
            half_value["time"] for half_value in (value, counts) if half_value["time"] is not None
        ]
        whole["time"] = max(times, default=None)
        for name in ("fired", "ended", "late_rows"):
            whole[name] = [*value.get(name, ()), *counts.get(name, ())]
        return whole

    def _by_time(
        self,
        store: StateDraft,
        state: MapState,
        old: Any,
        batch: WindowBatch,
        attempt: Attempt,
        half: Any = None,
    ) -> dict[str, Any]:
        """The value of the task after a batch; `half`: without the groups that are done."""
        old = old or _NOTHING_YET
        known: Time = -inf if old["time"] is None else old["time"]
        self._load(state, attempt)
        if half is not None:
            for groups in self._open.groups.values():
                for group in [group for group in groups if _is_done(half, group)]:
                    del groups[group]
        before = self._last_ended(known)
        if self._late_before is None:
            self._late_before = old["late"]
            if before != -inf:
                self.late_records.loaded(self.panes.start(int(before) + 1))
        for group, _, panes in _stored_before(old):
            contents = {(group, pane): content for pane, content in panes}
            self._open.add(store, contents)
            self._open.note(contents)
        times, time = self._times(known, batch)
        late_rows, late = self._take(store, batch, times, before, attempt)
        time = highest([known, time])
        ended = self._last_ended(time)
        behind = {hashable(group): self._last_ended(at) for group, at in old.get("behind", ())}
        fired, removed = self._fire(store, before, ended, attempt, behind)
        if batch.ends_all and self._open.groups:
            last = max(self._open.groups) + self.window.panes - 1
            opened, others = self._fire(store, ended, last, attempt)
            fired, removed = fired + opened, removed + others
            self._ended_open = len({key_of(row[: len(self.by) + 1]) for row in opened})
            ended, time = last, highest([time, self._end_of_sources(last, batch.newest)])
        self._ended = (attempt.txid, removed)
        self._next_end = self._next_change(ended)
        value = {
            "time": None if time == -inf else time,
            "late": old["late"] + late,
            "fired": fired,
            "ended": [[listed(group), pane] for group, pane in removed],
        }
        return value | ({"late_rows": late_rows} if late_rows else {})

    def _load(self, state: MapState, attempt: Attempt) -> None:
        """Read which panes are open, unless memory has what the state has. If this batch has been
        written before, its panes are among them: what they had before it is read from the state.
        Those that it then removed are in `ended`, too."""
        if not self._is_known or self._last != self._last_attempt:
            self._open = TimePanes(KEY, self.contents, self.window)
            self._ended = (0, [])
            for key, value in state.items():
                if type(key) is tuple and len(key) > 2 and key[0] == KEY:
                    self._open.note([(key[1], key[2])])
                elif key == KEY:
                    removed = [(hashable(group), pane) for group, pane in value.get("ended", ())]
                    self._open.note(removed)
            self._is_known = True
        elif self._ended[0] == attempt.txid:
            self._open.note(self._ended[1])

    @property
    def _last_attempt(self) -> Attempt | None:
        return self.slot.last_attempt

    def _next_change(self, ended: Time) -> Time:
        """The time at which the state has to be written also without rows."""
        if self.reader is not None:  # from then on, rows of a further pane are late
            return -inf if ended == -inf else self._end(int(ended) + 1)
        first = min(self._open.groups, default=None)
        return inf if first is None else self.panes.start(max(first, int(ended) + 1) + 1)

    def _last_ended(self, time: Time) -> Time:
        """The last pane that has ended at this time."""
        return time if time == -inf else self._open.last_ended(minus(time, self._late))

    def _end_of_sources(self, last: int, newest: Time) -> Time:
        """The time that is stored when the end of all sources has ended windows up to the pane
        `last`. Those that only have times too far ahead of the clock do not count."""
        if newest == inf or self.reader is None:
            return self._end(last)
        if newest == -inf:
            return newest
        (pane,) = self._panes_of([newest])
        return self._end(min(last, pane + self.window.panes - 1))

    def _end(self, pane: int) -> Time:
        """The time from which on a pane has ended."""
        return plus(self.panes.start(pane + 1), self._late)

    def _times(self, known: Time, batch: WindowBatch) -> tuple[list[Time], Time]:
        """The times of the rows, and up to which windows end. `known`: the time of the state."""
        if self.reader is not None:
            return self.reader.times(batch), batch.time
        if self._shift is None:
            behind = 0.0 if known == -inf else float(known) - float(batch.time)
            self._shift = max(0.0, behind)
        now = max(float(batch.time) + self._shift, float(known))
        return [now] * len(batch), now

    def _panes_of(self, times: Sequence[Time]) -> list[int]:
        return panes_of(self.panes, times, are_ends=self.reads_ends)

    def _take(
        self,
        store: StateDraft,
        rows: Sequence[Any],
        times: list[Time],
        before: Time,
        attempt: Attempt,
    ) -> tuple[list[Any], int]:
        """Add rows to their panes. Returns what to emit for those that are late, and how many are.
        `before`: the last pane that had ended before this batch."""
        keys = group_keys(self.schema, self.by, rows)
        places = [*zip(keys, self._panes_of(times), strict=False)]
        contents = self.contents.gather(places, rows, attempt)
        late = self._open.take(store, contents, before)
        self.late_records.in_time |= len(late) < len(contents)
        results: list[Any] = []
        if late:
            by = minus(self.panes.start(int(before) + 1), lowest(late.values()))
            self.late_records.by = max(self.late_records.by, as_float(by))
        for (key, pane), end in late.items():
            results += self._results(key, end, contents[key, pane], attempt)
        return results, sum(place in late for place in places) if late else 0

    def _fire(
        self,
        store: StateDraft,
        before: Time,
        ended: Time,
        attempt: Attempt,
        behind: Mapping[Any, Time] = _NONE_BEHIND,
    ) -> tuple[list[Any], list[PanePlace]]:
        """The rows of windows that end, and the panes that no other window needs. The order is the
        same in each attempt."""
        windows, removed = self._open.end(store, before, ended, behind)
        groups = list(dict.fromkeys(group for _, group, _ in windows))
        texts = dict(zip(groups, texts_of_keys(groups), strict=True))
        windows.sort(key=lambda window: (texts[window[1]], window[0]))
        fired: list[Any] = []
        for last, group, content in windows:
            fired += self._results(group, self.panes.start(last + 1), content, attempt)
        return fired, removed

    def _results(self, key: Any, name: Any, content: Any, attempt: Attempt) -> list[Any]:
        """The rows of a group in a window with this content, as they are stored."""
        head = (*map(listed, values_of_key(key, len(self.by))), name)
        return [[*head, *row] for row in self.contents.results(key, content, attempt)]


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
    parts: Sequence[FoundPart], *, width: int, window: Window, kind: StateKind
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


def _moved(parts: Sequence[FoundPart], width: int, window: Window) -> dict[str, Any]:
    """The value of a new task from those of former tasks. Only rows and panes of the last batch can
    be asked for again."""
    former = [(part, part.beside.get(KEY) or _NOTHING_YET) for part in parts]
    latest: Any = max((old["time"] for _, old in former if old["time"] is not None), default=None)
    lists: dict[str, list[Any]] = {
        name: [] for name in ("fired", "late_rows", "ended", "groups", "behind")
    }
    panes, late = window.divided(), length_of(window.late)
    for part, old in former:
        if KEY in part.latest:
            for name in ("fired", "late_rows"):
                rows = old.get(name, ())
                lists[name] += [row for row in rows if part.gets(_group_of(row, width))]
        for name in ("ended", "groups") if KEY in part.latest else ("groups",):
            lists[name] += [group for group in old.get(name, ()) if part.gets(hashable(group[0]))]
        if (time := old["time"]) is not None and time < latest:
            ended = [panes.of_time(minus(at, late)) for at in (time, latest)]
            groups = {key[1]: None for key, _ in part.items() if type(key) is tuple}
            if ended[0] < ended[1]:
                lists["behind"] += [[listed(group), time] for group in groups]
    count = sum(old["late"] for part, old in former if part.is_heir)
    more = {name: values for name, values in lists.items() if values or name in _ALWAYS}
    return {"time": latest, "late": count, **more}


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


def _named(source: str) -> str:
    """What sends times, for errors."""
    return repr(source) if source.startswith("window ") else f"spout {source!r}"


def _watermark(sources: Sequence[SourceTime | None], *, before: bool = False) -> Time:
    """The event time that all sources have reached; -inf: it is not known. `before`: when the order
    for the batch was given."""
    known = [source for source in sources if source is not None]
    if len(known) < len(sources):
        return -inf
    running = [source for source in known if not source.ended] or known
    is_idle = before or any(source.idle for source in running)
    time = lowest(source.earlier if is_idle else source.reached for source in running)
    return -inf if time == inf else time
