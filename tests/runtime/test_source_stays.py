"""A source that stays in its process goes on in the next life of its task."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import NamedTuple

from sunshower import Spout, Topology
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.wiring import context
from tests.runtime.rig import Rig, records_of


class Number(NamedTuple):
    n: int


class Numbers(Spout[Number]):
    def records(self) -> Iterator[Number]:
        yield from map(Number, range(5))


def see(number: Number) -> None:
    """A sink."""


def topology() -> Topology:
    topology = Topology("numbered")
    topology.spout("numbers", Numbers).shuffle().bolt("sink", see)
    return topology


def test_a_source_is_not_closed_when_the_task_of_the_former_life_is_forgotten() -> None:
    def former_life() -> Luggage:
        rig = Rig(topology())
        assert rig.spout("numbers").emit(0.0, 2) == 2
        packed: Luggage = rig.spout("numbers").pack(stays=True, now=0.0)
        return packed

    luggage = former_life()
    gc.collect()
    rig = Rig(topology())
    spout = rig.spout("numbers")
    spout.unpack(luggage, context(rig.plan, spout.task))
    spout.emit(0.0, 10)
    assert spout.drawn == 5
    assert sorted(records_of(rig.sent("sink"))) == [Number(n) for n in range(5)]
