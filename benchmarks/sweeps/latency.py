"""Latency under light load: from the time a tuple is due until it is acked, at fixed rates.

It takes two rounds of at most 40 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import ray

from benchmarks.benchmark_cluster import BenchmarkCluster, wait
from benchmarks.figures import Key, Ratio
from benchmarks.measure import BenchmarkError, Comparison, Entry, Sample
from benchmarks.sweeps import open_loop, paced
from benchmarks.sweeps.open_loop import Step, latencies_ms, percentile
from benchmarks.sweeps.paced import chain, two_actors
from benchmarks.sweeps.shared_run import SharedRun
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import Layout

BOLTS = 2  # in a row, between source and sink
RATES = (1, 10, 100, 1_000)  # tuples a second
PERCENTS = (50, 99)
ROUNDS = 2
_NAME = "latency"
_COUNTS = {1: 5, 10: 20, 100: 200, 1_000: 1_000}  # of tuples at each rate
_QUICK = {1: 1, 10: 5, 100: 20, 1_000: 200}


def comparison(cluster: BenchmarkCluster, seconds: float) -> Comparison:
    """Spout, two bolts in a row and a sink, compared with calls between two bare actors."""
    ship([open_loop, paced])
    counts = _COUNTS if seconds > 1 else _QUICK
    steps = [Step(rate, counts[rate]) for rate in RATES]
    bare = _entries("ray", "call", SharedRun(partial(_bare, steps)), RATES)
    ours: list[Entry] = []
    ratios = []
    for layout in (Layout.ISOLATE, Layout.PACK):
        for suffix, wakes in (("", True), ("-poll", False)):
            runs = SharedRun(partial(_ours, cluster, layout, steps, wakes))
            entries = _entries("sunshower", f"{layout.value}{suffix}", runs, RATES)
            ours += entries
            ratios += [
                Ratio(f"{_NAME}/{entry.key.variant}/ray", entry.key, peer.key)
                for entry, peer in zip(entries, bare, strict=True)
            ]
    return Comparison(_NAME, [*bare, *ours], ratios, rounds=ROUNDS)


def _entries(system: str, variant: str, runs: SharedRun, rates: Sequence[int]) -> list[Entry]:
    names = [f"{rate}-p{percent}" for rate in rates for percent in PERCENTS]
    return [
        Entry(Key(_NAME, system, f"{variant}-{name}", "ms"), partial(runs.take, name))
        for name in names
    ]


def _ours(
    cluster: BenchmarkCluster, layout: Layout, steps: Sequence[Step], wakes: bool
) -> dict[str, Sample]:
    signal = cluster.start_signal()
    with cluster.running(chain(signal, steps, BOLTS, wakes=wakes), layout) as run:
        wait(lambda: all(result and result[0] for result in run.results("source")))
        signal.send()
        cluster.during_run(run)
        wait(run.finished)
        (result,) = run.results("source")
    _, start_s, emitted_s, acked_s = result
    late = latencies_ms(steps, emitted_s, start_s)
    return _samples(steps, latencies_ms(steps, acked_s, start_s), late)


def _bare(steps: Sequence[Step]) -> dict[str, Sample]:
    with two_actors() as (caller, other):
        start_s, done_s = ray.get(caller.call.remote(other, steps))
    return _samples(steps, latencies_ms(steps, done_s, start_s))


def _samples(
    steps: Sequence[Step], latencies: Sequence[Sequence[float]], late: Sequence[Any] = ()
) -> dict[str, Sample]:
    """The percentiles of each step; `late`: the delays with which its records were emitted."""
    figures = {}
    for number, step in enumerate(steps):
        if max(latencies[number]) == open_loop.UNDONE:
            raise BenchmarkError(f"not all of {step.count:,} records were answered")
        for percent in PERCENTS:
            more = {"late_ms": percentile(late[number], percent)} if late else {}
            value = percentile(latencies[number], percent)
            figures[f"{step.rate:g}-p{percent}"] = Sample(value, more=more)
    return figures
