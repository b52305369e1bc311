"""Tests of the pace: how many messages sources have, and how long they emit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sunshower import Counter, Number, Topology
from sunshower.experiments.experiment import relayed
from sunshower.experiments.swarm import Pace, declared, pace_of
from sunshower.simulation.cluster import SimCluster


def show(number: Number) -> Iterator[Number]:
    yield number


def two() -> Topology:
    """A topology with a finite source and an endless one."""
    topology = Topology("two")
    few, many = topology.spout("few", Counter(7)), topology.spout("many", Counter())
    few.shuffle().bolt("show", show, parallelism=2)
    many.shuffle().bolt("see", show)
    return topology


def test_the_messages_of_a_source_are_counted() -> None:
    with SimCluster(1) as cluster:
        pace = pace_of(lambda: relayed(60, parallelism=2), cluster, 200)
    assert pace.messages == {"numbers": 60}
    assert pace.seconds < 0.2


def test_endless_sources_are_stopped_and_share_the_requested_messages() -> None:
    with SimCluster(1) as cluster:
        pace = pace_of(two, cluster, 100)
    assert pace.messages == {"few": 7, "many": 93}


def test_the_duration_of_a_slow_source_is_measured() -> None:
    with SimCluster(1) as cluster:
        pace = pace_of(lambda: relayed(60, rate=20), cluster, 200)
    assert pace.messages == {"numbers": 60}
    assert pace.seconds == pytest.approx(3.0, abs=0.3)


def test_without_a_run_the_declared_messages_are_counted() -> None:
    assert declared(relayed(150).graph()) == Pace({"numbers": 150})
    assert declared(two().graph(), 100) == Pace({"few": 50, "many": 50})
