"""Two hours in which a load doubles and halves: the tasks follow it, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from sunshower import Bolt, Context, LogSpout, Polled, Topology, batches, between, count
from sunshower.clock import VIRTUAL_DATE
from sunshower.config import Internals
from sunshower.errors import LifecycleError
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import SqliteState
from sunshower.testing import Shared
from sunshower.topologies.components import Stateless
from sunshower.trident import FixedBatchSpout, InMemory

COST_S = 0.5  # of a record in the slow bolt


class Event(NamedTuple):
    number: int
    key: int


class Source(Shared):
    """A log to which records are added all the time, in steps. It outlives all processes."""

    def __init__(self, *loads: float, step_s: float = 900.0, keys: int = 1_000) -> None:
        """`loads`: for each step of so many seconds, how many tasks its records keep busy."""
        self.step_s = step_s
        self.rates = [load / COST_S for load in loads]  # records a second
        self.keys = keys
        self.position = 0  # the next record to emit
        self.open: set[int] = set()  # emitted, and not acked
        self.acked = 0
        self.done = Counter[int]()  # by the bolt: record → how often

    def added(self, wall_s: float) -> int:
        """How many records there are."""
        now_s = wall_s - VIRTUAL_DATE.timestamp()
        times = [now_s - self.step_s * step for step in range(len(self.rates))]
        times = [min(max(time, 0.0), self.step_s) for time in times]
        return int(sum(rate * time for rate, time in zip(self.rates, times, strict=True)))


class Reader(LogSpout[Event]):
    """Continues with what was not acked, wherever its task is opened."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def open(self, context: Context) -> None:
        self.clock = context.clock
        self.position = min(self.source.open, default=self.source.position)

    def poll(self, limit: int) -> Polled[Event]:
        source = self.source
        end = max(min(source.added(self.clock.wall()), self.position + limit), self.position)
        numbers = range(self.position, end)
        source.open.update(numbers)
        self.position = source.position = end
        records = [Event(number, number % source.keys) for number in numbers]
        return Polled(np.arange(numbers.start, numbers.stop, dtype=np.int64), records)

    def acked(self, numbers: NDArray[np.int64]) -> None:
        self.source.acked += len(self.source.open & {*numbers.tolist()})
        self.source.open -= {*numbers.tolist()}

    def figures(self) -> Mapping[str, float]:
        return {"lag": self.source.added(self.clock.wall()) - self.source.acked}


class Slow(Stateless, Bolt[Event, None]):
    def __init__(self, source: Source) -> None:
        self.source = source

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Event) -> None:
        self.clock.sleep(COST_S)
        self.source.done[record.number] += 1


class Writer(Slow):
    """Spends its time in the writes behind each batch, as a keyed state in a store does."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.unwritten: list[Event] = []

    def process(self, record: Event) -> None:
        self.unwritten.append(record)

    def flush(self) -> None:
        for record in self.unwritten:
            super().process(record)
        self.unwritten.clear()


def slow(source: Source, tasks_min: int = 1, tasks_max: int = 8, **settings: Any) -> Topology:
    topology = Topology("load", workers=between(tasks_min, 8), **settings)
    events = topology.spout("events", Reader(source))
    grouped = events.shuffle() if source.keys > 1 else events.fields("key")
    grouped.bolt("slow", Slow(source), parallelism=between(tasks_min, tasks_max))
    return topology


def wall_s(run: SimRun) -> float:
    return VIRTUAL_DATE.timestamp() + run.now()


def changes(run: SimRun) -> list[tuple[float, str]]:
    """When each change began, and why."""
    lines = [line for line in run.log_lines() if line.event in ("scaled", "not scaled")]
    return [(line.time - VIRTUAL_DATE.timestamp(), line.text) for line in lines]


def follow(source: Source, *tasks: int) -> None:
    """Run until the load of each step has lasted: then so many tasks process it."""
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(slow(source).graph())
        before = 1
        for step, (rate, count) in enumerate(zip(source.rates, tasks, strict=True)):
            begin_s = source.step_s * step
            run.wait(begin_s + source.step_s - run.now())
            lag = source.added(wall_s(run)) - source.acked
            begun = [(at_s, why) for at_s, why in changes(run) if at_s >= begin_s]
            assert len(begun) <= 2, begun
            assert len(run.plan.tasks_of("slow")) == count, begun
            assert lag <= 10 * rate, begun
            if count != before:
                assert begun[0][0] - begin_s <= 60.0, begun
            before = count
        run.wait(60.0)
        assert source.acked == source.added(wall_s(run)) == source.position
        assert {*source.done} == {*range(source.acked)}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_tasks_follow_a_load_that_doubles_and_halves_for_two_hours() -> None:
    follow(Source(0.6, 1.2, 2.4, 4.8, 2.4, 1.2, 0.6, 1.2), 1, 2, 4, 8, 4, 2, 1, 2)


def test_tasks_follow_a_load_that_doubles_and_halves() -> None:
    follow(Source(0.6, 1.2, 0.6, step_s=160.0), 1, 2, 1)


def test_a_bolt_that_its_writes_limit_gets_more_tasks() -> None:
    source = Source(1.6)
    topology = Topology("load", workers=between(1, 8))
    events = topology.spout("events", Reader(source))
    events.fields("key").bolt("slow", Writer(source), parallelism=between(1, 8))
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(120.0)
        assert "'slow' is busy" in changes(run)[0][1]
        assert len(run.plan.tasks_of("slow")) > 1


def test_a_key_with_all_the_load_changes_nothing() -> None:
    source = Source(1.2, keys=1)
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(slow(source, tasks_min=2).graph())
        run.wait(300.0)
        assert not changes(run)
        assert "a few keys have most of the load" in run.snapshot().scaling[0].why


def test_nothing_changes_during_an_outage_and_soon_after_it() -> None:
    source = Source(2.4)
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(slow(source).graph())
        run.wait(20.0)
        worker = run.plan.workers[0]
        for _ in range(6):
            run.wait(30.0)
            run.kill_worker(worker)
        assert not changes(run), "six recoveries, each with a rest"
        run.wait(120.0)
        assert [why.partition(":")[0] for _, why in changes(run)][:1] == ["slow"]


def test_a_hand_stops_the_scaling_of_what_it_sets_until_it_is_automatic_again() -> None:
    source = Source(1.6, step_s=1_000.0)
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(slow(source, tasks_max=6).graph())
        with pytest.raises(LifecycleError, match=r"7 tasks of 'slow': declared is between\(1, 6\)"):
            run.rebalance(tasks={"slow": 7})
        run.rebalance(workers=2, tasks={"slow": 1}, wait_s=1.0)
        run.wait(200.0)
        assert not changes(run)
        assert "sunshower rebalance load --auto" in run.snapshot().scaling[0].why
        run.kill_master()
        run.wait(200.0)
        assert not changes(run), "the next master knows it, too"
        run.rebalance(auto=True)
        run.wait(200.0)
        assert len(run.plan.tasks_of("slow")) > 1


def test_new_code_and_a_savepoint_continue_with_the_present_numbers() -> None:
    source = Source(0.6)
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(slow(source).graph())
        run.rebalance(workers=3, tasks={"slow": 5}, wait_s=1.0)
        run.upgrade(slow(source, tasks_max=4).graph(), wait_s=1.0)
        assert (len(run.plan.tasks_of("slow")), len(run.plan.workers)) == (4, 3)
        savepoint = run.keep(wait_s=1.0)
        run.kill()
        run = cluster.submit(slow(source).graph(), resume=savepoint)
        assert (len(run.plan.tasks_of("slow")), len(run.plan.workers)) == (4, 3)
        run.wait(30.0)
        assert source.added(wall_s(run)) - source.acked < 5


def program(source: Source, workers: int, parallelism: int) -> Topology:
    topology = Topology("load", workers=workers)
    events = topology.spout("events", Reader(source))
    events.shuffle().bolt("slow", Slow(source), parallelism=parallelism)
    return topology


def test_a_hand_that_packs_what_was_alone_stays_within_the_bounds() -> None:
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        graph = program(Source(0.1), between(1, 3), 4).graph()
        run = cluster.submit(graph, Layout.ISOLATE)
        assert len(run.plan.workers) == 6, "each task has its own"
        with pytest.raises(LifecycleError, match=r"5 workers: declared is between\(1, 3\)"):
            run.rebalance(workers=5, layout=Layout.PACK, wait_s=1.0)
        run.rebalance(layout=Layout.PACK, wait_s=1.0)
        assert len(run.plan.workers) == 3


def test_a_layout_is_that_of_the_submission_or_a_hand_within_the_bounds_too() -> None:
    """As many workers as tasks are within these bounds in both layouts."""
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(program(Source(0.1), between(1, 20), 2).graph(), Layout.ISOLATE)
        run.rebalance(tasks={"slow": 3}, wait_s=1.0)
        assert len(run.plan.workers) == 5, "each task has its own"
        run.rebalance(layout=Layout.PACK, wait_s=1.0)
        run.rebalance(tasks={"slow": 4}, wait_s=1.0)
        assert len(run.plan.workers) == 4, "the acker is beside the source"
        run.rebalance(layout=Layout.ISOLATE, wait_s=1.0)
        run.kill_master()
        run.rebalance(tasks={"slow": 3}, wait_s=1.0)
        run.upgrade(program(Source(0.1), between(1, 20), 3).graph(), wait_s=1.0)
        run.rebalance(tasks={"slow": 4}, wait_s=1.0)
        assert len(run.plan.workers) == 6


def test_a_hand_whose_change_is_cancelled_stops_no_scaling() -> None:
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(slow(Source(0.6), tasks_max=6).graph())
        run.rebalance(tasks={"slow": 2}, wait_s=60.0, waits=False)
        stored = run._master.core.stored
        assert stored.held == ["slow"]
        run.drain()
        assert stored.held == []


def test_new_code_with_fixed_numbers_forgets_what_a_hand_has_set() -> None:
    source = Source(1.6, step_s=1_000.0)
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(slow(source, tasks_max=6).graph())
        run.rebalance(tasks={"slow": 2}, wait_s=1.0)
        for parallelism in (1, between(1, 6)):
            run.upgrade(program(source, between(1, 8), parallelism).graph(), wait_s=1.0)
        run.wait(200.0)
        assert len(run.plan.tasks_of("slow")) > 1, "the file has set it since"


class Wait:
    """Takes 20 ms for each row."""

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def __call__(self, row: Any) -> tuple[int]:
        self.clock.sleep(0.02)
        return (row[0] % 3,)


class Totals(Shared):
    """The last total of each key."""

    def __init__(self) -> None:
        self.last: dict[int, int] = {}

    def __call__(self, row: Any) -> None:
        key, total = row
        self.last[key] = total


def test_an_exactly_once_program_follows_its_load_and_counts_each_row_once(tmp_path: Path) -> None:
    topology = Topology("rows", workers=between(1, 4), internals=Internals(scaling_s=2.0))
    source = FixedBatchSpout([(n,) for n in range(3_000)], 100, fields=("value",))
    rows = batches(topology, "rows", source, store=InMemory()).shuffle(parallelism=between(1, 4))
    keys = rows.map(Wait(), fields=("key",)).group_by("key")
    state, totals = SqliteState(str(tmp_path / "totals.db")), Totals()
    keys.aggregate(count(), name="total", state=state).peek(totals)
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(topology.graph())
        assert run.wait(200.0)
        assert [why.partition(":")[0] for _, why in changes(run)][:1] == ["rows-2"]
        assert totals.last == {0: 1_000, 1: 1_000, 2: 1_000}
