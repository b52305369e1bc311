"""Exact counters, latency histograms, and the frozen snapshot of a running topology."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from math import inf, isfinite, log2
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sunshower.failures import Failure, FailureGroup, GroupKey
from sunshower.runtime.events.health import WELL, Health, TaskError
from sunshower.runtime.events.progress import LoadHistory, TopologyProgress
from sunshower.topologies.graph import is_internal
from sunshower.topologies.notebooks import html_table
from sunshower.topologies.operators.windows.event_times import all_late

K = TypeVar("K")


# ---- latencies -----------------------------------------------------------------------------------

_BUCKETS = 256
_PER_OCTAVE = 8  # a bucket is 9 % wide
_SMALLEST_S = 1e-5


class LatencyKind(StrEnum):
    """What a latency is measured from and to."""

    COMPLETE = "complete"  # spouts: from the emit of a message until its tree is complete
    EXECUTE = "execute"  # bolts: the time of an input in the bolt's code; inputs that are executed
    # together count with their mean
    QUEUE = "queue"  # bolts: from the arrival of an input in the task's inbox to its execution


class Latencies:
    """A histogram of durations in buckets of equal ratio, from 10 µs to 43,000 s; merged by adding.

    A percentile is never too low, and at most 9.1 % too high. 2 KiB in memory; when it travels, 8
    bytes for each bucket between the shortest and the longest duration.
    """

    def __init__(
        self, counts: Iterable[int] | None = None, sum_s: float = 0.0, max_s: float = 0.0
    ) -> None:
        counted = np.zeros(_BUCKETS) if counts is None else counts
        self.counts: NDArray[np.int64] = np.array(counted, np.int64)
        self._view = self.counts.data  # for single counts: half as slow
        self.sum_s, self.max_s = sum_s, max_s

    def add(self, seconds: NDArray[np.float64]) -> None:
        """Count durations, shape (n,), in seconds."""
        octaves = np.log2(np.maximum(seconds, _SMALLEST_S) / _SMALLEST_S)
        buckets = np.minimum((octaves * _PER_OCTAVE).astype(np.int64), _BUCKETS - 1)
        self.counts += np.bincount(buckets, minlength=_BUCKETS)
        self.sum_s += float(seconds.sum())
        self.max_s = float(seconds.max(initial=self.max_s))

    def add_one(self, seconds: float, count: int = 1) -> None:
        """Count a duration, in seconds, `count` times. Faster than `add` for one."""
        if count < 1:
            return
        if seconds > _SMALLEST_S:
            bucket = min(int(log2(seconds / _SMALLEST_S) * _PER_OCTAVE), _BUCKETS - 1)
        else:
            bucket, seconds = 0, max(seconds, 0.0)
        self._view[bucket] += count
        self.sum_s += seconds * count
        self.max_s = max(self.max_s, seconds)

    def percentile(self, percent: float) -> float | None:
        """Return the duration in seconds below which `percent` of all lie, or None."""
        total = int(self.counts.sum())
        if not total:
            return None
        bucket = int(np.searchsorted(np.cumsum(self.counts), total * percent / 100))
        return min(_bound_s(bucket), self.max_s)

    @property
    def total(self) -> int:
        """How many durations were counted."""
        return int(self.counts.sum())

    def octaves(self) -> Iterator[tuple[float, int]]:
        """Yield bounds in seconds, each twice the one before, and how many durations lie below."""
        below = np.cumsum(self.counts)[_PER_OCTAVE - 1 :: _PER_OCTAVE]
        for octave, count in enumerate(below.tolist(), 1):
            yield _SMALLEST_S * 2.0**octave, count

    def to_fields(self) -> tuple[list[int], float, float]:
        """The arguments of the constructor, as plain values."""
        return self.counts.tolist(), self.sum_s, self.max_s

    def copy(self) -> Latencies:
        """The same, which does not change when this one does."""
        return Latencies(self.counts, self.sum_s, self.max_s)

    def since(self, before: Latencies) -> Latencies:
        """What was counted after `before` was copied. Its maximum is the upper bound of a bucket,
        at most 9.1 % too high."""
        counts = np.maximum(self.counts - before.counts, 0)
        used = np.flatnonzero(counts)
        max_s = min(_bound_s(int(used[-1])), self.max_s) if len(used) else 0.0
        return Latencies(counts, max(self.sum_s - before.sum_s, 0.0), max_s)

    @staticmethod
    def sum_of(latencies: Iterable[Latencies]) -> Latencies:
        """All durations of `latencies`, in one pass."""
        total = Latencies()
        for latency in latencies:
            total.counts += latency.counts
            total.sum_s += latency.sum_s
            total.max_s = max(total.max_s, latency.max_s)
        return total

    def __add__(self, other: Latencies) -> Latencies:
        return Latencies.sum_of((self, other))

    def __reduce__(self) -> tuple[Any, ...]:
        used = np.flatnonzero(self.counts)
        first, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        return _rebuilt, (first, self.counts[first:end].tobytes(), self.sum_s, self.max_s)


def _rebuilt(first: int, data: bytes, sum_s: float, max_s: float) -> Latencies:
    latencies = Latencies(None, sum_s, max_s)
    part = np.frombuffer(data, np.int64)
    latencies.counts[first : first + len(part)] = part
    return latencies


def _bound_s(bucket: int) -> float:
    return float(_SMALLEST_S * 2.0 ** ((bucket + 1) / _PER_OCTAVE))


# ---- metrics -------------------------------------------------------------------------------------


class Sparse:
    """A dataclass that is pickled without the fields that have their defaults, which attributes of
    its class are. An overview of 5,000 tasks is unpickled in half of the time."""

    def __getstate__(self) -> dict[str, Any]:
        defaults = vars(type(self))
        return {
            name: value for name, value in vars(self).items() if value is not defaults.get(name)
        }


class FailurePlace(NamedTuple):
    """Why and where trees failed."""

    cause: str
    component: str  # empty if unknown (a timeout)
    task: int  # among the tasks of its component; -1: unknown, or all of them
    worker: int  # likewise


class InputStream(NamedTuple):
    """A stream that a bolt reads."""

    component: str
    stream: str


@dataclass(frozen=True)
class Counts(Sparse):
    """What one task, or one component, has done since its start. Not sampled (Storm: 1 in 20)."""

    emitted: int = 0  # emit calls
    transferred: int = 0  # records sent, one per target task
    executed: int = 0  # bolts: records received
    acked: int = 0  # spouts: trees complete; bolts: inputs acked
    failed: int = 0  # spouts: trees failed; bolts: inputs failed
    replayed: int = 0  # spouts: emitted again
    pending: int = 0  # spouts: trees open now
    expired: int = 0  # bolts: inputs dropped unprocessed, because their trees had failed
    dead: int = 0  # spouts: of `acked`, those that became dead letters
    ahead: int = 0  # spouts: records whose event time was too far in the future
    late: int = 0  # windows and joins: records that came after their window had ended
    # how long after that the worst of these came, in event time, in the unit of its field
    late_by: float = field(default=0.0, compare=False)
    # bolts: how long their code ran for these records, with flush(), which writes their states;
    # spouts: how long they emitted; seconds, summed over tasks
    busy_s: float = field(default=0.0, compare=False)
    # how long tasks that had something to do could not send, because receivers had no credit;
    # spouts: or because as many trees were open as are allowed
    blocked_s: float = field(default=0.0, compare=False)
    causes: Mapping[str, int] = field(default_factory=dict)  # spouts: `failed` by cause
    # spouts: `failed` by cause and place
    places: Mapping[FailurePlace, int] = field(default_factory=dict, compare=False)
    emitted_to: Mapping[str, int] = field(default_factory=dict, compare=False)  # by stream
    transferred_to: Mapping[str, int] = field(default_factory=dict, compare=False)  # likewise
    # by stream: bytes of records and their ids in packets; within a worker nothing is encoded
    bytes_to: Mapping[str, int] = field(default_factory=dict, compare=False)
    # bolts: `executed` by input stream
    executed_from: Mapping[InputStream, int] = field(default_factory=dict, compare=False)

    def closed(self) -> Counts:
        """The counters of a task that has ended: nothing is pending."""
        return replace(self, pending=0)

    def since(self, before: Counts) -> Counts:
        """What was counted after `before`; `pending` is that of now. Never negative: when a process
        and the master die together, counters go back."""
        numbers: dict[str, Any] = {
            name: max(getattr(self, name) - getattr(before, name), 0) for name in _NUMBERS
        }
        if numbers["late"]:
            numbers["late_by"] = self.late_by
        parts: dict[str, Any] = {
            name: _less(getattr(self, name), getattr(before, name)) for name in _PARTS
        }
        return replace(Counts(**numbers, **parts), pending=self.pending)

    def to_fields(self) -> dict[str, Any]:
        """The arguments of `from_fields`, as values for MessagePack."""
        pairs = {name: [[*key, n] for key, n in getattr(self, name).items()] for name in _KEYED}
        return {name: getattr(self, name) for name in _NAMES} | pairs

    @staticmethod
    def from_fields(stored: Mapping[str, Any]) -> Counts:
        """The counters of `to_fields`, without fields of another release."""
        known = {name: stored[name] for name in (*_NUMBERS, *_WORST, *_PARTS) if name in stored}
        for name, key in _KEYED.items():
            known[name] = {key(*parts): count for *parts, count in stored.get(name, ())}
        return Counts(**known)

    @staticmethod
    def sum_of(counts: Iterable[Counts]) -> Counts:
        """The sum of `counts`, in one pass: those of 100 tasks take less than 0.2 ms."""
        each = [*counts]
        numbers = map(sum, zip(*map(_get_numbers, each), strict=True))
        mappings = zip(*map(_get_parts, each), strict=True)
        sums: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=False))  # without counts: none
        sums |= {
            name: max((getattr(count, name) for count in each), default=0.0) for name in _WORST
        }
        sums |= {
            name: _sum(filter(None, parts)) for name, parts in zip(_PARTS, mappings, strict=False)
        }
        return Counts(**sums)

    def __add__(self, other: Counts) -> Counts:
        return Counts.sum_of((self, other))


_PARTS = ("causes", "places", "emitted_to", "transferred_to", "bytes_to", "executed_from")
# whose keys MessagePack cannot represent
_KEYED: Mapping[str, Callable[..., Any]] = {
    "places": FailurePlace,
    "executed_from": InputStream,
}
_WORST = ("late_by",)
_NAMES = [field.name for field in fields(Counts)]
_NUMBERS = [name for name in _NAMES if name not in (*_PARTS, *_WORST)]
_get_numbers, _get_parts = attrgetter(*_NUMBERS), attrgetter(*_PARTS)


def _sum(counts: Iterable[Mapping[K, int]]) -> Mapping[K, int]:
    mappings, sums = [*counts], dict[K, int]()
    names = [*mappings[0]] if mappings else []
    if all([*mapping] == names for mapping in mappings):  # as those of one component mostly are
        of_each = zip(*(mapping.values() for mapping in mappings), strict=True)
        return dict(zip(names, map(sum, of_each), strict=False))
    for mapping in mappings:
        for key, count in mapping.items():
            sums[key] = sums.get(key, 0) + count
    return sums


def _less(now: Mapping[K, int], before: Mapping[K, int]) -> Mapping[K, int]:
    """The counts that have grown, and by how much."""
    grown = {key: count - before.get(key, 0) for key, count in now.items()}
    return {key: count for key, count in grown.items() if count > 0}


@dataclass(frozen=True)
class EventTime:
    """How far a task is in event time, in the unit of its field; of datetimes, Unix seconds."""

    watermark: float  # spouts: all records before it are processed; sources of batches: are read;
    # windows: those before it have ended; -inf: none yet, inf: all
    newest: float = -inf  # the highest one that its spouts have emitted
    sources: tuple[int, ...] = ()  # windows: the tasks whose watermarks they follow
    held_by: int | None = None  # windows: which of these is the slowest
    # spouts: what the watermark waits for; windows: why they hold back those behind them; "": there
    # is nothing, or not for long
    holds: str = ""
    ahead: str = ""  # spouts: which partitions are passed over, because their times are too far
    # ahead of the clock
    all_ahead: bool = False  # spouts: whether that is so of all of them
    per_s: int | None = None  # sources: how many units a second has, if times count from 1970 on;
    # None: that is not known


@dataclass(frozen=True)
class Totals:
    """What a component has done since the topology was submitted, or a part of that."""

    counts: Counts = field(default_factory=Counts)
    latencies: Mapping[LatencyKind, Latencies] = field(default_factory=dict)

    def since(self, before: Totals, for_s: float) -> Activity:
        """What it has done in the `for_s` since `before`."""
        grown = {
            kind: latencies.since(before.latencies.get(kind, Latencies()))
            for kind, latencies in self.latencies.items()
        }
        return Activity(for_s, self.counts.since(before.counts), grown)

    @staticmethod
    def sum_of(parts: Iterable[Totals]) -> Totals:
        """The sum of `parts`."""
        by_kind: dict[LatencyKind, list[Latencies]] = {}
        for part in (parts := list(parts)):
            for kind, latencies in part.latencies.items():
                by_kind.setdefault(kind, []).append(latencies)
        sums = {kind: Latencies.sum_of(all_of_kind) for kind, all_of_kind in by_kind.items()}
        return Totals(Counts.sum_of(part.counts for part in parts), sums)


@dataclass(frozen=True)
class Activity:
    """What one component did in a time, tasks of former processes included."""

    for_s: float
    counts: Counts
    latencies: Mapping[LatencyKind, Latencies] = field(default_factory=dict)

    def capacity(self, tasks: int) -> float:
        """The share of the time in which its `tasks` were busy, 0 to 1. Storm: capacity."""
        return min(self.counts.busy_s / max(self.for_s * tasks, 1e-9), 1.0)

    def blocked(self, tasks: int) -> float:
        """The share of the time in which its `tasks` could not send, 0 to 1."""
        return min(self.counts.blocked_s / max(self.for_s * tasks, 1e-9), 1.0)


@dataclass(frozen=True)
class TaskStats(Sparse):
    """One task at one moment."""

    task: int
    component: str
    counts: Counts
    latencies: Mapping[LatencyKind, Latencies] = field(default_factory=dict)  # of its kind of task
    done: bool = False  # spouts: nothing left to emit, nothing pending
    first_replay_s: float | None = None  # when the first replay was complete, on the worker's clock
    done_s: float | None = None  # when the spout was done, on the worker's clock
    health: Health = WELL
    committed: int = 0  # spouts: all messages below this number are settled
    drawn: int = 0  # spouts: all messages below this number are drawn
    owed: int = 0  # spouts: no message from this number on was drawn, also by its former lives
    unsettled: int = 0  # spouts: pending, or waiting to be emitted again
    queued: int = 0  # bolts: records in the inbox
    queue_s: float = 0.0  # bolts: how long these wait at the task's pace, in seconds
    figures: Mapping[str, float] = field(default_factory=dict)  # of user code
    failures: tuple[FailureGroup, ...] = ()  # spouts: the newest ones
    event_time: EventTime | None = None  # of spouts with windows downstream, and of these windows
    entries: int | None = None  # bolts: of the task's state; None: it has none, or it is not known
    had_ended: float = -inf  # windows: up to where they had ended when the task read its state
    in_time: bool = False  # windows: whether a record has come before its window had ended
    awaits: tuple[str, ...] = ()  # spouts: those that fill its tables, while it waits for them;
    # tables: those from which it is filled again
    has_filled: bool = False  # spouts: whether all that their source had at first is in the tables
    limit: int | None = None  # spouts: how many trees may be open
    oldest_s: float | None = None  # spouts: the age of the oldest open tree; None: none is open

    @property
    def totals(self) -> Totals:
        """Its part of the totals of its component."""
        return Totals(self.counts, self.latencies)


@dataclass(frozen=True)
class WorkerStats:
    """One worker at one moment, as it reports to the master."""

    worker: int
    incarnation: int
    tasks: tuple[TaskStats, ...] = ()
    idle: bool = False  # nothing in its inboxes and nothing to send
    lost: int = 0  # anchors of records in frames that did not arrive
    untracked: str | None = None  # the first failure of an untracked record
    at_rest: bool = False  # no spout here may emit
    links: Mapping[int, float] = field(default_factory=dict)  # worker that does not answer → for
    # how long, in seconds
    crash_reports: str | None = None  # why none can be written here; None: they can
    lives: Mapping[int, int] = field(default_factory=dict)  # the workers that this one knows → the
    # life of each; only if tables may be filled again
    machine: tuple[str, float, int] | None = None  # its name, the busy seconds of its processors,
    # and how many it has; None: not measured
    thread: tuple[float, float] | None = None  # that runs its tasks: the seconds that it had a
    # processor, and those that it waited for one; None: not measured


@dataclass(frozen=True)
class StuckCall:
    """A call of user code that has not returned for long; its worker is blocked meanwhile."""

    component: str
    index: int  # among the tasks of its component
    worker: int
    for_s: float
    where: str  # the innermost line of its stack: file, line, function, code

    def __str__(self) -> str:
        place = f"{self.component}[{self.index}]"
        return f"{place} has been in one call for {self.for_s:.0f} s, at {self.where}"


@dataclass(frozen=True)
class ScalingView:
    """A number that follows the load, and what it would be: see scaling.py."""

    component: str  # of the tasks; "": of the topology's workers
    least: int
    most: int
    now: int
    wanted: int
    why: str  # why it is wanted, or why it does not change


_SHOWN_COUNTS = ("emitted", "executed", "acked", "failed", "dead", "pending")  # in a notebook


class Unchanged(NamedTuple):
    """The last upgrade or rebalance that a user has asked for, if it did not happen."""

    command: str
    why: str
    at_s: float | None  # Unix time; None: before the master's process began


@dataclass(frozen=True)
class Snapshot:
    """A running topology at one moment, as the terminal, web page, tests and checks read it."""

    topology: str
    workers: Mapping[int, WorkerStats] = field(default_factory=dict)
    restarts: int = 0
    retired: Mapping[str, Totals] = field(default_factory=dict)  # of previous incarnations
    state: str = "active"
    degraded: Mapping[int, TaskError] = field(default_factory=dict)  # quarantined task → why
    untracked_before: str | None = None  # as WorkerStats.untracked, of previous lives
    stuck: Mapping[int, StuckCall] = field(default_factory=dict)  # task → its call, from 10 s on
    silent: Mapping[int, float] = field(default_factory=dict)  # worker without heartbeats → seconds
    windows: Mapping[str, Mapping[str, Activity]] = field(default_factory=dict)  # name of a window
    # (see TimeWindows) → component → what it did in this time; only in an overview
    unplaced: tuple[str, ...] = ()  # a line about workers that wait for a node with room, or stay
    # on one that is being drained, or leave it
    without_room: tuple[int, ...] = ()  # the workers in `unplaced` that wait; they may be `silent`
    scaling: tuple[ScalingView, ...] = ()
    progress: TopologyProgress | None = None  # only in an overview, as is `history`
    history: LoadHistory | None = None
    ended: Mapping[int, Failure] = field(default_factory=dict)  # task → its call, for which its
    # process was replaced; until it has processed or emitted something
    unchanged: Unchanged | None = None

    def _repr_html_(self) -> str:
        """The counters of each component, in a notebook."""
        rows = [
            (id, len(tasks), *(getattr(self.component(id), name) for name in _SHOWN_COUNTS))
            for id, tasks in self._by_component.items()
            if not is_internal(id)
        ]
        return html_table(
            ("component", "tasks", *_SHOWN_COUNTS), rows, f"topology {self.topology}: {self.state}"
        )

    def tasks(self) -> Iterable[TaskStats]:
        """All tasks, worker by worker."""
        for _, worker in sorted(self.workers.items()):
            yield from worker.tasks

    def tasks_of(self, component: str) -> list[TaskStats]:
        """The tasks of a component."""
        return self._by_component.get(component, [])

    @cached_property
    def _by_component(self) -> dict[str, list[TaskStats]]:
        by_component: dict[str, list[TaskStats]] = {}
        for task in self.tasks():
            by_component.setdefault(task.component, []).append(task)
        return by_component

    @cached_property
    def _by_task(self) -> dict[int, TaskStats]:
        return {task.task: task for task in self.tasks()}

    def waiting(self) -> list[TaskStats]:
        """The tasks that wait for a dependency, or are in doubt; see `Health.wait`."""
        return [task for task in self.tasks() if task.health.wait is not None]

    @property
    def untracked(self) -> str | None:
        """The first failure of a record that could not be replayed; None if there is none."""
        failures = (self.untracked_before, *(worker.untracked for worker in self.workers.values()))
        return next(filter(None, failures), None)

    def component(self, component: str) -> Counts:
        """The sum over a component's tasks, previous incarnations included."""
        living = (task.counts for task in self.tasks_of(component))
        return Counts.sum_of((self.retired.get(component, Totals()).counts, *living))

    def figures(self, component: str) -> dict[str, float]:
        """The sums of the user-defined figures of a component's tasks, by name."""
        sums: dict[str, float] = {}
        for task in self.tasks_of(component):
            for name, value in task.figures.items():
                sums[name] = sums.get(name, 0) + value
        return sums

    def failure_groups(self) -> list[FailureGroup]:
        """The groups of failures over all spouts, those that fail most often now first."""
        groups: dict[GroupKey, FailureGroup] = {}
        for task in self.tasks():
            for group in task.failures:
                known = groups.get(group.key)
                groups[group.key] = group if known is None else known + group
        return sorted(groups.values(), key=lambda group: (-round(group.rate, 3), -group.last_s))

    def latencies(self, component: str, kind: LatencyKind = LatencyKind.COMPLETE) -> Latencies:
        """The latencies of a component's tasks, previous incarnations included."""
        living = (task.latencies for task in self.tasks_of(component))
        parts = (self.retired.get(component, Totals()).latencies, *living)
        return Latencies.sum_of(part[kind] for part in parts if kind in part)

    def activity(self, component: str, for_s: float) -> Activity:
        """What a component did since the topology was submitted, `for_s` ago."""
        living = (task.totals for task in self.tasks_of(component))
        whole = Totals.sum_of((self.retired.get(component, Totals()), *living))
        return Activity(for_s, whole.counts, whole.latencies)

    def state_entries(self, component: str) -> int | None:
        """The entries of the states of a component's tasks; None: no state, or not known."""
        known = [task.entries for task in self.tasks_of(component) if task.entries is not None]
        return sum(known) if known else None

    def event_time_notes(self, component: str) -> Iterator[str]:
        """What users should know of the event times of a component: of spouts, that all those of a
        task or partition are too far in the future; of windows, that all records were late."""
        times = {t.task: t.event_time for t in self.tasks_of(component) if t.event_time}
        has_others = not all(time.all_ahead for time in times.values())
        for task, time in times.items():
            if time.all_ahead and has_others:
                yield f"task {task}: {time.holds}; windows do not wait for it"
            elif time.ahead:
                yield f"task {task}: {time.ahead}"
        if everything := self._all_late(component):
            yield everything

    def _all_late(self, component: str) -> str:
        """What is wrong if all records of a window were late, as the state says that these windows
        had ended before this run; "" if not."""
        tasks = self.tasks_of(component)
        had_ended = max((task.had_ended for task in tasks), default=-inf)
        is_first = not self.retired.get(component, Totals()).counts.executed
        if had_ended == -inf or not is_first or any(task.in_time for task in tasks):
            return ""
        late = self.component(component).late
        return all_late(late, had_ended) if late else ""

    @cached_property
    def per_s(self) -> int | None:
        """How many units of event time a second has, if that is known, and the same everywhere."""
        times = [task.event_time for task in self.tasks() if task.event_time is not None]
        units = {time.per_s for time in times if time.per_s is not None}
        return units.pop() if len(units) == 1 else None

    def watermark(self, component: str) -> tuple[float, float | None] | None:
        """The watermark of a component's slowest task, and how far it is behind the newest record
        that a spout has emitted; None: without event time, or not known yet; both in the unit of
        the field. The second is None before the first watermark and after the last one."""
        of_tasks = [task.event_time for task in self.tasks_of(component) if task.event_time]
        if not of_tasks:
            return None
        slowest = min(of_tasks, key=lambda item: item.watermark)
        followed = {task for time in of_tasks for task in time.sources} & self._by_task.keys()
        times = [time for task in followed if (time := self._by_task[task].event_time)]
        newest = max(time.newest for time in (*of_tasks, *times))
        if newest == -inf:
            return None
        lag = newest - slowest.watermark
        return slowest.watermark, max(lag, 0.0) if isfinite(lag) else None

    def watermark_holds(self, component: str) -> Iterator[str]:
        """What the slowest watermark of a component waits for: of a spout, its slowest task; of
        windows, what holds the slowest task upstream, and those of which nothing is heard, such as
        those of a worker that is replaced."""
        tasks = [task for task in self.tasks_of(component) if task.event_time is not None]
        times = [(task.event_time, task.task) for task in tasks if task.event_time]
        if times and all(time.all_ahead for time, _ in times):
            yield times[0][0].holds
        elif times := [(time, task) for time, task in times if not time.all_ahead]:
            slowest, task = min(times, key=lambda item: item[0].watermark)
            if slowest.sources:
                yield from self._held(slowest)
            elif slowest.holds:
                yield f"task {task}: {slowest.holds}"
        followed = {task for time, _ in times for task in time.sources}
        for task in sorted(followed - self._by_task.keys()):
            yield _not_running(task)

    def _held(self, window: EventTime) -> Iterator[str]:
        """What holds back a window: the first task on the way up that says something."""
        tasks, depth = self._by_task, 0
        while (task := window.held_by) is not None and depth <= len(tasks):
            stats = tasks.get(task)
            if stats is None:
                if depth:  # else it is among those of which nothing is heard
                    yield _not_running(task)
                return
            if stats.event_time is None:
                return
            window, depth = stats.event_time, depth + 1
            if window.holds:
                yield f"task {task} of {stats.component}: {window.holds}"
                return


def _not_running(task: int) -> str:
    return f"task {task} upstream is not running: its worker is being replaced"


# ---- time windows --------------------------------------------------------------------------------
# The counts of a topology in the last minute, ten minutes and hour, from cumulative counters.
#
# The master copies the totals of each component before they change: at most every five seconds for
# the minute, every 50 s for the ten minutes, and every five minutes for the hour. A window is the
# difference of the totals of now and the newest copy that is old enough. So a window is up to a
# twelfth longer than its name says; `Activity.for_s` is its length. In a topology that is younger,
# it begins with the topology; after a restart of the master, with the first complete reports.

WINDOWS_S = {"1m": 60.0, "10m": 600.0, "1h": 3600.0}  # the names, and the lengths in seconds
ALL = "all"  # the name of the time since the topology was submitted
NAMES = (*WINDOWS_S, ALL)
_WINDOW_PARTS = 12  # copies in each window


class _Copy(NamedTuple):
    """The totals as they were from `from_s` to `to_s`."""

    from_s: float
    to_s: float
    totals: Mapping[str, Totals]


class TimeWindows:
    """Copies of the totals, for the windows. Memory is bounded: 14 copies for each window."""

    def __init__(self, begin_s: float | None) -> None:
        """`begin_s`: when counting began, all totals zero; None: unknown."""
        self._copies: dict[str, deque[_Copy]] = {name: deque() for name in WINDOWS_S}
        self._changed_s = begin_s  # when the totals changed the last time
        if begin_s is not None:
            for copies in self._copies.values():
                copies.append(_Copy(begin_s, begin_s, {}))

    def change(
        self, now: float, totals: Callable[[], Mapping[str, Totals]], *, is_complete: bool
    ) -> None:
        """The totals change now; `totals` returns them as they are before that. `is_complete`:
        whether all tasks are among them; without a known begin, the first complete ones are it."""
        if self._changed_s is None and not is_complete:
            return
        since_s = now if self._changed_s is None else self._changed_s
        self._changed_s = now
        copy: _Copy | None = None
        for name, length_s in WINDOWS_S.items():
            copies = self._copies[name]
            if not copies or now - copies[-1].to_s >= length_s / _WINDOW_PARTS:
                copy = copy or _Copy(since_s, now, totals())
                copies.append(copy)
                while len(copies) > 1 and copies[1].from_s <= now - length_s:
                    copies.popleft()

    def at(self, now: float, totals: Mapping[str, Totals]) -> dict[str, dict[str, Activity]]:
        """The activity of each component by window, if `totals` are those of now; empty before the
        first copy."""
        if self._changed_s is None:
            return {}
        windows, last = {}, _Copy(self._changed_s, now, totals)
        for name, length_s in WINDOWS_S.items():
            begin_s, copies = now - length_s, [*self._copies[name], last]
            before = next(
                (copy_ for copy_ in reversed(copies) if copy_.from_s <= begin_s), copies[0]
            )
            for_s = now - min(max(begin_s, before.from_s), before.to_s)
            windows[name] = {
                component: of_component.since(before.totals.get(component, Totals()), for_s)
                for component, of_component in totals.items()
            }
        return windows
