"""The targets of faults: tasks by name or at random, workers, the master, nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from sunshower.arguments import check_all
from sunshower.errors import ClusterError, ExperimentError
from sunshower.runtime.cluster import Run
from sunshower.runtime.plan import ACKER, Plan, Task

T = TypeVar("T")


@dataclass(frozen=True)
class FaultTarget:
    """The drawn target: a worker, a node, or, if both are None, the master."""

    label: str
    worker: int | None = None
    node: str | None = None
    tasks: tuple[Task, ...] = ()  # the targeted tasks


class Target(Protocol):
    """A target for faults. Frozen; `str` is its name."""

    def check(self, plan: Plan) -> None:
        """Raise ExperimentError if the plan does not have the target."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        """Draw the target in a run whose tasks are placed as in `plan`."""


@dataclass(frozen=True)
class Tasks:
    """A task of a component or of the acker; None: a random one."""

    component: str
    index: int | None = None

    def __post_init__(self) -> None:
        check_all(self, {}, "a task: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        there = plan.tasks_of(self.component)
        if not there and self.component == ACKER:
            raise ExperimentError("there is no acker: the topology has ackers=0")
        check_has_component(self.component, plan)
        if self.index is not None and not 0 <= self.index < len(there):
            tasks = ", ".join(one.name for one in there)
            raise ExperimentError(f"there is no task {self}; there are: {tasks}")

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        tasks = plan.tasks_of(self.component)
        return target_of(tasks[self.index] if self.index is not None else choose(tasks, generator))

    def __str__(self) -> str:
        return f"any {self.component}" if self.index is None else f"{self.component}[{self.index}]"


@dataclass(frozen=True)
class Spouts:
    """A random task of the named spout; None: of any spout."""

    component: str | None = None

    def __post_init__(self) -> None:
        check_all(self, {}, "spout: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        spouts = sorted({task.component for task in plan.spouts})
        if self.component is not None and self.component not in spouts:
            raise ExperimentError(
                f"there is no spout {self.component!r}; there are: {', '.join(spouts)}"
            )

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        wanted = [t for t in plan.spouts if self.component in (None, t.component)]
        return target_of(choose(wanted, generator))

    def __str__(self) -> str:
        return f"any {self.component or 'spout'}"


@dataclass(frozen=True)
class Workers:
    """A worker process with all its tasks; None: a random one."""

    worker: int | None = None

    def __post_init__(self) -> None:
        check_all(self, {}, "worker: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        if self.worker is not None and self.worker not in plan.workers:
            raise ExperimentError(
                f"there is no worker {self.worker}; there are: {', '.join(map(str, plan.workers))}"
            )

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        worker = choose(plan.workers, generator) if self.worker is None else self.worker
        tasks = tuple(plan.tasks_on(worker))
        return FaultTarget(f"worker {worker}", worker, tasks=tasks)

    def __str__(self) -> str:
        return "any worker" if self.worker is None else f"worker {self.worker}"


@dataclass(frozen=True)
class MasterProcess:
    """The master."""

    def check(self, plan: Plan) -> None:
        """Accept every plan: there is always a master."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        return FaultTarget(str(self))

    def __str__(self) -> str:
        return "the master"


@dataclass(frozen=True)
class Nodes:
    """A machine; None: a random one that runs a worker of the topology."""

    node: str | None = None

    def __post_init__(self) -> None:
        check_all(self, {}, "node: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        """Accept every plan: machines are known only at run time."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        there = sorted(run.nodes())
        if not there:
            raise ClusterError("no machine runs a worker of this topology at the moment")
        name = choose(there, generator) if self.node is None else self.node
        return FaultTarget(f"node {name}", node=name)

    def __str__(self) -> str:
        return "any node" if self.node is None else f"node {self.node}"


@dataclass(frozen=True)
class Anybody:
    """A random spout, bolt or acker task or the master, each kind with the same probability."""

    def check(self, plan: Plan) -> None:
        """Accept every plan."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        ackers = plan.tasks_of(ACKER)
        apart = {task.id for task in (*plan.spouts, *ackers)}
        bolts = [task for task in plan.tasks if task.id not in apart]
        kind = choose([k for k in (plan.spouts, bolts, ackers, None) if k != []], generator)
        if kind is None:
            return MasterProcess().draw(run, plan, generator)
        return target_of(choose(kind, generator))

    def __str__(self) -> str:
        return "anybody"


def task(component: str, index: int) -> Tasks:
    """One task."""
    return Tasks(component, index)


def component(component: str) -> Tasks:
    """A random task of a component."""
    return Tasks(component)


def acker(index: int | None = None) -> Tasks:
    """An acker shard; None: a random one."""
    return Tasks(ACKER, index)


# As plans write them: kill(worker(2)), pause(master(), 3).
spout, worker, master, node, anybody = Spouts, Workers, MasterProcess, Nodes, Anybody


def check_has_component(component: str, plan: Plan, *others: str) -> None:
    """Raise ExperimentError unless it is a component, the acker, or one of `others`."""
    there = [*plan.graph.components, ACKER, *others]
    if component not in there:
        raise ExperimentError(
            f"there is no component {component!r}; there are: {', '.join(plan.graph.components)}"
            f" (and the ackers, {ACKER!r})"
        )


def target_of(task: Task) -> FaultTarget:
    """Return a task as a drawn target."""
    return FaultTarget(task.name, task.worker, tasks=(task,))


def beside_text(chosen: FaultTarget, plan: Plan) -> str:
    """Describe the other tasks in the target's process; empty if there are none."""
    if chosen.worker is None:
        return ""
    others = [one.name for one in plan.tasks_on(chosen.worker) if one not in chosen.tasks]
    return f" with {', '.join(others)}" if others else ""


def choose(things: Sequence[T], generator: np.random.Generator) -> T:
    """Return a random element."""
    return things[int(generator.integers(len(things)))]
