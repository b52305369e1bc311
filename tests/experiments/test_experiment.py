"""Tests of experiments: checks before the run, and the outcome of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sunshower import Topology
from sunshower.errors import ClusterError, ExperimentError, TopologyFailed
from sunshower.experiments.checkers import (
    AtLeastOnce,
    BoundedPending,
    Checker,
    Duplicates,
    Liveness,
    Recovers,
)
from sunshower.experiments.experiment import (
    Experiment,
    Sink,
    combinations,
    numbers,
    prepare,
    relayed,
    run_experiment,
)
from sunshower.experiments.fault_kinds import component, kill, pause, worker
from sunshower.experiments.fault_plan import Step, at, every, random, until
from sunshower.experiments.outcome import Verdict
from sunshower.runtime.plan import Layout
from tests.experiments.fakes import FakeCluster, FakeRun
from tests.experiments.scripts import Script


def topology(tuples: int, ackers: int) -> Topology:
    return relayed(tuples, ackers=ackers)


def plan(every_s: float) -> Iterator[Step]:
    return until(10, every(every_s, kill(component("relay"))))


def checkers(limit: int) -> list[Checker]:
    return [AtLeastOnce(written=False), BoundedPending(limit), Liveness()]


EXPERIMENT = Experiment(
    name="kill a relay",
    topology=topology,
    plan=plan,
    checkers=checkers,
    parameters={"tuples": 3, "ackers": 1, "every_s": 2.0, "limit": 8},
    sweep={"ackers": [1, 2], "every_s": [1.0, 2.0, 4.0]},
)


def refused(message: str, parameters: dict[str, Any] | None = None, **changes: Any) -> None:
    with pytest.raises(ExperimentError, match=message):
        prepare(replace(EXPERIMENT, **changes), 1, parameters)


# ---- checks before the run ----------------------------------------------------------------------


def test_functions_are_called_with_the_parameters_they_name() -> None:
    prepared = prepare(EXPERIMENT, 1, {"every_s": 3.0, "ackers": 2})
    assert [step.at_s for step in prepared.steps] == [3, 6, 9]
    assert prepared.plan.graph.config.ackers == 2
    assert prepared.parameters == {"tuples": 3, "ackers": 2, "every_s": 3.0, "limit": 8}
    assert prepared.checkers[1] == BoundedPending(8)
    assert prepared.facts.total == 3


def test_the_plan_gets_a_generator_with_the_seed() -> None:
    def drawn(generator: np.random.Generator, every_s: float) -> Iterator[Step]:
        return until(20, random(every_s, [kill(worker()), kill(component("sink"))], generator))

    experiment = replace(EXPERIMENT, plan=drawn)
    assert prepare(experiment, 1).steps == prepare(experiment, 1).steps
    assert prepare(experiment, 1).steps != prepare(experiment, 2).steps


def test_a_sweep_is_every_combination() -> None:
    variants = [*combinations(EXPERIMENT.sweep)]
    assert len(variants) == 6
    assert variants[0] == {"ackers": 1, "every_s": 1.0}
    assert [*combinations({})] == [{}]


@pytest.mark.parametrize("checker", [Liveness(110), Recovers(110)])
def test_a_time_limit_beyond_the_run_is_refused(checker: Checker) -> None:
    """The pause ends at 10 s: a run of at most 119 s cannot exceed a limit of 110 s after it."""
    message = f"{checker.name} within 110 s .* over at 10 s.* 119 s. Set seconds_max to 120 or more"
    refused(message, checkers=[checker], plan=at_ten, seconds_max=119.0)
    prepare(replace(EXPERIMENT, checkers=[checker], plan=at_ten, seconds_max=120.0), 1)
    refused("over at 4 s", checkers=[checker], plan=at_ten, seconds_max=113.0, hurt_s=4.0)


def at_ten() -> Iterator[Step]:
    yield Step(2, pause(worker(), 8))


def test_the_number_of_messages_can_be_given() -> None:
    assert prepare(replace(EXPERIMENT, messages=7)).facts.total == 7
    assert prepare(replace(EXPERIMENT, messages=lambda tuples: 2 * tuples)).facts.total == 6


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    refused("no parameter 'speed'; there are: tuples, ackers", {"speed": 1})
    with pytest.raises(ExperimentError, match="no parameter 'speed'"):
        replace(EXPERIMENT, sweep={"speed": [1]})


def test_a_setting_that_no_function_takes_is_refused() -> None:
    message = r"'limit' is set, but changes nothing: none of its functions \(topology, plan\)"
    refused(message, {"limit": 9}, checkers=[Liveness()])
    prepare(replace(EXPERIMENT, checkers=[Liveness()]), 1, {"limit": 8})  # the default

    def with_others(**others: Any) -> list[Checker]:
        return [BoundedPending(others["limit"])]

    assert prepare(replace(EXPERIMENT, checkers=with_others), 1, {"limit": 9}).checkers == (
        BoundedPending(9),
    )


def test_an_error_in_a_function_of_the_experiment_names_its_role_and_shows_its_line() -> None:
    def plan() -> Iterator[Step]:
        yield from at(1, kill(worker(0)))
        raise KeyError("absent")

    def topology() -> Topology:
        raise ValueError("no topology")

    refused(r"its plan raised KeyError: 'absent'\nTraceback(?s:.*)in plan", plan=plan)
    refused(r"its topology raised ValueError: no topology\nTraceback", topology=topology)


def test_wrong_experiments_are_refused_before_the_run() -> None:
    def with_timeout(timeout_s: float) -> Topology:
        return relayed(message_timeout_s=timeout_s)

    refused(
        "its topology wants 'timeout_s', which is not one of its parameters", topology=with_timeout
    )
    refused("it must return a Topology", topology=lambda: 1)
    refused("do not end within 120 s", plan=lambda: every(2, kill(worker(0))))
    refused("there is no worker 7", plan=lambda: at(1, kill(worker(7))))
    refused("seconds_max is 0", seconds_max=0)
    refused("the topology needs time to recover", hurt_s=120.0)
    refused("sample is 0", sample=0)
    refused("layout is 'pack'; give one of Layout: ISOLATE, PACK", layout="pack")
    refused("is not a valid checker; give an instance", checkers=[AtLeastOnce])
    refused("is not a valid checker; give an instance", checkers=lambda: ["at-least-once"])


@pytest.mark.parametrize("returned", [None, iter([AtLeastOnce()])], ids=["nothing", "an iterator"])
def test_checkers_that_are_no_list_are_refused(returned: Any) -> None:
    refused("what its checkers return is .*; give a list of checkers", checkers=lambda: returned)


def test_an_endless_plan_is_bounded_by_the_experiment() -> None:
    prepared = prepare(replace(EXPERIMENT, plan=lambda: every(2, kill(worker(0))), hurt_s=5))
    assert [step.at_s for step in prepared.steps] == [2, 4]


# ---- one run ------------------------------------------------------------------------------------


def fake(**how: Any) -> FakeRun:
    """A run whose history completes all three messages within 5 s."""
    script = Script()
    script.at_s = 50.0
    script.whole(0).emitted(1).wait(4).completed(1).whole(2)
    return FakeRun(entries=script.entries, **how)


def test_one_run_from_the_submit_to_the_verdicts() -> None:
    run = fake(ends_s=7)
    cluster = FakeCluster(run)
    outcome, history = run_experiment(EXPERIMENT, cluster, 1)
    assert cluster.submitted == [("relayed", Layout.ISOLATE, False, 1)]
    assert run.stopped
    assert [words for _, words in run.done] == ["activate"] + ["kill worker 1"] * 3
    assert outcome.verdict is Verdict.HOLDS
    assert [finding.checker for finding in outcome.findings] == [
        "at-least-once",
        "bounded-pending",
        "liveness",
    ]
    assert outcome.seconds == 7
    assert outcome.undone == ("8.000 s: kill any relay: the run was finished before",)
    assert [band.begun_s for band in history.faults] == [2, 4, 6]
    recovered = [
        (recovery.begun_s, recovery.recovered_s and round(recovery.recovered_s, 1))
        for recovery in outcome.recoveries
    ]
    assert recovered == [(2, 4.0), (4, 4.0), (6, 6.0)]
    assert outcome.figures["kills"] == 3
    assert outcome.figures["completed"] == outcome.figures["messages"] == 3
    assert outcome.figures["latency_p50_s"] == pytest.approx(0.008)
    assert outcome.figures["latency_p99_s"] == pytest.approx(4, abs=0.1)
    assert history.begun_s == 50


@pytest.mark.parametrize("error", [TopologyFailed("it gave up"), ClusterError("Ray is gone")])
def test_a_run_that_gives_up_or_whose_cluster_is_lost_is_unknown(error: Exception) -> None:
    run = fake(raises=(3, error))
    outcome, _ = run_experiment(EXPERIMENT, FakeCluster(run), 1)
    assert (outcome.error, outcome.verdict) == (str(error), Verdict.UNKNOWN)
    assert run.stopped


def test_a_run_that_does_not_end_is_stuck() -> None:
    run = fake()
    outcome, _ = run_experiment(EXPERIMENT, FakeCluster(run), 1)
    assert outcome.seconds == EXPERIMENT.seconds_max
    assert outcome.error is not None
    assert outcome.error.startswith("it is not finished after 120 s: nothing is pending, but the")
    verdicts = {finding.checker: finding.verdict for finding in outcome.findings}
    assert verdicts["liveness"] is Verdict.BROKEN
    assert verdicts["at-least-once"] is Verdict.UNKNOWN


def test_a_history_that_is_lost_proves_nothing() -> None:
    run = fake(ends_s=7)

    def gone() -> list[Any]:
        raise ClusterError("the files are gone")

    run.history = gone  # type: ignore[method-assign]
    outcome, history = run_experiment(EXPERIMENT, FakeCluster(run), 1)
    assert history.cut == "the history is lost: the files are gone"
    assert outcome.verdict is Verdict.UNKNOWN


def test_an_endless_source_is_drained_after_messages_max() -> None:
    run = fake(ends_s=7)
    run.emitted = 50
    experiment = replace(EXPERIMENT, messages_max=40, checkers=[Duplicates()])
    run_experiment(experiment, FakeCluster(run), 1)
    assert (0.1, "drain") in [(round(at_s, 6), words) for at_s, words in run.done]


def test_the_outcome_is_plain_values() -> None:
    outcome, _ = run_experiment(EXPERIMENT, FakeCluster(fake(ends_s=7)), 1)
    fields = outcome.to_fields()
    assert fields["verdict"] == "HOLDS"
    assert fields["recoveries"][0]["fault"] == "kill relay[0]"
    assert fields["parameters"]["tuples"] == 3


def test_the_total_is_known_only_for_a_single_numbers_source() -> None:
    def two() -> Topology:
        both = Topology("two")
        both.spout("a", numbers(5)).shuffle().bolt("sink", Sink())
        both.spout("b", numbers(5)).shuffle().into("sink")
        return both

    assert prepare(replace(EXPERIMENT, topology=two, plan=lambda: ())).facts.total is None
