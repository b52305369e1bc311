"""The cost of an experiment's history: the same topology with and without one."""

from __future__ import annotations

from functools import partial

from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.constants import FRAME, MILLION, PENDING
from benchmarks.figures import Key, Ratio
from benchmarks.measure import Comparison, Entry, Sample
from benchmarks.topologies import constants
from sunshower.runtime.plan import Layout

SAMPLES = (64, 1)  # the history has the edges of one tree in this number


def comparison(cluster: BenchmarkCluster, seconds: float) -> Comparison:
    """Const → id → null, isolated, at full speed: the worst case, because the bolts do no work."""
    bare = _entry(cluster, seconds, None)
    entries = {sample: _entry(cluster, seconds, sample) for sample in SAMPLES}
    ratios = [
        Ratio(f"history/sample-{n}/none", entry.key, bare.key) for n, entry in entries.items()
    ]
    return Comparison("history", [bare, *entries.values()], ratios, rounds=2)


def _entry(cluster: BenchmarkCluster, seconds: float, sample: int | None) -> Entry:
    variant = "none" if sample is None else f"sample-{sample}"
    key = Key("history", "sunshower", variant, "M tuples/s")
    return Entry(key, partial(_run, cluster, seconds, sample))


def _run(cluster: BenchmarkCluster, seconds: float, sample: int | None) -> Sample:
    signal = cluster.start_signal()
    topology = constants(2, signal, seconds, frame_records_max=FRAME, spout_pending=PENDING)
    return cluster.run(topology, signal, Layout.ISOLATE, sample).sample(MILLION)
