"""Tests of fault kinds and targets: their effects, descriptions and errors."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from sunshower.errors import ExperimentError
from sunshower.experiments.experiment import relayed
from sunshower.experiments.fault_kinds import (
    Fault,
    Target,
    acker,
    anybody,
    away,
    component,
    cut,
    errors,
    expire,
    kill,
    lossy,
    master,
    node,
    outage,
    pause,
    slow,
    spout,
    task,
    worker,
)
from sunshower.experiments.fault_plan import drain, rebalance
from sunshower.runtime.plan import Layout, make_plan
from tests.experiments.fakes import FakeRun

DICE = np.random.default_rng(7)


def words(fault: Fault, run: FakeRun | None = None) -> str:
    run = run or FakeRun()
    return fault.begin(run, run.plan, DICE).words


@pytest.mark.parametrize(
    ("target", "action"),
    [
        (task("relay", 1), "kill worker 3"),
        (acker(0), "kill worker 6"),
        (worker(5), "kill worker 5"),
        (master(), "kill the master"),
        (node("far"), "kill node far"),
    ],
)
def test_kill_ends_the_process_of_its_target(target: Target, action: str) -> None:
    run = FakeRun()
    kill(target).check(run.plan)
    kill(target).begin(run, run.plan, DICE)
    assert run.done == [(0, action)]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (component("relay"), {"relay[0]", "relay[1]"}),
        (acker(), {"__acker[0]", "__acker[1]"}),
        (spout(), {"numbers[0]", "numbers[1]"}),
        (spout("numbers"), {"numbers[0]", "numbers[1]"}),
        (worker(), {f"worker {number}" for number in range(8)}),
        (node(), {"node far", "node near"}),
    ],
)
def test_an_unnamed_target_is_drawn(target: Target, names: set[str]) -> None:
    target.check(FakeRun().plan)
    assert {words(kill(target)) for _ in range(100)} == {f"kill {name}" for name in names}


def test_anybody_draws_each_kind_equally_often() -> None:
    drawn = [words(kill(anybody())) for _ in range(400)]
    assert {"kill the master", "kill relay[1]", "kill __acker[0]", "kill numbers[1]"} < {*drawn}
    assert 50 < drawn.count("kill the master") < 150


def test_other_tasks_of_the_process_are_named() -> None:
    graph = relayed(workers=1, ackers=1).graph()
    run = FakeRun(make_plan(graph, Layout.PACK))
    assert (
        words(kill(task("relay", 0)), run) == "kill relay[0] with numbers[0], sink[0], __acker[0]"
    )


def test_the_same_seed_draws_the_same_target() -> None:
    def drawn() -> list[str]:
        run = FakeRun()
        dice = map(np.random.default_rng, range(20))
        return [kill(anybody()).begin(run, run.plan, rng).words for rng in dice]

    assert drawn() == drawn()
    assert len(set(drawn())) > 1


def test_a_pause_ends() -> None:
    run = FakeRun()
    for target in (task("sink", 0), master()):
        active = pause(target, 2).begin(run, run.plan, DICE)
        assert active.end is not None
        active.end(run)
    assert [action for _, action in run.done] == [
        "pause worker 4",
        "resume worker 4",
        "pause the master",
        "resume the master",
    ]


FAULTS: list[Fault] = [
    kill(component("relay")),
    pause(master(), 2),
    slow(task("relay", 1), 0.01, 5),
    slow(worker(6), 0.01, 5),
    slow(acker(0), 0.01, 5),
    errors("relay", for_s=5),
    errors("relay", for_s=5, probability=0.1),
    errors("relay", for_s=5, where={"key": 3}),
    away("relay", for_s=5),
    away("relay", for_s=5, index=1),
    lossy("relay", for_s=5, drop=0.1, delay=0.2, delay_s=0.3),
    lossy(for_s=1, drop=0.1, forget=0.1),
    lossy(for_s=1, drop=0.1, forget=0.2),
    cut("relay", "sink", 5),
    expire(),
    rebalance(1, wait_s=2),
    rebalance(layout=Layout.ISOLATE),
    drain(),
]


def test_faults_describe_themselves_and_what_they_inject(approved: SnapshotAssertion) -> None:
    """The nemesis injects them, together with all other active faults."""
    run, described = FakeRun(), {}
    for fault in FAULTS:
        if not isinstance(fault, rebalance):  # one worker is too few for this plan
            fault.check(run.plan)
        described[str(fault)] = fault.begin(run, run.plan, DICE).injected.to_fields()
    assert described == approved
    assert [action.split()[0] for _, action in run.done] == ["kill", "pause"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (kill(task("rely", 0)), "no component 'rely'; there are: numbers, relay, sink"),
        (kill(task("relay", 2)), r"no task relay\[2\]; there are: relay\[0\], relay\[1\]"),
        (kill(acker(2)), r"no task __acker\[2\]; there are: __acker\[0\], __acker\[1\]"),
        (kill(spout("relay")), "no spout 'relay'; there are: numbers"),
        (kill(worker(8)), "no worker 8; there are: 0, 1, 2"),
        (errors("rely", for_s=1), "no component 'rely'"),
        (away("relay", for_s=1, index=2), r"no task relay\[2\]"),
        (errors("__acker", for_s=1), "ackers run no user code"),
        (lossy("rely", for_s=1, drop=1), "no component 'rely'"),
        (rebalance(3), "rebalance to 3 workers: in the layout isolate"),
        (cut("relay", "snik", 1), "no component 'snik'"),
    ],
)
def test_an_unknown_target_is_refused_with_the_known_ones(fault: Fault, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        fault.check(FakeRun().plan)


def test_without_ackers_an_acker_is_refused() -> None:
    plan = make_plan(relayed(ackers=0).graph(), Layout.ISOLATE)
    for fault in (kill(acker()), expire()):
        with pytest.raises(ExperimentError, match="ackers=0"):
            fault.check(plan)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: errors("relay", for_s=1, probability=2), "errors: probability is 2"),
        (lambda: lossy(for_s=1, drop=2), "the network: drop is 2"),
        (lambda: lossy("relay", for_s=1), "give a probability, such as drop"),
        (lambda: slow(task("relay", 0), -1, 1), "slow: seconds is -1"),
        (lambda: pause(node(), 1), "pause its workers"),
        (lambda: slow(master(), 1, 1), "slow is a task"),
        (lambda: rebalance(0), "rebalance: workers is 0"),
        (
            lambda: outage("a", print, None, for_s=1),  # type: ignore[arg-type]
            "up is None; give a function",
        ),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], Fault], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        make()


@pytest.mark.parametrize("for_s", [0, -1, math.inf, math.nan])
def test_a_fault_without_end_is_refused(for_s: float) -> None:
    for make in (
        lambda: pause(master(), for_s),
        lambda: slow(task("relay", 0), 0.1, for_s),
        lambda: errors("relay", for_s=for_s),
        lambda: cut("relay", "sink", for_s),
        lambda: outage("broker 1", print, print, for_s=for_s),
    ):
        with pytest.raises(
            ExperimentError, match=r"for_s is .*; it must be a number of seconds above 0"
        ):
            make()
