"""Adaptive max pending compared with fixed limits: speed and complete latency of a word count."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.figures import Key, Ratio
from benchmarks.measure import Comparison, Entry, Sample
from benchmarks.sweeps.shared_run import SharedRun
from benchmarks.topologies import word_count
from sunshower.runtime.plan import Layout

FIXED = (1_000, 4_000, 16_000, 32_000)  # lines of ten words, for each of two spout tasks
_NAME = "pending"
_MILLION = 1e6


def comparison(cluster: BenchmarkCluster, path: Path, words: int) -> Comparison:
    """Operators over rows under full load, in two workers. `ms`: p50 from emit to ack."""
    chosen = _entries(cluster, path, words, "auto", {})
    fixed = [_entries(cluster, path, words, f"{n}", {"spout_pending": n}) for n in FIXED]
    ratios = [Ratio(f"{_NAME}/auto/{entry[0].key.variant}", chosen[0].key, entry[0].key)
              for entry in fixed]  # fmt: skip
    return Comparison(_NAME, [entry for each in (chosen, *fixed) for entry in each], ratios)


def _entries(
    cluster: BenchmarkCluster, path: Path, words: int, variant: str, settings: dict[str, int]
) -> list[Entry]:
    runs = SharedRun(partial(_run, cluster, path, words, settings))
    speed = Key(_NAME, "sunshower", variant, "M words/s")
    latency = Key(_NAME, "sunshower", f"{variant}-p50", "ms")
    return [Entry(speed, partial(runs.take, "speed")), Entry(latency, partial(runs.take, "p50"))]


def _run(
    cluster: BenchmarkCluster, path: Path, words: int, settings: dict[str, int]
) -> dict[str, Sample]:
    signal = cluster.start_signal()
    topology = word_count("operators", path, signal, **settings)
    figures = cluster.run(topology, signal, Layout.PACK).expect(words).sample(_MILLION)
    return {"speed": figures, "p50": Sample(1e3 * figures.more["p50_s"])}
