"""const → null and const → id → null: the cost of a record when the bolts do no work."""

from __future__ import annotations

import time
from functools import partial

import ray

from benchmarks import machine
from benchmarks.bare_actors import BareAcker, BareBolt, BareSpout
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.figures import Key, Ratio
from benchmarks.measure import BenchmarkError, Comparison, Entry, Outcome, Sample
from benchmarks.topologies import constants
from sunshower.runtime.plan import Layout

FRAME = 1024  # records in a frame, in isolated runs and of the bare actors
PENDING = 1 << 16  # pending tuples in the same runs; the default is half of this
MILLION = 1e6
UNIT = "M tuples/s"
NULL, THROUGH = "const_null", "const_id_null"


def comparison(cluster: BenchmarkCluster, seconds: float) -> Comparison:
    """Isolated and packed, tracked and untracked, one hop and two, and three bare actors."""
    null, ours = NULL, partial(our_entry, cluster, seconds)
    isolated, packed = ours(null, Layout.ISOLATE), ours(null, Layout.PACK)
    isolated_bare = ours(null, Layout.ISOLATE, tracked=False)
    packed_bare = ours(null, Layout.PACK, tracked=False)
    bare = Entry(Key(null, "three-actors", f"rows-{FRAME}", UNIT), partial(_bare_actors, seconds))
    two_hops = [ours(THROUGH, Layout.ISOLATE), ours(THROUGH, Layout.PACK)]
    return Comparison(
        "constants",
        [isolated, bare, packed, packed_bare, isolated_bare, *two_hops],
        [
            Ratio(f"{null}/{isolated.key.variant}/three-actors", isolated.key, bare.key),
            Ratio(f"{null}/{isolated.key.variant}/untracked", isolated.key, isolated_bare.key),
            Ratio(f"{null}/{packed.key.variant}/untracked", packed.key, packed_bare.key),
        ],
    )


def our_entry(
    cluster: BenchmarkCluster, seconds: float, workload: str, layout: Layout, tracked: bool = True
) -> Entry:
    """Our run of one of the two workloads, which emits for `seconds`."""
    isolated = layout is Layout.ISOLATE
    variant = f"isolate-rows-{FRAME}" if isolated else "pack-rows"
    settings = {"frame_records_max": FRAME, "spout_pending": PENDING} if isolated else {}
    if not tracked:
        variant, settings = f"{variant}-untracked", {**settings, "ackers": 0}
    hops = 1 if workload == NULL else 2
    key = Key(workload, "sunshower", variant, UNIT)
    return Entry(key, partial(_ours, cluster, hops, layout, seconds, settings))


def _ours(
    cluster: BenchmarkCluster, hops: int, layout: Layout, seconds: float, settings: dict[str, int]
) -> Sample:
    signal = cluster.start_signal()
    return cluster.run(constants(hops, signal, seconds, **settings), signal, layout).sample(MILLION)


def _bare_actors(seconds: float) -> Sample:
    actor = {"num_cpus": 0}
    spout = ray.remote(**actor)(BareSpout).remote(FRAME)
    bolt = ray.remote(**actor)(BareBolt).remote()
    acker = ray.remote(**actor)(BareAcker).remote()
    calls = [spout.connect.remote(spout, bolt, acker), bolt.connect.remote(acker)]
    pids = ray.get([*calls, acker.connect.remote(spout)])
    before_s = machine.cpu_s(pids)
    spout.begin.remote(seconds)
    time.sleep(seconds)
    emitted, acked, begun_s, last_s = _final_counts(spout)
    after_s = machine.cpu_s(pids)
    for component in (spout, bolt, acker):
        ray.kill(component)
    if emitted != acked:
        raise BenchmarkError(f"the bare actors emitted {emitted:,}, but {acked:,} were acked")
    used_s = None if before_s is None or after_s is None else after_s - before_s
    return Outcome(begun_s, last_s, acked, used_s).sample(MILLION)


def _final_counts(spout: object) -> tuple[int, int, float, float]:
    """The counts of the spout when all tuples are acked, or after ten seconds."""
    end_s = time.monotonic() + 10
    while True:
        time.sleep(0.1)
        counts: tuple[int, int, float, float] = ray.get(spout.count.remote())
        if counts[0] == counts[1] or time.monotonic() >= end_s:
            return counts
