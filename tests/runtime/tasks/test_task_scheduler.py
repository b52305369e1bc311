"""Tests that each ready task has a turn soon, however busy the others in its worker are."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator
from typing import Any

import pytest

from sunshower import Bolt, Counter, Number, Retry, Topology
from sunshower.runtime.plan import make_plan
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.worker import Worker
from tests.runtime.test_under_load import Watch

TASKS = 6
SLICES = 8  # one of this many goes round robin


class TurnLog(Watch):
    """A clock that the tasks advance, and the names of the tasks in the order of their turns."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []


class LogsTurns(Bolt[Any, Number]):
    """Takes 30 ms for each record, and notes its turns."""

    def __init__(self, watch: TurnLog, name: str) -> None:
        self.watch, self.name = watch, name

    def process(self, record: Any) -> Iterator[Number]:
        self.watch.names.append(self.name)
        self.watch.clock.advance(0.03)
        if self.name == "fails" and record.value % 10 == 9:
            raise ValueError("one of ten")
        yield from ()


def run(topology: Topology, watch: TurnLog, seconds: float) -> None:
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), watch.clock)
    while watch.clock.now() < seconds:
        wait_s = worker.step()
        watch.clock.advance(1e-5 if wait_s == 0 else wait_s or 1.0)


def longest_wait(worker: Worker, watch: TurnLog, seconds: float) -> int:
    """The most turns in a row that other tasks had while a bolt had records in its inbox."""
    tasks, waits = worker._wired.bolts, Counted[int]()
    longest = 0
    while watch.clock.now() < seconds:
        ready = {id for id in tasks if worker._wired.inboxes[id].entries}
        before = {id: task.stats().counts.executed for id, task in tasks.items()}
        worker.step()
        watch.clock.advance(1e-5)
        idle = {id for id in ready if tasks[id].stats().counts.executed == before[id]}
        waits = Counted({id: waits[id] + 1 for id in idle})
        longest = max(longest, *waits.values(), 0)
    return longest


@pytest.mark.parametrize("spout_pending", ["auto", 1_000])
def test_a_bolt_that_has_work_waits_a_bounded_number_of_turns(spout_pending: Any) -> None:
    watch = TurnLog()
    topology = Topology("t", ackers=1, workers=1, spout_pending=spout_pending)
    numbers = topology.spout("numbers", Counter())
    for index in range(TASKS):
        numbers.shuffle().bolt(f"bolt-{index}", LogsTurns(watch, f"bolt-{index}"))
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), watch.clock)
    assert longest_wait(worker, watch, 30.0) <= SLICES * (TASKS + 1)
    assert len(set(watch.names)) == TASKS


def test_dead_letter_bolt_runs_before_a_bolt_that_is_always_busy() -> None:
    watch = TurnLog()
    topology = Topology("t", ackers=1, workers=1)
    retry = Retry(attempts=1, dead_letters=True)
    numbers = topology.spout("numbers", Counter(), retry=retry)
    numbers.shuffle().bolt("fails", LogsTurns(watch, "fails"))
    letters = LogsTurns(watch, "letters")
    numbers.stream("dead_letters").shuffle().bolt("letters", letters)
    run(topology, watch, 30.0)
    written = watch.names.count("letters")
    assert written >= watch.names.count("fails") // 10 - 3 > 50, "all but the last few are written"


class Drops(Bolt[Any, Number]):
    def process(self, record: Any) -> Iterator[Number]:
        yield from ()


@pytest.mark.parametrize("ackers", [1, 0])
def test_a_turn_emits_at_most_8192_tracked_messages(ackers: int) -> None:
    topology = Topology("t", ackers=ackers, workers=1, spout_pending=20_000)
    topology.spout("numbers", Counter()).shuffle().bolt("drops", Drops())
    watch = TurnLog()
    worker = Worker(make_plan(topology.graph()), 0, 1, seeded(0), watch.clock)
    (spout,), turns, emitted = worker._spouts, list[int](), 0
    for _ in range(100):
        worker.step()
        watch.clock.advance(1e-5)
        turns.append(spout.stats().counts.emitted - emitted)
        emitted += turns[-1]
    assert max(turns) == 8_192 if ackers else max(turns) > 8_192
