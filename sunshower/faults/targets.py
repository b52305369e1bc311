"""Who is hurt: tasks by name or by lot, workers, the master, nodes; the same on every cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from sunshower.errors import ClusterError, ExperimentError
from sunshower.faults.history import name_of
from sunshower.runtime.cluster import Run
from sunshower.runtime.plan import ACKER, Plan, Task

T = TypeVar("T")


@dataclass(frozen=True)
class Victim:
    """Who it was in the end: a worker, a node, or, if it is neither, the master."""

    label: str
    worker: int | None = None
    node: str | None = None
    tasks: tuple[Task, ...] = ()  # those that were meant


class Target(Protocol):
    """Somebody to be hurt. Frozen; `str` of it is its name."""

    def check(self, plan: Plan) -> None:
        """Raise ExperimentError, saying what there is, if nobody of that name can be found."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> Victim:
        """Settle who it is, in a run whose tasks are where `plan` says."""


@dataclass(frozen=True)
class Tasks:
    """A task of a component (or of the acker), or any of them."""

    component: str
    index: int | None = None

    def check(self, plan: Plan) -> None:
        there = plan.tasks_of(self.component)
        if not there and self.component == ACKER:
            raise ExperimentError("there is no acker to be hurt: the topology has ackers=0")
        check_component(self.component, plan)
        if self.index is not None and not 0 <= self.index < len(there):
            tasks = ", ".join(map(name_of, there))
            raise ExperimentError(f"there is no task {self}; there are: {tasks}")

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> Victim:
        tasks = plan.tasks_of(self.component)
        return victim_of(tasks[self.index] if self.index is not None else lot(tasks, generator))

    def __str__(self) -> str:
        return f"any {self.component}" if self.index is None else f"{self.component}[{self.index}]"


@dataclass(frozen=True)
class Spouts:
    """A task of the named spout; of any, where none is named."""

    component: str | None = None

    def check(self, plan: Plan) -> None:
        spouts = sorted({task.component for task in plan.spouts})
        if self.component is not None and self.component not in spouts:
            raise ExperimentError(
                f"there is no spout {self.component!r}; there are: {', '.join(spouts)}"
            )

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> Victim:
        wanted = [t for t in plan.spouts if self.component in (None, t.component)]
        return victim_of(lot(wanted, generator))

    def __str__(self) -> str:
        return f"any {self.component or 'spout'}"


@dataclass(frozen=True)
class Workers:
    """A worker process, with all its tasks; any of them, where none is named."""

    worker: int | None = None

    def check(self, plan: Plan) -> None:
        if self.worker is not None and self.worker not in plan.workers:
            raise ExperimentError(
                f"there is no worker {self.worker}; there are: {', '.join(map(str, plan.workers))}"
            )

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> Victim:
        worker = lot(plan.workers, generator) if self.worker is None else self.worker
        tasks = tuple(plan.tasks_on(worker))
        return Victim(f"worker {worker}", worker, tasks=tasks)

    def __str__(self) -> str:
        return "any worker" if self.worker is None else f"worker {self.worker}"


@dataclass(frozen=True)
class Master:
    """The master."""

    def check(self, plan: Plan) -> None:
        """There always is one."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> Victim:
        return Victim(str(self))

    def __str__(self) -> str:
        return "the master"


@dataclass(frozen=True)
class Nodes:
    """A machine; any of them, where none is named."""

    node: str | None = None

    def check(self, plan: Plan) -> None:
        """Which machines there are is only known when it runs."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> Victim:
        there = sorted(run.nodes())
        if not there:
            raise ClusterError("no machine runs a worker of this topology at the moment")
        name = lot(there, generator) if self.node is None else self.node
        return Victim(f"node {name}", node=name)

    def __str__(self) -> str:
        return "any node" if self.node is None else f"node {self.node}"


@dataclass(frozen=True)
class Anybody:
    """A spout, a bolt, an acker shard or the master: first the kind is drawn, then who it is."""

    def check(self, plan: Plan) -> None:
        """There always is somebody."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> Victim:
        ackers = plan.tasks_of(ACKER)
        apart = {task.id for task in (*plan.spouts, *ackers)}
        bolts = [task for task in plan.tasks if task.id not in apart]
        kind = lot([k for k in (plan.spouts, bolts, ackers, None) if k != []], generator)
        return (
            Master().draw(run, plan, generator) if kind is None else victim_of(lot(kind, generator))
        )

    def __str__(self) -> str:
        return "anybody"


def task(component: str, index: int) -> Tasks:
    """One task."""
    return Tasks(component, index)


def component(component: str) -> Tasks:
    """Any task of a component."""
    return Tasks(component)


def acker(index: int | None = None) -> Tasks:
    """An acker shard, or any of them."""
    return Tasks(ACKER, index)


def spout(component: str | None = None) -> Spouts:
    """Any task of a spout, or of all spouts."""
    return Spouts(component)


def worker(worker: int | None = None) -> Workers:
    """A worker, or any of them."""
    return Workers(worker)


def master() -> Master:
    """The master."""
    return Master()


def node(node: str | None = None) -> Nodes:
    """A machine, or any of those that run a worker of the topology."""
    return Nodes(node)


def anybody() -> Anybody:
    """Any spout, bolt or acker task, or the master: all kinds alike."""
    return Anybody()


def check_component(component: str, plan: Plan, *others: str) -> None:
    """Raise ExperimentError unless it is a component, the acker, or one of `others`."""
    there = [*plan.graph.components, ACKER, *others]
    if component not in there:
        raise ExperimentError(
            f"there is no component {component!r}; there are: {', '.join(plan.graph.components)}"
            f" (and the ackers, {ACKER!r})"
        )


def victim_of(task: Task) -> Victim:
    """A task, as somebody to be hurt."""
    return Victim(name_of(task), task.worker, tasks=(task,))


def beside(victim: Victim, plan: Plan) -> str:
    """Who shares the fate of a victim's process, in words; empty when nobody does."""
    if victim.worker is None:
        return ""
    others = [task for task in plan.tasks_on(victim.worker) if task not in victim.tasks]
    return f" with {_names(others)}" if others else ""


def lot(things: Sequence[T], generator: np.random.Generator) -> T:
    """Any of them."""
    return things[int(generator.integers(len(things)))]


def _names(tasks: Iterable[Task]) -> str:
    return ", ".join(map(name_of, tasks))
