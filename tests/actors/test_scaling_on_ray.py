"""Tasks on Ray follow the load of a bolt that takes 5 ms a record, and nothing is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from sunshower import Bolt, Context, LogSpout, Polled, Topology, between
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.config import Internals
from sunshower.topologies.components import Stateless

COST_S = 0.005
pytestmark = pytest.mark.ray


class Event(NamedTuple):
    number: int
    key: int


class Input:
    """A log in a folder, to which records are added at rates that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.rates, self.committed, self.done = (
            folder / name for name in ("rates", "committed", "done")
        )

    def set_rate(self, rate: float) -> None:
        """From now on, in records a second."""
        rates = json.loads(self.rates.read_text()) if self.rates.exists() else []
        other = self.rates.with_suffix(".new")
        other.write_text(json.dumps([*rates, (time.time(), rate)]))
        other.replace(self.rates)

    def added(self) -> int:
        """How many records there are."""
        rates = json.loads(self.rates.read_text())
        ends = [begin_s for begin_s, _ in rates[1:]] + [time.time()]
        parts = zip(rates, ends, strict=True)
        return int(sum(rate * (end_s - begin_s) for (begin_s, rate), end_s in parts))

    def position(self) -> int:
        return int(self.committed.read_text()) if self.committed.exists() else 0


class Reader(LogSpout[Event]):
    def __init__(self, source: Input) -> None:
        self.source = source

    def open(self, context: Context) -> None:
        self.position = self.stored = self.source.position()
        self.open_numbers: set[int] = set()

    def poll(self, limit: int) -> Polled[Event]:
        end = max(min(self.source.added(), self.position + limit), self.position)
        numbers, self.position = range(self.position, end), end
        self.open_numbers.update(numbers)
        if (settled := min(self.open_numbers, default=end)) != self.stored:
            other = self.source.committed.with_suffix(".new")
            other.write_text(str(settled))
            other.replace(self.source.committed)
            self.stored = settled
        array = np.arange(numbers.start, numbers.stop, dtype=np.int64)
        return Polled(array, [Event(number, number % 1_000) for number in numbers])

    def acked(self, numbers: NDArray[np.int64]) -> None:
        self.open_numbers.difference_update(numbers.tolist())

    def figures(self) -> Mapping[str, float]:
        return {"lag": self.source.added() - self.stored}


class Slow(Stateless, Bolt[Event, None]):
    def __init__(self, source: Input) -> None:
        self.source = source

    def prepare(self, context: Context) -> None:
        self.clock, self.file = context.clock, self.source.done.open("a", buffering=1)

    def process(self, record: Event) -> None:
        self.clock.sleep(COST_S)
        self.file.write(f"{record.number}\n")


def submit(cluster: RayCluster, source: Input, unit_s: float, load: float) -> RayRun:
    """`load`: how many tasks the records keep busy."""
    topology = Topology("load", workers=between(1, 4), internals=Internals(scaling_s=unit_s))
    events = topology.spout("events", Reader(source))
    events.fields("key").bolt("slow", Slow(source), parallelism=between(1, 4))
    source.set_rate(load / COST_S)
    return cluster.submit(topology.graph())


def changes(run: RayRun, since_s: float = 0.0) -> list[tuple[float, str]]:
    """When each change began, in Unix time, and why."""
    lines = [line for line in run.log_lines() if line.event in ("scaled", "not scaled")]
    return [(line.time, line.text) for line in lines if line.time >= since_s]


def until(run: RayRun, ready: Callable[[], Any], within_s: float) -> None:
    run._until(ready, within_s)


def assert_nothing_is_lost(source: Input) -> None:
    assert {*map(int, source.done.read_text().split())} == {*range(source.added())}


@pytest.mark.long
@pytest.mark.timeout(150)
def test_tasks_follow_the_load(ray_cluster: RayCluster, tmp_path: Path) -> None:
    source = Input(tmp_path)
    run = submit(ray_cluster, source, 1.0, load=1.6)
    until(run, lambda: changes(run), 60.0)
    until(run, lambda: len(run.plan.tasks_of("slow")) > 1, 30.0)
    assert "its source falls behind" in changes(run)[0][1]
    source.set_rate(0.0)
    until(run, lambda: source.position() == source.added(), 60.0)
    until(run, lambda: len(run.plan.tasks_of("slow")) == 1 == len(run.plan.workers), 60.0)
    assert "slow is busy" in changes(run)[-1][1]
    run.kill()
    assert_nothing_is_lost(source)
