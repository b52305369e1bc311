"""Runs the keyed operators of ordinary streams in exactly-once batches: process, match, join.

    rows of a batch ──▶ the operator's calls ──┐
    the batch's event time ──▶ what is due ────┴──▶ one write, with the mark of the batch ──▶ rows

All of it is in the commit phase. What an operator notes in memory, such as the order of timers, is
that of the state after its last write; a batch that is repeated reads the state as it was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.operators.joins.stream_join import StreamJoin
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import MapState
from sunshower.topologies.operators.totals import Persist
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeField,
    TimeReader,
    highest,
    is_before,
    lowest,
    minus,
)
from sunshower.topologies.operators.windows.ordered_process import OrderedProcess
from sunshower.topologies.operators.windows.watermarks import LateRecords
from sunshower.topologies.operators.windows.window_operator import TimedProcess, WindowOperator
from sunshower.trident.coordination.attempts import SourceTime, behind, had_ended, watermark
from sunshower.trident.stages.batch_windows import LATE, ON_TIME
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.stages.plan import Timed


@dataclass
class ReachedInBatch:
    """How far the sources of a batch are, in place of the ReachedTime of an ordinary stream.
    `before`: when the batch was ordered, instead of at its end."""

    sources: Sequence[SourceTime | None]
    before: bool = False

    def time(self, late: Time, *, keep: bool = False) -> Time:
        """As that of ReachedTime."""
        if self.has_ended and not keep:
            return inf
        return minus(watermark(self.sources, before=self.before), late)

    @property
    def has_ended(self) -> bool:
        """Whether no source has rows after the batch."""
        return not self.before and all(known is not None and known.ended for known in self.sources)

    @property
    def is_idle(self) -> bool:
        """Whether no source holds it back, because all are idle that have not ended."""
        known = [source for source in self.sources if source is not None]
        return len(known) == len(self.sources) and all(
            source.idle and source.reached == inf for source in known
        )

    @property
    def newest(self) -> Time:
        """The highest event time that is not too far ahead of the clock; inf: it is not known."""
        return highest(inf if known is None else known.newest for known in self.sources)

    @property
    def begun_s(self) -> float:
        """When the batch began, in Unix time; -inf: it is not known."""
        begun = [known.begun_s for known in self.sources if known is not None and known.begun_s]
        return max(begun, default=-inf)


class TimedRows(list[Any]):
    """The rows of a batch, and how far its sources are. It is true if `write` is called also
    without rows: something may be due, or an earlier attempt may have changed the state."""

    sources: Sequence[SourceTime | None] = ()
    is_due = False
    first: Time = inf  # nothing that leaves of what was open before it is before this

    def __bool__(self) -> bool:
        return self.is_due or len(self) > 0


class KeyedInBatches(Persist, Timed):
    """Runs a keyed operator. An OrderedProcess and a StreamJoin make (branch, row): rows that came
    too late have a branch of their own.

    States expire by the event time of the row, or the watermark when the batch began if that is
    later; or by the clock, as it was when the batch began.
    """

    def __init__(
        self,
        slot: BatchSlot,
        calls: KeyedProcess | StreamJoin,
        sources: Iterable[str] = (),
        event_time: TimeField | None = None,
        order: Callable[[Any], Any] | None = None,
    ) -> None:
        """`sources`: what sends it times, see Timed, if anything depends on time. `event_time`: by
        which states expire; None: by the clock. `order`: by which the rows of a batch are sorted
        before they are processed."""
        super().__init__(slot)
        self.slot: BatchSlot = slot
        self.calls, self.sources, self.event_time = calls, tuple(sources), event_time
        self._order = order
        calls.store.slot = slot
        if self.timed is not None:
            self.sends = f"{self.timed.word} {slot.stored_name}"
            self.has_times = self.timed.has_times
        if isinstance(calls, TimedProcess):
            self.time = calls.event_time
        is_timed_join = isinstance(calls, StreamJoin) and calls.late is not None
        self._is_by_event_time = is_timed_join or self.time is not None
        self._late: Time = 0

    def follow(self, sources: Iterable[str], time: TimeField, late: Time) -> None:
        """Send times although the operator holds no rows back: those of `sources`, `late` before.
        What is behind it then need not know how late rows may be."""
        self.sources, self.time, self._late = tuple(sources), time, late
        self.sends = f"rows of {self.slot.stored_name}"

    @property
    def timed(self) -> WindowOperator | None:
        """The operator, if it follows event time or has timers."""
        return self.calls if isinstance(self.calls, WindowOperator) else None

    @property
    def makes(self) -> Schema:
        """The rows that it makes, without branches."""
        schema = self.calls.schema if isinstance(self.calls, KeyedProcess) else self.calls.out
        return schema if schema.fields else Schema(("nothing",))

    @property
    def late_records(self) -> LateRecords | None:
        return None if self.timed is None else self.timed.late_records

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.calls.prepare(context)
        if self.timed is not None and not self.slot.undoes_attempts:
            raise TopologyError(
                f"state {self.slot.name!r}: a {self.timed.word} that follows the time needs a "
                "state that says which keys an earlier attempt of a batch has written, as all "
                'states of Sunshower do, such as SqliteState("states.db")'
            )
        self._last: Attempt | None = None  # that has written what is in memory
        self._ended: tuple[int, Time] | None = None  # a batch, and up to where timers were due then
        self._counted = 0  # the last batch whose late rows were counted
        self._reader: TimeReader | None = None
        if self.event_time is not None and isinstance(self.calls, KeyedProcess):
            self._reader = self.event_time.reader(self.calls.reads)
        if self.calls.store.keeps_ages:
            self.calls.store.expire_in_batches()

    def start(self, attempt: Attempt) -> TimedRows:
        return TimedRows()

    def note_times(self, batch: TimedRows, times: Mapping[str, SourceTime]) -> None:
        batch.sources = [times.get(source) for source in self.sources]

    def sent_time(self, batch: TimedRows) -> SourceTime:
        if self.timed is None:
            return behind(batch.sources, self._late)
        reached = ReachedInBatch(batch.sources)
        before: Any = ReachedInBatch(batch.sources, before=True)
        newest, front = reached.newest, self.timed.claim
        if newest not in (inf, -inf):
            newest = self.timed.end_of(newest)
        about: Any = {
            "ended": reached.has_ended,
            "newest": newest,
            "begun_s": max(0.0, before.begun_s),
        }
        if reached.is_idle and not self.timed.has_open:
            return SourceTime(inf, batch.first, idle=True, **about)
        earlier = batch.first
        if not had_ended(batch.sources):
            earlier = lowest([front, earlier, self.timed.front(self.timed.time(before))])
        return SourceTime(front, earlier, idle=False, **about)

    def finish(self, batch: Any, attempt: Attempt, emit: Any) -> None:
        last = self.slot.last_attempt  # if of this batch, memory has what that attempt has written
        is_again = last is not None and last.txid == attempt.txid
        batch.is_due = self.timed is not None or is_again
        try:
            super().finish(batch, attempt, emit)
        except BaseException:
            self._forget()
            raise
        self._last = self.slot.last_attempt
        if self.timed is not None:
            self.timed.count_late(is_new=attempt.txid > self._counted)
            self._counted = max(self._counted, attempt.txid)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        store = self.calls.store
        self._align(state, attempt)
        if self._order is not None:
            batch.sort(key=self._order)
        before = ReachedInBatch(batch.sources, before=True)
        time = before.begun_s if self.event_time is None else before.time(0)
        if self.sources:
            self.calls.set_time(time)
        outputs = self._process(batch, attempt.txid, before, time)
        if store.keeps_ages:
            store.expire_in_batch(self.slot.written_by(attempt))
        store.commit()
        return outputs

    def _align(self, state: MapState, attempt: Attempt) -> None:
        """Let memory have what the state had before this batch."""
        last, changes = self.slot.last_attempt, self.slot.changes
        if last != self._last or not self.slot.undoes_attempts:
            self._forget()
        elif last is not None and last.txid == attempt.txid:
            self.calls.store.forget()
            if self.timed is not None:
                before = state.multi_get([*changes])
                self.timed.take_back(dict(zip(changes, before, strict=True)), changes)
        self.slot.changes = {}

    def _process(self, rows: TimedRows, txid: int, before: ReachedInBatch, time: Time) -> list[Any]:
        """The rows of the calls, and of what is due after them."""
        calls, timed, outputs = self.calls, self.timed, list[Any]()
        if timed is not None:
            stored = timed.begin_batch(before)
            if timed.has_open and self._is_by_event_time:
                last, time_of_last = self._ended or (txid, stored)
                rows.first = timed.front(time_of_last if last < txid else stored)
        calls.announce(rows)
        for row in rows:
            if self._reader is not None:
                of_row = self._reader.time(row)
                calls.set_time(time if is_before(of_row, time) else of_row)
            outputs += calls.expand(row)
        if self._reader is not None:
            calls.set_time(time)
        if timed is None:
            return outputs
        if isinstance(timed, OrderedProcess | StreamJoin):  # its rows are in memory until then
            timed.flush()
        reached: Any = ReachedInBatch(rows.sources)
        ended = timed.end_batch(reached, writes=len(rows) > 0)
        self._ended = txid, timed.time(reached)
        if isinstance(timed, OrderedProcess):
            return [*((LATE, row) for row in outputs), *((ON_TIME, row) for row in ended)]
        return outputs + ended

    def _forget(self) -> None:
        """Forget what is in memory: it is not what the state has. It is read again, as it was
        before the batch."""
        self._last = self._ended = None
        self.calls.discard()
        self.calls.store.forget()
        if self.timed is not None:
            self.timed.unload()

    def figures(self) -> Mapping[str, float]:
        reader = getattr(self.calls, "reader", None)
        of_reader = {} if reader is None else reader.figures()
        figures: Callable[[], Mapping[str, float]] | None = getattr(self.calls, "figures", None)
        return {**of_reader, **(figures() if figures is not None else {})}

    def cleanup(self) -> None:
        try:
            self.calls.cleanup()
        finally:
            super().cleanup()
