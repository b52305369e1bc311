"""The base of windows over ordinary streams: rows wait in a keyed store, watermarks end windows.

    rows of a batch ──▶ added to their windows ──▶ committed ──▶ acked       late ones are emitted
    a watermark     ──▶ rows of ended windows  ──▶ committed ──▶ emitted as part of its tree

What a watermark has ended stays in the store until the spout task says, in a later watermark, that
its tree is complete. A watermark that comes again is answered with the same rows. The rows of a
former life of the spout task, which may have failed, belong to the next watermark of its new life.

If other windows are behind this one, each watermark that it gets makes one of its own, in the same
tree:

    front      up to here windows have ended; a join, or a process, may emit what is a bit older
    since      of rows that are owed: the front before they were made
    pending    of the watermark: the lowest of these, so rows that may come again are not late
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from heapq import heappop, heappush
from itertools import chain, count
from math import inf
from types import MethodType
from typing import Any, NamedTuple, Self, TypeVar

from sunshower.errors import TopologyFailed
from sunshower.records import Schema, key_of
from sunshower.texts import describe
from sunshower.topologies.components import Context
from sunshower.topologies.graph import own_copy
from sunshower.topologies.operators.keyed.keyed_process import AnyKeyState, KeyedProcess
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Attempt, Emit, Gathering
from sunshower.topologies.operators.states import OWED, TIME, TIMER, is_own
from sunshower.topologies.operators.steps import check_rows, prepare_code
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeField,
    TimeReader,
    as_float,
    highest,
    is_before,
    length_of,
    lowest,
    place_of_time,
)
from sunshower.topologies.operators.windows.watermarks import (
    HOLDS_S,
    LateRecords,
    ReachedTime,
    Watermark,
    WatermarkTree,
)

T = TypeVar("T")


# ---- due times -----------------------------------------------------------------------------------


class DueTimes:
    """For each key a time at which to look at it, which is not after that of its timer or window in
    the store."""

    def __init__(self) -> None:
        # a heap: place of a time, a tie-breaker, the time, key
        self._times: list[tuple[float, int | Decimal, int, Time, Any]] = []
        self._expected: dict[Any, Time] = {}  # `key_of` a key → its time in the heap
        self._order = count()

    def expect(self, key: Any, time: Time) -> None:
        """Look at a key at `time`, if not before."""
        name = key_of(key)
        if is_before(time, self._expected.get(name, inf)):
            self._expected[name] = time
            heappush(self._times, (*place_of_time(time), next(self._order), time, key))

    def due(self, time: Time) -> Iterator[tuple[Time, Any]]:
        """Take the keys to look at up to `time`, in the order of their times, also of those that
        are added meanwhile."""
        while self._times and not is_before(time, self.first):
            *_, at, key = heappop(self._times)
            if self._expected.get(name := key_of(key)) == at:
                del self._expected[name]
                yield at, key

    @property
    def first(self) -> Time:
        """The lowest of all times; inf: there is none."""
        return self._times[0][3] if self._times else inf

    @property
    def last(self) -> Time:
        """The highest of all times; -inf: there is none."""
        return highest(entry[3] for entry in self._times)


# ---- window operator -----------------------------------------------------------------------------


class Owed(NamedTuple):
    """Rows that were made for a watermark of a spout task, and may not be processed."""

    life: int
    number: int  # of the watermark
    rows: Sequence[Sequence[Any]]
    since: Time = -inf  # the front before the first of them was made; of a former process unknown


class StageTime(NamedTuple):
    """How far a stage is in event time."""

    time: Time  # windows up to here have ended
    newest: Time  # the highest event time that its spouts have emitted
    sources: tuple[int, ...]  # the tasks whose watermarks it follows
    held_by: int | None  # which of these is the slowest
    holds: str  # why it holds back the stages behind it; ""


class WindowOperator(Gathering):
    """Keeps rows until a watermark ends their window. `sources`: how many spout tasks are upstream;
    `word`: what it is, for errors."""

    sources = 0
    # how many spout tasks send it watermarks, and the stages that do; None: its sources
    senders: tuple[int, Sequence[str]] | None = None
    has_tables = False  # whether its inputs behind the first are changes of a table
    # the senders whose records are nothing but such changes: see ReachedTime
    tables: Collection[str] = ()
    sends = False  # whether it sends watermarks itself
    word = "window"
    _front: Time  # nothing but rows that are owed is before it, see above
    reader: TimeReader | None = None  # of the event times of its rows, if it reads them itself

    def __init__(self, store: KeyedStore, by: Sequence[str], out: Schema) -> None:
        """`by`: the fields of the group, with which a row begins; its window follows."""
        self.store, self.by, self.out = store, tuple(by), out
        self.width = len(self.by)
        self._is_loaded = False
        self._inherits = True  # whether a former life may have owed rows that nobody asks for
        self._time: Time = -inf  # windows up to here have ended
        self.marks: list[Watermark] = []  # to send with what `advance` has returned
        self.late_records = LateRecords()
        # of the batch: how many, and how long after the end of their window
        self._late_now: list[tuple[int, Time]] = []

    # ---- what a kind of windows defines ----------------------------------------------------------

    def load(self, key: Any, stored: Any) -> None:
        """Note an entry of the store, when it is read at the beginning; `stored`: its value as it
        is stored, for `store.read`."""
        raise NotImplementedError

    def forget(self) -> None:
        """Forget all entries, before they are read again."""
        raise NotImplementedError

    def add(self, rows: Sequence[Any], attempt: Attempt) -> Iterable[Sequence[Any]]:
        """Add rows to their windows. Returns what to emit for those that are late."""
        raise NotImplementedError

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        """Remove windows that have ended at `time`, and return their rows. At `before` others have
        ended already. inf: no row will follow."""
        raise NotImplementedError

    def time(self, reached: ReachedTime) -> Time:
        """The time up to which windows end."""
        raise NotImplementedError

    def on_end_of_sources(self, ended: Sequence[Sequence[Any]]) -> None:
        """Called when the end of all sources has ended windows: `ended` are their rows."""

    def last_time(self, ended: Sequence[Sequence[Any]]) -> Time:
        """The time of the last window of which these are the rows; -inf: there is none."""
        return highest(row[self.width] for row in ended)

    def drop(self, time: Time) -> None:
        """Forget what nothing needs that comes later, once windows have ended up to `time`."""

    def early(self) -> list[Sequence[Any]]:
        """The rows of open windows that are due before their end. They may be lost."""
        return []

    def stored_rows(self, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """Rows that are owed, as they were stored; perhaps by another declaration."""
        return rows

    def end_of(self, time: Time) -> Time:
        """The end of the last window with this event time."""
        return time

    def front(self, time: Time) -> Time:
        """Nothing that it will make of what it has, and of records that come in time, is before
        this, in event time. `time`: up to where windows have ended."""
        return time

    def closing_time(self, newest: Time) -> Time:
        """Up to where windows end if no record comes; `newest`: the highest event time so far. inf:
        its times are those of the clock."""
        return self.end_of(newest)

    @property
    def has_open(self) -> bool:
        """Whether it keeps what a later watermark, or a later record, may make rows of."""
        return True

    @property
    def passes(self) -> int | None:
        """How many of its inputs, from the first, its records have fields of; None: all."""
        return None

    @property
    def has_times(self) -> bool:
        """Whether what it makes may have event times."""
        return True

    # ---- the operator ----------------------------------------------------------------------------

    def prepare(self, context: Context) -> None:
        self._context, self.clock = context, context.clock
        self.store.open(context)
        spouts, stages = self.senders or (self.sources, ())
        self._reached = ReachedTime(spouts, stages, self.tables)
        self._life, self._number = int(1e6 * self.clock.now()), 0  # of the watermarks it sends
        # spout task → the tree of the last of its watermarks, and the number of what was sent in it
        self._trees: dict[int, tuple[WatermarkTree, int]] = {}
        self._sent: tuple[Any, ...] = ()  # what the last watermark has said
        self._claim_s = self.clock.now()  # when it has said something new
        if self.store.slot.is_of_batches:
            self.unload()  # it is read by a batch, which may have been written before
        else:
            self._load()

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        self._late_now.clear()
        if late := self._committed(lambda: list(self.add(batch, attempt))):
            self._count_late()
            emit(self.records(late))

    def _count_late(self) -> None:
        if not self.store.slot.is_of_batches:
            self.count_late()

    def count_late(self, *, is_new: bool = True) -> None:
        """Count the late records of a batch, once it is stored, unless they were counted before."""
        for records, by in self._late_now if is_new else ():
            self.late_records.add(records, by)
        self._late_now.clear()

    def advance(self, marks: Iterable[Watermark]) -> list[Any]:
        """The records that belong to the trees of these watermarks. `marks` are then those to
        send."""
        rows: list[Any] = []
        self.marks = []
        for mark in marks:
            tree = mark.tree
            known, number = self._trees.get(tree.task, (None, 0))
            is_first = known is None or known[:4] != tree[:4]
            number = self._number + 1 if is_first else number
            if not self._reached.hear(mark, number):
                continue
            if known is not None and known.life == tree.life and tree[2:4] < known[2:4]:
                continue  # a later attempt is under way
            rows += self._committed(partial(self._ended_by, tree, is_first=is_first))
            self._trees[tree.task] = tree, number
            if self.sends:
                self._say(mark, is_first=is_first)
        return self.ended_records([*rows, *self.early()])

    def _say(self, heard: Watermark, *, is_first: bool) -> None:
        """Send a watermark in the tree of that which was heard: one at least, so that tasks that
        have lost what they knew hear of this one, and more if there is something new."""
        reached, front = self._reached, self.claim
        has_ended = reached.has_ended and not self._owed
        waits = bool(self._owed) or self.has_open
        fetched = None if waits else reached.fetched
        is_idle = fetched is not None
        is_silent = reached.is_silent and not waits
        emptied = 0 if waits else reached.emptied
        about = front, has_ended, is_idle, is_silent
        if not is_first and about == self._sent:
            return
        if (front,) != self._sent[:1]:
            self._claim_s = self.clock.now()
        self._sent, self._number = about, self._number + 1
        newest = reached.highest
        self.marks.append(
            Watermark(
                self._context.task,
                self._life,
                self._number,
                0,
                0,
                inf if is_idle or has_ended else front,
                front,
                idle=is_idle,
                ended=has_ended,
                fetched=fetched or 0,
                newest=newest if newest == -inf else self.end_of(newest),
                ahead=reached.has_ahead,
                stage=self._context.component,
                tasks=int(self._context.parallelism),
                silent=is_silent,
                of_tree=tuple(heard.tree),
                sender=self._context.component,
                emptied=emptied,
                busy=inf if emptied else -inf,
            )
        )

    @property
    def claim(self) -> Time:
        """Nothing that is not processed yet, or will be made, is before this, in event time."""
        return lowest([self._front, *(owed.since for owed in self._owed.values())])

    def records(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """The records of rows that `add` and `end` have returned."""
        return self.out.make(rows)

    def ended_records(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """What a watermark brings, of the rows of windows."""
        return self.records(rows)

    @property
    def reached_time(self) -> StageTime:
        """How far it is in event time."""
        reached = self._reached
        return StageTime(
            self._time, reached.highest, reached.sources, reached.slowest, self._holds()
        )

    def _holds(self) -> str:
        """Why it holds back the stages behind it, for users; "": it does not, or not for long."""
        if not self.sends or self.clock.now() - self._claim_s < HOLDS_S:
            return ""
        if self._owed:
            return "what its windows have made is not processed yet"
        if self._reached.fetched is not None and self.has_open:
            return (
                "its sources are idle, and something in it waits for their next record: those "
                "behind it wait, because it belongs before what they have"
            )
        return ""

    def snapshot(self) -> Any:
        return self.store.snapshot()

    def restore(self, state: Any) -> None:
        self.store.restore(state)
        self._load()

    def cleanup(self) -> None:
        self.store.close()

    def make_ready(self) -> None:
        """Open the store again if another life has opened it since, and read what is there."""
        if not self.store.is_open:
            self.store.close()
            self.store.open(self._context)
            self._is_loaded = False
        if not self._is_loaded:
            self._load()

    def _ended_by(self, tree: WatermarkTree, *, is_first: bool) -> list[Sequence[Any]]:
        """The rows that this tree must bring, and has not brought; those of an earlier watermark
        that is not confirmed, too. `is_first`: no watermark of this tree came before."""
        place, due, brought = (tree.life, tree.number), list[Sequence[Any]](), 0
        owed, before = self._owed.get(tree.task), self._front
        since: Time = inf
        if owed is not None and (
            owed[:2] == place or owed.life != tree.life or owed.number > tree.confirmed
        ):
            due, since = [*owed.rows], owed.since
            brought = len(due) if owed[:2] == place else 0
        was_there = brought
        brought = 0 if is_first else brought
        if self._inherits:  # also for a task that does not exist in this run
            self._inherits = False
            for other in [task for task in self._owed if task != tree.task]:
                due += self._owed.pop(other).rows
                since = -inf
                self.store.remove((OWED, other))
        time = self.time(self._reached)
        if self._reached.is_silent and self.has_open and self._reached.highest > -inf:
            closing = self.closing_time(self._reached.highest)
            time = highest([time, closing]) if closing < inf else time
        due += (ended := self._end_up_to(time))
        if ended:
            self.store.put((TIME,), self._time)
        if len(due) > was_there:
            self._owed[tree.task] = Owed(*place, due, since if since < inf else before)
            rows = [row if type(row) is list else list(row) for row in due]
            self.store.replace({(OWED, tree.task): [*place, rows]}, depth=3)
        elif owed is not None and not due:
            del self._owed[tree.task]
            self.store.remove((OWED, tree.task))
        return due[brought:]

    def _end_up_to(self, time: Time) -> list[Sequence[Any]]:
        """The rows of what has ended at a time, or had ended before; inf: no row will follow."""
        time = highest([time, self._time])
        ended = self.end(self._time, time)
        if time == inf:  # a restart may read the last records again: they are late
            self.late_records.say_if_all(f"{self.word} {self.store.name!r}")
            if ended:
                self.on_end_of_sources(ended)
            time = highest([self._time, self.last_ended(ended)])
        self._time = time
        self._front = self.front(time)
        self.drop(time)
        return ended

    # ---- exactly-once batches --------------------------------------------------------------------

    def begin_batch(self, earlier: Any) -> Time:
        """A batch begins. `earlier`: what its sources had reached when it was ordered, as
        ReachedTime: rows that are before this are late. Returns up to where windows have ended at
        least."""
        self.make_ready()
        self._stored_time = self._time
        self._time = highest([self._time, self.time(earlier)])
        return self._stored_time

    def end_batch(self, reached: Any, *, writes: bool) -> list[Any]:
        """The records of what ends with a batch. `reached`: of its sources, as ReachedTime;
        `writes`: whether its rows have changed the state. The time of the state is stored with each
        change, so what is late follows from what is stored: in each attempt the same."""
        self._reached = reached
        ended = self._end_up_to(self.time(reached))
        if (writes or ended or self.store.changed) and self._time > -inf:
            self.store.put((TIME,), self._time)
        elif not writes:
            self._time = self._stored_time
        return self.ended_records(ended)

    def take_back(self, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
        """The last batch is repeated: the store has these entries again as they were `before` it,
        instead of `after`; None: it has none."""
        for key, stored in after.items():
            if stored is not None and key != (TIME,):
                self.drop_entry(key, stored)
        for key, stored in before.items():
            if key == (TIME,):
                self._time = -inf if stored is None else self.store.read(stored)
            elif stored is not None:
                self.load(key, stored)

    def drop_entry(self, key: Any, stored: Any) -> None:
        """Forget an entry, unless `end` asks the store about it."""

    def set_time(self, time: Time) -> None:
        """Set the time of the clock, which is that of the batch."""
        self.store.time = time

    @property
    def wall_s(self) -> float:
        """The time of the clock; of exactly-once batches, that of the batch."""
        return self.clock.wall() if self.store.time is None else as_float(self.store.time)

    def last_ended(self, ended: Sequence[Sequence[Any]]) -> Time:
        """Up to where windows have ended at the end of all sources. Windows that only have times
        too far ahead of the clock do not count: otherwise all records of the next run were late."""
        return lowest([self.last_time(ended), self.newest_end])

    @property
    def newest(self) -> Time:
        """The highest event time, if some are too far ahead of the clock; inf: none is."""
        return self._reached.newest

    @property
    def newest_end(self) -> Time:
        """The end of the last window with a time that is not too far ahead of the clock; -inf:
        there is none; inf: no time was too far ahead."""
        return self.newest if self.newest in (inf, -inf) else self.end_of(self.newest)

    def _committed(self, change: Callable[[], T]) -> T:
        """Change the store, all or nothing. If it raises, the store is read again."""
        self.make_ready()
        try:
            result = change()
            self.store.commit()
        except BaseException:
            self.store.discard()
            self._is_loaded = False
            raise
        return result

    def unload(self) -> None:
        """Forget what the store has; `make_ready` reads it again."""
        self._is_loaded, self._inherits = False, True
        self._time = self._front = -inf
        self._owed: dict[int, Owed] = {}  # by spout task
        self._late_now.clear()
        self.forget()

    def _load(self) -> None:
        self.unload()
        for key, stored in self.store.entries():
            match key:
                case (str(word), task) if word == OWED:
                    life, number, rows = self.store.read(stored)
                    self._owed[task] = Owed(life, number, self.stored_rows(rows))
                case (str(word),) if word == TIME:
                    self._time = self.store.read(stored)
                case _:
                    self.load(key, stored)
        self.late_records.loaded(self._time)
        self._is_loaded = True


# ---- timed process -------------------------------------------------------------------------------
# Processing with a state and a timer for each key, which watermarks fire.
#
#   a record    ──▶ function(record, state) may set the timer ──▶ committed ──▶ acked
#   a watermark ──▶ on_timer(key, state) of timers that are due ──▶ committed ──▶ rows of its tree
#
# Timers are stored beside the state of their key:
#
#   (TIMER, key)         the time of `state.timer`
#   (TIMER, key, name)   that of one of `state.timers`; the name of one without a name is its time
#
# In memory there is, for each timer, a time that is not after it; the store is asked when that time
# comes. The entries of `DueTimes` are keys, or the second kind of rows.

_FIRINGS_MAX = 10_000  # of a key at the end of all sources; of timers set by timers, otherwise


class TimedProcess(KeyedProcess, WindowOperator):
    """Calls `on_timer` with each key whose timer is due, and its state."""

    word = "process"
    has_timers = True
    restore = WindowOperator.restore
    make_ready = WindowOperator.make_ready

    def __init__(
        self,
        function: Callable[..., Any],
        on_timer: Callable[..., Any],
        by: Sequence[str],
        reads: Schema,
        makes: Schema,
        store: KeyedStore,
        *,
        event_time: TimeField | None,
        late: float,
        zone: str | None,
    ) -> None:
        """`event_time`: None: timers are by the clock. `zone`: of timers without one."""
        KeyedProcess.__init__(self, function, by, reads, makes, store)
        WindowOperator.__init__(self, store, by, makes)
        self.event_time, self.zone, self.late = event_time, zone, length_of(late)
        self.on_timer = _with_object(on_timer, function, self.function)

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.function, self.on_timer)

    # ---- records ---------------------------------------------------------------------------------

    def open(self, context: Context) -> None:
        prepare_code(self.on_timer, context)
        if self.event_time is not None:
            self.reader = self.event_time.reader(self.reads)
        unit = None if self.event_time is None else self.event_time.unit
        self.timers = TimeReader("the timer of a state", lambda value: value, self.zone, unit=unit)
        WindowOperator.prepare(self, context)

    def when(self, key: Any, row: Any) -> tuple[Any, Any]:
        time = self._now if self.reader is None else self.reader.time(row)
        return time, self.store.get((TIMER, key))

    def keep(
        self, key: Any, state: AnyKeyState, give_back: Callable[[], None] | None = None
    ) -> None:
        super().keep(key, state, give_back)
        self.store.put((TIMER, key), state.timer, changed=False)
        if state.timer is not None:
            self._due.expect(key, state.timer)
        if (timers := state.used_timers) is not None:
            for name, at in timers.changed.items():
                self.store.put((TIMER, key, name), at)
                if at is not None:
                    self._due.expect((TIMER, key, name), at)

    def tell_timers(self, key: Any, state: AnyKeyState, fired: Any) -> None:
        state.about_timers(lambda name: self.store.get((TIMER, key, name)), fired)

    def needed(self, keys: Iterable[Any]) -> Iterable[Any]:
        keys = list(keys)
        return chain(keys, ((TIMER, key) for key in keys))

    # ---- watermarks ------------------------------------------------------------------------------

    def forget(self) -> None:
        self._due = DueTimes()

    def load(self, key: Any, stored: Any) -> None:
        if is_own(key) and key[0] == TIMER:
            self._due.expect(key[1] if len(key) == 2 else key, self.store.read(stored))

    def time(self, reached: ReachedTime) -> Time:
        time = reached.time(self.late)
        return time if self.event_time is not None or time == inf else self.wall_s

    def last_time(self, ended: Sequence[Sequence[Any]]) -> Time:
        return -inf

    def front(self, time: Time) -> Time:
        if self.event_time is None:
            return self._reached.time(0, keep=True)
        return lowest([time, self._due.first])

    def closing_time(self, newest: Time) -> Time:
        return inf if self.event_time is None else newest

    @property
    def has_open(self) -> bool:
        return self._due.first < inf

    def end(self, before: Time, time: Time) -> list[Sequence[Any]]:
        return self.fire_due(time, _FIRINGS_MAX)

    def fire_due(self, time: Time, more_max: float) -> list[Sequence[Any]]:
        """Fire the timers that are due, in the order of their times, and those that they set and
        that are due, too, at most `more_max`; the next watermark fires what is left. At the end of
        all sources every timer is due."""
        entries, is_end = [entry for _, entry in self._due.due(time)], time == inf
        keys = [_key_of_entry(entry) for entry in entries]
        self.store.fetch(chain(self.needed(keys), filter(is_own, entries)))
        for entry in entries:
            self._expect(entry)
        rows: list[Sequence[Any]] = []
        waiting: list[tuple[Any, Time]] = []  # for the next watermark
        more = Counter(dict.fromkeys(map(key_of, keys), _FIRINGS_MAX))  # how many a key may have
        more.update(map(key_of, keys))
        last: dict[Any, Time] = {}  # entry → when it has fired last
        room = len(entries) + more_max
        while (is_end or room > 0) and (due := next(self._due.due(time), None)) is not None:
            at, entry = due
            if self.store.get(_row_of(entry)) != at:  # another timer of the key has changed it
                self._expect(entry)
                continue
            name, key = key_of(entry), _key_of_entry(entry)
            is_later = is_before(last.get(name, -inf), at)
            if not is_end and not is_later:  # without this it might fire for ever
                waiting.append((entry, at))
                continue
            more[key_of(key)] -= 1
            if is_end and more[key_of(key)] < 0:
                raise self._endless(key)
            rows += self._fire(entry, at, is_end=is_end)
            last[name] = at
            room -= 1
        for entry, at in waiting:
            self._due.expect(entry, at)
        return rows

    def records(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        return self.out.build(rows)  # `on_timer` has made records already

    def _expect(self, entry: Any) -> None:
        """Expect a timer at its time in the store, if it is set there."""
        if (at := self.store.get(_row_of(entry))) is not None:
            self._due.expect(entry, at)

    def _fire(self, entry: Any, at: Time, *, is_end: bool) -> Iterable[Sequence[Any]]:
        """Call `on_timer` for a timer. Returns its rows."""
        key, fired, timer = _key_of_entry(entry), None, None
        if is_own(entry):
            fired, timer = entry[2], self.store.get((TIMER, key))
            self.store.remove(entry)
        about: Any = {"ended": is_end, "fired": fired}
        return self.rows_of_call(self.on_timer, key, lambda: key, at, timer, **about)

    def rows_of_call(
        self,
        function: Callable[..., Any],
        key: Any,
        give: Callable[[], Any] | None,
        at: Time,
        timer: Any,
        *,
        argument: Any = None,
        **about: Any,
    ) -> Iterable[Sequence[Any]]:
        """The rows of a call that a watermark brings, of a function of `give()` and the state of a
        key; `give` None: of `argument`, and with a copy of the state."""
        if give is not None and (lent := self.lent(key)) is not None:
            records = self.call_lent(key, lent, function, give, at, timer, **about)
            return self.out.rows(list(records))
        state = self.state_at(key, at, timer, **about)
        rows = list(function(argument if give is None else give(), state) or ())
        check_rows(rows, self.out, function)
        self.keep(key, state)
        return self.out.rows(rows)

    def _endless(self, key: Any) -> TopologyFailed:
        name = getattr(self.on_timer, "__name__", type(self.on_timer).__name__)
        return TopologyFailed(
            f"process {self.store.name!r}: after the end of all sources, {name} has set timers "
            f"of key {describe(key)} {_FIRINGS_MAX:,} times. A timer that is always set again ends "
            "there with: if not state.ended: state.timer = …"
        )

    def __deepcopy__(self, memo: Any) -> Self:
        copied = super().__deepcopy__(memo)
        copied.on_timer = _with_object(self.on_timer, self.function, copied.function)
        return copied


def _key_of_entry(entry: Any) -> Any:
    """The key of a timer in `DueTimes`."""
    return entry[1] if is_own(entry) else entry


def _row_of(entry: Any) -> Any:
    """Where the time of a timer is stored."""
    return entry if is_own(entry) else (TIMER, entry)


def _with_object(on_timer: Any, before: Any, now: Any) -> Any:
    """`on_timer` for another copy of the function: a method of that object stays one."""
    if isinstance(on_timer, MethodType) and on_timer.__self__ is before:
        return MethodType(on_timer.__func__, now)
    return own_copy(on_timer, "a step of a stream")
