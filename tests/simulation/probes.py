"""Spouts and bolts that record what they do, in objects that all simulated processes share.

So a test also sees what a process did before it died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sunshower import Bolt, Context, Spout, Topology
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.testing import Shared
from tests.contract.topologies import Item


class ClockReadings(Shared):
    """The times that each instance of a task has read from its clock."""

    def __init__(self) -> None:
        self.seen: dict[int, list[float]] = {}


class TimeReader(Bolt[Item, Item]):
    def __init__(self, times: ClockReadings) -> None:
        self.times = times

    def prepare(self, context: Context) -> None:
        self.clock = context.clock
        self.times_of_task = self.times.seen.setdefault(len(self.times.seen), [])

    def process(self, record: Item) -> Iterator[Item]:
        self.times_of_task.append(self.clock.now())
        self.clock.sleep(0.001)
        self.times_of_task.append(self.clock.now())
        yield record


class Numbers(Spout[Item]):
    """0 … total - 1, without waiting."""

    def __init__(self, total: int) -> None:
        self.total = total

    def records(self) -> Iterator[Item]:
        yield from map(Item, range(self.total))


def time_readers(times: ClockReadings, total: int = 50) -> Topology:
    topology = Topology("looking", spout_pending=8)
    items = topology.spout("numbers", Numbers(total))
    items.shuffle().bolt("first", TimeReader(times)).shuffle().bolt("second", TimeReader(times))
    return topology


class Work(Shared):
    """What a bolt does with each number, and how often it began and finished it."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()
        self.done: Counter[int] = Counter()

    def __call__(self, number: int, context: Context) -> None:
        """Do nothing; tests override this."""


class Worker(Bolt[Item, None]):
    def __init__(self, work: Work) -> None:
        self.work = work

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Item) -> None:
        self.work.begun[record.number] += 1
        self.work(record.number, self.context)
        self.work.done[record.number] += 1


def working(work: Work, total: int = 20, *, name: str = "working", **settings: Any) -> Topology:
    topology = Topology(name, **settings)
    topology.spout("numbers", Numbers(total)).shuffle().bolt("work", Worker(work))
    return topology


def submit(seed: int, topology: Topology, layout: Layout = Layout.ISOLATE, **how: Any) -> SimRun:
    """Submit it to its own cluster, with all checks, and a history of every tuple."""
    return SimCluster(seed, check=True, **how).submit(topology.graph(), layout, sample=1)


def all_done(run: SimRun, work: Work, total: int = 20) -> None:
    assert run.wait(120.0), run.snapshot()
    assert set(work.done) == set(range(total))
