"""Tests of outages of external dependencies: they always come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sunshower.errors import ExperimentError, TopologyFailed
from sunshower.experiments.faults.fault_kinds import outage, pause
from sunshower.experiments.faults.fault_plan import Step
from sunshower.experiments.faults.nemesis import Nemesis
from sunshower.experiments.faults.targets import master
from sunshower.runtime.events.event_log import What
from tests.experiments.fakes import FakeRun


def noted(run: FakeRun, words: str) -> Callable[[], None]:
    return lambda: run.note(words)


def test_a_broker_is_taken_down_and_comes_back_in_time() -> None:
    run = FakeRun()
    nemesis = Nemesis(run, 1)
    fault = outage("broker 1", noted(run, "kill"), noted(run, "restart"), for_s=3)
    nemesis.carry_out([Step(1, fault)])
    assert run.done == [(1, "kill"), (4, "restart")]
    assert [(e.what, e.detail) for e in nemesis.entries] == [
        (What.BEGUN, "outage of broker 1 for 3 s"),
        (What.ENDED, "outage of broker 1 for 3 s"),
    ]


def test_a_broker_comes_back_when_the_topology_fails_meanwhile() -> None:
    run = FakeRun(raises=(2, TopologyFailed("no broker answers")))
    fault = outage("broker 1", noted(run, "kill"), noted(run, "restart"), for_s=30)
    with pytest.raises(TopologyFailed):
        Nemesis(run, 1).carry_out([Step(1, fault)])
    assert run.done[-1][1] == "restart"


@pytest.mark.parametrize("for_s", [0, -1, float("inf")])
def test_an_endless_outage_is_refused(for_s: float) -> None:
    with pytest.raises(ExperimentError, match="heals"):
        outage("broker 1", print, print, for_s=for_s)


def test_an_outage_without_up_is_refused() -> None:
    with pytest.raises(ExperimentError, match="brings it back"):
        outage("broker 1", print, None, for_s=1)  # type: ignore[arg-type]


def test_an_error_of_up_is_raised_after_all_faults_have_ended() -> None:
    run = FakeRun()
    tried: list[float] = []

    def broken() -> None:
        tried.append(run.seconds)
        raise OSError("no such broker")

    nemesis = Nemesis(run, 1)
    steps = [
        Step(1, outage("broker 1", noted(run, "kill 1"), broken, for_s=2)),
        Step(1.5, outage("broker 2", noted(run, "kill 2"), noted(run, "restart 2"), for_s=30)),
    ]
    with pytest.raises(OSError, match="no such broker"):
        nemesis.carry_out([*steps, Step(2, pause(master(), 30))])
    assert tried == [3, 3]
    assert sorted(words for _, words in run.done[-2:]) == ["restart 2", "resume the master"]
    assert nemesis.undone == ["the end of outage of broker 1 for 2 s: no such broker"]


def test_up_is_called_when_down_raises() -> None:
    run = FakeRun()

    def half() -> None:
        run.note("kill one of two")
        raise OSError("the other one is not there")

    with pytest.raises(OSError, match="the other one"):
        Nemesis(run, 1).carry_out([Step(1, outage("both", half, noted(run, "up"), for_s=3))])
    assert run.done == [(1, "kill one of two"), (1, "up")]
