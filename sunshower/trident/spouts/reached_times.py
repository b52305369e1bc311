"""How far the partitions of one task are in event time, batch by batch: the watermark of batches.

    reached    the highest event time of the partition's rows so far
    earlier    the same when the order for this batch was given: all batches before `current`
    idle       no row for IDLE_S, and what was fetched for this batch was nothing, up to its end

The three are stored with the batch. Windows end up to the lowest `reached` of the partitions of all
sources. While one of them is idle, they end up to the lowest `earlier` of the others: that is what
these had reached when the idle one was fetched last. A partition that is idle, or read to its end
for good, does not hold windows back itself. One whose time is not known does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from math import inf
from typing import Any, NamedTuple

from sunshower.clock import Clock
from sunshower.errors import BatchError
from sunshower.topologies.operators.windows.event_times import (
    Time,
    TimeReader,
    highest,
    lowest,
    times_or_inf,
)
from sunshower.topologies.operators.windows.watermarks import GAP_S, PartitionTime
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.spouts.bounds import Room


class PartitionAt(NamedTuple):
    """How far a partition is after a batch."""

    reached: Time
    earlier: Time = -inf
    idle: bool = False

    def stored(self) -> list[Any]:
        """As plain values for JSON."""
        return [_stored(self.reached), _stored(self.earlier), self.idle]

    @classmethod
    def of(cls, stored: Sequence[Any]) -> PartitionAt:
        """The inverse of `stored`."""
        reached, earlier, idle = stored
        return cls(_time(reached), _time(earlier), idle)


UNKNOWN = PartitionAt(-inf)
_INCOMPLETE = ""  # no partition has this name


def _stored(time: Time) -> Any:
    if time == -inf:
        return None
    return str(time) if isinstance(time, Decimal) else time


def _time(stored: Any) -> Time:
    if stored is None:
        return -inf
    return Decimal(stored) if isinstance(stored, str) else stored


class ReachedTimes:
    """The event times of the partitions of one task in the current batch."""

    def __init__(self, reader: TimeReader, clock: Clock, interval_s: float) -> None:
        """`interval_s`: the least time between two batches."""
        self._reader, self._clock = reader, clock
        self._gap_s = max(GAP_S, 2 * interval_s)
        self._clocks: dict[str, PartitionTime] = {}  # since when partitions have no rows
        self._at: dict[str, PartitionAt] = {}
        self.current = 1  # all batches before were committed when this one was ordered
        self._begun_s = 0.0  # when the fetch for this batch began
        self._anew: Collection[str] = ()  # as Room.anew
        self._rows: dict[str, Time] = {}  # partition with rows → their highest time
        self._ends: Mapping[str, float] = {}  # partition → when a fetch began that found its end

    def begin(self, current: int) -> None:
        """Begin a batch. `current`: see above."""
        self.current, self._at = current, {}

    def begin_fetch(self, room: Room) -> int:
        """The source is about to be asked for new rows. Returns where they begin in `room`."""
        self._begun_s, self._rows, self._ends = self._clock.now(), {}, {}
        room.partition = None
        return len(room.parts)

    def fetched(
        self,
        room: Room,
        first: int,
        asked: Collection[str],
        answered: Iterable[str],
        ends: Mapping[str, float] | None,
    ) -> None:
        """The source has answered for the partitions `answered`, of those that were `asked`.
        `ends`: as Partitioned.partitions_at_end. Raises BatchError for rows of which it is not
        known which partition they are of, and what `TimeReader.time` raises for the topology."""
        begin = room.parts[first - 1].end if first else 0
        by_partition: dict[str, list[Time]] = {}
        only = next(iter(asked)) if len(asked) == 1 else None
        for named, end in room.parts[first:]:
            rows, begin = room.rows[begin:end], end
            if (partition := named or only) is None:
                raise BatchError(
                    f"{self._reader.what}: a window needs the event times of each partition, and "
                    f"emit_all_new does not say which partition its rows are of; let it set "
                    "room.partition before it emits those of another one"
                )
            by_partition.setdefault(partition, []).extend(self._times(rows))
        self._rows = {name: self._reached_by(times) for name, times in by_partition.items()}
        self._ends = dict.fromkeys(answered, self._begun_s) if ends is None else ends
        self._anew = room.anew

    def advance(self, name: str, reached: Time, earlier: Time) -> PartitionAt:
        """Note a partition that was fetched for this batch. `reached`: before it."""
        clock = self._clocks.setdefault(name, PartitionTime())
        idle = False
        if name in self._anew:
            reached = earlier = -inf
        if name in self._rows:
            clock.emitted(self._rows[name], self._clock.now())
            reached = highest([reached, self._rows[name]])
        elif name in self._ends:
            clock.fetched(self._ends[name], self._gap_s)
            idle = clock.is_idle and clock.fetched_s >= self._begun_s
        else:
            clock.not_fetched()
        self._at[name] = found = PartitionAt(reached, earlier, idle)
        return found

    def note(self, name: str, at: PartitionAt | None) -> None:
        """Note a partition of which all of this batch is stored; None: its time is not known."""
        self._at[name] = at or UNKNOWN

    def keep(self, names: Collection[str]) -> None:
        """The task reads only these partitions now."""
        self._clocks = {name: one for name, one in self._clocks.items() if name in names}

    def failed(self) -> None:
        """The source could not be read completely: it may have rows that it has not given."""
        self._at[_INCOMPLETE] = UNKNOWN  # a skipped batch is processed all the same
        for clock in self._clocks.values():
            clock.not_fetched()

    @property
    def total(self) -> SourceTime:
        """What the task sends to windows with the end of the batch, except `ended`."""
        active = [at for at in self._at.values() if not at.idle]
        return SourceTime(
            lowest(at.reached for at in active),
            lowest(at.earlier for at in active),
            idle=len(active) < len(self._at),
            ended=False,
        )

    def _reached_by(self, times: Iterable[Time]) -> Time:
        """The event time that a partition reaches by new rows with these times (inf: the row has
        none); -inf: none. It is called once for the rows of a batch, and the result is stored."""
        return highest(time for time in times if time != inf)

    def _times(self, rows: Sequence[Any]) -> list[Time]:
        return times_or_inf(self._reader.times, self._reader.time, rows)
