"""A spout on Arrow columns: whole tables in, one root a row, and single rows replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sunshower.errors import BadEmit
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.spout_task import RecordsSpoutTask, Replay
from sunshower.topologies.components import DEFAULT, Context


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows that were emitted together: what the pending table keeps for each of them."""

    table: pa.Table
    first: int  # the position of its first row in the source

    def row(self, number: int) -> pa.Table:
        """The row at position `number` in the source."""
        return self.table.slice(number - self.first, 1)


class TablesSpoutTask(RecordsSpoutTask):
    """Cuts what tables() yields into pieces that there is room for."""

    _rest: pa.Table | None = None  # of the table that was drawn last

    def emit(self, now: float, limit: int) -> int:
        if self._reports.tracked:
            limit = min(limit, self.pending.room)
        replays = self._take_replays(limit)
        if replays:
            self._send_again(replays, now)
        table = None if len(replays) == limit else self._next_piece(limit - len(replays))
        if table is None:
            return len(replays)
        first, self._position = self._position, self._position + len(table)
        payloads = [Piece(table, first)] * len(table)
        self._send(table, payloads, np.arange(first, self._position), 1, now)
        return len(replays) + len(table)

    @property
    def done(self) -> bool:
        return super().done and self._rest is None

    def drain(self) -> None:
        super().drain()
        self._rest = None

    def pack(self, *, stays: bool) -> Luggage:
        luggage = super().pack(stays=stays)
        luggage.ahead = [self._rest] if stays and self._rest is not None else []
        return luggage

    def unpack(self, luggage: Luggage, context: Context) -> None:
        super().unpack(luggage, context)
        self._rest = luggage.ahead[0] if luggage.ahead else None

    def _all_records(self) -> Iterator[Any]:
        return self.spout.tables()

    def _without(self, records: Iterator[Any], count: int) -> Iterator[Any]:
        for table in records:
            if not count or not isinstance(table, pa.Table):
                yield table
                continue
            left_out = min(count, len(table))
            count -= left_out
            if left_out < len(table):
                yield table.slice(left_out)

    def _next_piece(self, count: int) -> pa.Table | None:
        """Up to `count` rows that are there now, all of one table."""
        table = self._rest if self._rest is not None else self._next_table()
        if table is None:
            return None
        self._rest = table.slice(count) if len(table) > count else None
        return table.slice(0, count)

    def _next_table(self) -> pa.Table | None:
        """The next table that has rows, or None where there is none now."""
        table = None if self.exhausted else next(self._source, None)
        if table is None or not len(table):
            return None
        fields = self.outlets.outlet(DEFAULT).spec.schema.fields
        if not isinstance(table, pa.Table) or tuple(table.column_names) != fields:
            names = getattr(table, "column_names", type(table).__name__)
            raise BadEmit(f"tables() yielded {names}; the stream's columns are {list(fields)}")
        return table

    def _send_again(self, replays: list[Replay], now: float) -> None:
        rows = pa.concat_tables([replay.payload.row(replay.number) for replay in replays])
        numbers = np.array([replay.number for replay in replays])
        payloads = [replay.payload for replay in replays]
        self._send(rows, payloads, numbers, [replay.attempt for replay in replays], now)
