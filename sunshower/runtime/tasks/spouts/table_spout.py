"""Runs spouts on Arrow columns: they emit tables, with one root per row and replay per row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sunshower.errors import BadEmit
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.tasks.spouts.records_spout import RecordsSpoutTask
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.user_code import RAISED, blame
from sunshower.runtime.tracking.ids import I64
from sunshower.topologies.components import DEFAULT, Context


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows that were emitted together; the payload in `Pending` for each of them."""

    table: pa.Table
    first: int  # the position of its first row in the source

    def row(self, number: int) -> pa.Table:
        """The row at position `number` in the source."""
        return self.table.slice(number - self.first, 1)


class TablesSpoutTask(RecordsSpoutTask):
    """Cuts the tables that tables() yields into pieces that fit the room in `Pending`."""

    _source_name = "tables"
    _rest: pa.Table | None = None  # of the table drawn last

    def emit(self, now: float, limit: int) -> int:
        if self._reports.tracked:
            limit = min(limit, self.pending.room)
        replays, wanted = self.replays.share_out(now, limit, self._fresh_room)
        table = self._draw_piece(wanted) if wanted else None
        fresh = 0 if table is None else len(table)
        if not fresh and wanted:  # the source has nothing now (a short piece does not show that)
            replays = limit
        drawn = self._advance(fresh)
        if wanted and not fresh and self._broken is None:
            self._position.wait(now, self._config.message_timeout_s)
        self._stop_at_end()
        numbers: I64 = np.arange(drawn.start, drawn.stop)
        payloads = [Piece(table, drawn.start)] * fresh
        attempts: Any = 1
        if self.replays.haunted and table is not None:
            emit, attempts = self.replays.recognise(numbers, payloads)
            table, numbers, attempts = table.filter(emit), numbers[emit], attempts[emit]
            payloads = payloads[: len(numbers)]
        again, letters = self.replays.take(replays, fresh)
        if again:
            self._send_again(again, now)
        self._send_letters(letters, now)
        if len(numbers):
            self._send(DEFAULT, table, payloads, numbers, attempts, now)
        self._raise_broken(now, progress=fresh > 0)
        return len(again) + len(letters) + fresh

    @property
    def done(self) -> bool:
        return super().done and self._rest is None

    def skip(self) -> int:
        table = self._next_table()
        if table is None:
            return 0
        skipped = min(len(table), self._position.behind)
        self._rest = table.slice(skipped) if len(table) > skipped else None
        self._position.behind -= skipped
        return skipped

    def abandon(self) -> None:
        super().abandon()
        self._rest = None

    def open(self, context: Context) -> None:
        super().open(context)
        self._rest = None

    def _records(self) -> Iterator[Any]:
        source: Iterator[Any] = self.spout.tables()
        return source

    def _draw_piece(self, count: int) -> pa.Table | None:
        try:
            table = self._next_piece(count)
        except RAISED as error:
            self._broken = blame(self.task, self._source_name, error)
            return None
        if table is None or (hit := self._first_hit(table)) is None:
            return table
        return table.slice(0, hit)

    def _stop_at_end(self) -> None:
        super()._stop_at_end()
        if self._position.at_end:
            self._rest = None

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        transfer = super().pack(stays=stays, now=now)
        if transfer.instance is not None and self._rest is not None:
            transfer.ahead = [self._rest]
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        super().unpack(transfer, context)
        self._rest = transfer.ahead[0] if transfer.ahead else None

    def _next_piece(self, count: int) -> pa.Table | None:
        """Up to `count` rows available now, all of one table."""
        table = self._rest if self._rest is not None else self._next_table()
        if table is None:
            return None
        count = self._room(count)
        self._rest = table.slice(count) if len(table) > count else None
        return table.slice(0, count)

    def _next_table(self) -> pa.Table | None:
        """The next table that has rows; None if none is available now."""
        table = None if self.exhausted else next(self._source, None)
        if table is None or not len(table):
            return None
        fields = self.output_streams.output_stream(DEFAULT).spec.schema.fields
        if not isinstance(table, pa.Table) or tuple(table.column_names) != fields:
            names = getattr(table, "column_names", type(table).__name__)
            raise BadEmit(f"tables() yielded {names}; the stream's columns are {list(fields)}")
        return table

    def _send_again(self, replays: list[Replay], now: float) -> None:
        rows = pa.concat_tables([replay.payload.row(replay.number) for replay in replays])
        numbers = np.array([replay.number for replay in replays])
        payloads = [replay.payload for replay in replays]
        attempts = [replay.attempt for replay in replays]
        self._send(DEFAULT, rows, payloads, numbers, attempts, now)

    def values(self, replay: Replay) -> dict[str, Any]:
        record: dict[str, Any]
        (record,) = replay.payload.row(replay.number).to_pylist()
        return record
