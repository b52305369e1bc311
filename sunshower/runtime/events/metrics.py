"""Exact counters, latency histograms, and the frozen snapshot of a running topology."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from sunshower.failures import Failure
from sunshower.runtime.tasks.supervision import WELL, Health
from sunshower.runtime.tasks.user_code import TaskError

_BUCKETS = 256
_PER_OCTAVE = 8  # a bucket is 9 % wide
_SMALLEST_S = 1e-5


class Latencies:
    """A histogram of durations in buckets of equal ratio, from 10 µs up; merged by adding."""

    def __init__(
        self, counts: Iterable[int] | None = None, sum_s: float = 0.0, max_s: float = 0.0
    ) -> None:
        found = np.zeros(_BUCKETS) if counts is None else counts
        self.counts: NDArray[np.int64] = np.array(found, np.int64)
        self.sum_s, self.max_s = sum_s, max_s

    def add(self, seconds: NDArray[np.float64]) -> None:
        """Count durations, shape (n,), in seconds."""
        octaves = np.log2(np.maximum(seconds, _SMALLEST_S) / _SMALLEST_S)
        buckets = np.minimum((octaves * _PER_OCTAVE).astype(np.int64), _BUCKETS - 1)
        self.counts += np.bincount(buckets, minlength=_BUCKETS)
        self.sum_s += float(seconds.sum())
        self.max_s = float(seconds.max(initial=self.max_s))

    def percentile(self, percent: float) -> float | None:
        """Return the duration in seconds below which `percent` of all lie, or None."""
        total = int(self.counts.sum())
        if not total:
            return None
        bucket = int(np.searchsorted(np.cumsum(self.counts), total * percent / 100))
        return min(float(_SMALLEST_S * 2.0 ** ((bucket + 1) / _PER_OCTAVE)), self.max_s)

    def octaves(self) -> Iterator[tuple[float, int]]:
        """Yield bounds in seconds, each twice the one before, and how many durations lie below."""
        below = np.cumsum(self.counts)[_PER_OCTAVE - 1 :: _PER_OCTAVE]
        for octave, count in enumerate(below.tolist(), 1):
            yield _SMALLEST_S * 2.0**octave, count

    def to_fields(self) -> tuple[list[int], float, float]:
        """The arguments of the constructor, as plain values."""
        return self.counts.tolist(), self.sum_s, self.max_s

    def __add__(self, other: Latencies) -> Latencies:
        counts, sum_s = self.counts + other.counts, self.sum_s + other.sum_s
        return Latencies(counts, sum_s, max(self.max_s, other.max_s))


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
    # bolts: how long their code ran for these records, without flush()
    busy_s: float = field(default=0.0, compare=False)
    causes: Mapping[str, int] = field(default_factory=dict)  # spouts: `failed` by cause

    def closed(self) -> Counts:
        """The counters of a task that has ended: nothing is pending."""
        return replace(self, pending=0)

    def __add__(self, other: Counts) -> Counts:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        causes = {
            cause: self.causes.get(cause, 0) + other.causes.get(cause, 0)
            for cause in {**self.causes, **other.causes}
        }
        return Counts(**sums, causes=causes)


_NUMBERS = [field.name for field in fields(Counts) if field.name != "causes"]


@dataclass(frozen=True)
class TaskStats:
    """One task at one moment."""

    task: int
    component: str
    counts: Counts
    latencies: Latencies | None = None  # spouts: from emit to complete, on the spout's clock
    done: bool = False  # spouts: nothing left to emit, nothing pending
    first_replay_s: float | None = None  # when the first replay was complete, on the worker's clock
    done_s: float | None = None  # when the spout was done, on the worker's clock
    health: Health = WELL
    committed: int = 0  # spouts: all messages below this number are settled
    drawn: int = 0  # spouts: no message from this number on was drawn
    unsettled: int = 0  # spouts: pending, or waiting to be emitted again
    queued: int = 0  # bolts: records in the inbox
    queue_s: float = 0.0  # bolts: how long these wait at the task's pace, in seconds
    figures: Mapping[str, float] = field(default_factory=dict)  # of user code
    failures: tuple[Failure, ...] = ()  # spouts: the newest of each cause and component


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
    retired: Mapping[str, Counts] = field(default_factory=dict)  # of previous incarnations
    state: str = "active"
    degraded: Mapping[int, TaskError] = field(default_factory=dict)  # quarantined task → why
    untracked_before: str | None = None  # as WorkerStats.untracked, of previous lives
    stuck: Mapping[int, StuckCall] = field(default_factory=dict)  # task → its call, from 10 s on
    silent: Mapping[int, float] = field(default_factory=dict)  # worker without heartbeats → seconds
    retired_latencies: Mapping[str, Latencies] = field(default_factory=dict)  # as `retired`

    def tasks(self) -> Iterable[TaskStats]:
        """All tasks, worker by worker."""
        for _, worker in sorted(self.workers.items()):
            yield from worker.tasks

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
        living = (task.counts for task in self.tasks() if task.component == component)
        return sum(living, self.retired.get(component, Counts()))

    def figures(self, component: str) -> dict[str, float]:
        """The sums of the user-defined figures of a component's tasks, by name."""
        sums: dict[str, float] = {}
        for task in self.tasks():
            if task.component == component:
                for name, value in task.figures.items():
                    sums[name] = sums.get(name, 0) + value
        return sums

    def latencies(self, component: str) -> Latencies:
        """Complete latencies of a spout, previous incarnations included."""
        parts = (t.latencies for t in self.tasks() if t.component == component and t.latencies)
        return sum(parts, self.retired_latencies.get(component, Latencies()))
