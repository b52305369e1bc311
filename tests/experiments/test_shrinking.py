"""Tests of shrinking: the result is a minimal failing plan."""

from __future__ import annotations

import numpy as np

from sunshower.experiments.fault_kinds import kill, master, pause, task
from sunshower.experiments.fault_plan import Step
from sunshower.experiments.swarm import Steps, shrink
from tests.seeds import seeds

NOISE = [Step(i, kill(task("sink", 0)), i) for i in range(24)]
KILL = Step(7.5, kill(task("relay", 0)), 90)
PAUSE = Step(11.5, pause(master(), 8), 91)


def hidden(*needles: Step) -> list[Step]:
    return sorted([*NOISE, *needles])


def needs(*verbs: str) -> object:
    """Fails when there is a step of each kind of fault, on a relay or the master."""

    def breaks(steps: Steps, messages: int | None) -> bool:
        del messages
        faults = {str(step.fault).split()[0] for step in steps if "sink" not in str(step)}
        return faults >= {*verbs}

    return breaks


def test_one_step_is_found_among_many() -> None:
    shrunk = shrink(hidden(KILL), needs("kill"))  # type: ignore[arg-type]
    assert shrunk.steps == (KILL,)
    assert shrunk.tries < 30


def test_two_steps_that_only_fail_together_are_kept() -> None:
    shrunk = shrink(hidden(KILL, PAUSE), needs("kill", "pause"))  # type: ignore[arg-type]
    assert [str(step.fault).split()[0] for step in shrunk.steps] == ["kill", "pause"]
    assert [step.stream for step in shrunk.steps] == [90, 91]  # each keeps its random stream


def test_the_duration_of_a_fault_is_shortened() -> None:
    def breaks(steps: Steps, messages: int | None) -> bool:
        del messages
        return any(step.fault.for_s >= 0.7 for step in steps)

    (step,) = shrink(hidden(PAUSE), breaks).steps
    assert step.fault.for_s == 1.0


def test_the_number_of_messages_is_reduced_last() -> None:
    def breaks(steps: Steps, messages: int | None) -> bool:
        return KILL in steps and (messages is None or messages >= 20)

    shrunk = shrink(hidden(KILL), breaks, messages=200)
    assert (shrunk.steps, shrunk.messages) == ((KILL,), 25)
    assert shrink(hidden(KILL), breaks).messages is None


def test_a_failure_that_needs_no_fault_is_shrunk_to_an_empty_plan() -> None:
    assert shrink(NOISE, lambda steps, messages: True).steps == ()  # noqa: ARG005


def test_tries_are_bounded_and_the_result_still_fails() -> None:
    calls = []

    def breaks(steps: Steps, messages: int | None) -> bool:
        del messages
        calls.append(len(steps))
        return {KILL, PAUSE} <= {*steps}

    shrunk = shrink(hidden(KILL, PAUSE), breaks, tries_max=5)
    assert shrunk.tries == len(calls) == 5
    assert {KILL, PAUSE} <= {*shrunk.steps}


@seeds(20)
def test_no_step_of_the_result_can_be_left_out(seed: int) -> None:
    dice = np.random.default_rng(seed)
    needed = {NOISE[i] for i in dice.choice(24, size=int(dice.integers(1, 6)), replace=False)}

    def breaks(steps: Steps, messages: int | None) -> bool:
        del messages
        return needed <= {*steps}

    shrunk = shrink(NOISE, breaks, tries_max=1000)
    assert {*shrunk.steps} == needed
