"""Plans: iterators of steps, each a fault and its time.

    at(2, kill(task("relay", 0)))                      once
    until(20, every(2, kill(anybody())))               repeatedly, up to a time
    phases((10, every(1, kill(spout()))), quiet(5), (10, at(0, pause(master(), 3))))
    random(0.5, [kill(anybody()), expire()], generator)     at random times
    heapq.merge(one, another)                          both

`every` and `random` are endless: bound them with `until`, `phases`, itertools, or the `hurt_s` of
the experiment. At the end of a plan the nemesis ends all faults.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle, takewhile
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from sunshower.arguments import (
    COUNT,
    NONE,
    SECONDS,
    SECONDS_FROM_0,
    AnyOf,
    Rule,
    check_all,
    checked,
)
from sunshower.errors import ClusterError, ExperimentError, LifecycleError, SunshowerError
from sunshower.experiments.fault_kinds import ActiveFault, Fault, choose, harmless
from sunshower.runtime.cluster import Run
from sunshower.runtime.control.placement import replan
from sunshower.runtime.events.event_log import Entry, What
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.plan import Layout, Plan

STEPS_MAX = 100_000


@dataclass(frozen=True)
class Step:
    """One fault and its time."""

    at_s: float  #: from the start of the run
    fault: Fault
    stream: int = 0  #: of random numbers: seeds the step's generator, with the seed of the run

    def __post_init__(self) -> None:
        check_all(self, {"at_s": SECONDS_FROM_0}, f"{self.fault}: ", ExperimentError)

    def __lt__(self, other: Step) -> bool:
        return self.at_s < other.at_s

    def __str__(self) -> str:
        return f"{self.at_s:.3f} s: {self.fault}"

    def to_fields(self) -> dict[str, Any]:
        """Return plain values, for plan.json."""
        return {"at_s": self.at_s, "fault": str(self.fault), "for_s": self.fault.for_s}


Phase: TypeAlias = tuple[float, Iterable[Step]]  # duration, plan


class _PhaseRule(Rule):
    def allows(self, value: Any) -> bool:
        is_pair = isinstance(value, tuple) and len(value) == 2
        return is_pair and SECONDS_FROM_0.allows(value[0]) and isinstance(value[1], Iterable)

    def __str__(self) -> str:
        return "seconds and a plan: (10, every(1, kill(spout())))"


_PHASE = _PhaseRule()


@checked(ExperimentError, seconds=SECONDS_FROM_0)
def at(seconds: float, fault: Fault) -> Iterator[Step]:
    """One step."""
    return iter((Step(seconds, fault),))


@checked(ExperimentError, seconds=SECONDS, start=AnyOf((SECONDS_FROM_0, NONE)))
def every(seconds: float, *faults: Fault, start: float | None = None) -> Iterator[Step]:
    """Endless, one fault after the other; the first at `start` (default: after `seconds`)."""
    if not faults:
        raise ExperimentError(f"every({seconds:g}): give a fault, as in every(2, kill(anybody()))")
    first = seconds if start is None else start
    return (Step(first + n * seconds, f) for n, f in zip(count(), cycle(faults), strict=False))


@checked(ExperimentError, mean_s=SECONDS)
def random(
    mean_s: float, faults: Sequence[Fault], generator: np.random.Generator
) -> Iterator[Step]:
    """Endless, a random fault at random times, `mean_s` apart on average."""
    if not faults:
        raise ExperimentError("random: there is no fault to choose from")

    def steps() -> Iterator[Step]:
        at_s = 0.0
        while True:
            at_s += float(generator.exponential(mean_s))
            yield Step(at_s, choose(faults, generator))

    return steps()


@checked(ExperimentError, end_s=SECONDS_FROM_0)
def until(end_s: float, plan: Iterable[Step]) -> Iterator[Step]:
    """The steps before `end_s`."""
    # `settle` refuses what is not a step.
    return takewhile(lambda step: not isinstance(step, Step) or step.at_s < end_s, plan)


@checked(ExperimentError, plans=_PHASE)
def phases(*plans: Phase) -> Iterator[Step]:
    """One plan after the other; each has its own time, which begins at 0."""
    starts = np.cumsum([0.0, *(seconds for seconds, _ in plans)]).tolist()
    return (
        replace(step, at_s=start + step.at_s)
        for start, (length, plan) in zip(starts, plans, strict=False)
        for step in until(length, plan)
    )


@checked(ExperimentError, seconds=SECONDS_FROM_0)
def quiet(seconds: float) -> Phase:
    """A phase without faults."""
    return seconds, ()


def settle(plan: Iterable[Step], seconds_max: float, hurt_s: float | None = None) -> list[Step]:
    """Return all steps of a plan before `hurt_s`; each gets its own stream of random numbers.

    Raises ExperimentError for a step that is out of order, for an endless plan, and for faults that
    do not end before `seconds_max`.
    """
    steps: list[Step] = []
    for step in plan if hurt_s is None else until(hurt_s, plan):
        if not isinstance(step, Step):
            raise ExperimentError(
                f"the plan gives {step!r}, which is not a valid step; write at(2, kill(…)) "
                "or every(2, …)"
            )
        if steps and step < steps[-1]:
            raise ExperimentError(
                f"the plan goes back in time, from {steps[-1]} to {step}: join plans with "
                "heapq.merge"
            )
        over_s = step.at_s + step.fault.for_s
        if min(over_s, hurt_s or over_s) >= seconds_max or len(steps) >= STEPS_MAX:
            raise ExperimentError(
                f"the faults do not end within {seconds_max:g} s (seconds_max): step "
                f"{len(steps) + 1} is {step}. Bound the plan with until(end_s, plan), or with "
                "hurt_s of the experiment, or raise seconds_max"
            )
        steps.append(replace(step, stream=len(steps)))
    return steps


# ---- commands ------------------------------------------------------------------------------------
# Plan steps that are commands, not faults: rebalance and drain.
#
#     rebalance(workers, layout, wait_s)    moves tasks
#     drain()                               stops the sources
#
# Both are requests to the master, and the nemesis does not wait for their end: it may have to
# resume a paused worker first.


@dataclass(frozen=True)
class Rebalance:
    """Rebalances; skipped while another rebalance is in progress."""

    workers: int | None = None
    layout: Layout | None = None
    wait_s: float | None = None  # for pending tuples first; None: the message timeout
    for_s: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        rules = {"workers": AnyOf((COUNT, NONE)), "wait_s": AnyOf((SECONDS_FROM_0, NONE))}
        check_all(self, rules, "rebalance: ", ExperimentError)

    def check(self, plan: Plan) -> None:
        try:
            replan(plan, self.workers, self.layout)
        except LifecycleError as error:
            raise ExperimentError(f"{self}: {error}") from None

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        return ActiveFault(str(self), ask=self._ask)

    def _ask(self, run: Run) -> None:
        run.rebalance(self.workers, self.layout, self.wait_s, waits=False)

    def __str__(self) -> str:
        if self.workers is None:
            return f"rebalance{f' to {self.layout}' if self.layout else ''}"
        layout = f", {self.layout}" if self.layout else ""
        return f"rebalance to {self.workers} worker{'s' * (self.workers != 1)}{layout}"


@dataclass(frozen=True)
class Drain:
    """Drains: the sources emit nothing new, and what was emitted is finished."""

    is_fault: ClassVar[bool] = False
    for_s: ClassVar[float] = 0.0

    def check(self, plan: Plan) -> None:
        """Accept every plan."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        return ActiveFault(str(self), ask=lambda run: run.drain())

    def __str__(self) -> str:
        return "drain"


rebalance, drain = Rebalance, Drain  # as plans write them


# ---- nemesis -------------------------------------------------------------------------------------
# The nemesis: carries out a fault plan on a run, and always ends the faults.
#
# It uses the clock of the run, so that it works the same on a simulated and on a real cluster. The
# history has what it did, `undone` what it could not do.

T = TypeVar("T")
_RETRIES_S = 20.0  # for a target that is just starting
_RETRY_S = 0.05
_MOMENT_S = 1e-6  # shorter waits are rounding errors and might never end
_LOOK_S = 0.1  # between two looks at the run


class Nemesis:
    """Carries out the plan of one run. Times are seconds since it was created.

    `emits_max`: the sources are drained when they have emitted so much, or a little more. `look` is
    called with the time every tenth of a second. `entries` has a BEGUN and an ENDED entry for each
    fault, on the cluster's clock.
    """

    def __init__(
        self,
        run: Run,
        seed: int,
        *,
        emits_max: int | None = None,
        look: Callable[[float], None] | None = None,
    ) -> None:
        self.begun_s = run.now()
        self.entries: list[Entry] = []
        self.done: list[Step] = []
        self.undone: list[str] = []  # the steps it could not do, and why
        self.drained = False
        self._run = run
        self.plan = run.plan
        self._seed = seed
        self._emits_max = emits_max
        self._look = look
        self._on: list[ActiveFault] = []
        self._expirations = 0
        self._unsure = False  # whether the run received the last injected faults
        self._asked = False  # the master for a command that may move tasks

    def begin_ahead(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Throttle sources that are to be slow from the start, before they are activated. Returns
        the other steps. Raises as `carry_out`."""
        ahead = [s for s in steps if s.at_s == 0 and harmless(s.fault) and s.fault.for_s]
        for step in ahead:
            self._begin(step, math.inf)
        return [step for step in steps if step not in ahead]

    def carry_out(self, steps: Sequence[Step], hurt_s: float = math.inf) -> bool:
        """Carry out all steps; all faults end at `hurt_s` at the latest. Returns whether the run is
        finished; the remaining steps are then skipped.

        Raises what `Run.wait` and a fault's own functions raise. All faults have ended when this
        returns or raises, or `undone` has the reason.
        """
        waiting = deque(steps)
        try:
            while waiting or self._on:
                ends_s = min((on.end_s for on in self._on), default=math.inf)
                begins_s = waiting[0].at_s if waiting else math.inf
                if self.wait(min(ends_s, begins_s)):
                    self.undone += [f"{step}: the run was finished before" for step in waiting]
                    return True
                if ends_s <= begins_s:
                    self._end(next(on for on in self._on if on.end_s == ends_s))
                else:
                    self._begin(waiting.popleft(), hurt_s)
        finally:
            self._end_all()
        return False

    def wait(self, until_s: float) -> bool:
        """Wait until that time. Returns whether the run is finished; raises as `Run.wait`."""
        while (left_s := until_s - self._now()) > _MOMENT_S:
            looks = self._look is not None or self._emits_max is not None
            if self._run.wait(min(left_s, _LOOK_S) if looks else left_s):
                return True
            if self._look is not None:
                self._look(self._now())
            self._drain_in_time()
        return False

    def _now(self) -> float:
        return self._run.now() - self.begun_s

    def _begin(self, step: Step, hurt_s: float) -> None:
        begun = self._retry(partial(self._start, step), str(step))
        if begun is None:
            return
        at_s, fault = begun
        self.done.append(step)
        self.entries.append(Entry(at_s, What.BEGUN, detail=fault.words))
        if step.fault.for_s:
            end_s = min(self._now() + step.fault.for_s, hurt_s)
            self._on.append(replace(fault, end_s=end_s))
        else:
            self._over(fault)

    def _start(self, step: Step) -> tuple[float, ActiveFault]:
        """Begin a step; each retry has the same generator, and so the same target."""
        at_s = self._run.now()
        generator = np.random.default_rng([self._seed, step.stream])
        if self._asked and not self._master_pauses:
            self.plan = self._run.plan
        fault = step.fault.begin(self._run, self.plan, generator)
        if fault.injected or fault.injected.expirations or fault.ask:
            self._wait_for_master()
            at_s = self._run.now()
        if fault.ask is not None:
            fault.ask(self._run)
            self._asked = True
        if fault.injected or fault.injected.expirations:
            self._inject(fault.injected)
        self._expirations += fault.injected.expirations
        return at_s, fault

    def _end(self, on: ActiveFault) -> None:
        self._on.remove(on)
        try:
            ended = self._retry(partial(self._stop, on), f"the end of {on.words}")
        except BaseException:  # a user's function may raise anything; _end_all ends it
            self._on.append(on)
            raise
        if ended:
            self._over(on)

    def _stop(self, fault: ActiveFault) -> bool:
        held = fault.paused and any(on.paused == fault.paused for on in self._on)
        if fault.end is not None and not held:
            fault.end(self._run)
        if fault.injected:
            self._wait_for_master()
            self._inject()
        return True

    def _wait_for_master(self) -> None:
        while pauses := self._master_pauses:
            self.wait(pauses[0].end_s)
            self._end(pauses[0])

    @property
    def _master_pauses(self) -> list[ActiveFault]:
        return [on for on in self._on if on.pauses_master]

    def _end_all(self) -> None:
        """End all faults, even if one raises; then raise the first error of user functions."""
        raised: Exception | None = None
        while self._on:
            on = (self._master_pauses or self._on)[0]
            try:
                self._end(on)
            except Exception as error:  # the others must be ended, too
                self._on.remove(on)
                self.undone.append(f"the end of {on.words}: {error}")
                raised = raised or (None if isinstance(error, SunshowerError) else error)
        if self._unsure:  # the run may receive it after the last retry
            try:
                self._retry(self._inject, "the end of what may still be on")
            except SunshowerError as error:
                self.undone.append(f"the end of what may still be on: {error}")
        if raised is not None:
            raise raised

    def _inject(self, *more: InjectedFaults) -> None:
        """Send the injected faults of all active faults and `more`."""
        injected_list = [*(on.injected for on in self._on), *more]
        self._unsure = True
        self._run.disturb(
            InjectedFaults(
                tuple(rule for injected in injected_list for rule in injected.raises),
                tuple(slow for injected in injected_list for slow in injected.slows),
                tuple(link for injected in injected_list for link in injected.links),
                self._expirations + sum(injected.expirations for injected in more),
                tuple(sorted({each for injected in injected_list for each in injected.isolated})),
            )
        )
        self._unsure = False

    def _retry(self, act: Callable[[], T], what: str) -> T | None:
        """Retry until it works, the run is finished, or the time is over; then None. A
        LifecycleError is not retried: its cause may be an active fault."""
        give_up_s = self._now() + _RETRIES_S
        while True:
            try:
                return act()
            except LifecycleError as error:
                self.undone.append(f"{what}: {error}")
                return None
            except ClusterError as error:
                reason = error
            if self._run.wait(_RETRY_S) or self._now() >= give_up_s:
                self.undone.append(f"{what}: {reason}")
                return None

    def _over(self, fault: ActiveFault) -> None:
        self.entries.append(Entry(self._run.now(), What.ENDED, detail=fault.words))

    def _drain_in_time(self) -> None:
        """Drain the sources if they have emitted enough. Skipped if the master does not answer."""
        if self._emits_max is None or self._master_pauses:
            return
        try:
            snapshot = self._run.snapshot()
            spouts = {spout.component for spout in self.plan.spouts}
            counts = map(snapshot.component, spouts)
            if sum(of_spout.emitted - of_spout.replayed for of_spout in counts) >= self._emits_max:
                self._run.drain()
                self._emits_max, self.drained = None, True
        except ClusterError:
            return
