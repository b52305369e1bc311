"""An overview of one topology for a client that does not have its code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.events.metrics import Snapshot, TaskStats, WorkerStats
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.supervision import Supervision
from sunshower.topologies.graph import Graph
from sunshower.topologies.groupings import describe
from sunshower.topologies.retry import LetterStore

if TYPE_CHECKING:
    from sunshower.runtime.tasks.spouts.spout_task import SpoutTask


@dataclass(frozen=True)
class Edge:
    """One subscription of the graph, without user code."""

    source: str
    stream: str
    target: str
    grouping: str  # as in the DSL: `fields(word)`


@dataclass(frozen=True)
class Overview:
    """Plan, statistics and processes of a topology at one moment."""

    plan: Plan  # without user code
    snapshot: Snapshot
    error: str | None  # why it failed
    since_s: float  # when it was submitted, in Unix time
    processes: Mapping[int, tuple[str, int]]  # worker → node, process id
    edges: tuple[Edge, ...] = ()  # in declared order
    letters: Mapping[str, LetterStore | None] = field(default_factory=dict)  # bolt that reads dead
    # letters → where it writes them; None: that is not known

    @staticmethod
    def of(
        plan: Plan,
        snapshot: Snapshot,
        error: str | None,
        since_s: float,
        processes: Mapping[int, tuple[str, int]],
    ) -> Overview:
        """With what the graph of a plan says."""
        facts = snapshot, error, since_s, processes
        return Overview(without_code(plan), *facts, edges_of(plan.graph), letter_stores(plan.graph))

    def reached_from(self, sources: Collection[str]) -> set[str]:
        """The components that a record of these can reach."""
        reached: set[str] = set()
        frontier = [*sources]
        while frontier:
            here = frontier.pop()
            targets = {edge.target for edge in self.edges if edge.source == here} - reached
            reached |= targets
            frontier += targets
        return reached


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """Every subscription of a graph, by bolt in declared order."""
    return tuple(
        Edge(read.source, read.stream, bolt.id, describe(read.grouping))
        for bolt in graph.bolts
        for read in bolt.inputs
    )


def letter_stores(graph: Graph) -> dict[str, LetterStore | None]:
    """Where the bolts that read dead letters write them, by bolt."""
    return {
        bolt.id: find(bolt.parallelism)
        if callable(find := getattr(bolt.implementation, "__sunshower_letter_store__", None))
        and not isinstance(bolt.implementation, type)
        else None
        for bolt in graph.bolts
        if bolt.reads_dead_letters
    }


def without_code(plan: Plan) -> Plan:
    """The plan without user code, for clients that cannot import that code."""
    bare = {
        id: replace(component, implementation=None, streams={}, inputs=())
        for id, component in plan.graph.components.items()
    }
    return replace(plan, graph=replace(plan.graph, components=bare), streams=())


# ---- component conditions ------------------------------------------------------------------------
# The conditions of a topology's components, which the master collects and sends to all workers.
#
# A task alone cannot distinguish a bug from an unclassified outage, nor poison from doubt: that
# depends on other tasks of its component, and on former lives. A spout must know whether a
# component downstream waits for a dependency, because its deadlines are held meanwhile.

_SLOW_PART = 0.25  # of the message timeout: a component with a longer queue wait is named
_STEP = 1.5  # … and updated when the wait changes by this factor


# Spout task → how many records were drawn for certain, and below which number all drawn ones are.
Reached: TypeAlias = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Conditions:
    """What workers must know about components that may run elsewhere."""

    proven: frozenset[str] = frozenset()  # have succeeded, in any task and life
    filled: frozenset[str] = frozenset()  # spouts whose tables have all that there was at first
    waiting: frozenset[str] = frozenset()  # a task of it waits for a dependency, or is in doubt
    succeeding: frozenset[str] = frozenset()  # a task of it is in doubt, and another one succeeds
    # (component, task): surely in doubt, and no other task of the component succeeds
    in_doubt: frozenset[tuple[str, int]] = frozenset()
    # (worker, life) with tables to be filled again → how far their sources were when their workers
    # knew of this life
    drawn: Mapping[tuple[int, int], Reached] = field(default_factory=dict)
    is_cut: bool = False  # a worker is silent, or two workers do not reach each other
    slowest: tuple[str, float] = ("", 0.0)  # where tuples wait longest, and for about how long


class ConditionTracker:
    """Derives the conditions from the workers' statistics."""

    def __init__(self, plan: Plan, stored: MasterState) -> None:
        self._spouts = {spout.component for spout in plan.spouts}
        self._awaited = {id: {task.id for task in plan.tasks_of(id)} for id in plan.graph.awaited}
        self._tables = plan.graph.refilled
        refilled_from = {id for name in self._tables for id in plan.graph.components[name].refills}
        self._sources = {id: {task.id for task in plan.tasks_of(id)} for id in refilled_from}
        self._timeout_s = plan.graph.config.message_timeout_s
        self._stored = stored
        # component in doubt → its tasks that do not wait → their first statistics since then, which
        # may be older than the doubt, and their acks in the next ones (None: not yet reported)
        self._doubted: dict[str, dict[int, tuple[TaskStats, int | None]]] = {}
        self.now = Conditions(frozenset(stored.proven), frozenset(stored.filled))

    def look(self, stats: Mapping[int, WorkerStats]) -> None:
        """Update the conditions from the latest statistics of all workers."""
        tasks = [task for worker in stats.values() for task in worker.tasks]
        self._stored.proven.update(task.component for task in tasks if self._has_succeeded(task))
        filled = {task.task for task in tasks if task.has_filled}
        self._stored.filled.update(id for id, awaited in self._awaited.items() if awaited <= filled)
        waits = [(t.component, t.task, t.health.wait) for t in tasks if t.health.wait is not None]
        doubts = [wait for wait in waits if wait[2].kind is WaitKind.DOUBT]
        succeeding = self._find_succeeding(tasks, {name for name, _, _ in doubts})
        self.now = Conditions(
            frozenset(self._stored.proven),
            frozenset(self._stored.filled),
            frozenset(name for name, _, _ in waits),
            frozenset(succeeding),
            frozenset((n, id) for n, id, wait in doubts if wait.sure and n not in succeeding),
            drawn=self._find_drawn(stats),
            slowest=self._find_slowest(tasks),
        )

    def _find_drawn(self, stats: Mapping[int, WorkerStats]) -> dict[tuple[int, int], Reached]:
        """For each life that waits for it: how far the sources of its tables are. What its former
        life had processed was drawn before."""
        reached: dict[tuple[int, int], Reached] = {}
        for waiting in stats.values() if self._tables else ():
            place = waiting.worker, waiting.incarnation
            tables = (task for task in waiting.tasks if task.component in self._tables)
            if not (sources := {spout for task in tables for spout in task.awaits}):
                continue
            drawn = {
                task.task: (self._stored.drawn.get(task.task, 0), task.owed)
                for worker in stats.values()
                if worker.lives.get(waiting.worker, 0) >= waiting.incarnation
                for task in worker.tasks
                if task.component in sources
            }
            expected = {task for id in sources for task in self._sources[id]}
            if place in self.now.drawn or expected <= drawn.keys():
                reached[place] = self.now.drawn.get(place, drawn)
        return reached

    def _has_succeeded(self, task: TaskStats) -> bool:
        is_spout = task.component in self._spouts
        return bool(task.counts.emitted if is_spout else task.counts.acked)

    def _find_succeeding(self, tasks: Iterable[TaskStats], doubted: set[str]) -> set[str]:
        for component in self._doubted.keys() - doubted:
            del self._doubted[component]
        others: dict[str, list[TaskStats]] = {component: [] for component in doubted}
        for task in tasks:
            if task.component in doubted and task.health.wait is None:
                others[task.component].append(task)
        return {component for component in doubted if self._acks_grow(component, others[component])}

    def _acks_grow(self, component: str, tasks: Iterable[TaskStats]) -> bool:
        """Whether one of these tasks has acked anything since the component is in doubt."""
        before, self._doubted[component] = self._doubted.get(component, {}), {}
        grow = False
        for task in tasks:
            first, acked = before.get(task.task, (task, None))
            if acked is None and task is not first:
                acked = task.counts.acked
            if acked is not None:
                grow |= task.counts.acked > acked
                acked = min(task.counts.acked, acked)  # a new life begins at 0
            self._doubted[component][task.task] = first, acked
        return grow

    def _find_slowest(self, tasks: Iterable[TaskStats]) -> tuple[str, float]:
        waits = {task.component: 0.0 for task in tasks}
        for task in tasks:
            waits[task.component] = max(waits[task.component], task.queue_s)
        component, wait_s = max(waits.items(), key=lambda entry: entry[1], default=("", 0.0))
        if wait_s < self._timeout_s * _SLOW_PART:
            return "", 0.0
        last, last_s = self.now.slowest
        if component == last and last_s / _STEP < wait_s < last_s * _STEP:
            return self.now.slowest
        return component, wait_s


def apply(
    conditions: Conditions,
    plan: Plan,
    spouts: Iterable[SpoutTask],
    supervisions: Iterable[Supervision],
    now: float,
) -> None:
    """Apply the conditions to the tasks of a worker and to the deadlines of its spouts."""
    for supervision in supervisions:
        supervision.proven |= supervision.task.component in conditions.proven
        supervision.others_succeed = supervision.task.component in conditions.succeeding
        doubting = {id for name, id in conditions.in_doubt if name == supervision.task.component}
        supervision.others_doubt = bool(doubting - {supervision.task.id})
    component, wait_s = conditions.slowest
    slowest = (
        f"tuples wait longest before {component!r}, about {wait_s:.0f} s: give it more tasks, "
        "make it faster, or raise message_timeout_s"
    )
    for spout in spouts:
        reached = plan.graph.downstream(spout.task.component)
        waits = not reached.isdisjoint(conditions.waiting)
        spout.wait_for(plan.component(spout.task).awaits, conditions.filled)
        spout.deadlines.hold(conditions.is_cut or waits, now)
        spout.deadlines.slowest = slowest if component in reached else ""
