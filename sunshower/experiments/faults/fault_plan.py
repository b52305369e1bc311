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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle, takewhile
from typing import Any, TypeAlias

import numpy as np

from sunshower.arguments import NONE, SECONDS, SECONDS_FROM_0, AnyOf, Rule, check_all, checked
from sunshower.errors import ExperimentError
from sunshower.experiments.faults.fault_kinds import Fault
from sunshower.experiments.faults.targets import choose

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
    # `settle` refuses what is no step.
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
                f"the plan gives {step!r}, which is no step; write at(2, kill(…)) or every(2, …)"
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
