"""Tests of the numbered source (distribution, rate, restart) and its sinks."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from sunshower import Config, Context, Topology
from sunshower.clock import ManualClock
from sunshower.errors import ExperimentError
from sunshower.experiments.experiment import Item, PerKey, Sink, model_of, numbers, relay, relayed
from sunshower.experiments.outcome import Model


def context(clock: ManualClock, index: int = 0, parallelism: int = 1, **more: Any) -> Context:
    return Context("t", "numbers", 1, index, parallelism, clock=clock, **more)


def available(source: Any) -> list[int]:
    """The numbers that the source has available now."""
    return [item.number for item in iter(source.__next__, None)]


def test_the_numbers_are_divided_among_the_tasks() -> None:
    shares = []
    for index in range(3):
        spout = numbers(10, keys=4)
        spout.open(context(ManualClock(), index, 3))
        shares.append([*spout.records()])
    assert shares[1] == [Item(1, 1), Item(4, 0), Item(7, 3)]
    assert sorted(item.number for share in shares for item in share if item) == list(range(10))
    assert Model(10, 3).number(1, 2) == 7


def test_the_rate_follows_the_clock_of_the_topology() -> None:
    clock = ManualClock(7.0)
    spout = numbers(1000, rate=100)
    spout.open(context(clock, 1, 2))
    source = spout.records()
    assert available(source) == [1]
    clock.advance(0.51)
    assert len(available(source)) == 25
    assert next(source) is None
    clock.advance(100)
    assert len([*source]) == 500 - 26


def test_settled_numbers_do_not_wait_for_the_rate() -> None:
    clock = ManualClock()
    spout = numbers(1000, rate=100)
    spout.open(context(clock, committed=300))
    assert len(available(spout.records())) == 302


def test_without_a_rate_it_never_waits() -> None:
    spout = numbers(5)
    spout.open(context(ManualClock()))
    assert available(islice([*spout.records(), None], 6)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [{"total": 0}, {"total": 5, "rate": 0}, {"total": 5, "keys": -1}])
def test_wrong_arguments_of_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError, match=r"whole number of at least 1|a number above 0"):
        numbers(**wrong)


def test_sinks_report_what_they_receive() -> None:
    reported: list[Any] = []
    here = context(ManualClock(), tell=lambda key, value: reported.append((key, value)))
    for sink in (Sink(), PerKey()):
        sink.prepare(here)
        sink.process(Item(17, 1))
    assert reported == [(17, None), (1, 17)]
    assert [*relay(Item(1, 2))] == [Item(1, 2)]


def test_the_model_is_that_of_the_only_source() -> None:
    assert model_of(relayed(50, parallelism=2).graph()) == Model(50, 2, written=True)
    topology = Topology("two", config=Config())
    topology.spout("a", numbers(5)).shuffle().bolt("sink", PerKey())
    assert model_of(topology.graph()) == Model(5, 1)
    topology.spout("b", numbers(5)).shuffle().into("sink")
    assert model_of(topology.graph()) is None
