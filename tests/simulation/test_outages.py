"""Tests of random outages, doubt, poison, deaths and rebalances at once: no tuple is lost."""

from __future__ import annotations

import pytest

from benchmarks.simulated.outages import DOUBTS, OUTAGES, draw_day, run_day
from sunshower import Bolt, Counter, Number, Retry, Topology
from sunshower.outages import is_unavailable
from sunshower.simulation.cluster import SimCluster
from tests.seeds import seeds

SEEDS = 40
AWAY_MAX_S = 600.0


@seeds(SEEDS, first=5)
def test_outages_lose_no_tuple(seed: int) -> None:
    day = run_day(seed, AWAY_MAX_S)
    assert not day.complaints, (day.complaints, day.steps)


@pytest.mark.parametrize("seed", [3, pytest.param(8, marks=pytest.mark.long)])
def test_outages_of_hours_lose_no_tuple(seed: int) -> None:
    day = run_day(seed)
    assert not day.complaints, (day.complaints, day.steps)


class RaisesOnPoison(Bolt[Number, None]):
    """Raises on twelve adjacent records."""

    def process(self, record: Number) -> None:
        if 200 <= record.value < 212:
            raise ValueError(f"{record.value} is poison")


@pytest.mark.parametrize("seed", range(3))
def test_adjacent_poison_does_not_stop_the_stream(seed: int) -> None:
    topology = Topology("poison", workers=2)
    numbers = topology.spout("numbers", Counter(2_000), retry=Retry(dead_letters=True))
    numbers.shuffle().bolt("work", RaisesOnPoison)
    numbers.stream("dead_letters").shuffle().bolt("letters", lambda _: None, fields=())
    with SimCluster(seed) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(60.0)
        counts = run.snapshot().component("numbers")
    assert counts.acked - counts.dead == 2_000 - 12


def test_all_kinds_of_days_are_drawn() -> None:
    days = [draw_day(seed) for seed in range(60)]
    assert {len(day.bolts) for day in days} == {1, 2, 3}
    assert {day.letters for day in days} == {day.doubts for day in days} == {False, True}
    assert {place for day in days for asks in day.asks.values() for place in asks} == {
        *("process", "prepare", "flush", "tick")
    }
    assert any(day.poison for day in days)
    plans = [day.plan(600.0) for day in days]
    words = " ".join(str(step.fault) for plan in plans for step in plan)
    for kind in (
        "away: what numbers",
        "kill any worker",
        "kill the master",
        "rebalance",
        "(locked",
    ):
        assert kind in words


def test_which_errors_are_outages_and_which_are_doubt() -> None:
    for name, make in OUTAGES.items():
        assert is_unavailable(make()) == (name != "listed")
    assert not any(is_unavailable(make()) for make in DOUBTS.values())
