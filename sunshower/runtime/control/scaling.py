"""Decides which components and how many workers follow the load: a state machine without a clock.

    disturbed ──nothing is wrong──▶ resting ──6 units──▶ ready ──a window is full──▶ changing
        ▲                                                  │                            │
        └── an outage, a silent worker, an upgrade, ───────┴── new lives of workers ────┘

Each look is a Reading of the counters. The loads in the last 3 units (to grow) and 3.5 units
(to shrink) follow from two of them; a unit is ten seconds (`Internals.scaling_s`). A change that is
wanted for 1.5 units is made. It is a rebalance, which begins new lives of all workers, so the
machine rests and measures anew after it.

Only the bottleneck grows: the last component of a path that is busy, whose inputs wait or whose
source falls behind, and whose outputs do not. How many tasks and workers it gets follows from the
load of the busiest worker that the next plan would have: a worker runs its tasks in one thread.
Decision 33 has the reasons. Flink: the autoscaler of its Kubernetes operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

from sunshower.config import Between
from sunshower.errors import LifecycleError
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.loads import BUSY, Load, LoadAnalysis, Loads, Reading, loads_of
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.placement import placed, replan, with_counts
from sunshower.runtime.events.health import Standing
from sunshower.runtime.events.metrics import ScalingView, Snapshot
from sunshower.runtime.plan import Layout, Plan
from sunshower.topologies.groupings import LocalOrShuffle, NoneGrouping, Shuffle

TARGET = 0.65  # how busy tasks and workers shall be after a change
IDLE = 0.4  # a component below it may get fewer tasks
_CATCH_UP_MAX_S = 600.0  # a lag that is gone by then needs no further tasks
_UNKNOWN_FACTOR = 2 * TARGET  # without a lag: twice the tasks
_FACTOR_MAX = 4.0  # by which one change may follow a load
_GAIN = 0.9  # a change must leave the busiest worker less than this share of its load
# In units of time: between two looks; how long a change must be wanted; the windows of what is the
# load, busy and idle; and how long nothing changes after a change, and after one that failed.
_LOOK, _LASTS, _LATEST, _GROW, _SHRINK, _REST, _FAILED = 0.5, 1.5, 1.0, 3.0, 3.5, 6.0, 60.0
_EVEN = (Shuffle, LocalOrShuffle, NoneGrouping)  # groupings that choose any task
WORKERS = ""  # the workers of a topology, among the ids of its components


# ---- decision ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """Other numbers of tasks by component, or of workers, in one rebalance."""

    tasks: Mapping[str, int]
    workers: int | None  # None: as many as now
    why: str

    @property
    def numbers(self) -> dict[str, int]:
        """All new numbers, that of the workers under WORKERS."""
        return {**self.tasks} | ({} if self.workers is None else {WORKERS: self.workers})


@dataclass(frozen=True)
class Decision:
    """The change that the load asks for, and the reason of each number that may change."""

    change: Change | None = None
    whys: Mapping[str, str] = field(default_factory=dict)


def bounds_of(plan: Plan) -> dict[str, Between]:
    """The bounds of each component that has some, with its present number of tasks; and of the
    workers, unless each task has a worker of its own."""
    graph = plan.graph
    numbers = {id: component.parallelism for id, component in graph.components.items()}
    bounds = {id: number for id, number in numbers.items() if isinstance(number, Between)}
    if isinstance(workers := graph.config.workers, Between) and plan.layout is Layout.PACK:
        bounds[WORKERS] = Between(workers.least, workers.most, len(plan.workers))
    return bounds


class LoadWindows(NamedTuple):
    """The loads of all components in times that end now."""

    recent: Loads  # says what is busy
    latest: Loads  # at the end of that: says how much load there is
    longer: Loads | None = None  # says what is idle; None: not known yet


def decide(plan: Plan, windows: LoadWindows, held: Collection[str] = ()) -> Decision:
    """Decide from these loads. `held`: numbers that a hand has set."""
    return _Deciding(plan, windows, held).decide()


class _Deciding:
    """One decision."""

    def __init__(self, plan: Plan, windows: LoadWindows, held: Collection[str]) -> None:
        self._plan, self._windows, self._held = plan, windows, held
        self._analysis = LoadAnalysis(plan, windows.recent)
        self._loads = self._analysis.loads
        self._bounds = {id: bounds for id, bounds in bounds_of(plan).items() if id not in held}
        self._demand = {
            id: max(load.demand, windows.latest[id].demand) for id, load in self._loads.items()
        }
        workers = plan.graph.config.workers
        limit = workers.most if isinstance(workers, Between) else workers
        self._workers_max = len(plan.workers) if WORKERS in held else max(len(plan.workers), limit)

    def decide(self) -> Decision:
        """The decision."""
        change: Change | None = None
        limit, why = self._analysis.bottleneck(), ""
        if limit is not None:
            change, why = self._grow(limit)
        elif crowded := self._analysis.crowded_worker():
            change, why = self._more_workers(*crowded)
        elif late := self._analysis.late:
            why = (
                f"{late[0]!r} falls behind by {self._loads[late[0]].growth:,.1f} records a second, "
                "but no component is busy: more tasks would not help"
            )
        else:
            change = self._shrink()
        whys = {id: self._share(id) for id in self._bounds}
        for id in whys if why and change is None else ():
            whys[id] = why if id == limit else f"{whys[id]}; {why}"
        if change is not None:
            whys |= {id: change.why for id in change.numbers if id in whys}
        return Decision(change, whys)

    def _share(self, id: str) -> str:
        if id in self._loads:
            return f"busy {self._loads[id].mean:.2f}"
        total = sum(load.demand for load in self._loads.values())
        return f"busy {total / len(self._plan.workers):.2f}" if id == WORKERS else "not measured"

    # ---- the bottleneck --------------------------------------------------------------------------

    def _grow(self, id: str) -> tuple[Change | None, str]:
        """More tasks of the bottleneck, and the reason, or why not."""
        load, sources = (
            self._loads[id],
            [self._loads[source] for source in self._analysis.sources_of(id)],
        )
        is_busy = f"{id!r} is busy {load.top:.2f}"
        reads = self._plan.graph.components[id].inputs
        if load.mean <= BUSY and not all(isinstance(read.grouping, _EVEN) for read in reads):
            return None, (
                f"a task of {id!r} is busy {load.top:.2f}, but all of them {load.mean:.2f}: a few "
                "keys have most of the load, and more tasks cannot help"
            )
        if (bounds := self._bounds.get(id)) is None:
            fixed = "a hand has set" if id in self._held else "the declaration fixes"
            return None, f"{is_busy} and limits the rest, and {fixed} its number of tasks"
        if bounds >= bounds.most:
            return None, f"{is_busy}, and has the most tasks that are declared"
        catch_up_s = max((source.catch_up_s for source in sources), default=inf)
        if catch_up_s <= _CATCH_UP_MAX_S:
            return None, f"{is_busy}, and its source catches up within {catch_up_s:.0f} s"
        latest = [self._windows.latest[source] for source in self._analysis.sources_of(id)]
        factor = max(_factor(sources), _factor(latest))
        wanted = max(bounds + 1, _tasks_for(self._demand[id] * factor))
        best = self._best(id, min(wanted, bounds.most), factor)
        if best is None:
            return None, (
                f"{is_busy}, and its workers have no time left: more tasks cannot help, more "
                "workers could"
            )
        late = max((source.growth for source in sources if source.falls_behind), default=0.0)
        waits = f"its source falls behind by {late:,.1f} records a second" if late else ""
        waits = waits or f"its inputs wait {load.queue_s:.2f} s"
        return self._growth(*best, f"{id!r} is busy {load.top:.2f}, and {waits}")

    def _growth(
        self, tasks: Mapping[str, int], workers: int | None, why: str
    ) -> tuple[Change, str]:
        why = f"{_numbers(self._plan, tasks, workers)}: {why}"
        return Change(tasks, workers, why), why

    def _more_workers(self, worker: int, share: float) -> tuple[Change | None, str]:
        is_busy = f"worker {worker} is busy {share:.2f} with several tasks, and inputs wait"
        if WORKERS not in self._bounds:
            return None, f"{is_busy}: more workers could help, more tasks could not"
        best = self._best("", 0, 1.0)
        if best is None or best[1] is None:
            return None, f"{is_busy}, and more workers cannot help, or are not declared"
        return self._growth({}, best[1], is_busy)

    # ---- idle components and workers -------------------------------------------------------------

    def _shrink(self) -> Change | None:
        """Fewer tasks of all idle components, and fewer workers, if all had time left."""
        loads = self._windows.longer or {}
        if not loads or any(load.has_backlog or load.top > BUSY for load in loads.values()):
            return None
        idle = {id for id in self._bounds if id in loads and loads[id].mean < IDLE}
        tasks = {id: self._bounds[id].clamp(_tasks_for(self._demand[id])) for id in sorted(idle)}
        tasks = {id: count for id, count in tasks.items() if count < self._bounds[id]}
        share = sum(load.demand for load in loads.values()) / len(self._plan.workers)
        workers = self._fewer_workers(tasks) if share < IDLE else None
        if not (tasks or workers) or self._peak(self._demand, tasks, workers) > BUSY:
            return None
        shares = [f"{id} is busy {loads[id].mean:.2f}" for id in tasks]
        shares += [f"the workers are busy {share:.2f}"] if workers else []
        why = f"{_numbers(self._plan, tasks, workers)}: {', '.join(shares)}"
        return Change(tasks, workers, why)

    def _fewer_workers(self, tasks: Mapping[str, int]) -> int | None:
        if (bounds := self._bounds.get(WORKERS)) is None:
            return None
        counts = range(bounds.clamp(_tasks_for(sum(self._demand.values()))), bounds)
        return next((n for n in counts if self._peak(self._demand, tasks, n) <= TARGET), None)

    # ---- the next plan ---------------------------------------------------------------------------

    def _best(self, id: str, limit: int, factor: float) -> tuple[dict[str, int], int | None] | None:
        """The fewest workers (None: as many as now), and with them the fewest tasks of a component
        up to `limit`, so that the busiest worker has time left, or else as much as possible; None:
        no plan is better than the present one. `factor`: by which all loads grow."""
        demand = {name: tasks * factor for name, tasks in self._demand.items()}
        tasks = {id: limit} if id else {}
        counts: list[int | None] = [None]
        if self._plan.layout is Layout.PACK:
            counts += range(len(self._plan.workers) + 1, self._workers_max + 1)
        chosen, peak = None, inf
        for count in counts:
            if (load := self._peak(demand, tasks, count, id)) < peak - 1e-9:
                chosen, peak = count, load
            if peak <= BUSY:
                break
        if peak >= _GAIN * self._peak(demand, only=id):
            return None
        for number in range(len(self._plan.tasks_of(id)) + 1, limit):
            if self._peak(demand, {id: number}, chosen, id) <= max(peak, TARGET) + 1e-9:
                return {id: number}, chosen
        return tasks, chosen

    def _peak(
        self,
        demand: Mapping[str, float],
        tasks: Mapping[str, int] | None = None,
        workers: int | None = None,
        only: str = "",
    ) -> float:
        """The load of the busiest worker now, or if there were so many `tasks`; ∞: there cannot
        be. `only`: of those workers that have tasks of this component."""
        plan = self._plan
        if tasks is not None:
            try:
                plan = with_counts(plan, tasks)
                plan = placed(plan, replan(plan, workers, self._plan.layout))
            except LifecycleError:
                return inf
        counts = Counter(task.component for task in plan.tasks)
        loads = dict.fromkeys(plan.workers, 0.0)
        for task in plan.tasks:
            loads[task.worker] += demand.get(task.component, 0.0) / counts[task.component]
        return max(loads[t.worker] for t in plan.tasks if not only or t.component == only)


def _factor(sources: Iterable[Load]) -> float:
    """By how much the load of a bottleneck exceeds what it processes, as its sources show it."""
    ratios = [1 + source.growth / max(source.settled, 1e-9) for source in sources]
    return min(max(1.0, *ratios), _FACTOR_MAX) if ratios else _UNKNOWN_FACTOR


def _tasks_for(demand: float) -> int:
    return ceil(demand / TARGET - 1e-9)


def _numbers(plan: Plan, tasks: Mapping[str, int], workers: int | None) -> str:
    """What changes, such as `count: 2 → 4 tasks, workers: 2 → 4`."""
    parts = [f"{id}: {len(plan.tasks_of(id))} → {count} tasks" for id, count in tasks.items()]
    if workers is not None:
        parts.append(f"workers: {len(plan.workers)} → {workers}")
    return ", ".join(parts)


# ---- the state machine ---------------------------------------------------------------------------


class Scaling:
    """The master's part that lets numbers follow the load. Which of them a hand has set is in the
    MasterState."""

    def __init__(self, stored: MasterState) -> None:
        self.views: tuple[ScalingView, ...] = ()  # of the last look
        self._stored = stored
        self._readings: list[Reading] = []
        self._lives: Mapping[int, int] = {}  # worker → life, in these readings
        self._look_s = self._rest_until_s = -inf
        self._wanted: set[str] = set()  # the numbers that are to change, and since when
        self._wanted_since_s = -inf
        self._change = 0  # the number of the last change
        self._failure = ""  # why it did not happen, while that makes it rest

    def is_due(self, plan: Plan, now: float) -> bool:
        """Whether to `look`: some number has bounds, and the last look is long enough ago."""
        return now >= self._look_s and bool(bounds_of(plan))

    def look(self, plan: Plan, snapshot: Snapshot, now: float) -> Change | None:
        """Measure, and return the change that is due now. Sets `views`."""
        unit_s = plan.graph.config.internals.scaling_s
        self._look_s = now + _LOOK * unit_s
        if (why := self._stored.cancelled.get(self._change)) is not None:
            self._change = 0
            self.failed(plan, why, now)
        lives = {worker: stats.incarnation for worker, stats in snapshot.workers.items()}
        disturbance = _disturbance(plan, snapshot)
        if disturbance or lives != self._lives:
            self._readings, self._lives = [], lives
            self._rest_until_s = max(self._rest_until_s, now + _REST * unit_s)
        if not disturbance:
            self._readings.append(Reading.of(snapshot, now))
        latest = self._window(_LATEST * unit_s) or self._readings
        recent, longer = self._window(_GROW * unit_s), self._window(_SHRINK * unit_s)
        self._readings = longer or self._readings
        decision = Decision()
        if len(self._readings) > 1:
            windows = LoadWindows(
                loads_of(recent or self._readings),
                loads_of(latest),
                loads_of(longer) if longer else None,
            )
            decision = decide(plan, windows, self._stored.held)
        rests = now < self._rest_until_s
        self._failure = self._failure if rests else ""
        pause = disturbance or self._failure
        if rests and not pause:
            pause = f"no change for {self._rest_until_s - now:.0f} s: its workers have just begun"
        self.views = tuple(self._views(plan, decision, pause))
        wanted = {*decision.change.numbers} if decision.change is not None else set()
        if not wanted & self._wanted:
            self._wanted_since_s = now
        self._wanted = wanted
        is_steady = now - self._wanted_since_s >= _LASTS * unit_s - 1e-6
        return decision.change if is_steady and not rests and recent is not None else None

    def began(self, plan: Plan, number: int, now: float) -> None:
        """The change that `look` has returned is under way, with that number; 0: it is none."""
        self._change = number
        if not number:
            self.failed(plan, "the tasks cannot be distributed otherwise", now)

    def failed(self, plan: Plan, why: str, now: float) -> None:
        """The change did not happen, and is not tried again for long."""
        self._failure = f"the last change failed: {why.partition(chr(10))[0]}"
        self._rest_until_s = now + _FAILED * plan.graph.config.internals.scaling_s

    def by_hand(
        self,
        plan: Plan,
        workers: int | None,
        tasks: Mapping[str, int],
        auto: bool,
        rebalance: Callable[[], int],
    ) -> int:
        """Rebalance to these numbers, and the layout of `plan`: they no longer follow the load, and
        with `auto` all others do again, unless the change is cancelled. Raises LifecycleError for
        one out of its bounds. Returns what `rebalance` returns."""
        numbers = {**tasks} | ({} if workers is None else {WORKERS: workers})
        bounds = bounds_of(plan)
        for id, number in numbers.items():
            if id in bounds and bounds[id].clamp(number) != number:
                what = f"tasks of {id!r}" if id else "workers"
                raise LifecycleError(
                    f"topology {plan.graph.id!r} cannot have {number} {what}: declared is "
                    f"{bounds[id]!r}; nothing has been changed"
                )
        before, change = (self._stored.held, self._stored.layout), rebalance()
        self._stored.before_hand = {change: before} if change else {}
        held = {id for id in numbers if id in bounds or (bounds and id == WORKERS)}
        self._stored.held = sorted(held | (set() if auto else {*self._stored.held}))
        self._stored.layout = plan.layout
        self._look_s = -inf
        return change

    def forget(self, plan: Plan) -> None:
        """Forget which numbers a hand has set that have no bounds in this plan of new code, and
        its layout."""
        self._stored.layout = plan.layout
        bounds = bounds_of(plan)
        self._stored.held = [id for id in self._stored.held if id in bounds or (bounds and not id)]

    def _window(self, seconds: float) -> list[Reading] | None:
        """The readings of the last `seconds`; None: they do not reach back so far."""
        since_s = self._readings[-1].at_s - seconds + 1e-6 if self._readings else -inf
        old = sum(reading.at_s <= since_s for reading in self._readings)
        return self._readings[old - 1 :] if old else None

    def _views(self, plan: Plan, decision: Decision, pause: str) -> Iterator[ScalingView]:
        wanted = {} if decision.change is None else decision.change.numbers
        for id, bounds in bounds_of(plan).items():
            why = decision.whys.get(id, "not measured yet")
            if id in self._stored.held:
                why = (
                    f"a hand has set it; `sunshower rebalance {plan.graph.id} --auto` lets it "
                    "follow the load again"
                )
            elif pause:
                why = f"{why}; {pause}"
            number = int(bounds)
            yield ScalingView(id, bounds.least, bounds.most, number, wanted.get(id, number), why)


def _disturbance(plan: Plan, snapshot: Snapshot) -> str:
    """Why nothing changes now; "": it may."""
    if snapshot.state != State.ACTIVE:
        return f"the topology is {snapshot.state}"
    if snapshot.silent or any(worker.links for worker in snapshot.workers.values()):
        return "a worker does not answer"
    if snapshot.workers.keys() != {*plan.workers}:
        return "not all workers have reported"
    if snapshot.without_room or snapshot.unplaced:
        return "workers wait for a node, or leave one"
    for task in snapshot.tasks():
        if task.health.wait is not None or task.health.standing is not Standing.RUNNING:
            return f"a task of {task.component!r} waits, or is quarantined"
    if stuck := next(iter(snapshot.stuck.values()), None):
        return f"a call of {stuck.component!r} does not return"
    return ""
