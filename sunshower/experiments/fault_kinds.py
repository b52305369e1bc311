"""The kinds of faults: frozen values with a target and a duration.

A plan may contain any object that implements `Fault`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from sunshower.arguments import SECONDS, SECONDS_FROM_0, check_all
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


class _AnyPlan:
    """The base of targets: its fields have the types of their annotations."""

    _noun: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_all(self, {}, f"{self._noun}: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        """Accept every plan: there is always a master, and machines are known at run time only."""


@dataclass(frozen=True)
class Tasks(_AnyPlan):
    """A task of a component or of the acker; None: a random one."""

    component: str
    index: int | None = None
    _noun = "a task"

    def check(self, plan: Plan) -> None:
        tasks = plan.tasks_of(self.component)
        if not tasks and self.component == ACKER:
            raise ExperimentError("there is no acker: the topology has ackers=0")
        check_has_component(self.component, plan)
        if self.index is not None and not 0 <= self.index < len(tasks):
            names = ", ".join(task.name for task in tasks)
            raise ExperimentError(f"there is no task {self}; there are: {names}")

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        tasks = plan.tasks_of(self.component)
        return target_of(tasks[self.index] if self.index is not None else choose(tasks, generator))

    def __str__(self) -> str:
        return f"any {self.component}" if self.index is None else f"{self.component}[{self.index}]"


@dataclass(frozen=True)
class Spouts(_AnyPlan):
    """A random task of the named spout; None: of any spout."""

    component: str | None = None
    _noun = "spout"

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
class Workers(_AnyPlan):
    """A worker process with all its tasks; None: a random one."""

    worker: int | None = None
    _noun = "worker"

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
class MasterProcess(_AnyPlan):
    """The master."""

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        return FaultTarget(str(self))

    def __str__(self) -> str:
        return "the master"


@dataclass(frozen=True)
class Nodes(_AnyPlan):
    """A machine; None: a random one that runs a worker of the topology."""

    node: str | None = None
    _noun = "node"

    def draw(self, run: Run, plan: Plan, generator: np.random.Generator) -> FaultTarget:
        nodes = sorted(run.nodes())
        if not nodes:
            raise ClusterError("no machine runs a worker of this topology at the moment")
        name = choose(nodes, generator) if self.node is None else self.node
        return FaultTarget(f"node {name}", node=name)

    def __str__(self) -> str:
        return "any node" if self.node is None else f"node {self.node}"


@dataclass(frozen=True)
class Anybody(_AnyPlan):
    """A random spout, bolt or acker task or the master, each kind with the same probability."""

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
    if component not in (*plan.graph.components, ACKER, *others):
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
    others = [task.name for task in plan.tasks_on(chosen.worker) if task not in chosen.tasks]
    return f" with {', '.join(others)}" if others else ""


def choose(things: Sequence[T], generator: np.random.Generator) -> T:
    """Return a random element."""
    return things[int(generator.integers(len(things)))]


# ---- fault kinds ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ActiveFault:
    """A fault that has begun: how to describe and how to end it."""

    words: str = ""  # such as: kill relay[0]
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
class ProcessFault:
    """A fault of a drawn process, or of its tasks: `kill` and the other verbs of `_VERBS`."""

    verb: str
    target: Target
    for_s: float = 0.0
    seconds: float | None = None  # `slow`: for each record

    def __post_init__(self) -> None:
        rules = {} if self.verb == "kill" else {"for_s": SECONDS}
        if self.verb in ("slow", "throttle"):
            rules["seconds"] = SECONDS_FROM_0
        check_all(self, rules, f"{self.verb}: ", ExperimentError)
        verb = _VERBS[self.verb]
        if isinstance(self.target, verb.not_of):
            raise ExperimentError(f"{self}: {verb.remedy}")

    @property
    def is_fault(self) -> bool:
        """See `harmless`."""
        return self.verb != "throttle"

    def check(self, plan: Plan) -> None:
        self.target.check(plan)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        chosen = self.target.draw(run, plan, generator)
        begun = _VERBS[self.verb].begin(self, chosen, run)
        beside = beside_text(chosen, plan) if self.seconds is None else ""
        return replace(begun, words=self._words(chosen.label + beside))

    def _words(self, who: str) -> str:
        by = "" if self.seconds is None else f" by {self.seconds:g} s a record"
        return f"{self.verb} {who}{by}{lasting(self.for_s)}"

    def __str__(self) -> str:
        return self._words(str(self.target))


def _begin_kill(_: ProcessFault, chosen: FaultTarget, run: Run) -> ActiveFault:
    if chosen.node is not None:
        run.kill_node(chosen.node)
    elif chosen.worker is not None:
        run.kill_worker(chosen.worker)
    else:
        run.kill_master()
    return ActiveFault()


def _begin_pause(_: ProcessFault, chosen: FaultTarget, run: Run) -> ActiveFault:
    if (worker := chosen.worker) is None:
        run.pause_master()
        return ActiveFault(
            end=lambda run: run.resume_master(), pauses_master=True, paused="the master"
        )
    run.pause_worker(worker)
    return ActiveFault(end=lambda run: run.resume_worker(worker), paused=f"worker {worker}")


def _begin_isolation(_: ProcessFault, chosen: FaultTarget, _run: Run) -> ActiveFault:
    workers = () if chosen.worker is None else (chosen.worker,)
    return ActiveFault(injected=InjectedFaults(isolated=workers))


def _begin_slowness(fault: ProcessFault, chosen: FaultTarget, _run: Run) -> ActiveFault:
    slows = tuple(
        SlowTask(component=task.component, index=task.index, seconds=fault.seconds or 0.0)
        for task in chosen.tasks
    )
    return ActiveFault(injected=InjectedFaults(slows=slows))


class _Verb(NamedTuple):
    """How the fault begins, and the targets that it cannot have."""

    begin: Callable[[ProcessFault, FaultTarget, Run], ActiveFault]  # without its words
    not_of: tuple[type, ...] = ()
    remedy: str = ""


_NO_TASKS = (MasterProcess, Nodes, Anybody)
_SLOW = _Verb(_begin_slowness, _NO_TASKS, "slow is a task, a component, an acker or a worker")
_VERBS = {
    "kill": _Verb(_begin_kill),
    "pause": _Verb(_begin_pause, (Nodes,), "a node can be killed, not paused; pause its workers"),
    "isolate": _Verb(
        _begin_isolation, _NO_TASKS, "only a task, a component, an acker or a worker can be"
    ),
    "slow": _SLOW,
    "throttle": _SLOW,
}


def kill(target: Target) -> ProcessFault:
    """End a process and all its tasks with SIGKILL; a new process replaces it."""
    return ProcessFault("kill", target)


def pause(target: Target, for_s: float) -> ProcessFault:
    """Stop a process, and resume it after `for_s`."""
    return ProcessFault("pause", target, for_s)


def isolate(target: Target, for_s: float) -> ProcessFault:
    """Cut a worker's process off from the master, and connect it again after `for_s`."""
    return ProcessFault("isolate", target, for_s)


def slow(target: Target, seconds: float, for_s: float) -> ProcessFault:
    """Make each record take a task `seconds` longer; for an acker, each report."""
    return ProcessFault("slow", target, for_s, seconds)


def throttle(source: Tasks, seconds: float, for_s: float) -> ProcessFault:
    """Slow a source down that would end too soon; it does not count as a fault."""
    return ProcessFault("throttle", source, for_s, seconds)


def harmless(fault: Fault) -> bool:
    """Return whether `fault.is_fault` is False: such a step does not count as a fault."""
    return not getattr(fault, "is_fault", True)


@dataclass(frozen=True)
class WorkerFault:
    """A fault that workers inject themselves: `errors`, `away`, `lossy`, `cut` and `expire`."""

    verb: str
    where: str  # the rest of the description, without the duration
    injected: InjectedFaults
    for_s: float

    def __post_init__(self) -> None:
        rules = {} if self.injected.expirations else {"for_s": SECONDS}
        check_all(self, rules, f"{self.verb}: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        for rule in self.injected.raises:
            Tasks(rule.component, rule.index).check(plan)
            if rule.component == ACKER:
                raise ExperimentError(f"{self}: ackers run no user code that could raise")
        for link in self.injected.links:
            check_has_component(link.source, plan, ANY)
            check_has_component(link.target, plan, ANY)
        if self.injected.expirations and not plan.graph.config.tracked:
            raise ExperimentError("nothing can expire: the topology has ackers=0")

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        return ActiveFault(str(self), injected=self.injected)

    def __str__(self) -> str:
        return f"{self.verb}{self.where}{lasting(self.for_s)}"


def expire() -> WorkerFault:
    """Make all pending tuples time out."""
    return WorkerFault("expire", " all that is pending", InjectedFaults(expirations=1), 0.0)


def errors(
    component: str,
    *,
    for_s: float,
    probability: float = 1.0,
    where: Mapping[str, Any] | None = None,
) -> WorkerFault:
    """Make a component's user code raise, for a share of its records or for those with `where`."""
    rule = Raise(component=component, probability=probability, where=where)
    share = "" if probability == 1 else f", {probability:g} of its records"
    values = [f"{name}={value!r}" for name, value in (where or {}).items()]
    text = f" in {component}{share}" + (f", where {', '.join(values)}" if values else "")
    return WorkerFault("errors", text, InjectedFaults(raises=(rule,)), for_s)


def away(component: str, *, for_s: float, index: int | None = None) -> WorkerFault:
    """Make a component's user code raise Unavailable for every record.

    A spout's code raises when it is asked for the next record. `index`: only this task.
    """
    rule = Raise(component=component, index=index, unavailable=True)
    text = f": what {component}{'' if index is None else f'[{index}]'} depends on"
    return WorkerFault("away", text, InjectedFaults(raises=(rule,)), for_s)


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
) -> WorkerFault:
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
    rates = {name: rate for name in _RATES if (rate := getattr(link, name))}
    if not rates:
        raise ExperimentError(
            f"lossy {source} → {target}: give a probability, such as drop=0.1; there are: "
            f"{', '.join(_RATES)}"
        )
    text = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
    if len(rates) > 1 and len(set(rates.values())) == 1:
        text = f"{', '.join(rates)} {next(iter(rates.values())):g} each"
    late = f" by {delay_s:g} s" if delay else ""
    where = f" {source} → {target}: {text}{late}"
    return WorkerFault("lossy", where, InjectedFaults(links=(link,)), for_s)


def cut(source: str, target: str, for_s: float) -> WorkerFault:
    """Cut the network between the workers of two components: packets and answers vanish."""
    both = ((source, target), (target, source))
    links = tuple(Link(source=sender, target=receiver, vanish=1.0) for sender, receiver in both)
    return WorkerFault("cut", f" {source} ↔ {target}", InjectedFaults(links=links), for_s)


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
        check_all(self, {"for_s": SECONDS}, "outage: ", ExperimentError)

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


outage = Outage  # as plans write it


def lasting(for_s: float) -> str:
    """Format the duration of a fault; empty for one of a moment."""
    return f" for {for_s:g} s" if for_s else ""
