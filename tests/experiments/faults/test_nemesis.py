"""Tests of the nemesis on a fake run: the order of its actions, and that faults always end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from sunshower.errors import ClusterError, TopologyFailed
from sunshower.experiments.fault_kinds import (
    anybody,
    cut,
    errors,
    expire,
    kill,
    master,
    outage,
    pause,
    slow,
    task,
    throttle,
)
from sunshower.experiments.fault_plan import Nemesis, Step, drain, every, rebalance, settle, until
from sunshower.runtime.events.event_log import What
from tests.experiments.fakes import FakeRun

RELAY = task("relay", 0)


def entries_of(nemesis: Nemesis) -> list[tuple[float, str, str]]:
    return [
        (round(e.at_s - nemesis.begun_s, 6), e.what.name.lower(), e.detail) for e in nemesis.entries
    ]


def run_steps(*steps: Step, **how: Any) -> tuple[FakeRun, Nemesis]:
    """A fake run, made as `how` says, and the nemesis that carried out these steps on it."""
    run = FakeRun(**how)
    nemesis = Nemesis(run, 1)
    nemesis.carry_out(steps)
    return run, nemesis


def test_steps_are_done_at_their_times() -> None:
    run = FakeRun()
    nemesis = Nemesis(run, 1)
    assert not nemesis.carry_out(settle(until(5, every(2, kill(RELAY))), 20))
    assert run.done == [(2, "kill worker 2"), (4, "kill worker 2")]
    assert entries_of(nemesis) == [
        (2, "begun", "kill relay[0]"),
        (2, "ended", "kill relay[0]"),
        (4, "begun", "kill relay[0]"),
        (4, "ended", "kill relay[0]"),
    ]
    assert nemesis.undone == []


def test_only_throttles_begin_before_the_source_is_activated() -> None:
    run = FakeRun()
    nemesis = Nemesis(run, 1)
    steps = [
        Step(0, throttle(task("numbers", 0), 0.01, 2)),
        Step(0, slow(RELAY, 0.01, 1)),
        Step(0, drain()),
    ]
    assert nemesis.begin_ahead(steps) == steps[1:]
    run.activate()
    nemesis.carry_out(steps[1:])
    assert [words for _, words in run.done] == [
        *("disturb", "activate", "disturb", "drain", "disturb", "heal")
    ]
    assert [step.fault for step in nemesis.done] == [step.fault for step in steps]
    assert entries_of(nemesis)[-1] == (2, "ended", "throttle numbers[0] by 0.01 s a record for 2 s")


TWICE = (1, 3), (2, 1), (3.5, 2)
SCENARIOS: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "pauses end in time, and the plan waits for it": (
        [Step(1, pause(RELAY, 3)), Step(2, pause(master(), 1))],
        {},
    ),
    "a worker paused twice is resumed when both pauses are over": (
        [Step(at_s, pause(RELAY, for_s)) for at_s, for_s in TWICE],
        {},
    ),
    "a master paused twice is resumed when both pauses are over": (
        [Step(at_s, pause(master(), for_s)) for at_s, for_s in TWICE],
        {},
    ),
    "injected faults wait while the master is paused": (
        [
            Step(1, slow(RELAY, 0.01, 2)),
            Step(2, pause(master(), 3)),
            Step(2.5, kill(RELAY)),
            Step(4, expire()),
        ],
        {},
    ),
    "a target that is starting is tried again": ([Step(1, kill(anybody()))], {"away": 3}),
    "a target that never starts is reported and the plan continues": (
        [Step(1, kill(RELAY)), Step(2, pause(RELAY, 1))],
        {"away": 403},
    ),
    "a finished run gets no more faults": (
        [Step(1, pause(RELAY, 30)), Step(5, kill(RELAY))],
        {"ends_s": 3},
    ),
    "a rebalance is not waited for while a worker is paused": (
        [Step(1, pause(RELAY, 3)), Step(2, rebalance(3)), Step(2.5, drain())],
        {},
    ),
    "a rebalance waits until the master is not paused": (
        [Step(1, pause(master(), 3)), Step(2, rebalance(3))],
        {},
    ),
    "injected faults without an answer are withdrawn": (
        [Step(1, errors("sink", for_s=1))],
        {"away": 401},
    ),
}


@pytest.mark.parametrize(("steps", "how"), SCENARIOS.values(), ids=SCENARIOS)
def test_a_plan_is_carried_out(
    steps: list[Step], how: dict[str, Any], approved: SnapshotAssertion
) -> None:
    run, nemesis = run_steps(*steps, **how)
    assert {
        "done": [(round(at_s, 6), words) for at_s, words in run.done],
        "entries": entries_of(nemesis),
        "undone": nemesis.undone,
        "expirations": run.injected_list[-1].expirations if run.injected_list else 0,
    } == approved


def test_active_faults_are_combined() -> None:
    run, _ = run_steps(
        Step(1, slow(RELAY, 0.01, 3)),
        Step(2, errors("sink", for_s=1)),
        Step(2.5, expire()),
        Step(5, cut("relay", "sink", 1)),
        Step(5.5, expire()),
    )
    active = [(len(h.slows), len(h.raises), len(h.links), h.expirations) for h in run.injected_list]
    assert active == [
        (1, 0, 0, 0),
        (1, 1, 0, 0),
        (1, 1, 0, 1),
        (1, 0, 0, 1),
        (0, 0, 0, 1),
        (0, 0, 2, 1),
        (0, 0, 2, 2),
        (0, 0, 0, 2),
    ]
    assert not run.injected_list[-1]


def test_all_faults_end_at_hurt_s() -> None:
    run = FakeRun()
    Nemesis(run, 1).carry_out([Step(1, pause(RELAY, 30))], hurt_s=4)
    assert run.done[-1] == (4, "resume worker 2")


@pytest.mark.parametrize("error", [TopologyFailed("it gave up"), ClusterError("it is gone")])
def test_faults_end_when_the_run_fails(error: Exception) -> None:
    run = FakeRun(raises=(2, error))
    nemesis = Nemesis(run, 1)
    with pytest.raises(type(error)):
        nemesis.carry_out([Step(1, pause(RELAY, 30)), Step(1.5, errors("sink", for_s=30))])
    assert [words for _, words in run.done[-2:]] == ["resume worker 2", "heal"]
    assert [what for _, what, _ in entries_of(nemesis)][-2:] == ["ended", "ended"]


def test_a_fault_that_cannot_end_is_reported_and_the_others_end() -> None:
    run = FakeRun(raises=(2, TopologyFailed("it gave up")), refuses="resume worker 2")
    nemesis = Nemesis(run, 1)
    with pytest.raises(TopologyFailed):
        nemesis.carry_out([Step(1, pause(RELAY, 30)), Step(1.5, pause(master(), 30))])
    assert nemesis.undone == ["the end of pause relay[0] for 30 s: it gave up"]
    assert run.done[-1] == (2, "resume the master")
    assert sum(entry.what is What.ENDED for entry in nemesis.entries) == 1


def test_an_endless_source_is_drained_when_it_has_emitted_enough() -> None:
    run = FakeRun()

    def emit() -> None:
        run.emitted = int(run.seconds * 100)

    run.watch = emit
    nemesis = Nemesis(run, 1, emits_max=150)
    nemesis.carry_out([Step(5, kill(RELAY))])
    assert run.done[0] == (pytest.approx(1.5), "drain")
    assert [words for _, words in run.done] == ["drain", "kill worker 2"]
    assert nemesis.drained


def test_the_nemesis_calls_look_while_it_waits() -> None:
    seen: list[float] = []
    Nemesis(FakeRun(), 1, look=seen.append).wait(0.3)
    assert seen == pytest.approx([0.1, 0.2, 0.3])


def test_targets_are_drawn_from_the_plan_after_a_rebalance() -> None:
    run = FakeRun()
    nemesis = Nemesis(run, 1)
    before = run.plan.tasks_of("sink")[1].worker
    nemesis.carry_out([Step(1, rebalance(1)), Step(2, kill(task("sink", 1)))])
    after = run.plan.tasks_of("sink")[1].worker
    assert run.done[-1] == (2, f"kill worker {after}")
    assert after != before


def test_a_lifecycle_error_is_reported_and_not_retried() -> None:
    run = FakeRun()
    run.refuses_moves = True
    nemesis = Nemesis(run, 1)
    nemesis.carry_out([Step(1, pause(RELAY, 3)), Step(2, rebalance(3)), Step(3, kill(RELAY))])
    assert nemesis.undone == ["2.000 s: rebalance to 3 workers: it is rebalancing"]
    assert [at_s for at_s, _ in run.done] == [1, 3, 4]


def test_the_same_seed_draws_the_same_targets() -> None:
    def killed(seed: int, away: int) -> list[str]:
        run = FakeRun(away=away)
        Nemesis(run, seed).carry_out(settle(until(40, every(2, kill(anybody()))), 50))
        return [words for _, words in run.done]

    assert killed(1, 0) == killed(1, 5) != killed(2, 0)  # however often it has to be tried


def test_waiting_ends_with_its_time_or_with_the_run() -> None:
    assert not Nemesis(FakeRun(), 1).wait(10)
    run = FakeRun(ends_s=3)
    assert Nemesis(run, 1).wait(math.inf)
    assert run.seconds == 3


def test_a_fault_whose_end_meets_the_end_of_the_run_is_tried_once_more() -> None:
    run = FakeRun(raises=(1.52, TopologyFailed("it gave up")))
    nemesis = Nemesis(run, 1)
    run.watch = lambda: setattr(run, "away", 1 if run.seconds == 1.5 else 0)  # one call fails
    with pytest.raises(TopologyFailed):
        nemesis.carry_out([Step(1, pause(RELAY, 0.5))])
    assert run.done[-1][1] == "resume worker 2"


# ---- outages of external systems -----------------------------------------------------------------


def note_call(run: FakeRun, words: str) -> Callable[[], None]:
    return lambda: run.note(words)


def test_a_broker_is_taken_down_and_comes_back_in_time() -> None:
    run = FakeRun()
    nemesis = Nemesis(run, 1)
    fault = outage("broker 1", note_call(run, "kill"), note_call(run, "restart"), for_s=3)
    nemesis.carry_out([Step(1, fault)])
    assert run.done == [(1, "kill"), (4, "restart")]
    words = "outage of broker 1 for 3 s"
    assert entries_of(nemesis) == [(1, "begun", words), (4, "ended", words)]


def test_an_error_of_up_is_raised_after_all_faults_have_ended() -> None:
    run = FakeRun()
    tried: list[float] = []

    def broken() -> None:
        tried.append(run.seconds)
        raise OSError("no such broker")

    nemesis = Nemesis(run, 1)
    steps = [
        Step(1, outage("broker 1", note_call(run, "kill 1"), broken, for_s=2)),
        Step(
            1.5, outage("broker 2", note_call(run, "kill 2"), note_call(run, "restart 2"), for_s=30)
        ),
    ]
    with pytest.raises(OSError, match="no such broker"):
        nemesis.carry_out([*steps, Step(2, pause(master(), 30))])
    assert tried == [3, 3]
    assert sorted(words for _, words in run.done[-2:]) == ["restart 2", "resume the master"]
    assert nemesis.undone == ["the end of outage of broker 1 for 2 s: no such broker"]


def test_up_is_called_when_down_raises() -> None:
    run = FakeRun()

    def down() -> None:
        run.note("kill one of two")
        raise OSError("the other one is not there")

    with pytest.raises(OSError, match="the other one"):
        Nemesis(run, 1).carry_out([Step(1, outage("both", down, note_call(run, "up"), for_s=3))])
    assert run.done == [(1, "kill one of two"), (1, "up")]
