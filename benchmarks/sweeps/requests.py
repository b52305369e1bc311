"""Requests: how long one caller waits for an answer, and how many answers 32 callers get a second.

They are compared with a chain of two bare actors, which do the same. It takes two rounds of 10 s.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import ray

from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.figures import Key, Ratio
from benchmarks.measure import Comparison, Entry, Sample
from benchmarks.sweeps.open_loop import percentile
from benchmarks.sweeps.shared_run import SharedRun
from sunshower import Topology
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import Layout

CALLERS = 32
_NAME = "requests"
_TEXT = "the whale"
_SINGLE = 200  # requests of the single caller, before which there are a tenth as many unmeasured


class Line(NamedTuple):
    """A request."""

    text: str


class Length(NamedTuple):
    """A row of an answer."""

    word: str
    length: int


def lengths(line: Line) -> Iterator[Length]:
    """The length of each word."""
    for word in line.text.split():
        yield Length(word, len(word))


def answering() -> Topology:
    """Requests, and two tasks of a bolt that answers them."""
    topology = Topology("answering")
    topology.requests("lines", Line).shuffle().bolt("lengths", lengths, parallelism=2).answer()
    return topology


class BoltActor:
    """Answers a line as the bolt does."""

    def answer(self, line: Line) -> list[Length]:
        return [*lengths(line)]


class FrontActor:
    """Takes requests, and passes each on to a BoltActor."""

    def __init__(self, bolt: Any) -> None:
        self._bolt = bolt

    def answer(self, line: Line) -> list[Length]:
        answer: list[Length] = ray.get(self._bolt.answer.remote(line))
        return answer


def comparison(cluster: BenchmarkCluster, seconds: float) -> Comparison:
    """Milliseconds for one caller, and answers a second of many."""
    ship([sys.modules[__name__]])
    ours, bare = SharedRun(partial(_ours, cluster, seconds)), SharedRun(partial(_bare, seconds))
    entries, ratios = [], []
    for figure, unit in (("single-p50", "ms"), (f"callers-{CALLERS}", "answers/s")):
        key, peer = Key(_NAME, "sunshower", figure, unit), Key(_NAME, "ray", figure, unit)
        entries += [Entry(key, partial(ours.take, figure)), Entry(peer, partial(bare.take, figure))]
        ratios.append(Ratio(f"{_NAME}/{figure}/ray", key, peer))
    return Comparison(_NAME, entries, ratios, rounds=2)


def _ours(cluster: BenchmarkCluster, seconds: float) -> dict[str, Sample]:
    with cluster.running(answering(), Layout.PACK) as run:
        return _measured(partial(run.ask, "lines"), seconds)


def _bare(seconds: float) -> dict[str, Sample]:
    bolt = ray.remote(num_cpus=0)(BoltActor).remote()
    front = ray.remote(num_cpus=0, max_concurrency=CALLERS)(FrontActor).remote(bolt)
    try:
        return _measured(lambda line: ray.get(front.answer.remote(line)), seconds)
    finally:
        ray.kill(front)
        ray.kill(bolt)


def _measured(ask: Callable[[Line], Sequence[Length]], seconds: float) -> dict[str, Sample]:
    waits_ms = [1000 * _seconds_of(ask) for _ in range(_SINGLE + _SINGLE // 10)][_SINGLE // 10 :]
    with ThreadPoolExecutor(CALLERS) as pool:
        begun_s = time.monotonic()
        counts = pool.map(partial(_repeated, ask, begun_s + seconds), range(CALLERS))
        rate = sum(counts) / (time.monotonic() - begun_s)
    return {
        "single-p50": Sample(percentile(waits_ms, 50), more={"p99": percentile(waits_ms, 99)}),
        f"callers-{CALLERS}": Sample(rate),
    }


def _seconds_of(ask: Callable[[Line], Sequence[Length]]) -> float:
    begun_s = time.monotonic()
    assert sorted(ask(Line(_TEXT))) == [("the", 3), ("whale", 5)]
    return time.monotonic() - begun_s


def _repeated(ask: Callable[[Line], Sequence[Length]], end_s: float, _: int) -> int:
    count = 0
    while time.monotonic() < end_s:
        ask(Line(_TEXT))
        count += 1
    return count
