"""Exact counters, latency histograms, and the frozen snapshot of a running topology."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import inf, isfinite
from typing import Any, NamedTuple, TypeVar

from sunshower.failures import Failure
from sunshower.runtime.events.latencies import Latencies, LatencyKind
from sunshower.runtime.tasks.supervision import WELL, Health
from sunshower.runtime.tasks.user_code import TaskError
from sunshower.topologies.operators.windows.late_records import all_late

K = TypeVar("K")


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
class Counts:
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
    # bolts: how long their code ran for these records, without flush(); spouts: how long they
    # emitted; seconds, summed over tasks
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
        return {**vars(self), **pairs}

    @staticmethod
    def from_fields(found: Mapping[str, Any]) -> Counts:
        """The counters of `to_fields`, without fields of another release."""
        known = {name: found[name] for name in (*_NUMBERS, *_WORST, *_PARTS) if name in found}
        for name, key in _KEYED.items():
            known[name] = {key(*parts): count for *parts, count in found.get(name, ())}
        return Counts(**known)

    @staticmethod
    def sum_of(counts: Iterable[Counts]) -> Counts:
        """The sum of `counts`, in one pass: those of 100 tasks take less than 0.2 ms."""
        all_fields = [vars(one) for one in counts]
        sums: dict[str, Any] = {name: sum(one[name] for one in all_fields) for name in _NUMBERS}
        sums |= {name: max((one[name] for one in all_fields), default=0.0) for name in _WORST}
        parts: dict[str, Any] = {
            name: _sum(one[name] for one in all_fields if one[name]) for name in _PARTS
        }
        return Counts(**sums, **parts)

    def __add__(self, other: Counts) -> Counts:
        return Counts.sum_of((self, other))


_PARTS = ("causes", "places", "emitted_to", "transferred_to", "bytes_to", "executed_from")
# whose keys MessagePack cannot represent
_KEYED: Mapping[str, Callable[..., Any]] = {
    "places": FailurePlace,
    "executed_from": InputStream,
}
_WORST = ("late_by",)
_NUMBERS = [field.name for field in fields(Counts) if field.name not in (*_PARTS, *_WORST)]


def _sum(counts: Iterable[Mapping[K, int]]) -> Mapping[K, int]:
    sums: dict[K, int] = {}
    for one in counts:
        for key, count in one.items():
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
    newest: float = -inf  # spouts: the highest one emitted
    spouts: tuple[int, ...] = ()  # windows: the spout tasks whose watermarks they follow
    holds: str = ""  # spouts: what the watermark waits for; "": nothing, or not for long
    ahead: str = ""  # spouts: which partitions are passed over, because their times are too far
    # ahead of the clock
    all_ahead: bool = False  # spouts: whether that is so of all of them


@dataclass(frozen=True)
class Totals:
    """What a component has done since the topology was submitted, or a part of that."""

    counts: Counts = field(default_factory=Counts)
    latencies: Mapping[LatencyKind, Latencies] = field(default_factory=dict)

    def since(self, before: Totals, for_s: float) -> Activity:
        """What it has done in the `for_s` since `before`."""
        found = {
            kind: latencies.since(before.latencies.get(kind, Latencies()))
            for kind, latencies in self.latencies.items()
        }
        return Activity(for_s, self.counts.since(before.counts), found)

    @staticmethod
    def sum_of(parts: Iterable[Totals]) -> Totals:
        """The sum of `parts`."""
        by_kind: dict[LatencyKind, list[Latencies]] = {}
        for part in (parts := list(parts)):
            for kind, latencies in part.latencies.items():
                by_kind.setdefault(kind, []).append(latencies)
        sums = {kind: Latencies.sum_of(found) for kind, found in by_kind.items()}
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
class TaskStats:
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
    failures: tuple[Failure, ...] = ()  # spouts: the newest of each cause and component
    event_time: EventTime | None = None  # of spouts with windows downstream, and of these windows
    entries: int | None = None  # bolts: of the task's state; None: it has none, or it is not known
    had_ended: float = -inf  # windows: up to where they had ended when the task read its state
    in_time: bool = False  # windows: whether a record has come before its window had ended
    awaits: tuple[str, ...] = ()  # spouts: those that fill its tables, while it waits for them;
    # tables: those from which it is filled again
    has_filled: bool = False  # spouts: whether all that their source had at first is in the tables

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
    # (see time_windows.py) → component → what it did in this time; only in an overview
    unplaced: tuple[str, ...] = ()  # a line about workers that wait for a node with room, or stay
    # on one that is being drained, or leave it
    without_room: tuple[int, ...] = ()  # the workers in `unplaced` that wait; they may be `silent`

    def tasks(self) -> Iterable[TaskStats]:
        """All tasks, worker by worker."""
        for _, worker in sorted(self.workers.items()):
            yield from worker.tasks

    def tasks_of(self, component: str) -> list[TaskStats]:
        """The tasks of a component."""
        return self._by_component.get(component, [])

    @cached_property
    def _by_component(self) -> dict[str, list[TaskStats]]:
        found: dict[str, list[TaskStats]] = {}
        for task in self.tasks():
            found.setdefault(task.component, []).append(task)
        return found

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

    def latencies(self, component: str, kind: LatencyKind = LatencyKind.COMPLETE) -> Latencies:
        """The latencies of a component's tasks, previous incarnations included."""
        living = (task.latencies for task in self.tasks_of(component))
        parts = (self.retired.get(component, Totals()).latencies, *living)
        return Latencies.sum_of(one[kind] for one in parts if kind in one)

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
        tasks, late = self.tasks_of(component), self.component(component).late
        had_ended = max((task.had_ended for task in tasks), default=-inf)
        is_first = not self.retired.get(component, Totals()).counts.executed
        if not late or had_ended == -inf or not is_first or any(task.in_time for task in tasks):
            return ""
        return all_late(late, had_ended)

    def watermark(self, component: str) -> tuple[float, float | None] | None:
        """The watermark of a component's slowest task, and how far it is behind the newest record
        that a spout has emitted; None: without event time, or not known yet; both in the unit of
        the field. The second is None before the first watermark and after the last one."""
        own = [task.event_time for task in self.tasks_of(component) if task.event_time]
        if not own:
            return None
        times = {task.task: task.event_time for task in self.tasks() if task.event_time}
        slowest = min(own, key=lambda one: one.watermark)
        followed = [times[task] for one in own for task in one.spouts if task in times]
        newest = max(one.newest for one in (*own, *followed))
        if newest == -inf:
            return None
        lag = newest - slowest.watermark
        return slowest.watermark, max(lag, 0.0) if isfinite(lag) else None

    def watermark_holds(self, component: str) -> Iterator[str]:
        """What the slowest watermark of a component waits for: of a spout, its slowest task; of
        windows, spout tasks of which nothing is heard, such as those of a worker that is replaced.
        """
        own = [task for task in self.tasks_of(component) if task.event_time is not None]
        times = [(task.event_time, task.task) for task in own if task.event_time]
        if times and all(time.all_ahead for time, _ in times):
            yield times[0][0].holds
        elif times := [(time, task) for time, task in times if not time.all_ahead]:
            slowest, task = min(times, key=lambda one: one[0].watermark)
            if slowest.holds:
                yield f"task {task}: {slowest.holds}"
        reported = {task.task for task in self.tasks()}
        followed = {spout for task in own if task.event_time for spout in task.event_time.spouts}
        for spout in sorted(followed - reported):
            yield f"spout task {spout} is not running: its worker is being replaced"
