"""A spout that stays on its worker continues its source in the task of the new plan."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from sunshower import Spout, Topology
from sunshower.runtime.tasks.user_code import context
from tests.runtime.chains import Number, Numbers, sink
from tests.runtime.rig import Rig, records_of


def test_a_source_continues_after_the_task_of_the_former_plan_was_deleted() -> None:
    topology = Topology("t")
    topology.spout("numbers", Numbers(10)).shuffle().bolt("sink", sink)
    former, present = Rig(topology), Rig(topology)
    former.spout("numbers").emit(0.0, 4)
    transfer = former.spout("numbers").pack(stays=True, now=0.0)
    task = present.spout("numbers")
    task.unpack(transfer, context(present.plan, task.task))
    del former
    gc.collect()
    task.emit(1.0, 100)  # the four pending records
    task.emit(1.0, 100)
    assert [number.n for number in records_of(present.sent("sink"))] == list(range(10))
    assert task.source.exhausted


class Falsy:
    """An iterator with a length, which is 0."""

    def __init__(self, stop: int) -> None:
        self.numbers = iter(range(stop))

    def __iter__(self) -> Falsy:
        return self

    def __next__(self) -> Number:
        return Number(next(self.numbers))

    def __len__(self) -> int:
        return 0


class Feed(Spout[Number]):
    def records(self) -> Iterator[Number]:
        return Falsy(10)


def test_a_source_whose_iterator_is_falsy_continues_too() -> None:
    topology = Topology("t")
    topology.spout("numbers", Feed()).shuffle().bolt("sink", sink)
    former, present = Rig(topology), Rig(topology)
    former.spout("numbers").emit(0.0, 4)
    task = present.spout("numbers")
    transfer = former.spout("numbers").pack(stays=True, now=0.0)
    task.unpack(transfer, context(present.plan, task.task))
    task.emit(1.0, 100)
    task.emit(1.0, 100)
    assert len(records_of(present.sent("sink"))) == 10
