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

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from math import inf
from typing import Any, NamedTuple

from sunshower.clock import Clock
from sunshower.errors import BatchError
from sunshower.runtime.events.metrics import EventTime
from sunshower.topologies.operators.windows.event_times import (
    NO_LIMIT,
    ClockLimit,
    Time,
    TimeReader,
    as_float,
    exact,
    highest,
    lowest,
    plus,
    times_or_inf,
    values_or_none,
)
from sunshower.topologies.operators.windows.watermarks import (
    GAP_S,
    HOLDS_S,
    PartitionTime,
    all_ahead,
    are_all_ahead,
    only_ahead,
    passed_over,
)
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
        reached, earlier, idle = stored
        return cls(_time(reached), _time(earlier), idle)


UNKNOWN = PartitionAt(-inf)
_INCOMPLETE = ""  # no partition has this name
_LOG = logging.getLogger("sunshower")


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

    def __init__(
        self,
        reader: TimeReader,
        clock: Clock,
        interval_s: float,
        limit: ClockLimit = NO_LIMIT,
    ) -> None:
        """`interval_s`: the least time between two batches. `limit`: of times in the future."""
        self._reader, self._limit, self._clock = reader, limit, clock
        self.ahead = 0  # how many rows were too far ahead of the clock
        self._ahead: dict[str, int] = {}  # partition → how many of its new rows are
        self._gap_s = max(GAP_S, 2 * interval_s)
        self._recent_s = max(HOLDS_S, 2 * interval_s)
        self._since_s = clock.now()
        self._clocks: dict[str, PartitionTime] = {}  # since when partitions have no rows
        self._at: dict[str, PartitionAt] = {}
        self._is_known = True  # the time of each partition
        self._ended: Time = -inf  # the highest time of partitions that are read to their end
        self.current = 1  # all batches before were committed when this one was ordered
        self._begun_s = self._since_s  # when the fetch for this batch began
        self._anew: Collection[str] = ()  # as Room.anew
        self._rows: dict[str, Time] = {}  # partition with rows → their highest time
        self._ends: Mapping[str, float] = {}  # partition → when a fetch began that found its end

    def begin(self, current: int) -> None:
        self.current, self._at = current, {}
        self._is_known, self._ended = True, -inf

    def begin_fetch(self, room: Room) -> int:
        """The source is about to be asked for new rows. Returns where they begin in `room`."""
        self._begun_s = self._clock.now()
        self._rows, self._ends = {}, {}
        self._ahead = {}
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
            by_partition.setdefault(partition, []).extend(self._times(partition, rows))
        self._rows = {
            name: highest(time for time in times if time != inf)
            for name, times in by_partition.items()
        }
        self._ends = dict.fromkeys(answered, self._begun_s) if ends is None else ends
        self._anew = room.anew

    def advance(self, name: str, reached: Time, earlier: Time) -> PartitionAt:
        """Note a partition that was fetched for this batch. `reached`: before it."""
        clock = self._clocks.setdefault(name, PartitionTime())
        idle = False
        if name in self._anew:
            reached = earlier = -inf
        if self._ahead.get(name):
            self._note_ahead(name, clock)
        if self._rows.get(name, -inf) > -inf:
            clock.emitted(self._rows[name], self._clock.now())
            reached = highest([reached, self._rows[name]])
        elif name in self._ends or name in self._ahead:
            clock.fetched(self._ends.get(name, self._begun_s), self._gap_s)
            idle = clock.is_idle and clock.fetched_s >= self._begun_s
        else:
            clock.not_fetched()
        self._at[name] = at = PartitionAt(reached, earlier, idle)
        return at

    def _note_ahead(self, name: str, clock: PartitionTime) -> None:
        """Count rows of a partition that are too far ahead of the clock. They are passed over as if
        they were not there."""
        if not self.ahead:
            _LOG.warning(
                "%s is more than %s ahead of the clock. Its row is in its window, and does not "
                "move the watermark: see ahead= of the window. Further ones are counted only",
                *(self._reader.what, self._limit.text),
            )
        self.ahead += self._ahead[name]
        clock.emitted_ahead(self._clock.now())

    def note(self, name: str, at: PartitionAt | None) -> None:
        """Note a partition of which all of this batch is stored; None: its time is not known."""
        self._at[name] = at or UNKNOWN
        self._is_known &= at is not None

    def note_ended(self, reached: Time) -> None:
        """Note a partition that is read to its end for good."""
        self._ended = highest([self._ended, reached])
        self._is_known &= reached != -inf

    def keep(self, names: Collection[str]) -> None:
        """The task reads only these partitions now."""
        self._clocks = {name: clock for name, clock in self._clocks.items() if name in names}

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
            newest=self._newest,
        )

    @property
    def _newest(self) -> Time:
        """The highest time of a row that is not too far ahead of the clock; inf: it is unknown."""
        reached = [self._ended, *(at.reached for at in self._at.values())]
        if not self._is_known:
            return inf
        spread_s = self._reader.spread_s  # of the zones in which windows read it
        return plus(highest(reached), spread_s) if spread_s else highest(reached)

    @property
    def event_time(self) -> EventTime:
        """What users should know: what windows wait for, and times too far ahead of the clock."""
        now, limit = self._clock.now(), self._limit.text
        active = {name: at.reached for name, at in self._at.items() if not at.idle}
        has_read = bool(self._at) or self._ended != -inf
        watermark = as_float(lowest(active.values(), default=inf if has_read else -inf))
        newest = as_float(self._newest) if self._is_known else -inf
        if are_all_ahead(self._clocks, now):
            return EventTime(watermark, newest, holds=all_ahead(limit), all_ahead=True)
        passed = only_ahead(self._clocks, now).items()
        ahead = " and ".join(passed_over(name, limit, for_s) for name, for_s in passed)
        return EventTime(watermark, newest, holds=self._holds(active, now), ahead=ahead)

    def _holds(self, active: Mapping[str, Time], now: float) -> str:
        """What windows wait for, for users; "" if that is not worth a line."""
        if _INCOMPLETE in active:
            return "the last batch could not be read completely"
        if not active:
            return ""
        if (since_s := now - self._begun_s) >= self._recent_s:
            return f"no batch has been read for {since_s:.0f} s"
        slowest = min(active, key=lambda name: exact(active[name]))
        if (clock := self._clocks.get(slowest)) is None:
            return ""
        return clock.holds(slowest, self._since_s, now, self._recent_s, is_held=False)

    def _times(self, name: str, rows: Sequence[Any]) -> list[Time]:
        """The event times of new rows; inf for one that has none, or is too far ahead of the clock.
        It is called once for the rows of a batch, and what they reach is stored."""
        values = values_or_none(self._reader, rows)
        times = times_or_inf(self._reader, values)
        ahead = self._limit.beyond(values, self._reader.kinds, times, self._clock.wall())
        if ahead:
            self._ahead[name] = self._ahead.get(name, 0) + len(ahead)
            for at in ahead:
                times[at] = inf
        return times
