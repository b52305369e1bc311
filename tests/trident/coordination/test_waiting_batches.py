"""Stages that wait for work done elsewhere: other batches continue, and no tree times out."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from sunshower import Context, Topology
from sunshower.clock import ManualClock
from sunshower.errors import SparkUnavailable
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.port import Attempt, Emit, Operator
from sunshower.trident import FixedBatchSpout, InMemory, batches, count
from sunshower.trident.stages.plan import Waiting
from sunshower.trident.tasks.stage_bolt import WaitingStageBolt
from tests.seeds import seeds
from tests.trident.coordination.test_stage_task import FakeCollector, FakeTuple, Task
from tests.trident.rigs.group_rig import Row, Shared
from tests.trident.rigs.programs import SETTINGS, kill_three


@dataclass
class Work:
    """The work that is done elsewhere for an attempt."""

    attempt: Attempt
    rows: list[Any] = field(default_factory=list)
    done_at_s: float | None = None
    given_up: bool = False


class Service(Shared):
    """The service that does the work, shared by all tasks and their restarts."""

    def __init__(self) -> None:
        self.running: list[Work] = []
        self.running_max = 0

    def begin(self, work: Work) -> None:
        self.running.append(work)
        self.running_max = max(self.running_max, len(self.running))

    def end(self, work: Work) -> None:
        with suppress(ValueError):
            self.running.remove(work)


class Slow(Operator):
    """Emits its rows after its work, which takes `seconds`."""

    def __init__(self, service: Service, seconds: float, *, commits: bool = False) -> None:
        self.service, self.seconds, self.commits = service, seconds, commits
        self.error: Exception | None = None
        self.finished: list[int] = []

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def start(self, attempt: Attempt) -> Work:
        return Work(attempt)

    def process(self, batch: Work, source: int, rows: Any, emit: Emit) -> None:
        batch.rows += rows

    def ready(self, batch: Work, attempt: Attempt) -> bool:
        if batch.done_at_s is None:
            batch.done_at_s = self.clock.now() + self.seconds
            self.service.begin(batch)
        if self.error is not None:
            raise self.error
        return self.clock.now() >= batch.done_at_s

    def finish(self, batch: Work, attempt: Attempt, emit: Emit) -> None:
        self.service.end(batch)
        self.finished.append(attempt.txid)
        if batch.rows:
            emit(batch.rows)

    def give_up(self, batch: Work) -> None:
        self.service.end(batch)
        batch.given_up = True

    def cleanup(self) -> None: ...


class TimeoutCollector(FakeCollector):
    def __init__(self) -> None:
        super().__init__()
        self.renewed: list[Any] = []

    def reset_timeout(self, tuple: Any) -> None:
        assert tuple.state == "open"
        self.renewed.append(tuple)


class WaitingTask(Task):
    """A stage that waits, between two others, in one task."""

    def __init__(self, *, commits: bool = False) -> None:
        self.clock, self.service = ManualClock(), Service()
        self.slow = Slow(self.service, 10.0, commits=commits)
        assert isinstance(self.slow, Waiting)
        super().__init__(operator=self.slow, kind=WaitingStageBolt, clock=self.clock)
        self.out = TimeoutCollector()

    def whole(self, txid: int) -> FakeTuple:
        """Deliver all of a batch, and return its last Count."""
        self.part(1, [Row(0, txid)], txid)
        self.count(1, 1, txid)
        return self.count(2, 0, txid)

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.bolt.tick()


def test_a_batch_that_waits_is_not_over_and_others_begin_meanwhile() -> None:
    task = WaitingTask()
    first = task.whole(1)
    task.tick(4.0)
    second = task.whole(2)
    assert task.service.running_max == 2
    assert (first.state, second.state, task.counts) == ("open", "open", [])
    task.tick(6.0)
    assert (first.state, second.state, task.counts) == ("acked", "open", [1, 0])
    task.tick(4.0)
    assert (second.state, task.counts) == ("acked", [1, 0, 1, 0])
    assert task.slow.finished == [1, 2]


def test_a_waiting_batch_does_not_time_out() -> None:
    task = WaitingTask()
    held = task.whole(1)
    task.tick(0.2)
    assert task.out.renewed == []
    for _ in range(3):
        task.tick(2.0)
    assert [message.record.txid for message in task.out.renewed] == [1, 1, 1]
    task.tick(3.8)
    assert held.state == "acked"
    task.tick(10.0)
    assert len(task.out.renewed) == 3


def test_a_commit_waits_in_the_same_way() -> None:
    task = WaitingTask(commits=True)
    assert task.whole(1).state == "acked"
    assert task.service.running_max == 0
    command = task.commit()
    task.tick(9.0)
    assert (command.state, task.counts) == ("open", [])
    task.tick(1.0)
    assert (command.state, task.counts) == ("acked", [1, 0])


def test_an_error_of_the_work_fails_the_batch_with_that_error() -> None:
    task = WaitingTask()
    held = task.whole(1)
    task.slow.error = ValueError("no such column")
    task.tick(1.0)
    assert held.state == "failed"
    assert held.reason is task.slow.error
    assert task.service.running == []
    assert task.count(1, 0).state == "failed", "the attempt is over here"


def test_an_outage_of_the_service_fails_the_batch_and_is_raised_in_the_task() -> None:
    task = WaitingTask()
    held = task.whole(1)
    task.slow.error = SparkUnavailable("no room")
    with pytest.raises(SparkUnavailable):
        task.tick()
    assert held.state == "failed"


def test_a_later_attempt_gives_up_the_work_of_the_earlier_one() -> None:
    task = WaitingTask()
    held = task.whole(1)
    (work,) = task.service.running
    task.count(1, 0, attempt=1)
    assert (held.state, work.given_up) == ("failed", True)
    task.count(2, 0, attempt=1)
    task.tick(10.0)
    assert [call.attempt for call in task.service.running] == []
    assert task.slow.finished == [1]


NUMBERS = [Row(number % 5, number) for number in range(60)]


def program(slow: Slow, state: MemoryState, **settings: Any) -> Topology:
    topology = Topology("waiting", message_timeout_s=5, block_max_s=3.0, **settings)
    spout = FixedBatchSpout(NUMBERS, 10, type=Row)
    numbers = batches(topology, "numbers", spout, store=InMemory(), max_batches=3)
    rows = numbers.global_().operate(slow, fields=Row)
    rows.group_by("number").aggregate(count(), state=state)
    return topology


@pytest.mark.parametrize("commits", [False, True])
def test_work_may_take_longer_than_the_limits_of_trees_and_calls(commits: bool) -> None:
    """Each work takes 12 s; trees have 5 s, calls 3 s. Only commits run one at a time."""
    service, state = Service(), MemoryState()
    slow = Slow(service, 12.0, commits=commits)
    run = SimCluster(1, check=True).submit(program(slow, state).graph(), Layout.PACK)
    assert run.wait(12.0 * (8 if commits else 5)), run._describe()
    assert Counter(dict(state.items())) == Counter(row.number for row in NUMBERS)
    snapshot = run.snapshot()
    assert (snapshot.restarts, snapshot.component("$mastercoord-numbers").failed) == (0, 0)
    assert service.running_max == (1 if commits else 3)


@seeds(8, kinds=2)
def test_each_row_counts_once_when_workers_are_killed_during_the_work(seed: int) -> None:
    slow, state = Slow(Service(), 2.0, commits=bool(seed % 2)), MemoryState()
    graph = program(slow, state, **SETTINGS).graph()
    layout = (Layout.ISOLATE, Layout.PACK)[seed // 2 % 2]
    run = SimCluster(seed, check=True, nodes=1 + seed % 2).submit(graph, layout)
    kill_three(run, seed, lambda number: 1.1 + 0.3 * (number % 4))
    assert run.wait(300.0), run._describe()
    assert Counter(dict(state.items())) == Counter(row.number for row in NUMBERS)
