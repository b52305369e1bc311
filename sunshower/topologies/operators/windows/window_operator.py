"""The base of windows over ordinary streams: rows wait in a keyed store, watermarks end windows.

    rows of a batch ──▶ added to their windows ──▶ committed ──▶ acked       late ones are emitted
    a watermark     ──▶ rows of ended windows  ──▶ committed ──▶ emitted as part of its tree

What a watermark has ended stays in the store until the spout task says, in a later watermark, that
its tree is complete. A watermark that comes again is answered with the same rows. The rows of a
former life of the spout task, which may have failed, belong to the next watermark of its new life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, TypeVar

from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.keyed.moved_parts import OWED, TIME
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeReader,
    as_float,
    highest,
    lowest,
)
from sunshower.topologies.operators.windows.late_records import LateRecords
from sunshower.topologies.operators.windows.watermarks import ReachedTime, Watermark
from sunshower.topologies.operators.windows.window_kinds import with_dates

T = TypeVar("T")


class WindowOperator(Operator):
    """Keeps rows until a watermark ends their window. `sources`: how many spout tasks send some;
    `word`: what it is, for errors."""

    sources = 0
    word = "window"
    reader: TimeReader | None = None  # of the event times of its rows, if it reads them itself

    def __init__(self, store: KeyedStore, by: Sequence[str], out: Schema) -> None:
        """`by`: the fields of the group, with which a row begins; its window follows."""
        self.store, self.by, self.out = store, tuple(by), out
        self.width = len(self.by)
        self._is_loaded = False
        self._inherits = True  # whether a former life may have owed rows that nobody asks for
        self._time: Time = -inf  # windows up to here have ended
        self.late_records = LateRecords()
        # of the batch: how many, and how long after the end of their window
        self._late_now: list[tuple[int, Time]] = []

    # ---- what a kind of windows defines ----------------------------------------------------------

    def load(self, key: Any, value: Any) -> None:
        """Note an entry of the store, when it is read at the beginning."""
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

    def end_of(self, time: Time) -> Time:
        """The end of the last window with this event time."""
        raise NotImplementedError

    # ---- the operator ----------------------------------------------------------------------------

    def prepare(self, context: Context) -> None:
        self._context, self.clock = context, context.clock
        self.store.open(context)
        self._reached = ReachedTime(self.sources)
        self._load()

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        batch.extend(rows)

    def start(self, attempt: Attempt) -> list[Any]:
        return []

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        self._late_now.clear()
        if late := self._committed(lambda: list(self.add(batch, attempt))):
            self._count_late()
            emit(self.records(late))

    def _count_late(self) -> None:
        """Count the late records of a batch, once it is stored."""
        for count, by in self._late_now:
            self.late_records.add(count, by)
        self._late_now.clear()

    def advance(self, marks: Iterable[Watermark]) -> list[Any]:
        """The records that belong to the trees of these watermarks."""
        made: list[Any] = []
        for mark in marks:
            if self._reached.hear(mark):
                made += self._committed(partial(self._ended_by, mark))
        return self.records(made)

    def records(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """The records of rows that `add` and `end` have returned."""
        return self.out.make(with_dates(self.out, self.width, rows))

    @property
    def reached_time(self) -> tuple[float, tuple[int, ...]]:
        """The time up to which windows have ended, and the spout tasks whose watermarks it
        follows."""
        return as_float(self._time), self._reached.spouts

    def snapshot(self) -> Any:
        """What is in memory, for another process."""
        return self.store.snapshot()

    def restore(self, state: Any) -> None:
        """Continue with what `snapshot` returned."""
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

    def _ended_by(self, mark: Watermark) -> list[Sequence[Any]]:
        """The rows that `mark` must bring; those of an earlier watermark that is not confirmed,
        too."""
        place, due = (mark.life, mark.number), list[Sequence[Any]]()
        if (owed := self._owed.get(mark.task)) is not None:
            life, number, rows = owed
            if (life, number) == place:
                return list(rows)
            if life != mark.life or number > mark.confirmed:
                due += rows
        if self._inherits:  # also for a task that does not exist in this run
            self._inherits = False
            for other in [task for task in self._owed if task != mark.task]:
                due += self._owed.pop(other)[2]
                self.store.remove((OWED, other))
        time = highest([self.time(self._reached), self._time])
        ended = self.end(self._time, time)
        due += ended
        if time == inf:  # a restart may read the last records again: they are late
            self.late_records.say_if_all(f"{self.word} {self.store.name!r}")
            if ended:
                self.on_end_of_sources(ended)
            time = highest([self._time, self.last_ended(ended)])
        if ended:
            self.store.put((TIME,), time)
        if due:
            self._owed[mark.task] = (*place, due)
            self.store.put((OWED, mark.task), [*place, [list(row) for row in due]])
        elif owed is not None:
            del self._owed[mark.task]
            self.store.remove((OWED, mark.task))
        self._time = time
        return due

    def last_ended(self, ended: Sequence[Sequence[Any]]) -> Time:
        """Up to where windows have ended at the end of all sources. Windows that only have times
        too far ahead of the clock do not count: otherwise all records of the next run were late."""
        last, newest = self.last_time(ended), self._reached.newest
        if newest == inf or last == -inf:
            return last
        return lowest([last, newest if newest == -inf else self.end_of(newest)])

    def _committed(self, change: Callable[[], T]) -> T:
        """Change the store, all or nothing. If it raises, the store is read again."""
        self.make_ready()
        try:
            made = change()
            self.store.commit()
        except BaseException:
            self.store.discard()
            self._is_loaded = False
            raise
        return made

    def _load(self) -> None:
        self._is_loaded, self._inherits = False, True
        self._time = -inf
        self._owed: dict[int, tuple[int, int, Sequence[Any]]] = {}  # spout task → life, number, …
        self.forget()
        for key, value in self.store.items(own=True):
            match key:
                case (str(word), task) if word == OWED:
                    life, number, rows = value
                    self._owed[task] = (life, number, rows)
                case (str(word),) if word == TIME:
                    self._time = value
                case _:
                    self.load(key, value)
        self.late_records.loaded(self._time)
        self._is_loaded = True
