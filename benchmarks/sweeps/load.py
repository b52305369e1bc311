"""Latency against load: const → id → null at fractions of its highest speed, in an open loop.

It takes one round of two layouts, with six runs of 2 s each: 45 to 90 s.
"""

from __future__ import annotations

from functools import partial
from math import inf

from benchmarks.benchmark_cluster import BenchmarkCluster, wait
from benchmarks.figures import Key
from benchmarks.measure import BenchmarkError, Comparison, Entry, Sample
from benchmarks.sweeps import open_loop, sweep_topologies
from benchmarks.sweeps.shared_run import SharedRun
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import Layout

LOADS = (10, 30, 50, 70, 90)  # percent of the highest speed
SECONDS = 2.0
_NAME = "load"


class _SpeedAndLatency:
    """Measures the highest speed of one layout, and its latency at fractions of that speed."""

    def __init__(self, cluster: BenchmarkCluster, layout: Layout, seconds: float) -> None:
        self._cluster, self._layout, self._seconds = cluster, layout, seconds
        self._rate: float | None = None

    def measure(self) -> Sample:
        """The highest speed in tuples a second; `at` needs it."""
        self._rate, _ = self._run(inf)
        return Sample(self._rate)

    def at(self, percent: int) -> dict[str, Sample]:
        """The milliseconds from due to acked, at this percentage of the highest speed."""
        if self._rate is None:
            raise BenchmarkError("the highest speed was not measured, so no load is known")
        rate = self._rate * percent / 100
        reached, latencies = self._run(rate)
        if not latencies:
            raise BenchmarkError(f"nothing was acked at {rate:,.0f} tuples a second")
        more = {"rate": rate, "reached": reached}
        return {f"p{p}": Sample(value, more=more) for p, value in latencies.items()}

    def _run(self, rate: float) -> tuple[float, dict[int, float]]:
        """(tuples acked a second, milliseconds by percentile)."""
        signal = self._cluster.start_signal()
        topology = sweep_topologies.loaded(signal, self._seconds, rate)
        with self._cluster.running(topology, self._layout) as run:
            wait(lambda: all(result and result[0] for result in run.results("source")))
            signal.send()
            wait(run.finished)
            ((_, reached, latencies),) = run.results("source")
        return reached, latencies


def comparison(cluster: BenchmarkCluster, seconds: float) -> Comparison:
    """p50 and p99 at 10 to 90 % of the highest speed, which is measured first."""
    ship([open_loop, sweep_topologies])
    entries = []
    for layout in (Layout.PACK, Layout.ISOLATE):
        highest = _SpeedAndLatency(cluster, layout, min(seconds, SECONDS))
        key = Key(_NAME, "sunshower", f"{layout.value}-highest", "tuples/s")
        entries.append(Entry(key, highest.measure))
        for load in LOADS:
            runs = SharedRun(partial(highest.at, load))
            for name in ("p50", "p99"):
                key = Key(_NAME, "sunshower", f"{layout.value}-{name}-load-{load}", "ms")
                entries.append(Entry(key, partial(runs.take, name)))
    return Comparison(_NAME, entries, rounds=1)
