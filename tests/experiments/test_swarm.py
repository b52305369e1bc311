"""Tests of the swarm: everything is drawn from one seed, and can be carried out."""

from __future__ import annotations

from collections import Counter

import pytest

from sunshower import Topology
from sunshower.experiments.experiment import Prepared, prepare, relayed
from sunshower.experiments.fault_kinds import ProcessFault, harmless
from sunshower.experiments.swarm import Pace, swarm
from sunshower.runtime.plan import Layout


def make() -> Topology:
    return relayed(200, parallelism=2)


def drawn(seed: int) -> Prepared:
    return prepare(swarm(make, seed), seed)


def kinds_of(prepared: Prepared) -> set[str]:
    return {getattr(step.fault, "verb", type(step.fault).__name__) for step in prepared.steps}


@pytest.fixture(scope="module")
def many() -> list[Prepared]:
    return [drawn(seed) for seed in range(200)]


def test_a_seed_draws_the_same_again() -> None:
    first, second = drawn(7), drawn(7)
    assert first.steps == second.steps
    assert first.plan.tasks == second.plan.tasks
    assert first.plan.graph.config == second.plan.graph.config
    assert first.steps != drawn(8).steps


def test_every_kind_of_fault_is_in_some_swarms_and_missing_in_others(many: list[Prepared]) -> None:
    counts = Counter(kind for prepared in many for kind in kinds_of(prepared))
    in_workers = {"lossy", "cut", "errors", "away", "expire"}
    of_processes = {"kill", "pause", "isolate", "slow", "throttle"}
    assert {*counts} == in_workers | of_processes | {"Rebalance", "Drain"}
    assert all(counts[kind] > 10 for kind in counts)
    assert counts["expire"] < 180


def test_the_first_fault_begins_while_the_source_emits(many: list[Prepared]) -> None:
    for prepared in many:
        throttles = [step for step in prepared.steps if harmless(step.fault) and step.at_s == 0]
        (each_s,) = {s.fault.seconds for s in throttles if isinstance(s.fault, ProcessFault)}
        first = prepared.steps[len(throttles)]
        assert not harmless(first.fault)
        assert first.at_s <= each_s * 200 / 2 / 2 + 1e-6  # two tasks, and half of their time


def test_a_short_source_is_slowed_down_more() -> None:
    pace = Pace({"numbers": 20})
    short, long = (
        prepare(swarm(make, 7, pace=chosen_pace), 7).steps for chosen_pace in (pace, None)
    )
    slow, fast = short[0].fault, long[0].fault
    assert isinstance(slow, ProcessFault)
    assert isinstance(fast, ProcessFault)
    assert slow.seconds == pytest.approx(10 * fast.seconds)
    assert short[-1].at_s == long[-1].at_s


def test_a_slow_source_has_faults_over_its_whole_duration(many: list[Prepared]) -> None:
    pace = Pace({"numbers": 200}, seconds=10.0)
    spans = [prepare(swarm(make, n, pace=pace), n).steps[-1].at_s for n in range(20)]
    assert sorted(spans)[10] > 5.0
    assert sorted(prepared.steps[-1].at_s for prepared in many)[100] < 1.0


def test_rates_differ_by_magnitudes(many: list[Prepared]) -> None:
    lengths = sorted(len(prepared.steps) for prepared in many)
    assert lengths[20] < 7
    assert lengths[-20] > 20
    spans = sorted(prepared.steps[-1].at_s for prepared in many)
    assert spans[-20] > 10 * spans[20]


def test_places_and_limits_are_drawn(many: list[Prepared]) -> None:
    assert {prepared.experiment.layout for prepared in many} == set(Layout)
    configs = [prepared.plan.graph.config for prepared in many]
    assert {config.workers for config in configs} == {1, 2, 3, 4}
    assert {config.ackers for config in configs} == {None, 1, 2, 3}
    assert {config.spout_pending for config in configs} > {1, 4, 32}
    assert len({config.internals.frame_records_max for config in configs}) > 50


def test_settings_of_the_topology_are_kept() -> None:
    def declare() -> Topology:
        return relayed(200, ackers=0, spout_pending=77)

    for seed in range(20):
        prepared = prepare(swarm(declare, seed), seed)
        config = prepared.plan.graph.config
        assert (config.ackers, config.spout_pending) == (0, 77)
        assert "expire" not in kinds_of(prepared)


def test_the_topology_itself_is_not_changed() -> None:
    topology = make()
    before = topology.config
    swarm(lambda: topology, 3)
    assert topology.config == before


def test_a_source_without_end_is_stopped() -> None:
    assert swarm(make, 1, messages_max=50).messages_max == 50
    assert swarm(make, 1).messages_max is None
