"""The processor time of an idle topology, as a share of one core."""

from __future__ import annotations

import os
from functools import partial

import ray

from benchmarks.benchmark_cluster import BenchmarkCluster, idle_share
from benchmarks.figures import Key
from benchmarks.measure import BenchmarkError, Comparison, Entry, Sample
from benchmarks.topologies import idle

TASKS = 6
KEY = Key("idle", "sunshower", f"isolate-{TASKS}-tasks", "cores")


class EmptyActor:
    """An actor without work, to measure what Ray itself uses."""

    def pid(self) -> int:
        return os.getpid()


def comparison(cluster: BenchmarkCluster, seconds: float) -> Comparison:
    """Six tasks and their master, compared with as many actors without any code."""
    bare = Key("idle", "ray", f"{TASKS + 1}-empty-actors", "cores")
    return Comparison(
        "idle",
        [Entry(KEY, partial(_ours, cluster, seconds)), Entry(bare, partial(_bare, seconds))],
        rounds=2,
    )


def _ours(cluster: BenchmarkCluster, seconds: float) -> Sample:
    return _sample(cluster.idle(idle(), seconds))


def _bare(seconds: float) -> Sample:
    actors = [ray.remote(num_cpus=0)(EmptyActor).remote() for _ in range(TASKS + 1)]
    share = idle_share(ray.get([actor.pid.remote() for actor in actors]), seconds)
    for actor in actors:
        ray.kill(actor)
    return _sample(share)


def _sample(share: float | None) -> Sample:
    if share is None:
        raise BenchmarkError("this machine does not report the processor time of a process")
    return Sample(share)
