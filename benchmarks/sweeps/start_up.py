"""Start-up: from `submit` to the first tuple at the last bolt, compared with bare actors.

It takes two rounds of three runs: 20 s.
"""

from __future__ import annotations

import time
from functools import partial

import ray

from benchmarks.benchmark_cluster import BenchmarkCluster, wait
from benchmarks.figures import Key, Ratio
from benchmarks.idle import EmptyActor
from benchmarks.measure import Comparison, Entry, Sample
from benchmarks.sweeps import open_loop, sweep_topologies
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import Layout

_NAME = "start_up"
_ACTORS = {Layout.ISOLATE: 5, Layout.PACK: 3}  # the master; three tasks and an acker, or 2 workers


def comparison(cluster: BenchmarkCluster) -> Comparison:
    """Seconds, compared with as many actors without any code, until each has answered a call."""
    ship([open_loop, sweep_topologies])
    entries, ratios = [], []
    for layout, actors in _ACTORS.items():
        key = Key(_NAME, "sunshower", layout.value, "s")
        bare = Key(_NAME, "ray", f"actors-{actors}", "s")
        entries += [
            Entry(key, partial(_ours, cluster, layout)),
            Entry(bare, partial(_bare, actors)),
        ]
        ratios.append(Ratio(f"{_NAME}/{layout.value}/ray", key, bare))
    return Comparison("start-up", entries, ratios, rounds=2)


def _ours(cluster: BenchmarkCluster, layout: Layout) -> Sample:
    begun_s = time.monotonic()
    with cluster.running(sweep_topologies.starting(), layout) as run:
        wait(lambda: all(run.results("sink")))
        return Sample(run.results("sink")[0] - begun_s)


def _bare(actors: int) -> Sample:
    begun_s = time.monotonic()
    started = [ray.remote(num_cpus=0)(EmptyActor).remote() for _ in range(actors)]
    ray.get([actor.pid.remote() for actor in started])
    seconds = time.monotonic() - begun_s
    for actor in started:
        ray.kill(actor)
    return Sample(seconds)
