"""Reads tables(): Arrow tables, cut into pieces; each row has its own number and tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import BadEmit, user_errors
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.tasks.spouts.records_source import RecordsSource
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tasks.spouts.source import Drawn
from sunshower.topologies.components import DEFAULT

if TYPE_CHECKING:
    import pyarrow as pa


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
        hit = self._first_hit(piece)
        return piece if hit is None else piece.slice(0, hit)

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
        table = None if self._host.exhausted else next(self._source, None)
        if table is None or not len(table):
            return None
        import pyarrow as pa

        fields = self._host.output.schema(DEFAULT).fields
        if not isinstance(table, pa.Table) or tuple(table.column_names) != fields:
            names = getattr(table, "column_names", type(table).__name__)
            raise BadEmit(f"tables() yielded {names}; the stream's columns are {list(fields)}")
        return table
