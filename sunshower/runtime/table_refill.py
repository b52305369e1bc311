"""Fills a task of a table in memory again after the death of its process, from the table's sources.

    open, empty ──the master says how far its sources were──▶ reads them ──all is there──▶ runs

A worker of its own, within the worker of the task, runs what is upstream of the table: its spouts,
and the operators and bolts between them and the table. It sends nothing to other workers, so
nothing else gets these records a second time, and it ends when it has read what the spouts had
drawn after the death: each change that the former process had acked is part of that. All others are
emitted again. Until then the task takes no input, as in an outage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from math import inf
from typing import Any, Protocol

from sunshower.errors import TopologyFailed
from sunshower.runtime.control.component_conditions import Reached
from sunshower.runtime.events.metrics import WorkerStats
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.supervision import Supervision, WaitKind
from sunshower.runtime.tasks.user_code import TaskError
from sunshower.topologies.components import Bolt, Context
from sunshower.topologies.graph import Component, Graph, Level, upstream

_SAY_S = 1.0  # how often it says how far it is
_AGAIN_S = 30.0  # after which it begins again if a source or a bolt cannot be opened
_SLICES = 8  # of its worker, for one of the worker of the task


class Reader(Protocol):
    """What it needs of a Worker."""

    @property
    def has_read_first(self) -> bool: ...
    @property
    def supervisions(self) -> Sequence[Supervision]: ...
    def read_from_start(self, ends: Reached) -> None: ...
    def step(self) -> float | None: ...
    def end_waits(self) -> None: ...
    def stats(self) -> WorkerStats: ...
    def close(self) -> Any: ...


class _Filler(Bolt[Any, None]):
    """Changes the table of one task by the records that reach this task."""

    def __init__(self, table: Any, index: int) -> None:
        """`table`: the OperatorBolt of the task, which is open; all copies have the same."""
        self._table, self._index = table, index

    def __deepcopy__(self, memo: Any) -> _Filler:
        return copy(self)

    def prepare(self, context: Context) -> None:
        self._is_own = context.index == self._index

    def process(self, record: Any) -> None:
        if self._is_own:
            for _ in self._table.expand(record):
                pass

    def flush(self) -> None:
        if self._is_own:
            self._table.flush()


class TableRefill:
    """Fills one task of a table again."""

    def __init__(self, plan: Plan, bolt: BoltTask, make_worker: Callable[[Plan], Reader]) -> None:
        """`make_worker`: of a plan with one worker."""
        self.bolt, self._plan, self._make_worker = bolt, plan, make_worker
        self.sources = plan.component(bolt.task).refills
        self.drawn: Reached = {}  # how far all tasks of the sources were after the death; empty:
        # this is not known yet
        self._worker: Reader | None = None  # None until it is
        self._say_s = self._again_s = -inf

    @property
    def awaits(self) -> tuple[str, ...]:
        """The spouts of which it must know how far they are."""
        return self.sources if self._worker is None else ()

    def step(self, now: float) -> float:
        """Read a part. Returns when to call it again, in seconds; ∞: when something has changed.
        Raises TopologyFailed if a record uses up its attempts."""
        if now >= self._say_s:
            self._say_s = now + _SAY_S
            self.bolt.supervision.hold(WaitKind.FILLING, self._progress(), now)
        if not self.drawn or now < self._again_s:
            return max(self._again_s - now, 0.0) or inf
        worker = self._worker = self._worker or self._begin()
        for _ in range(_SLICES):
            wait_s = worker.step()
            worker.end_waits()
            if any(one.is_quarantined for one in worker.supervisions):
                return self.begin_again(now)
            if worker.has_read_first:
                self.close()
                self.bolt.supervision.end_wait()
                self.bolt.supervision.tried()
                return inf
            if wait_s != 0:
                return _SAY_S if wait_s is None else min(wait_s, _SAY_S)
        return 0.0

    def _begin(self) -> Reader:
        plan = make_plan(_graph_of(self._plan, self.bolt), Layout.PACK)
        ids = {(task.component, task.index): task.id for task in plan.spouts}
        ends = {
            ids[task.component, task.index]: self.drawn[task.id]
            for task in self._plan.tasks
            if task.component in self.sources and self._plan.component(task).level.counts_records
        }
        worker = self._make_worker(plan)
        worker.read_from_start(ends)
        return worker

    def begin_again(self, now: float, error: str = "") -> float:
        """Begin again later, because a source or a bolt raises again and again, the last time this
        `error`. Returns in how many seconds."""
        self.bolt.supervision.hold(WaitKind.FILLING, self._progress(error), now)
        self.close()
        self._again_s = self._say_s = now + _AGAIN_S
        return _AGAIN_S

    @property
    def is_done(self) -> bool:
        """Whether the task runs again."""
        return self.bolt.supervision.wait is not WaitKind.FILLING

    def close(self) -> None:
        """End the reading."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def _progress(self, error: str = "") -> TaskError:
        task, names = self.bolt.task, " and ".join(map(repr, self.sources))
        text = f"it waits until it is known how far spout {names} is"
        if self._worker is not None:
            stats = self._worker.stats()
            read = sum(one.counts.acked for one in stats.tasks if one.component in self.sources)
            text = f"{read:,} records of spout {names} are processed"
            error = error or next(
                (t.health.last[-1].line for t in stats.tasks if t.health.last), ""
            )
        text += f"; the last error: {error}" if error else ""
        return TaskError(task.component, task.index, task.worker, text)


def _graph_of(plan: Plan, bolt: BoltTask) -> Graph:
    """What is upstream of a table's changes, and, in the place of the table, what changes this
    task."""
    graph, table = plan.graph, plan.component(bolt.task)
    reads = table.inputs[:1]
    ids = upstream(graph.components, reads)
    components = {id: _again(graph.components[id], ids) for id in ids}
    filler = _Filler(bolt.bolt, bolt.task.index)
    components[table.id] = Component(
        table.id, Level.PROCESS, filler, table.parallelism, inputs=reads
    )
    config = replace(graph.config, workers=1, ackers=1, trace_share=0.0)
    return replace(graph, components=components, config=config)


def _again(component: Component, ids: Sequence[str]) -> Component:
    """A component for a second reading, beside those with these ids. Raises TopologyFailed for a
    spout that cannot be read again."""
    awaits = tuple(id for id in component.awaits if id in ids)
    component = replace(component, awaits=awaits, windows=0, event_times={})
    if component.level is not Level.LOG:
        return component
    spout = component.instance().from_start()
    if spout is None:
        raise TopologyFailed(
            f"spout {component.id!r}, {type(component.implementation).__name__}, cannot be read "
            "again from its start, to fill a table in memory whose process has died: give that "
            "table a state="
        )
    return replace(component, implementation=spout)
