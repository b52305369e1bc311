"""Tests of fault plans: ordered, repeatable for a seed, and bounded."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import islice

import numpy as np
import pytest

from sunshower.errors import ExperimentError
from sunshower.experiments.fault_kinds import expire, kill, master, pause, task
from sunshower.experiments.fault_plan import Step, at, every, phases, quiet, random, settle, until

A, B = kill(task("relay", 0)), kill(task("sink", 0))
SHORT = pause(master(), 1)


def times(plan: Iterable[Step]) -> list[float]:
    return [round(step.at_s, 6) for step in plan]


def test_every_has_no_end_and_several_faults_take_turns() -> None:
    assert times(islice(every(2, A), 4)) == [2, 4, 6, 8]
    assert times(islice(every(2, A, start=0.5), 3)) == [0.5, 2.5, 4.5]
    assert [step.fault for step in islice(every(1, A, B), 4)] == [A, B, A, B]


def test_each_phase_counts_its_own_time() -> None:
    plan = phases((5, every(2, A)), quiet(10), (5, at(1, B)), (5, at(7, B)))
    assert times(plan) == [2, 4, 16]


def test_plans_are_joined_by_time() -> None:
    both = heapq.merge(until(6, every(2, A)), until(6, every(3, B)), at(4, A))
    assert times(both) == [2, 3, 4, 4]


def test_random_steps_are_the_same_for_a_seed() -> None:
    def draw(seed: int) -> list[Step]:
        return list(islice(random(0.5, [A, B, SHORT], np.random.default_rng(seed)), 400))

    assert draw(1) == draw(1) != draw(2)
    gaps = np.diff([step.at_s for step in draw(1)])
    assert gaps.mean() == pytest.approx(0.5, rel=0.2)
    assert {step.fault for step in draw(1)} == {A, B, SHORT}


def test_each_step_has_its_own_random_stream() -> None:
    assert [step.stream for step in settle(until(9, every(2, A)), 20)] == [0, 1, 2, 3]


def test_an_endless_plan_is_refused_with_advice() -> None:
    for plan in (every(2, A), random(0.5, [A], np.random.default_rng(1))):
        with pytest.raises(ExperimentError, match=r"do not end.*until\(end_s, plan\), or with"):
            settle(plan, 20)
    assert times(settle(every(2, A), 20, hurt_s=5)) == [2, 4]


def test_a_plan_with_too_many_steps_is_endless() -> None:
    def forever() -> Iterable[Step]:
        while True:
            yield Step(1, A)

    with pytest.raises(ExperimentError, match="do not end"):
        settle(forever(), 20)


def test_a_fault_that_outlasts_the_run_is_refused() -> None:
    with pytest.raises(ExperimentError, match="do not end"):
        settle(at(3, pause(master(), 18)), 20)
    assert settle(at(3, pause(master(), 16)), 20)
    assert settle(at(3, pause(master(), 18)), 20, hurt_s=10)  # the pause ends with the plan


def test_a_plan_that_goes_back_in_time_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"back in time, from 4.000 s: .* heapq.merge"):
        settle([*at(4, A), *at(2, B)], 20)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: at(-1, A), "number of seconds"),
        (lambda: every(0, A), "above 0"),
        (lambda: every(2), "give a fault"),
        (lambda: random(0.5, [], np.random.default_rng(1)), "no fault to choose from"),
        (lambda: random(0, [A], np.random.default_rng(1)), "above 0"),
        (lambda: settle([A], 20), "is not a valid step"),  # type: ignore[list-item]
    ],
)
def test_wrong_plans_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ExperimentError, match=message):
        make()


def test_a_step_describes_itself() -> None:
    (step,) = at(1.5, SHORT)
    assert str(step) == "1.500 s: pause the master for 1 s"
    assert step.to_fields() == {"at_s": 1.5, "fault": "pause the master for 1 s", "for_s": 1}
    assert next(at(2, expire())).to_fields()["for_s"] == 0
