"""Adapts a Spout with `records()` to a batch spout: a number of its records are a batch.

Storm: org.apache.storm.trident.spout.RichSpoutBatchExecutor (it calls nextTuple: polled.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from sunshower.errors import IncompleteBatch, TopologyError
from sunshower.topologies.components import Context, Spout
from sunshower.topologies.graph import Level
from sunshower.topologies.signatures import spout_signature
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.partitioned import PartitionedSpout
from sunshower.trident.spouts.port import SpoutKind

_NAME = "records"
_AT_ONCE = 256  # records between two checks of the clock
_AGAIN_S = 10.0  # limit for reading a batch again; less than the tuple timeout
_REST_S = 0.05  # pause before a source without new records is polled again


class PlainSpout(PartitionedSpout):
    """Batches of the `records` of a spout, in one task.

    A repeated batch has the same rows, except in another life of its task. That calls `records`
    again and skips as many records as were emitted before, as an ordinary topology does; batches
    are empty until that is done. So the spout is non-transactional and states behind it are not
    exact, unless `repeats` says that it always gives the same records in the same order, as files
    do and sockets do not. Raises TopologyError for a spout without `records`.
    """

    parallelism_max = 1

    def __init__(
        self, spout: Spout[Any], *, repeats: bool = False, bounds: Bounds | None = None
    ) -> None:
        name = type(spout).__name__
        signature = spout_signature(spout, name)
        if signature.level is not Level.RECORDS:
            raise TopologyError(
                f"{name} has no records(), of which batches could be made: write it, or next_tuple "
                "(for a PolledSpout), a BatchSpout, a PartitionedSpout or an OpaquePartitionedSpout"
            )
        self.emits = spout.emits if spout.emits is not None else signature.emits
        self.kind = SpoutKind.TRANSACTIONAL if repeats else SpoutKind.NON_TRANSACTIONAL
        self.bounds = bounds or Bounds()
        self._spout = spout
        self._reading: _Reading | None = None
        self._kept: dict[int, list[Any]] = {}  # rows of batches in progress, by their first record

    def open(self, context: Context) -> None:
        self._context = replace(context, index=0, parallelism=1)

    def partitions(self) -> Sequence[str]:
        return [_NAME]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        first = last["end"] if last else 0
        reading = self._from(first)
        found: list[Any] = []
        more = reading.passes_over(room)
        while more and room.records > len(found) and room.seconds:
            more = reading.take(found, min(room.records, len(found) + _AT_ONCE))
        self._kept[first] = found
        room.emit(found)
        return {"first": first, "end": first + len(found), "ended": reading.ended}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        first, end = metadata["first"], metadata["end"]
        rows = self._kept.get(first, [])
        if len(rows) > end - first:
            rows = []
        if len(rows) < end - first:
            self._kept[first] = rows
            self._take_again(first, end, rows)
        room.emit(rows)

    def _take_again(self, first: int, end: int, rows: list[Any]) -> None:
        """Read the records up to `end` that `rows` does not have yet. Raises IncompleteBatch."""
        reading, clock = self._from(first + len(rows)), self._context.clock
        time = Room(Bounds(seconds=_AGAIN_S), clock)
        while len(rows) < end - first and not reading.ended and time.seconds:
            if not (reading.passes_over(time) and reading.take(rows, end - first)):
                clock.sleep(_REST_S)
        if len(rows) < end - first:
            until = f"ends after {reading.at}" if reading.ended else f"gives but {reading.at} soon"
            raise IncompleteBatch(
                f"{type(self._spout).__name__} has given records {first} to {end - 1}, and now "
                f"{until}: what is emitted again must be there still"
            )

    def _from(self, first: int) -> _Reading:
        """The records from number `first` on."""
        if self._reading is None or self._reading.next != first:
            self.close()
            spout = deepcopy(self._spout)
            spout.open(self._context)
            self._reading = _Reading(spout, first)
        return self._reading

    def is_end(self, partition: str, metadata: Any) -> bool:
        return bool(metadata["ended"])

    def committed(self, metadata: Mapping[str, Any]) -> None:
        settled = metadata.get(_NAME)
        end = settled["end"] if isinstance(settled, dict) else 0
        self._kept = {first: rows for first, rows in self._kept.items() if first >= end}

    def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.spout.close()


class _Reading:
    """Reads the records of a spout and counts them; None ("nothing now") does not count."""

    def __init__(self, spout: Spout[Any], first: int) -> None:
        self.spout = spout
        self.ended = False
        self.next = first  # the number of the next record
        self._behind = first  # records that must be skipped first
        self._records: Iterator[Any] = iter(spout.records())

    @property
    def at(self) -> int:
        """How many records it has read."""
        return self.next - self._behind

    def passes_over(self, room: Room) -> bool:
        """Skip records. Returns whether all have been skipped; if not, there are none now."""
        passed: list[Any] = []
        in_vain = 0
        while self._behind and not self.ended and room.seconds and in_vain < _AT_ONCE:
            self._draw(passed, min(self._behind, _AT_ONCE))
            in_vain = 0 if passed else in_vain + 1
            self._behind -= len(passed)
            passed.clear()
        return not self._behind

    def take(self, found: list[Any], limit: int) -> bool:
        """Append records until `found` has `limit`. Returns whether there may be more now."""
        had = len(found)
        more = self._draw(found, limit)
        self.next += len(found) - had
        return more

    def _draw(self, found: list[Any], limit: int) -> bool:
        at, self.next = self.next, -1  # an iterator that raises cannot be continued
        for record in self._records:
            if record is None:
                break
            found.append(record)
            if len(found) >= limit:
                break
        else:
            self.ended = True
        self.next = at
        return len(found) >= limit
