"""Runs spouts at the simple level: reads records() in bulk, and replays failed records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, compress, islice
from typing import Any

import numpy as np

from sunshower.runtime.control.flight_recorder import Recorder
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.tasks.spouts.bulk_spout import BulkSpoutTask
from sunshower.runtime.tasks.spouts.emit_reservation import EmitReservation
from sunshower.runtime.tasks.spouts.position import SKIP_RECORDS, Position, skip
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.user_code import RAISED, blame, guard
from sunshower.runtime.tracking.ids import I64
from sunshower.topologies.components import DEFAULT, Context
from sunshower.topologies.retry import DEAD_LETTERS


class RecordsSpoutTask(BulkSpoutTask):
    """Reads `records()`; message ids are positions in the source."""

    _source_name = "records"  # the user's method
    _left: Iterator[Any]  # the rest of the source
    _source: Iterator[Any]  # wraps `_left` and sets `exhausted` at its end

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._position = Position()
        self.reservation: EmitReservation | None = None  # None: it may draw without limit
        self.recorder = Recorder()  # notes how many records are drawn

    def begin_at(self, position: int, drawn: int = 0, owed: int | None = None) -> None:
        if owed is None:
            owed = 0 if self.reservation is None else self.reservation.at
        self._position.begin_at(position, drawn, owed)
        self._note_drawn()

    @property
    def committed(self) -> int:
        return int(min(self.pending.lowest_number(self.drawn), self.replays.line.lowest))

    @property
    def drawn(self) -> int:
        return self._position.next

    @property
    def behind(self) -> int:
        return 0 if self.exhausted else self._position.behind

    def open(self, context: Context) -> None:
        super().open(context)
        self._position.rewind()
        self._left = guard(self.task, self._source_name, self._records)
        self._source = self._watched()

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        has_raised = self.supervision.in_a_row > 0 or self.supervision.wait is not None
        stays = stays and not has_raised  # an iterator that raised has ended
        transfer = super().pack(stays=stays, now=now)
        transfer.owed = self._position.owed
        if self.reservation is not None:
            self.reservation.close(transfer.owed)
        if stays:
            transfer.place, transfer.source = self._position, self._left
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        if transfer.source is None or transfer.place is None:
            # an earlier life may have unpacked this transfer and drawn more: see the reservation
            owed = (
                transfer.owed
                if self.reservation is None
                else max(transfer.owed, self.reservation.at)
            )
            self._position.begin_at(transfer.committed, transfer.drawn, owed)
            self.replays.inherit(transfer.blames)
            self.open(context)
        else:
            super().unpack(transfer, context)
            draining = self._position.end < np.inf  # requested before `unpack`
            self._position, self._left = transfer.place, transfer.source
            self._source = self._watched()
            if draining:
                self._position.stop()
        self._note_drawn()

    def resume(self, context: Context) -> None:
        """Open a new spout at the old position: the old iterator ended when it raised."""
        if self.spout is not None:
            self.close()
            self.spout, self._hears_ack, self._hears_fail = None, False, False
        self.open(context)

    def _watched(self) -> Iterator[Any]:
        yield from chain(self._left)  # chain(): closing this generator must not close `_left`
        self.exhausted = True

    def _records(self) -> Iterator[Any]:
        source: Iterator[Any] = self.spout.records()
        return source

    def skip(self) -> int:
        there_now = iter(self._source.__next__, None)
        skipped = skip(there_now, min(self._position.behind, SKIP_RECORDS))
        self._position.behind -= skipped
        return skipped

    def drain(self) -> None:
        self.active = True  # for replays
        self._position.stop()
        if self.reservation is not None:
            self.reservation.close(self._position.owed)
        self._stop_at_end()

    def _room(self, count: int) -> int:
        """How many of the next `count` records may be drawn now."""
        room = self._position.room(count)
        return (
            room if self.reservation is None else self.reservation.room(self._position.next, room)
        )

    def _advance(self, count: int) -> range:
        """Note that `count` more records are drawn. Returns their numbers."""
        drawn = self._position.advance(count)
        if count:
            self._note_drawn()
        return drawn

    def _note_drawn(self) -> None:
        self.recorder.drew(self.task.id, self._position.next, self._position.owed)

    def _stop_at_end(self) -> None:
        if self._position.at_end:
            self.exhausted = True

    @property
    def _fresh_room(self) -> int:
        return 0 if self._position.behind and not self.exhausted else super()._fresh_room

    def emit(self, now: float, limit: int) -> int:
        if self._reports.tracked:
            limit = min(limit, self.pending.room)
        replays, wanted = self.replays.share_out(now, limit, self._fresh_room)
        fresh = [] if self.exhausted else self._draw(wanted)
        if not fresh and self._broken is None:
            if wanted:
                self._position.wait(now, self._config.message_timeout_s)
            self._stop_at_end()
            if not self.replays.line:  # nothing to emit at all
                return 0
        if len(fresh) < wanted:  # the source has nothing now
            replays = limit - len(fresh)
        drawn = self._advance(len(fresh))
        self._stop_at_end()
        numbers: I64 = np.arange(drawn.start, drawn.stop)
        attempts: Any = 1
        if self.replays.haunted:
            emit, attempts = self.replays.recognise(numbers, fresh)
            fresh, numbers, attempts = list(compress(fresh, emit)), numbers[emit], attempts[emit]
        again, letters = self.replays.take(replays, len(fresh))
        records = fresh
        if again:
            records = [replay.payload for replay in again] + fresh
            numbers = np.concatenate(([replay.number for replay in again], numbers))
            firsts = np.broadcast_to(attempts, len(fresh))
            attempts = np.concatenate(([replay.attempt for replay in again], firsts))
        if records:
            self._send(DEFAULT, records, records, numbers, attempts, now)
        self._send_letters(letters, now)
        self._raise_broken(now, progress=bool(fresh))
        return len(again) + len(letters) + len(drawn)

    def _draw(self, count: int) -> list[Any]:
        """Up to `count` records available now, and none from the first bad one on."""
        there_now = iter(self._source.__next__, None)  # stops at None, without a Python loop
        fresh: list[Any] = []
        try:
            fresh.extend(islice(there_now, self._room(count)))
        except RAISED as error:
            self._broken = blame(self.task, self._source_name, error)
        if not fresh:
            return fresh
        bad = self.output_streams.check(DEFAULT, fresh)
        if bad is not None:
            self._break(self.output_streams.misfit_error(DEFAULT, fresh[bad]))
            del fresh[bad:]
        hit = self._first_hit(fresh)
        return fresh if hit is None else fresh[:hit]

    def _first_hit(self, drawn: Any) -> int | None:
        """The index of the first record that an experiment injects a source error for, or None."""
        schema = self.output_streams.output_stream(DEFAULT).spec.schema
        hit = self.instrument.faults.first_hit(drawn, schema)
        if hit is not None:
            self._break(self.instrument.faults.error)
        return hit

    def _break(self, error: Exception) -> None:
        """Treat the source as one that raised, not as one that ended: records that were read from
        it and not emitted are read again."""
        self._broken = blame(self.task, self._source_name, error)
        self.exhausted = False

    def _send_letters(self, letters: list[Replay], now: float) -> None:
        if letters:
            numbers, records, attempts = zip(*letters, strict=True)
            self._send(DEAD_LETTERS, list(records), records, numbers, attempts, now)

    def message_id(self, replay: Replay) -> Any:
        return replay.number

    def values(self, replay: Replay) -> dict[str, Any]:
        schema = self.output_streams.output_stream(DEFAULT).spec.schema
        (values,) = schema.rows([replay.payload])
        return dict(zip(schema.fields, values, strict=True))
