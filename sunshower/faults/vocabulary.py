"""The faults: each is a frozen value that says whom it hurts, how, and for how long.

    kill(target)                          SIGKILL, as a crash would
    pause(target, for_s)                  its process stands still, and goes on
    slow(target, seconds, for_s)          each record, or report, takes so much longer
    errors(component, for_s, …)           its user code raises, for some or for chosen records
    away(component, for_s, …)             a dependency of its user code cannot be used
    lossy(source, target, for_s, …)       packets are lost, repeated, late, or with a bit flipped
    cut(source, target, for_s)            nothing arrives, either way
    expire()                              all that is pending now has timed out

A guest of the core brings faults of its own: whatever fits `Fault` can stand in a plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sunshower.errors import ExperimentError
from sunshower.faults.targets import (
    Anybody,
    Master,
    Nodes,
    Target,
    Tasks,
    beside,
    check_component,
)
from sunshower.runtime.cluster import Run
from sunshower.runtime.havoc import ANY, Havoc, Link, Raise, Slow
from sunshower.runtime.plan import ACKER, Plan

_RATES = ("drop", "forget", "repeat", "corrupt", "delay")


@dataclass(frozen=True)
class Hurt:
    """What a fault has done, now that it has begun."""

    words: str  # such as: kill relay[0]
    end: Callable[[Run], None] | None = None  # how to take it back
    havoc: Havoc = field(default_factory=Havoc)  # what the nemesis adds to all else that is on
    deaf: bool = False  # while it is on, the master answers nobody
    holds: str = ""  # who stands still; let go by the last one that holds him
    ask: Callable[[Run], None] | None = None  # what the nemesis asks of the master, once it hears


class Fault(Protocol):
    """Something to be done to a running topology. Frozen; `str` of it are its words."""

    @property
    def for_s(self) -> float:
        """How long it is on; 0 for what is done in a moment and not taken back."""

    def check(self, plan: Plan) -> None:
        """Raise ExperimentError, before anything runs, for what this plan does not have."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        """Do it now, to a run whose tasks are where `plan` says.

        Raises ClusterError when the victim is not there: it is tried again soon. What is in the
        havoc is left to the nemesis: only it knows what else is on.
        """


# ---- done in a moment ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Kill:
    """See `kill`."""

    target: Target
    for_s: float = field(default=0.0, init=False)

    def check(self, plan: Plan) -> None:
        self.target.check(plan)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        victim = self.target.draw(run, plan, generator)
        with_it = beside(victim, plan)
        if victim.node is not None:
            run.kill_node(victim.node)
        elif victim.worker is not None:
            run.kill_worker(victim.worker)
        else:
            run.kill_master()
        return Hurt(f"kill {victim.label}{with_it}")

    def __str__(self) -> str:
        return f"kill {self.target}"


@dataclass(frozen=True)
class Expire:
    """See `expire`."""

    for_s: float = field(default=0.0, init=False)

    def check(self, plan: Plan) -> None:
        if not plan.graph.config.tracked:
            raise ExperimentError("nothing can expire: the topology has ackers=0")

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        return Hurt(str(self), havoc=Havoc(expirations=1))

    def __str__(self) -> str:
        return "expire all that is pending"


# ---- on for a while -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Pause:
    """See `pause`."""

    target: Target
    for_s: float

    def __post_init__(self) -> None:
        check_for_s(self)
        if isinstance(self.target, Nodes):
            raise ExperimentError(f"{self}: a node can be killed, not paused; pause its workers")

    def check(self, plan: Plan) -> None:
        self.target.check(plan)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        victim = self.target.draw(run, plan, generator)
        words = f"pause {victim.label}{beside(victim, plan)}{lasting(self.for_s)}"
        worker = victim.worker
        if worker is None:
            run.pause_master()
            return Hurt(words, lambda run: run.resume_master(), deaf=True, holds="the master")
        run.pause_worker(worker)
        return Hurt(words, lambda run: run.resume_worker(worker), holds=f"worker {worker}")

    def __str__(self) -> str:
        return f"pause {self.target}{lasting(self.for_s)}"


@dataclass(frozen=True)
class Slowness:
    """See `slow`."""

    target: Target
    seconds: float
    for_s: float
    hurts: bool = True

    def __post_init__(self) -> None:
        check_for_s(self)
        Slow(component=ANY, seconds=self.seconds)  # raises where that is no duration
        if isinstance(self.target, Master | Nodes | Anybody):
            raise ExperimentError(f"{self}: slow is a task, a component, an acker or a worker")

    def check(self, plan: Plan) -> None:
        self.target.check(plan)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        victim = self.target.draw(run, plan, generator)
        slows = tuple(
            Slow(component=task.component, index=task.index, seconds=self.seconds)
            for task in victim.tasks
        )
        return Hurt(self._words(victim.label), havoc=Havoc(slows=slows))

    def _words(self, who: str) -> str:
        verb = "slow" if self.hurts else "throttle"
        return f"{verb} {who} by {self.seconds:g} s a record{lasting(self.for_s)}"

    def __str__(self) -> str:
        return self._words(str(self.target))


@dataclass(frozen=True)
class Errors:
    """See `errors` and `away`."""

    error: Raise
    for_s: float

    def __post_init__(self) -> None:
        check_for_s(self)

    def check(self, plan: Plan) -> None:
        Tasks(self.error.component, self.error.index).check(plan)
        if self.error.component == ACKER:
            raise ExperimentError(f"{self}: ackers run no user code that could raise")

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        return Hurt(str(self), havoc=Havoc(raises=(self.error,)))

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
    """See `lossy` and `cut`."""

    links: tuple[Link, ...]
    for_s: float

    def __post_init__(self) -> None:
        check_for_s(self)

    def check(self, plan: Plan) -> None:
        for link in self.links:
            for end in (link.source, link.target):
                check_component(end, plan, ANY)

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> Hurt:
        return Hurt(str(self), havoc=Havoc(links=self.links))

    def __str__(self) -> str:
        link = self.links[0]
        if len(self.links) > 1:
            return f"cut {link.source} ↔ {link.target}{lasting(self.for_s)}"
        rates = {name: rate for name in _RATES if (rate := getattr(link, name))}
        said = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
        if len(rates) > 1 and len(set(rates.values())) == 1:
            said = f"{', '.join(rates)} {next(iter(rates.values())):g} each"
        late = f" by {link.delay_s:g} s" if link.delay else ""
        return f"lossy {link.source} → {link.target}: {said}{late}{lasting(self.for_s)}"


# ---- what a plan is written with ----------------------------------------------------------------


def kill(target: Target) -> Kill:
    """End a process with SIGKILL, and all tasks in it; a new one takes its place."""
    return Kill(target)


def pause(target: Target, for_s: float) -> Pause:
    """Stop a process where it stands, and let it go on after `for_s`."""
    return Pause(target, for_s)


def slow(target: Target, seconds: float, for_s: float) -> Slowness:
    """Each record takes a task `seconds` longer; of an acker, each report."""
    return Slowness(target, seconds, for_s)


def throttle(source: Tasks, seconds: float, for_s: float) -> Slowness:
    """The same of a source that would be done too soon: that hurts nobody, and proves nothing."""
    return Slowness(source, seconds, for_s, hurts=False)


def harmless(fault: Fault) -> bool:
    """Whether it says `hurts = False`: a run in which nothing else was done proves nothing."""
    return not getattr(fault, "hurts", True)


def errors(
    component: str,
    *,
    for_s: float,
    probability: float = 1.0,
    where: Mapping[str, Any] | None = None,
) -> Errors:
    """A component's user code raises, for some of its records, or for those with these fields."""
    return Errors(Raise(component=component, probability=probability, where=where), for_s)


def away(component: str, *, for_s: float, index: int | None = None) -> Errors:
    """A dependency of a component is away: its user code raises Unavailable for every record.

    So does a spout's code, when it is asked for the next record. `index`: of one task alone.
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
    """A bad network from one component's workers to another's; see runtime/havoc.py.

    Raises ExperimentError when all its probabilities are 0: that would hurt nobody.
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
    """Nothing gets through between two components' workers, either way."""
    there = Link(source=source, target=target, drop=1.0)
    return Lossy((there, Link(source=target, target=source, drop=1.0)), for_s)


def expire() -> Expire:
    """All that is pending at this moment has timed out."""
    return Expire()


def check_for_s(fault: Fault) -> None:
    """Raise ExperimentError for a fault that is never taken back."""
    if not 0 < fault.for_s < math.inf:
        raise ExperimentError(
            f"{fault}: for_s is {fault.for_s}, but it is a number of seconds above 0; what never "
            "heals proves nothing"
        )


def lasting(for_s: float) -> str:
    """The end of a fault's words."""
    return f" for {for_s:g} s"
