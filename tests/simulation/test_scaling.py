"""Two hours in which a load doubles and halves: the tasks follow it, and nothing is lost."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from sunshower import Bolt, Context, LogSpout, Polled, Topology, between
from sunshower.topologies.components import Stateless
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.testing import Shared

COST_S = 0.1  # of a record in the slow bolt
STEP_S = 900.0  # of the load
RATES = (6.0, 12.0)


class Event(NamedTuple):
    number: int
    key: int


class Source(Shared):
    """A log to which records are added all the time, in steps. It outlives all processes."""

    def __init__(self, rates: tuple[float, ...], keys: int = 1_000) -> None:
        self.rates, self.keys = rates, keys
        self.position = 0  # the next record to emit
        self.open: set[int] = set()  # emitted, and not acked
        self.acked = 0
        self.done = Counts[int]()  # by the bolt: record → how often

    def added(self, now_s: float) -> int:
        """How many records there are."""
        times = [min(max(now_s - STEP_S * step, 0.0), STEP_S) for step in range(len(self.rates))]
        return int(sum(rate * time for rate, time in zip(self.rates, times, strict=True)))


class Reader(LogSpout[Event]):
    def __init__(self, source: Source) -> None:
        self.source = source

    def open(self, context: Context) -> None:
        self.clock, self.position = context.clock, min(self.source.open, default=None)
        if self.position is None:
            self.position = self.source.position

    def poll(self, limit: int) -> Polled[Event]:
        source = self.source
        last = min(source.added(self.clock.wall() - BEGIN_S), self.position + limit)
        numbers = np.arange(self.position, last, dtype=np.int64)
        source.open.update(numbers.tolist())
        self.position = source.position = max(self.position, last)
        return Polled(numbers, [Event(n, n % source.keys) for n in numbers.tolist()])

    def acked(self, numbers: NDArray[np.int64]) -> None:
        self.source.acked += len(self.source.open & {*numbers.tolist()})
        self.source.open -= {*numbers.tolist()}

    def figures(self) -> Mapping[str, float]:
        return {"lag": self.source.added(self.clock.wall() - BEGIN_S) - self.source.acked}


class Slow(Stateless, Bolt[Event, None]):
    def __init__(self, source: Source) -> None:
        self.source = source

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Event) -> None:
        self.clock.sleep(COST_S)
        self.source.done[record.number] += 1


BEGIN_S = SimCluster(0)._world.date_s


def topology(source: Source, least: int = 1, **settings: Any) -> Topology:
    topology = Topology("load", workers=between(1, 8), **settings)
    events = topology.spout("events", Reader(source))
    events.fields("key").bolt("slow", Slow(source), parallelism=between(least, 8))
    return topology


def changes(run: SimRun) -> list[tuple[float, str]]:
    """When each change began, and why."""
    lines = [line for line in run.log_lines() if line.event in ("scaled", "not scaled")]
    return [(line.time - BEGIN_S, line.text) for line in lines]


def test_tasks_follow_a_load_that_doubles_and_halves() -> None:
    source = Source(RATES)
    with SimCluster(1, drift=0.0, latency_s=0.001, call_s=1e-5) as cluster:
        run = cluster.submit(topology(source).graph())
        for step, rate in enumerate(RATES):
            run.wait(STEP_S * (step + 1) - run.now())
            print(step, rate, len(run.plan.tasks_of("slow")), len(run.plan.workers),
              source.added(run.now()) - source.acked, changes(run)[-2:], run.snapshot().scaling)
