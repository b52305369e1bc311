"""Tests of whole experiments on simulated clusters, some with a defect put into the core."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from sunshower.experiments.checkers import (
    AtLeastOnce,
    BoundedPending,
    Duplicates,
    EachEdgeOnce,
    Liveness,
    NoPrematureAck,
    Recovers,
)
from sunshower.experiments.event_history import History, from_lines, to_lines
from sunshower.experiments.experiment import Experiment, carry_out, prepare, relayed, run_experiment
from sunshower.experiments.fault_kinds import (
    acker,
    anybody,
    component,
    expire,
    harmless,
    kill,
    master,
    pause,
    spout,
    task,
)
from sunshower.experiments.fault_plan import Step, at, drain, every, random, rebalance, until
from sunshower.experiments.outcome import Outcome, Verdict
from sunshower.experiments.swarm import Steps, shrink, swarm
from sunshower.runtime.plan import Layout
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.runtime.tracking.ledger import Ledger, SettledTrees
from sunshower.simulation.cluster import SimCluster

EXPERIMENT = Experiment(
    name="kill a relay",
    topology=lambda messages: relayed(messages, rate=200, parallelism=2),
    plan=lambda: at(0.2, kill(component("relay"))),
    checkers=(
        AtLeastOnce(),
        NoPrematureAck(),
        EachEdgeOnce(),
        BoundedPending(),
        Liveness(within_s=20),
        Recovers(within_s=20),
        Duplicates(),
    ),
    parameters={"messages": 80},
)


def run(experiment: Experiment, seed: int) -> tuple[Outcome, History]:
    with SimCluster(seed) as cluster:
        return run_experiment(experiment, cluster, seed)


def summary(outcome: Outcome) -> str:
    """The outcome as text, for the message of a failed assertion."""
    lines = [f"seed {outcome.seed}: {outcome.verdict}, {outcome.error}", *outcome.undone]
    for finding in outcome.findings:
        lines += [f"{finding.checker} {finding.verdict}", *finding.reasons, *finding.evidence]
    return "\n".join(lines)


def test_all_checks_hold_after_a_relay_is_killed() -> None:
    with_replays = 0
    for seed in range(6):
        outcome, _ = run(EXPERIMENT, seed)
        assert outcome.verdict is Verdict.HOLDS, summary(outcome)
        assert outcome.figures["kills"] == 1
        with_replays += outcome.figures["replays"] > 0
    assert with_replays


@pytest.mark.long
def test_all_checks_hold_after_a_relay_is_killed_with_a_hundred_seeds() -> None:
    for seed in range(100):
        outcome, _ = run(EXPERIMENT, seed)
        assert outcome.verdict is Verdict.HOLDS, summary(outcome)


@pytest.mark.parametrize("seed", range(3))
def test_all_checks_hold_after_many_random_faults(seed: int) -> None:
    def random_faults(generator: np.random.Generator) -> Iterator[Step]:
        faults = [kill(spout()), kill(acker()), kill(anybody()), pause(master(), 0.2), expire()]
        return until(0.4, random(0.05, faults, generator))

    outcome, history = run(replace(EXPERIMENT, plan=random_faults), seed)
    assert outcome.verdict is Verdict.HOLDS, summary(outcome)
    assert len(history.faults) == outcome.figures["faults"] > 2


@pytest.mark.parametrize("seed", range(4))
def test_a_rebalance_works_while_a_worker_is_paused(seed: int) -> None:
    """Only the nemesis resumes the worker, so the nemesis must not wait for the rebalance."""

    def plan() -> Iterator[Step]:
        moves = at(0.15, rebalance(2, Layout.PACK, wait_s=0.05))
        late = heapq.merge(at(0.9, kill(component("relay"))), at(1.0, drain()))
        return heapq.merge(at(0.1, pause(task("relay", 0), 0.5)), moves, late)

    parameters = {"messages": 300}
    outcome, history = run(replace(EXPERIMENT, plan=plan, parameters=parameters), seed)
    assert outcome.verdict is Verdict.HOLDS, summary(outcome)
    assert not outcome.undone
    pause_band, move_band = history.faults[:2]
    assert move_band.begun_s < 0.2
    assert pause_band.ended_s == pytest.approx(0.6, abs=0.01)
    assert outcome.figures["messages"] < 300


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (list(to_lines(run(EXPERIMENT, 3)[1])) for _ in range(2))
    assert first == second


def test_the_history_of_a_run_can_be_written_and_read_again() -> None:
    _, history = run(EXPERIMENT, 1)
    again = from_lines(to_lines(history), tasks=history.tasks)
    assert list(to_lines(again)) == list(to_lines(history))


def test_a_sample_keeps_whole_trees() -> None:
    experiment = replace(EXPERIMENT, sample=4)
    outcome, _ = run(experiment, 1)
    assert outcome.verdict is Verdict.HOLDS, summary(outcome)
    (finding,) = (f for f in outcome.findings if f.checker == "no-premature-ack")
    assert 10 < finding.figures["trees"] < 40


def test_an_acker_that_completes_on_start_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(ledger: Ledger, roots: U64, xors: U64) -> SettledTrees:
        del ledger, xors
        return SettledTrees(roots, NO_IDS)

    monkeypatch.setattr(Ledger, "start", complete)
    outcome, _ = run(EXPERIMENT, 1)
    findings = {finding.checker: finding for finding in outcome.findings}
    assert findings["no-premature-ack"].verdict is Verdict.BROKEN
    assert "message" in findings["no-premature-ack"].evidence[0]
    assert outcome.verdict is Verdict.BROKEN


def test_swarms_hold() -> None:
    hold = 0
    for seed in range(8):
        prepared = prepare(swarm(lambda: relayed(60), seed), seed)
        with SimCluster(seed, nodes=2) as cluster:
            outcome, _ = carry_out(prepared, cluster)
        assert outcome.verdict is not Verdict.BROKEN, summary(outcome)
        hold += outcome.verdict is Verdict.HOLDS
    assert hold >= 6, "in most swarms a fault must begin while the topology has work"


def test_a_swarm_without_its_faults_is_unknown() -> None:
    prepared = prepare(swarm(lambda: relayed(60), 0), 0)
    gentle = [step for step in prepared.steps if harmless(step.fault)]
    less = prepared.shortened([*gentle, Step(0.05, drain())], None)
    with SimCluster(0) as cluster:
        outcome, _ = carry_out(less, cluster)
    assert gentle, "its sources are throttled"
    assert outcome.verdict is Verdict.UNKNOWN, summary(outcome)
    assert outcome.figures["completed"] > 0


def test_a_failing_plan_is_shrunk_to_the_necessary_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core is changed to treat failures as completions: one kill of a relay breaks it."""

    def complete(spout: SpoutTask, roots: U64, why: object, now: float) -> None:
        del why
        spout.complete(roots, now)

    def plan() -> Iterator[Step]:
        masters = until(0.4, every(0.05, pause(master(), 0.02), kill(master())))
        return heapq.merge(masters, at(0.21, kill(component("relay"))))

    monkeypatch.setattr(SpoutTask, "failed", complete)
    experiment = replace(EXPERIMENT, plan=plan)

    def breaks(seed: int, steps: Steps | None = None, messages: int | None = None) -> bool:
        prepared = prepare(experiment, seed)
        if steps is not None:
            prepared = prepared.shortened(steps, messages)
        with SimCluster(seed) as cluster:
            return carry_out(prepared, cluster)[0].verdict is Verdict.BROKEN

    seed = next(seed for seed in range(20) if breaks(seed))
    shrunk = shrink(prepare(experiment, seed).steps, partial(breaks, seed))
    assert [str(step.fault) for step in shrunk.steps] == ["kill any relay"]
