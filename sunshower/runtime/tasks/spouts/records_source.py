"""Reads records() in bulk; the number and message id of a record is its position."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import BadEmit, user_errors
from sunshower.runtime.events.injected_faults import NO_FAULTS
from sunshower.runtime.tasks.flight_recorder import Recorder
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.spouts.source import (
    Drawn,
    EmitReservation,
    Sender,
    SpoutSource,
    apart,
    by_stream,
)
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import as_raised, guard
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.logs import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from sunshower.runtime.tasks.spouts.spout_task import SpoutTask

# ---- position ------------------------------------------------------------------------------------
# The position of a spout task in its source: which records were drawn, which are committed.
#
#   0 ──── settled ────▶ committed ──── drawn, some of it settled ────▶ drawn ──── not yet drawn ──▶
#
# A new life reads the source from the start, skips the committed records and emits the rest:
# records settled above the lowest open one are emitted twice, and none is lost.

SKIP_RECORDS = 1 << 16  # in one call: lines of a text file in 25 ms, about a slice


class Position:
    """The numbers of one spout task's records: 0, 1, 2 … in the order of its source."""

    def __init__(self) -> None:
        self.next = 0  # the number of the next record to draw
        self.behind = 0  # records below it that the source still repeats
        self._drawn = 0  # a former life had drawn all records below this number
        self.owed = 0  # all records below this number were drawn, or may have been
        self.end = np.inf  # no record from here on may be drawn
        self._nothing_since_s: float | None = None

    def begin_at(self, committed: int, drawn: int, owed: int = 0) -> None:
        """Continue a former life; called before anything is drawn. That life drew the first `drawn`
        records for certain, and none from `owed` on."""
        self.next, self._drawn, self.owed = committed, drawn, max(committed, drawn, owed)

    def rewind(self) -> None:
        """The source is read again from its beginning."""
        self.behind = self.next

    def stop(self) -> None:
        """Draw nothing new, except records that a former life drew and did not settle."""
        self.end = self.owed

    def wait(self, now: float, patience_s: float) -> None:
        """The source has nothing now. During a drain, a record that was perhaps drawn, and does not
        come again within `patience_s`, counts as never drawn."""
        if self.end == np.inf or self.next < self._drawn:
            return
        if self._nothing_since_s is None:
            self._nothing_since_s = now
        elif now - self._nothing_since_s >= patience_s:
            self.end = self.next

    @property
    def at_end(self) -> bool:
        """Whether no further record may be drawn."""
        return self.next >= self.end

    def room(self, count: int) -> int:
        """How many of the next `count` records may be drawn."""
        return int(min(count, self.end - self.next))

    def advance(self, count: int) -> range:
        """Note that `count` more records are drawn. Returns their numbers."""
        first, self.next = self.next, self.next + count
        self.owed = max(self.owed, self.next)
        if count:
            self._nothing_since_s = None
        return range(first, self.next)


def skip(there_now: Iterator[Any], count: int) -> int:
    """Drop up to `count` records without a Python loop. Returns how many were dropped."""
    last = deque(enumerate(islice(there_now, count), 1), maxlen=1)
    return last[0][0] if last else 0


# ---- records source ------------------------------------------------------------------------------


class RecordsSource(SpoutSource):
    """Numbers the records of an iterator, and notes how far it has drawn them."""

    reopens = True  # an iterator that raised has ended
    _method = "records"  # of the user's spout
    _left: Iterator[Any]  # the rest of the source
    _source: Iterator[Any]  # wraps `_left` and notes its end
    _is_mixed = False  # what was drawn last may be Unreadable

    def __init__(self, task: SpoutTask) -> None:
        self._task, self._streams = task.task, task.output_streams
        self._instrument, self._supervision = task.instrument, task.supervision
        self._patience_s = task.config.message_timeout_s
        self._spout: Any = None  # once it is open
        self._position = Position()
        self.reservation: EmitReservation | None = None  # None: it may draw without limit
        self.recorder = Recorder()  # notes how many records are drawn

    @property
    def drawn(self) -> int:  # type: ignore[override]
        return self._position.next

    @property
    def owed(self) -> int:  # type: ignore[override]
        return self._position.owed

    @property
    def behind(self) -> int:  # type: ignore[override]
        return 0 if self.exhausted else self._position.behind

    # ---- input --------------------------------------------------------------------------------

    def draw(self, limit: int, now: float, room: float) -> Drawn:
        asks = limit and not self.exhausted
        records = self._take(limit) if asks else []
        if asks and self.error is None:
            self.asked_s = now
        if limit and not len(records) and self.error is None:
            self._position.wait(now, self._patience_s)
        numbers = self._position.advance(len(records))
        if len(records):
            self._note_drawn()
        if self._position.end < np.inf:
            self._stop_at_end()
        return self._drawn(records, numbers)

    def skip(self) -> int:
        skipped = skip(self._available(), min(self._position.behind, SKIP_RECORDS))
        self._position.behind -= skipped
        return skipped

    def _take(self, count: int) -> Any:
        """Up to `count` records available now, and none from the first bad one on."""
        fresh = list[Any]()
        room = self._room(count)
        try:
            fresh.extend(islice(self._available(), room))
            self.has_read_first |= len(fresh) < room
        except user_errors() as error:
            self._fail_with(error)
        if not fresh:
            return fresh
        bad = self._streams.check(DEFAULT, fresh)
        self._is_mixed = bad is not None and type(fresh[bad]) is Unreadable
        if self._is_mixed:
            places = [place for place, record in enumerate(fresh) if type(record) is not Unreadable]
            end = self._first_bad([fresh[place] for place in places])
            del fresh[places[end] if end < len(places) else len(fresh) :]
        elif bad is not None or self._instrument.faults is not NO_FAULTS:
            del fresh[self._first_bad(fresh) :]
        return fresh

    def _first_bad(self, records: list[Any]) -> int:
        """The index of the first record that does not fit, or that an experiment injects an error
        for; else how many there are."""
        bad = self._streams.check(DEFAULT, records)
        if bad is not None:
            self._fail_with(self._streams.misfit_error(DEFAULT, records[bad]))
            records = records[:bad]
        return len(records) if self._instrument.faults is NO_FAULTS else self._first_hit(records)

    def _drawn(self, records: Any, numbers: range) -> Drawn:
        each = np.arange(numbers.start, numbers.stop)
        if not self._is_mixed:
            return Drawn(each, records, records, len(numbers))
        fit = np.array([type(record) is not Unreadable for record in records], np.bool_)
        unreadable = [
            replace(record, number=number)
            for number, record in zip(numbers, records, strict=True)
            if type(record) is Unreadable
        ]
        readable = [record for record in records if type(record) is not Unreadable]
        return Drawn(each[fit], readable, readable, len(numbers), unreadable=unreadable)

    def _available(self) -> Iterator[Any]:
        """The records that are available now: stops at None, without a Python loop."""
        return iter(self._source.__next__, None)

    def _room(self, count: int) -> int:
        """How many of the next `count` records may be drawn now."""
        room = self._position.room(count)
        if self.reservation is None:
            return room
        return self.reservation.room(self._position.next, room)

    def _first_hit(self, records: Any) -> int:
        """The index of the first record that an experiment injects an error for; behind the last
        one if there is none."""
        faults = self._instrument.faults
        hit = faults.first_hit(records, self._streams.output_stream(DEFAULT).spec.schema)
        if hit is None:
            return len(records)
        self._fail_with(faults.error)
        return hit

    def _fail_with(self, error: BaseException) -> None:
        """Treat the source as one that raised, not as one that ended: records that were read from
        it and not emitted are read again."""
        self.error = as_raised(self._task, self._method, error)
        self.exhausted = False

    def _note_drawn(self) -> None:
        self.recorder.drew(self._task.id, self._position.next, self._position.owed)

    def _stop_at_end(self) -> None:
        if self._position.at_end:
            self.exhausted = True

    # ---- output -------------------------------------------------------------------------------

    def send_again(self, replays: Sequence[Replay], now: float, sender: Sender) -> None:
        for stream, of_stream in by_stream(replays).items():
            numbers, payloads, attempts = zip(*of_stream, strict=True)
            sender.send(stream, self._records_of(of_stream), payloads, numbers, attempts, now)

    def _records_of(self, replays: Sequence[Replay]) -> Any:
        return [apart(replay.payload)[1] for replay in replays]

    def values(self, replay: Replay) -> dict[str, Any]:
        if type(replay.payload) is Unreadable:
            return dict(replay.payload.record)
        return self._streams.values(DEFAULT, replay.payload)

    # ---- lives --------------------------------------------------------------------------------

    def begin_at(self, position: int, drawn: int = 0, owed: int | None = None) -> None:
        if owed is None:
            owed = 0 if self.reservation is None else self.reservation.at
        self._position.begin_at(position, drawn, owed)
        self._note_drawn()

    def adopt(self, spout: Any) -> None:
        self._spout = spout

    def begin(self) -> None:
        self._position.rewind()
        method = getattr(self._spout, self._method)
        self._left = guard(self._task, self._method, method)
        self._source = self._watched()

    def _watched(self) -> Iterator[Any]:
        yield from chain(self._left)  # chain(): closing this generator must not close `_left`
        self.exhausted = True

    def drain(self) -> None:
        self._position.stop()
        if self.reservation is not None:
            self.reservation.close(self._position.owed)
        self._stop_at_end()

    @property
    def may_stay(self) -> bool:
        return self._supervision.in_a_row == 0 and self._supervision.wait is None

    def pack(self, transfer: TaskTransfer, *, stays: bool) -> None:
        transfer.owed = self._position.owed
        if self.reservation is not None:
            self.reservation.close(transfer.owed)
        if stays:
            transfer.place, transfer.source = self._position, self._left

    def begin_after(self, transfer: TaskTransfer) -> None:
        # an earlier life may have unpacked this transfer and drawn more: see the reservation
        reserved = 0 if self.reservation is None else self.reservation.at
        self.begin_at(transfer.committed, transfer.drawn, max(transfer.owed, reserved))

    def unpack(self, transfer: TaskTransfer) -> None:
        assert transfer.place is not None
        assert transfer.source is not None
        is_draining = self._position.end < np.inf  # requested before `unpack`
        self._position, self._left = transfer.place, transfer.source  # which may be falsy
        self._source = self._watched()
        if is_draining:
            self._position.stop()
        self._note_drawn()


# ---- tables source -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows that were emitted together; the payload in `Pending` for each of them."""

    table: pa.Table
    first: int  # the position of its first row in the source

    def row(self, number: int) -> pa.Table:
        """The row at position `number` in the source."""
        return self.table.slice(number - self.first, 1)


class TablesSource(RecordsSource):
    """Cuts the tables that tables() yields into pieces that fit the room in `Pending`."""

    _method = "tables"
    _rest: pa.Table | None = None  # of the table drawn last

    @property
    def is_empty(self) -> bool:  # type: ignore[override]
        return self._rest is None

    def skip(self) -> int:
        table = self._next_table()
        if table is None:
            return 0
        skipped = min(len(table), self._position.behind)
        self._rest = table.slice(skipped) if len(table) > skipped else None
        self._position.behind -= skipped
        return skipped

    def begin(self) -> None:
        super().begin()
        self._rest = None

    def abandon(self) -> None:
        self._rest = None

    def pack(self, transfer: TaskTransfer, *, stays: bool) -> None:
        super().pack(transfer, stays=stays)
        if stays and self._rest is not None:
            transfer.ahead = [self._rest]

    def unpack(self, transfer: TaskTransfer) -> None:
        super().unpack(transfer)
        self._rest = transfer.ahead[0] if transfer.ahead else None

    def values(self, replay: Replay) -> dict[str, Any]:
        record: dict[str, Any]
        (record,) = replay.payload.row(replay.number).to_pylist()
        return record

    def _take(self, count: int) -> Any:
        """Up to `count` rows available now, all of one table."""
        try:
            table = self._rest if self._rest is not None else self._next_table()
        except user_errors() as error:
            self._fail_with(error)
            return []
        if table is None:
            self.has_read_first = True
            return []
        count = self._room(count)
        self._rest = table.slice(count) if len(table) > count else None
        piece = table.slice(0, count)
        if self._instrument.faults is not NO_FAULTS:
            piece = piece.slice(0, self._first_hit(piece))
        return piece

    def _drawn(self, records: Any, numbers: range) -> Drawn:
        count = len(numbers)
        payloads = [Piece(records, numbers.start)] * count
        each = np.arange(numbers.start, numbers.stop)
        return Drawn(each, records, payloads, count, has_more=count > 0)

    def _records_of(self, replays: Sequence[Replay]) -> Any:
        if not isinstance(replays[0].payload, Piece):  # dead letters
            return super()._records_of(replays)
        import pyarrow as pa

        return pa.concat_tables([replay.payload.row(replay.number) for replay in replays])

    def _stop_at_end(self) -> None:
        super()._stop_at_end()
        if self._position.at_end:
            self._rest = None

    def _next_table(self) -> pa.Table | None:
        """The next table that has rows; None if none is available now."""
        table = None if self.exhausted else next(self._source, None)
        if table is None or not len(table):
            return None
        import pyarrow as pa

        fields = self._streams.output_stream(DEFAULT).spec.schema.fields
        if not isinstance(table, pa.Table) or tuple(table.column_names) != fields:
            names = getattr(table, "column_names", type(table).__name__)
            raise BadEmit(f"tables() yielded {names}; the stream's columns are {list(fields)}")
        return table
