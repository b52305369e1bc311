"""The kinds of faults: frozen values with a target and a duration.

    kill(target)                          SIGKILL, as a crash would
    pause(target, for_s)                  stops its process, and resumes it
    isolate(target, for_s)                cuts its process off from the master
    slow(target, seconds, for_s)          each record, or report, takes longer
    errors(component, for_s, …)           its user code raises, for some or for chosen records
    away(component, for_s, …)             a dependency of its user code is unavailable
    lossy(source, target, for_s, …)       packets are lost, repeated, delayed or corrupted
    cut(source, target, for_s)            no packet arrives in either direction
    expire()                              all pending tuples time out
    outage(what, down, up, for_s)         something outside of the topology is stopped

A plan may contain any object that implements `Fault`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from sunshower.arguments import SECONDS, check_all
from sunshower.errors import ClusterError, ExperimentError
from sunshower.runtime.cluster import Run
from sunshower.runtime.events.injected_faults import ANY, InjectedFaults, Link, Raise, SlowTask
from sunshower.runtime.plan import ACKER, Plan, Task

_RATES = ("drop", "forget", "repeat", "corrupt", "delay")


# ---- targets -------------------------------------------------------------------------------------

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


# ---- fault kinds ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ActiveFault:
    """A fault that has begun: how to describe and how to end it."""

    words: str  # such as: kill relay[0]
    end: Callable[[Run], None] | None = None  # ends it
    # Combined with those of the other active faults.
    injected: InjectedFaults = field(default_factory=InjectedFaults)
    pauses_master: bool = False  # while it is active, the master answers no call
    paused: str = ""  # the paused process; resumed when its last pause ends
    ask: Callable[[Run], None] | None = None  # a request to the master, once it answers
    end_s: float = math.inf  # when it ends; set by the nemesis


class Fault(Protocol):
    """A fault for a running topology. Frozen; `str` describes it."""

    @property
    def for_s(self) -> float:
        """Its duration; 0 for an instantaneous fault, which has no end."""

    def check(self, plan: Plan) -> None:
        """Raise ExperimentError, before the run, if the plan does not have the target."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        """Begin the fault now, in a run whose tasks are placed as in `plan`.

        Raises ClusterError if the target is not there; the nemesis then tries again. The nemesis
        applies `injected`, combined with that of the other active faults.
        """


@dataclass(frozen=True)
class Kill:
    """Ends a process and all its tasks with SIGKILL; a new process replaces it."""

    target: Target
    for_s: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_all(self, {}, "kill: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        self.target.check(plan)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        chosen = self.target.draw(run, plan, generator)
        with_it = beside_text(chosen, plan)
        if chosen.node is not None:
            run.kill_node(chosen.node)
        elif chosen.worker is not None:
            run.kill_worker(chosen.worker)
        else:
            run.kill_master()
        return ActiveFault(f"kill {chosen.label}{with_it}")

    def __str__(self) -> str:
        return f"kill {self.target}"


@dataclass(frozen=True)
class Expire:
    """Makes all pending tuples time out."""

    for_s: ClassVar[float] = 0.0

    def check(self, plan: Plan) -> None:
        if not plan.graph.config.tracked:
            raise ExperimentError("nothing can expire: the topology has ackers=0")

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        return ActiveFault(str(self), injected=InjectedFaults(expirations=1))

    def __str__(self) -> str:
        return "expire all that is pending"


@dataclass(frozen=True)
class Pause:
    """Stops a process, and resumes it after `for_s`."""

    target: Target
    for_s: float

    def __post_init__(self) -> None:
        check_fault(self)
        if isinstance(self.target, Nodes):
            raise ExperimentError(f"{self}: a node can be killed, not paused; pause its workers")

    def check(self, plan: Plan) -> None:
        self.target.check(plan)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        chosen = self.target.draw(run, plan, generator)
        words = f"pause {chosen.label}{beside_text(chosen, plan)}{lasting(self.for_s)}"
        worker = chosen.worker
        if worker is None:
            run.pause_master()
            return ActiveFault(
                words, lambda run: run.resume_master(), pauses_master=True, paused="the master"
            )
        run.pause_worker(worker)
        return ActiveFault(words, lambda run: run.resume_worker(worker), paused=f"worker {worker}")

    def __str__(self) -> str:
        return f"pause {self.target}{lasting(self.for_s)}"


@dataclass(frozen=True)
class Isolate:
    """Cuts a worker's process off from the master, and connects it again after `for_s`."""

    target: Target
    for_s: float

    def __post_init__(self) -> None:
        check_fault(self)
        if isinstance(self.target, MasterProcess | Nodes | Anybody):
            raise ExperimentError(f"{self}: only a task, a component, an acker or a worker can be")

    def check(self, plan: Plan) -> None:
        self.target.check(plan)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        chosen = self.target.draw(run, plan, generator)
        words = f"isolate {chosen.label}{beside_text(chosen, plan)}{lasting(self.for_s)}"
        workers = () if chosen.worker is None else (chosen.worker,)
        return ActiveFault(words, injected=InjectedFaults(isolated=workers))

    def __str__(self) -> str:
        return f"isolate {self.target}{lasting(self.for_s)}"


@dataclass(frozen=True)
class Slowness:
    """Makes each record take a task `seconds` longer; for an acker, each report."""

    target: Target
    seconds: float
    for_s: float
    is_fault: bool = True

    def __post_init__(self) -> None:
        check_fault(self)
        SlowTask(component=ANY, seconds=self.seconds)  # raises if that is no duration
        if isinstance(self.target, MasterProcess | Nodes | Anybody):
            raise ExperimentError(f"{self}: slow is a task, a component, an acker or a worker")

    def check(self, plan: Plan) -> None:
        self.target.check(plan)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        chosen = self.target.draw(run, plan, generator)
        slows = tuple(
            SlowTask(component=task.component, index=task.index, seconds=self.seconds)
            for task in chosen.tasks
        )
        return ActiveFault(self._words(chosen.label), injected=InjectedFaults(slows=slows))

    def _words(self, who: str) -> str:
        verb = "slow" if self.is_fault else "throttle"
        return f"{verb} {who} by {self.seconds:g} s a record{lasting(self.for_s)}"

    def __str__(self) -> str:
        return self._words(str(self.target))


@dataclass(frozen=True)
class Errors:
    """The fault of `errors` and `away`."""

    error: Raise
    for_s: float

    def __post_init__(self) -> None:
        check_fault(self)

    def check(self, plan: Plan) -> None:
        Tasks(self.error.component, self.error.index).check(plan)
        if self.error.component == ACKER:
            raise ExperimentError(f"{self}: ackers run no user code that could raise")

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        return ActiveFault(str(self), injected=InjectedFaults(raises=(self.error,)))

    def __str__(self) -> str:
        one = self.error
        if one.unavailable:
            number = "" if one.index is None else f"[{one.index}]"
            return f"away: what {one.component}{number} depends on{lasting(self.for_s)}"
        share = "" if one.probability == 1 else f", {one.probability:g} of its records"
        wanted = [f"{name}={value!r}" for name, value in (one.where or {}).items()]
        where = f", where {', '.join(wanted)}" if wanted else ""
        return f"errors in {one.component}{share}{where}{lasting(self.for_s)}"


@dataclass(frozen=True)
class Lossy:
    """The fault of `lossy` and `cut`."""

    links: tuple[Link, ...]
    for_s: float

    def __post_init__(self) -> None:
        check_fault(self)

    def check(self, plan: Plan) -> None:
        for link in self.links:
            for end in (link.source, link.target):
                check_has_component(end, plan, ANY)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        return ActiveFault(str(self), injected=InjectedFaults(links=self.links))

    def __str__(self) -> str:
        link = self.links[0]
        if len(self.links) > 1:
            return f"cut {link.source} ↔ {link.target}{lasting(self.for_s)}"
        rates = {name: rate for name in _RATES if (rate := getattr(link, name))}
        text = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
        if len(rates) > 1 and len(set(rates.values())) == 1:
            text = f"{', '.join(rates)} {next(iter(rates.values())):g} each"
        late = f" by {link.delay_s:g} s" if link.delay else ""
        return f"lossy {link.source} → {link.target}: {text}{late}{lasting(self.for_s)}"


@dataclass(frozen=True)
class Outage:
    """Stops something outside of the topology with `down()`, and restarts it with `up()` after
    `for_s`.

    Both run in the experiment's own process. `up()` is also called if `down()` raises, and once
    more if `up()` raises.
    """

    what: str  # such as: broker 1
    down: Callable[[], object] = field(repr=False)
    up: Callable[[], object] = field(repr=False)
    for_s: float = field(kw_only=True)

    def __post_init__(self) -> None:
        check_fault(self)

    def check(self, plan: Plan) -> None:
        """Accept every plan."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        try:
            self.down()
        except BaseException as error:  # it may be partly down
            try:
                self.up()
            except Exception as second:
                error.add_note(f"and what brings {self.what} back raised, too: {second!r}")
            raise
        return ActiveFault(str(self), self._end)

    def _end(self, run: Run) -> None:
        self.up()

    def __str__(self) -> str:
        return f"outage of {self.what}{lasting(self.for_s)}"


# As plans write them: kill(anybody()), pause(master(), 3).
kill, pause, isolate, slow, expire, outage = Kill, Pause, Isolate, Slowness, Expire, Outage


def throttle(source: Tasks, seconds: float, for_s: float) -> Slowness:
    """Slow a source down that would end too soon; it does not count as a fault."""
    return Slowness(source, seconds, for_s, is_fault=False)


def harmless(fault: Fault) -> bool:
    """Return whether `fault.is_fault` is False: such a step does not count as a fault."""
    return not getattr(fault, "is_fault", True)


def errors(
    component: str,
    *,
    for_s: float,
    probability: float = 1.0,
    where: Mapping[str, Any] | None = None,
) -> Errors:
    """Make a component's user code raise, for a share of its records or for those with `where`."""
    return Errors(Raise(component=component, probability=probability, where=where), for_s)


def away(component: str, *, for_s: float, index: int | None = None) -> Errors:
    """Make a component's user code raise Unavailable for every record.

    A spout's code raises when it is asked for the next record. `index`: only this task.
    """
    rule = Raise(component=component, index=index, unavailable=True)
    return Errors(rule, for_s)


def lossy(
    source: str = ANY,
    target: str = ANY,
    *,
    for_s: float,
    drop: float = 0.0,
    forget: float = 0.0,
    repeat: float = 0.0,
    corrupt: float = 0.0,
    delay: float = 0.0,
    delay_s: float = 0.05,
) -> Lossy:
    """Make the network between the workers of two components bad, in one direction.

    The probabilities are for each packet: `drop`, it does not arrive; `forget`, it arrives, and its
    answer does not; `repeat`, it arrives twice; `corrupt`, with a bit flipped; `delay`, later, on
    average by `delay_s`. Raises ExperimentError if all of them are 0.
    """
    link = Link(
        source=source,
        target=target,
        drop=drop,
        forget=forget,
        repeat=repeat,
        corrupt=corrupt,
        delay=delay,
        delay_s=delay_s,
    )
    if not any(getattr(link, name) for name in _RATES):
        raise ExperimentError(
            f"lossy {source} → {target}: give a probability, such as drop=0.1; there are: "
            f"{', '.join(_RATES)}"
        )
    return Lossy((link,), for_s)


def cut(source: str, target: str, for_s: float) -> Lossy:
    """Cut the network between the workers of two components: packets and answers vanish."""
    there = Link(source=source, target=target, vanish=1.0)
    return Lossy((there, Link(source=target, target=source, vanish=1.0)), for_s)


def check_fault(fault: Fault) -> None:
    """Raise ExperimentError for a field of another type, and a fault that never ends."""
    check_all(fault, {"for_s": SECONDS}, f"{type(fault).__name__.lower()}: ", ExperimentError)


def lasting(for_s: float) -> str:
    """Format the duration of a fault."""
    return f" for {for_s:g} s"
