"""The load of each component between two moments, and where it is too much.

A bottleneck is the last component of a path that is busy, whose inputs wait or whose source falls
behind, and whose outputs do not wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import NamedTuple

from sunshower.runtime.events.metrics import Snapshot, TaskStats
from sunshower.runtime.events.progress import Backlog
from sunshower.runtime.plan import Plan

BUSY = 0.8  # the share of its time in which a task is a bottleneck
FULL = 0.95  # the share of its time in which the thread of a worker has something to do
BLOCKED = 0.2  # the share of its time in which a task waits for its receivers
QUEUE_S = 0.05  # inputs that wait longer are more than chance
STEADY = 0.05  # a lag that grows or falls by less, as a share of what is processed, is steady
_UNDER_WAY_S = 1.0  # so much work of lag is what is under way
_BACKLOG_MAX_S = 10.0  # with a greater lag, in seconds of work, nothing gets fewer tasks
_SLOW = 0.4  # the share of its time in which a task may be what others wait for
_SPAN_LEAST_S = 2.0  # what is counted in a shorter time says little
_SHARED = 0.1  # of a worker's time, which more workers would take over


class Gauge(NamedTuple):
    """The counters of a task at one moment."""

    component: str
    worker: int
    busy_s: float
    blocked_s: float = 0.0
    queue_s: float = 0.0  # how long its inputs wait
    settled: float = 0.0  # sources: records processed
    lag: float | None = None  # sources that know it: records not processed yet
    failed: float = 0.0  # trees, or inputs

    @property
    def counters(self) -> tuple[float, ...]:
        """What never falls while the process of the task lives."""
        return self.busy_s, self.blocked_s, self.settled, self.failed


@dataclass(frozen=True)
class Reading:
    """The counters of all tasks at one moment, in seconds."""

    at_s: float
    tasks: Mapping[int, Gauge]
    # machine → the busy seconds of its processors, and how many it has
    machines: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    # worker → the seconds that its thread had a processor, and those that it waited for one
    threads: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    @staticmethod
    def of(snapshot: Snapshot, now: float) -> Reading:
        """The counters in a snapshot."""
        tasks = {
            task.task: _gauge(task, worker.worker)
            for worker in snapshot.workers.values()
            for task in worker.tasks
        }
        machines = {
            worker.machine[0]: worker.machine[1:]
            for worker in snapshot.workers.values()
            if worker.machine is not None
        }
        threads = {id: w.thread for id, w in snapshot.workers.items() if w.thread is not None}
        return Reading(now, tasks, machines, threads)


def rows_of(task: TaskStats) -> float | None:
    """How many rows of batches a task has emitted, as a source, or taken; None: it has none."""
    return task.figures.get("rows emitted", task.figures.get("rows taken"))


def _gauge(task: TaskStats, worker: int) -> Gauge:
    counts, lag = task.counts, task.figures.get("lag")
    settled = rows_of(task)
    return Gauge(
        task.component,
        worker,
        counts.busy_s,
        counts.blocked_s,
        task.queue_s,
        counts.acked if settled is None else settled,
        lag if lag is not None and isfinite(lag) else None,
        counts.failed,
    )


@dataclass(frozen=True)
class Load:
    """What a component did in a window."""

    busy: Mapping[int, float]  # task → the share of the time
    blocked: float = 0.0  # likewise, the mean of its tasks
    queue_s: float = 0.0  # how long inputs wait before the slowest task, on average
    settled: float = 0.0  # sources: records per second
    lag: float | None = None  # sources that know it: records
    growth: float = 0.0  # of the lag, in records per second
    failed: float = 0.0  # trees, or inputs, per second

    @property
    def demand(self) -> float:
        """How many tasks it would keep busy all the time."""
        return sum(self.busy.values())

    @property
    def top(self) -> float:
        """That of the busiest task, as a share of the time."""
        return max(self.busy.values())

    @property
    def mean(self) -> float:
        """The share of the time in which its tasks were busy."""
        return self.demand / len(self.busy)

    @property
    def falls_behind(self) -> bool:
        """Whether it is a source whose lag grows."""
        return self.lag is not None and self.growth > STEADY * max(self.settled, 1.0)

    @property
    def catch_up_s(self) -> float:
        """When a source has no lag any more, if it goes on so; ∞: its lag does not fall."""
        is_falling = self.lag is not None and -self.growth > STEADY * self.settled
        return (self.lag or 0.0) / -self.growth if is_falling else inf

    def backlog(self, component: str) -> Backlog:
        """Of a source that knows its lag, or (None) will know it again."""
        lag, rate = self.lag, self.settled
        catch_up_s: float | None = self.catch_up_s
        if lag is None:
            catch_up_s, trend = None, "the lag is not known now"
        elif self.falls_behind:
            catch_up_s, trend = None, f"falls behind by {_short(self.growth)} records/s"
        elif lag <= max(rate, 1.0) * _UNDER_WAY_S:
            catch_up_s, trend = 0.0, "keeps up"
        elif catch_up_s == inf:
            catch_up_s, trend = None, "the lag does not fall"
        else:
            trend = f"catches up in {_span(self.catch_up_s)}"
        return Backlog(component, lag, self.growth, rate, self.falls_behind, catch_up_s, trend)

    @property
    def has_backlog(self) -> bool:
        """Whether a source has more to catch up with than chance."""
        return (self.lag or 0.0) > _BACKLOG_MAX_S * self.settled or self.falls_behind


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _span(seconds: float) -> str:
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"


Loads = Mapping[str, Load]


def loads_of(readings: Sequence[Reading]) -> dict[str, Load]:
    """The load of each component between the first and the last of these readings; of a task whose
    process began later, since it began."""
    last = readings[-1]
    tasks_of: dict[str, list[int]] = {}
    for task, gauge in last.tasks.items():
        tasks_of.setdefault(gauge.component, []).append(task)
    loads = {}
    for component, tasks in tasks_of.items():
        spans = {task: _span_of(readings, task) for task in tasks}
        lags = [last.tasks[task].lag for task in tasks]
        waits = [
            sum(reading.tasks[task].queue_s for reading in readings if task in reading.tasks)
            for task in tasks
        ]
        loads[component] = Load(
            {
                task: min((b.busy_s - a.busy_s) / for_s, 1.0)
                for task, (a, b, for_s) in spans.items()
            },
            sum((b.blocked_s - a.blocked_s) / for_s for a, b, for_s in spans.values()) / len(tasks),
            max(waits) / len(readings),
            sum((b.settled - a.settled) / for_s for a, b, for_s in spans.values()),
            None if all(lag is None for lag in lags) else sum(lag or 0.0 for lag in lags),
            sum(_growth(readings, task) for task in tasks),
            sum((b.failed - a.failed) / for_s for a, b, for_s in spans.values()),
        )
    return loads


def _span_of(
    readings: Sequence[Reading], task: int, *, with_lag: bool = False
) -> tuple[Gauge, Gauge, float]:
    """The first gauge of a task in its present process, its last one, and the seconds between;
    `with_lag`: the first one that has a lag. A short time counts as _SPAN_LEAST_S."""
    last = readings[-1]
    after = last.tasks[task]
    begin = next(
        reading
        for reading in readings
        if (before := reading.tasks.get(task)) is not None
        and all(a <= b for a, b in zip(before.counters, after.counters, strict=True))
        and not (with_lag and before.lag is None and reading is not last)
    )
    least_s = min(_SPAN_LEAST_S, last.at_s - readings[0].at_s)
    return begin.tasks[task], after, max(last.at_s - begin.at_s, least_s, 1e-9)


def _growth(readings: Sequence[Reading], task: int) -> float:
    """By how much a second the lag of a task grows; 0: its growth is not known."""
    before, after, for_s = _span_of(readings, task, with_lag=True)
    return 0.0 if before.lag is None or after.lag is None else (after.lag - before.lag) / for_s


class ThreadLoad(NamedTuple):
    """What the thread of a worker did in a window, as shares of the time."""

    ran: float
    waited: float  # for a processor

    @property
    def wanted(self) -> float:
        """The share in which it had something to do."""
        return self.ran + self.waited


def threads_of(first: Reading, last: Reading) -> dict[int, ThreadLoad]:
    """The load of each worker's thread between two readings; of those that both have."""
    for_s = max(last.at_s - first.at_s, 1e-9)
    return {
        worker: ThreadLoad(
            *(max(b - a, 0.0) / for_s for a, b in zip(first.threads[worker], after, strict=True))
        )
        for worker, after in last.threads.items()
        if worker in first.threads
    }


class LoadAnalysis:
    """Finds what is busy in a plan with these loads."""

    def __init__(
        self, plan: Plan, loads: Loads, threads: Mapping[int, ThreadLoad] | None = None
    ) -> None:
        """`threads`: those of the workers, where they are measured."""
        components = plan.graph.components
        self.plan = plan
        self.threads = threads or {}
        self.loads = {id: load for id, load in loads.items() if id in components}
        self._reached: dict[str, set[str]] = {}  # those that were asked for
        self._sources = [id for id, load in self.loads.items() if load.lag is not None]

    @property
    def late(self) -> list[str]:
        """The sources that fall behind."""
        return [id for id in self._sources if self.loads[id].falls_behind]

    def bottleneck(self) -> str | None:
        """The component that limits the others: the last busy one of a path, of several the
        busiest; None: no component is busy."""
        waiting = {id for id in self.loads if self._is_bottleneck(id)}
        last = [id for id in waiting if not self._behind(id) & waiting]
        return max(last, key=lambda id: (self.loads[id].mean, id), default=None)

    def sources_of(self, id: str) -> list[str]:
        """The sources of a component that know their lag."""
        return [source for source in self._sources if id in {source, *self._downstream(source)}]

    def crowded_worker(self) -> tuple[int, float] | None:
        """The busiest worker and its share, if it has no time left for several tasks: their inputs
        wait, or its thread always has something to do."""
        shares: dict[int, list[float]] = {}
        waits = {worker for worker, thread in self.threads.items() if thread.wanted >= FULL}
        for task in self.plan.tasks:
            if (load := self.loads.get(task.component)) is not None:
                shares.setdefault(task.worker, []).append(load.busy.get(task.id, 0.0))
                waits |= {task.worker} if load.queue_s >= QUEUE_S else set()
        totals = {
            worker: max(sum(tasks), self.threads[worker].wanted if worker in self.threads else 0.0)
            for worker, tasks in shares.items()
        }
        busiest = max(totals, key=totals.__getitem__, default=0)
        share, tasks = totals.get(busiest, 0.0), shares.get(busiest, [])
        is_shared = sum(tasks) - max(tasks, default=0.0) > _SHARED
        return (busiest, share) if busiest in waits and is_shared and share > BUSY else None

    def full_task(self) -> str | None:
        """The component of the task that fills the thread of its worker nearly alone, together with
        what the runtime does for it; None: there is none."""
        full = {worker for worker, thread in self.threads.items() if thread.wanted >= FULL}
        busy = {
            task.component: self.loads[task.component].busy.get(task.id, 0.0)
            for task in self.plan.tasks
            if task.worker in full and task.component in self.loads
        }
        busiest = max(busy, key=busy.__getitem__, default="")
        return busiest if busy.get(busiest, 0.0) > _SHARED else None

    def slowest(self) -> str | None:
        """Behind a source that falls behind: the busiest component whose inputs wait, although none
        is a bottleneck; None: there is none."""
        behind = {id for source in self.late for id in self._downstream(source)}
        tops = {
            id: load.top
            for id, load in self.loads.items()
            if id in behind and load.queue_s >= QUEUE_S and load.blocked < BLOCKED
        }
        slowest = max(tops, key=tops.__getitem__, default=None)
        return slowest if slowest is not None and tops[slowest] > _SLOW else None

    def _is_bottleneck(self, id: str) -> bool:
        """Whether a task of it is busy, is not blocked by its outputs, and has work that waits."""
        load = self.loads[id]
        if load.top <= BUSY:
            return False
        waits = load.queue_s >= QUEUE_S or any(
            self.loads[source].falls_behind for source in self.sources_of(id)
        )
        return load.blocked < BLOCKED and waits

    def _behind(self, id: str) -> set[str]:
        """The components behind one, without those of a cycle with it."""
        return {other for other in self._downstream(id) if id not in self._downstream(other)}

    def _downstream(self, id: str) -> set[str]:
        if id not in self._reached:
            self._reached[id] = self.plan.graph.downstream(id)
        return self._reached[id]
