"""Watermarks: the event time up to which all records are processed, sent to windows downstream.

Each spout task sends a watermark to every task of a window, several times a second. It is a record
with a tree of its own, and windows that end by it belong to that tree. So the spout task learns
whether all of their rows were processed, and sends the watermark again if not. A record older than
`pending` cannot arrive any more: all such records are processed, which includes that they are in
their window. So watermarks need no order relative to records, however they travel.

A stage, such as a window, sends watermarks of its own to the stages behind it, as part of the trees
of those that it gets. It claims that whatever it will emit is not before `pending`, and neither is
what it has emitted in trees that it does not know to be complete.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeVar

from sunshower.topologies.operators.windows.event_times import (
    Time,
    all_late,
    as_float,
    exact,
    highest,
    just_after,
    lowest,
    minus,
)

_LOG = logging.getLogger("sunshower")

K = TypeVar("K")
WATERMARKS = "__watermarks"  # the stream that they are sent on
IDLE_S = 30.0  # a partition is idle after so long without records that move the watermark
HOLDS_S = 2.0  # status names what has held windows back for so long
GAP_S = 10.0  # the longest time between two empty fetches; after a longer one IDLE_S begins again
_NOTHING: tuple[Time, int, Time] = (-inf, 0, -inf)
_NOTED_MAX = 200  # watermarks of an idle task for which the time of the others is noted


class WatermarkTree(NamedTuple):
    """The tree that a watermark is part of: that of a watermark of a spout task."""

    task: int
    life: int
    number: int
    attempt: int
    confirmed: int


class Watermark(NamedTuple):
    """One watermark of one task. Times are event times, in the unit of their field."""

    task: int  # a spout task, or that of a stage
    life: int  # its incarnation; of a stage any number that another process does not have
    number: int  # 1, 2, 3 … in this life; one that failed is sent again with its number
    attempt: int  # 1, 2, 3 … of this number
    confirmed: int  # the tree of this one is complete, and of all before it; 0: none
    pending: Time  # the lowest event time of a record that is not processed; inf: there is none
    reached: Time  # the highest event time emitted, of the partition where it is lowest
    idle: bool  # all partitions of this task are idle
    ended: bool  # there will be no further record
    fetched: int = 0  # if idle: this one was confirmed before the last empty fetch of any partition
    newest: Time = -inf  # the highest event time emitted, without those too far ahead of the clock
    ahead: bool = False  # whether there were such times
    stage: str = ""  # the component, if it is no spout
    tasks: int = 0  # how many tasks that has
    silent: bool = False  # no record has come for so long that open windows end
    of_tree: tuple[int, ...] = ()  # its tree, if it is no spout
    sender: str = ""  # the component
    # This one was confirmed before the last empty fetch of any partition that is at its end now,
    # and the others, which are not, have reached `busy`. 0: it is not known.
    emptied: int = 0
    busy: Time = -inf

    @property
    def tree(self) -> WatermarkTree:
        """The tree that it is part of."""
        return WatermarkTree(*(self.of_tree or (self.task, *self[1:5])))


@dataclass(slots=True)
class PartitionTime:
    """How far one partition is in event time. Times ending in `_s` are of one clock."""

    reached: Time = -inf  # the highest event time emitted
    passed: Time = -inf  # what the others had reached at its last empty fetch, if it was idle
    emitted_s: float = -inf  # when the last record was emitted
    quiet_s: float = inf  # since when each fetch has ended at its end, without a record
    fetched_s: float = -inf  # when the last of these fetches began
    ahead_s: float = -inf  # when the last record was emitted that is too far ahead of the clock
    ahead_since_s: float = inf  # since when there was no other record
    idle_after_s: float | None = None  # it is idle after so long; None: IDLE_S

    @property
    def idle_s(self) -> float:
        """How long it must be silent to be idle."""
        return IDLE_S if self.idle_after_s is None else self.idle_after_s

    @property
    def time(self) -> Time:
        """Windows may end up to this time, as far as this partition is concerned."""
        return highest([self.reached, self.passed])

    @property
    def is_at_end(self) -> bool:
        """Whether its last fetch has ended at its end, without a record."""
        return self.quiet_s < inf

    @property
    def is_idle(self) -> bool:
        """Whether it is idle, as of its last fetch."""
        return self.fetched_s - self.quiet_s >= self.idle_s

    def emitted(self, time: Time, now: float) -> None:
        """Note the event time of a record that is emitted now."""
        self.reached, self.emitted_s = highest([self.reached, time]), now
        self.quiet_s = self.ahead_since_s = inf

    def emitted_ahead(self, now: float) -> None:
        """Note that a record is emitted now whose time is too far ahead of the clock."""
        self.ahead_s, self.ahead_since_s = now, min(self.ahead_since_s, now)

    def only_ahead_s(self, now: float) -> float:
        """For how long all its records have been too far ahead of the clock."""
        return (now if self.reached == -inf else self.ahead_s) - self.ahead_since_s

    def fetched(self, begun_s: float, gap_s: float = GAP_S) -> bool:
        """Note that a fetch that began at this time has ended at its end. Returns whether that is
        new. `gap_s`: the longest time since the fetch before it."""
        if begun_s <= max(self.fetched_s, self.emitted_s):
            return False
        if self.quiet_s == inf or begun_s - self.fetched_s > gap_s:
            self.quiet_s = begun_s
        self.fetched_s = begun_s
        return True

    def not_fetched(self) -> None:
        """A fetch has failed, or has not ended at its end."""
        self.quiet_s = inf

    def holds(
        self, name: str, since_s: float, now: float, recent_s: float = HOLDS_S, *, is_held: bool
    ) -> str:
        """Say why the partition `name`, which is the slowest, is behind; "" if it has had a record
        just now, or is idle. `since_s`: when it was first asked for records. `recent_s`: how old
        the last fetch may be. `is_held`: nothing is read, because of records emitted before."""
        has_fetched = now - self.fetched_s < recent_s
        silent_s = now - max(self.emitted_s, self.ahead_s, since_s)
        if (self.is_idle and has_fetched) or silent_s < recent_s:
            return ""
        if self.quiet_s < inf and has_fetched:
            wait_s = self.idle_s - (self.fetched_s - self.quiet_s)
            return (
                f"partition {name} has no records; if that lasts, it is passed over in "
                f"{wait_s:.0f} s"
            )
        if is_held:
            return (
                f"partition {name} is not read, because records are held back: see pending and "
                "blocked"
            )
        return (
            f"no fetch has found the end of partition {name} for {silent_s:.0f} s, and it has no "
            "record"
        )


def only_ahead(times: Mapping[K, PartitionTime], now: float) -> dict[K, float]:
    """The partitions that have had no other records, until they were idle, than those that are too
    far ahead of the clock, and for how many seconds. Windows do not wait for them."""
    idle = {partition: time for partition, time in times.items() if time.is_idle}
    seconds = {partition: time.only_ahead_s(now) for partition, time in idle.items()}
    return {at: for_s for at, for_s in seconds.items() if for_s >= idle[at].idle_s}


def are_all_ahead(times: Mapping[K, PartitionTime], now: float) -> bool:
    """Whether that is so of each partition that has had records in this time."""
    return all(time.is_idle for time in times.values()) and bool(only_ahead(times, now))


def all_ahead(limit: str) -> str:
    """Say that all event times of a source are too far ahead of the clock."""
    return f"all times are more than {limit} ahead; use `ahead=None` if this is right"


def passed_over(partition: str, limit: str, for_s: float) -> str:
    """Say that windows do not wait for a partition, because its times are too far ahead."""
    return (
        f"all times of partition {partition} have been more than {limit} ahead for {for_s:.0f} s; "
        "windows do not wait for it"
    )


@dataclass(slots=True)
class _LeftPartition:
    """A partition that the task does not read any more."""

    until_s: float  # until when it holds windows back here
    time: Time  # up to where windows may end


class _Moment(NamedTuple):
    """What was known at one time."""

    at_s: float
    lowest: Time  # the event time that all partitions had reached that were not idle
    confirmed: int  # the number of the last watermark that was confirmed


class PartitionTimes:
    """The event times of the partitions that one task reads, and which of them are idle."""

    def __init__(self, idle_s: float | None = None) -> None:
        """`idle_s`: how long a partition must be silent to be idle; None: IDLE_S."""
        self.idle_s = idle_s
        self._times: dict[int, PartitionTime] = {}
        self._left: dict[int, _LeftPartition] = {}
        self._moments: deque[_Moment] = deque()

    def emitted(self, partition: int, time: Time, now: float) -> None:
        """Note the highest event time of records of a partition that are emitted now."""
        self._time(partition).emitted(time, now)

    def emitted_ahead(self, partition: int, now: float) -> None:
        """Note that a record of a partition is emitted that is too far ahead of the clock. It is
        passed over as if it were not there: like a fetch without a record."""
        self._time(partition).emitted_ahead(now)

    def left(self, partition: int, dropped: Time, now: float) -> None:
        """The task stops reading a partition, or reads it again from another position. It holds
        windows back until its next reader has sent its time, for which that has IDLE_S. `dropped`:
        the lowest event time of the messages that were dropped."""
        before = self._left.get(partition, _LeftPartition(0.0, inf)).time
        known = self._times.pop(partition, PartitionTime(reached=inf))
        time = lowest([before, known.time, dropped])
        self._left[partition] = _LeftPartition(now + IDLE_S, time)

    def unknown(self, now: float) -> None:
        """The task does not know now which partitions it reads."""
        for left in self._left.values():
            left.until_s = now + IDLE_S

    def look(
        self,
        partitions: Collection[int],
        fetches: Mapping[int, float],
        confirmed: int,
        now: float,
    ) -> None:
        """Note which partitions are read now, and of which a fetch ended at its end: partition →
        when the last one began. Called several times a second."""
        for partition in self._times.keys() - {*partitions}:
            self.left(partition, inf, now)
        for partition in partitions:
            self._time(partition)
            self._left.pop(partition, None)
        self._left = {part: left for part, left in self._left.items() if left.until_s > now}
        for partition, known in self._times.items():
            empty_s = max(fetches.get(partition, -inf), known.ahead_s)
            if partition not in fetches and now - known.ahead_s > GAP_S:
                known.not_fetched()
            elif known.fetched(empty_s) and known.is_idle:
                known.passed = highest([known.passed, self._before(known.fetched_s).lowest])
        while self._moments and self._moments[0].at_s < now - 2 * GAP_S:
            self._moments.popleft()
        active = [part.time for part in self._times.values() if not part.is_idle]
        active += [left.time for left in self._left.values()]
        self._moments.append(_Moment(now, lowest(active, default=-inf), confirmed))

    @property
    def is_idle(self) -> bool:
        """Whether all partitions are idle, or there is none."""
        return not self._left and all(part.is_idle for part in self._times.values())

    @property
    def silent_s(self) -> float:
        """For how long no partition has had a record, as of their last fetches."""
        silent = (part.fetched_s - part.quiet_s for part in self._times.values())
        return 0.0 if self._left else min(silent, default=inf)

    def only_ahead(self, now: float) -> Mapping[int, float]:
        return only_ahead(self._times, now)

    def are_all_ahead(self, now: float) -> bool:
        return not self._left and are_all_ahead(self._times, now)

    @property
    def lowest(self) -> Time:
        """The event time that all partitions have reached; -inf: there is none."""
        left = (part.time for part in self._left.values())
        return lowest((*(part.time for part in self._times.values()), *left), default=-inf)

    @property
    def newest(self) -> Time:
        """The highest event time emitted."""
        return highest(part.reached for part in self._times.values())

    @property
    def slowest(self) -> tuple[int, PartitionTime] | None:
        """The partition that has reached the lowest time; None: there is none."""
        by_time = sorted(self._times.items(), key=lambda part: exact(part[1].time))
        return by_time[0] if by_time else None

    @property
    def confirmed(self) -> int:
        """The last watermark that was confirmed before the oldest of the last empty fetches."""
        fetched_s = min((part.fetched_s for part in self._times.values()), default=inf)
        return self._before(fetched_s).confirmed

    @property
    def emptied(self) -> tuple[int, Time]:
        """The last watermark that was confirmed before the oldest of the last fetches of partitions
        that are at their end, and the event time that the others have reached."""
        parts = self._times.values()
        fetches = (part.fetched_s for part in parts if part.is_at_end)
        fetched_s = min(fetches, default=-inf if parts else inf)
        busy = (part.time for part in parts if not part.is_at_end)
        left = (part.time for part in self._left.values())
        return self._before(fetched_s).confirmed, lowest((*busy, *left))

    def _time(self, partition: int) -> PartitionTime:
        if (known := self._times.get(partition)) is None:
            known = self._times[partition] = PartitionTime(idle_after_s=self.idle_s)
        return known

    def _before(self, at_s: float) -> _Moment:
        """What was known before this time."""
        moments = (moment for moment in reversed(self._moments) if moment.at_s < at_s)
        return next(moments, _Moment(-inf, -inf, 0))


@dataclass(slots=True)
class _Source:
    """What a window knows of one task that sends watermarks."""

    mark: Watermark  # the last one
    passed: Time = -inf  # what the others had reached at its last empty fetch, if it was idle
    emptied: Time = -inf  # of a table: what it has reached, as far as it is read to its end
    # number of a watermark → what the others had reached when it arrived, and the last watermark
    # that this task had sent in its tree, or before; and what those had reached that are no tables
    noted: dict[int, tuple[Time, int, Time]] = field(default_factory=dict)

    @property
    def time(self) -> Time:
        return highest([self.mark.reached, self.passed, self.emptied])


class ReachedTime:
    """The event time that all sources of a window have reached.

    A partition of a table that is read to its end has reached what the other sources had reached
    then, so a table that rarely changes delays nothing.
    """

    def __init__(
        self, spouts: int, stages: Iterable[str] = (), tables: Collection[str] = ()
    ) -> None:
        """`spouts`: how many spout tasks send watermarks; `stages`: the components that do;
        `tables`: those of them, and the spouts, that only change a table."""
        self._tables = frozenset(tables)
        self._tasks: dict[str, float] = dict.fromkeys(stages, inf)
        if spouts:
            self._tasks[""] = spouts
        self._known: dict[int, _Source] = {}
        self.highest: Time = -inf  # `newest` of watermarks, of all tasks and lives
        self.has_ahead = False

    def hear(self, mark: Watermark, sent: int = 0) -> bool:
        """Note a watermark. Returns False if a later one of its task, or a later attempt, came
        before. `sent`: the last watermark that this task has sent, or will in the same tree."""
        if mark.stage and mark.tasks != self._tasks.get(mark.stage):
            others = self._known.items()  # what its tasks have claimed is not known any more
            self._known = {t: source for t, source in others if source.mark.stage != mark.stage}
            self._tasks[mark.stage] = mark.tasks
        known = self._known.get(mark.task)
        if known is None or known.mark.life != mark.life:
            known = self._known[mark.task] = _Source(mark)
        elif mark[2:4] < known.mark[2:4]:
            return False
        known.mark = mark
        self.highest = highest([self.highest, mark.newest])
        self.has_ahead |= mark.ahead
        if mark.idle:
            known.passed = highest([known.passed, known.noted.get(mark.fetched, _NOTHING)[0]])
        if mark.sender in self._tables:
            known.emptied = lowest([mark.busy, known.noted.get(mark.emptied, _NOTHING)[2]])
        known.noted[mark.number] = self._lowest_but(mark.task), sent, self._lowest_of_streams
        first = min(mark.fetched, mark.emptied) if mark.sender in self._tables else mark.fetched
        for number in [*known.noted]:
            if number < first or len(known.noted) > _NOTED_MAX:
                del known.noted[number]
        return True

    @property
    def newest(self) -> Time:
        """The highest event time that is not too far ahead of the clock; inf if none was."""
        return self.highest if self.has_ahead else inf

    @property
    def sources(self) -> tuple[int, ...]:
        """The tasks that have sent watermarks."""
        return tuple(self._known)

    @property
    def slowest(self) -> int | None:
        """The task that holds the others back; None: all have ended, or none has sent one."""
        running = {t: source for t, source in self._known.items() if not source.mark.ended}
        return min(
            running,
            key=lambda t: exact(lowest([running[t].time, running[t].mark.pending])),
            default=None,
        )

    @property
    def is_complete(self) -> bool:
        """Whether all tasks upstream have sent watermarks."""
        counts = Counter(source.mark.stage for source in self._known.values())
        return all(counts[stage] >= tasks for stage, tasks in self._tasks.items())

    @property
    def has_ended(self) -> bool:
        """Whether all sources have ended."""
        return self.is_complete and all(source.mark.ended for source in self._known.values())

    @property
    def is_silent(self) -> bool:
        """Whether no source that has not ended has had a record for as long as its spout says."""
        running = [source.mark for source in self._known.values() if not source.mark.ended]
        return bool(running) and self.is_complete and all(mark.silent for mark in running)

    @property
    def fetched(self) -> int | None:
        """If all sources are idle that have not ended: a watermark that this task had sent, and
        that was processed, before the last empty fetches. None: one is not idle, or all ended."""
        running = [source for source in self._known.values() if not source.mark.ended]
        if not running or not self.is_complete or not all(source.mark.idle for source in running):
            return None
        return min(source.noted.get(source.mark.fetched, _NOTHING)[1] for source in running)

    @property
    def emptied(self) -> int:
        """As `fetched`, if all sources that have not ended are at their end now; 0: one is not."""
        running = [source for source in self._known.values() if not source.mark.ended]
        if not running or not self.is_complete or any(s.mark.busy != inf for s in running):
            return 0
        return min(source.noted.get(source.mark.emptied, _NOTHING)[1] for source in running)

    def time(self, late: Time, *, keep: bool = False) -> Time:
        """Windows that end up to this time are complete, if no record comes later than `late`
        after a record with a higher time; inf after the end of all sources, unless `keep`: then up
        to what all of them have reached that had a record."""
        if not self.is_complete:
            return -inf
        known = self._known.values()
        running = [source.time for source in known if not source.mark.ended]
        if not running and not keep:
            return inf
        if not running:
            running = [source.time for source in known if source.time != -inf] or [-inf]
        reached = minus(lowest(running), late)
        return lowest([reached, *(source.mark.pending for source in known)])

    @property
    def _lowest_of_streams(self) -> Time:
        """What the sources had reached that are no tables. When these have ended, nothing waits for
        a table, except for what is there: then just after what they have reached."""
        if not self._tables or not self.is_complete:
            return -inf
        streams = [s for s in self._known.values() if s.mark.sender not in self._tables]
        running = [s.time for s in streams if not (s.mark.ended or s.mark.idle)]
        ended = [just_after(s.mark.newest) for s in streams if s.mark.ended]
        return lowest(running, default=-inf if len(ended) < len(streams) else highest(ended))

    def _lowest_but(self, task: int) -> Time:
        """What the sources had reached that have records, except this one; -inf if there is none.

        A source that has not sent a watermark yet may have reached nothing.
        """
        if not self.is_complete:
            return -inf
        others = [s for t, s in self._known.items() if t != task and not s.mark.ended]
        return lowest((s.time for s in others if not s.mark.idle), default=-inf)


# ---- late records --------------------------------------------------------------------------------


@dataclass
class LateRecords:
    """What one task knows of its late records, in its present process."""

    count: int = 0
    by: float = 0.0  # how long after the end of its window the worst came, in event time
    in_time: bool = False  # whether any record came in time
    had_ended: float = -inf  # up to where windows had ended when the task read its state
    ahead: int = 0  # of a source of batches: rows that were too far ahead of the clock
    _is_said: bool = False

    def loaded(self, ended: Time) -> None:
        """Note up to where windows have ended, as the state says."""
        if not (self.count or self.in_time):
            self.had_ended = as_float(ended)

    def add(self, count: int, by: Time) -> None:
        """Note late records; `by`: how long after the end of their window they came."""
        self.count += count
        self.by = max(self.by, as_float(by))

    def say_if_all(self, name: str) -> None:
        """Log at the end of all sources that everything was late, because of what the state says
        of earlier windows. `name`: of the window."""
        if self.count and not self.in_time and self.had_ended > -inf and not self._is_said:
            self._is_said = True
            _LOG.warning("%s: %s", name, all_late(self.count, self.had_ended))


def sum_of(parts: Iterable[LateRecords]) -> LateRecords:
    """What several windows know together."""
    parts = list(parts)
    return LateRecords(
        sum(part.count for part in parts),
        max((part.by for part in parts), default=0.0),
        any(part.in_time for part in parts),
        max((part.had_ended for part in parts), default=-inf),
        sum(part.ahead for part in parts),
    )
