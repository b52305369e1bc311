"""Speed against one number: record size, keys, fan-out, tasks, length of the chain, acker shards.

It takes one round of 28 runs: 100 s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import ray

from benchmarks import machine
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.figures import Key
from benchmarks.measure import BenchmarkError, Comparison, Entry, Sample
from benchmarks.start_signal import StartSignal
from benchmarks.sweeps import open_loop, paced, sweep_topologies
from benchmarks.sweeps.paced import two_actors
from benchmarks.sweeps.shared_run import SharedRun
from sunshower import Topology
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import Layout

SECONDS = 1.5
_NAME = "sweeps"
_UNIT = "records/s"
SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
KEYS = (10, 1_000, 100_000, 1_000_000, 10_000_000)
FAN_OUTS = (1, 10, 100, 1_000)
TASKS = (1, 4, 16, 64)
LENGTHS = (1, 2, 4, 8, 16)
SHARDS = (1, 2, 4, 8)
_Make = Callable[[StartSignal, float], Topology]
_CALLS, _AT_ONCE, _CALL_BYTES = 8_000, 4, 2_000  # a worker has four packets to a peer in flight


def comparison(cluster: BenchmarkCluster, seconds: float) -> Comparison:
    """Runs each number of each range for `seconds`, at most 1.5.

    A variant ends with its number. `record-bytes` and `keys` are isolated, so each record passes
    between two processes; the others have two workers. `fan-out` counts derived records.
    `call-cpu`: processor time of a bare Ray call of 2,000 bytes, four at a time, at both ends.
    """
    ship([open_loop, paced, sweep_topologies])
    seconds = min(seconds, SECONDS)
    isolated = partial(_entry, cluster, Layout.ISOLATE, seconds)
    packed = partial(_entry, cluster, Layout.PACK, seconds)
    entries = [entry for size in SIZES for entry in _sized(cluster, seconds, size)]
    entries += [isolated(f"keys-{n}", partial(sweep_topologies.keyed, keys=n)) for n in KEYS]
    entries += [
        packed(f"fan-out-{n}", partial(sweep_topologies.fanned_out, times=n)) for n in FAN_OUTS
    ]
    entries += [packed(f"tasks-{n}", partial(sweep_topologies.bolt_chain, tasks=n)) for n in TASKS]
    entries += [
        packed(f"chain-{n}", partial(sweep_topologies.bolt_chain, bolts=n)) for n in LENGTHS
    ]
    entries += [
        packed(f"shards-{n}", partial(sweep_topologies.bolt_chain, ackers=n)) for n in SHARDS
    ]
    runs = SharedRun(partial(_calls, int(_CALLS * seconds / SECONDS)))
    entries += [
        Entry(Key(_NAME, "ray", f"call-cpu-{side}", "µs"), partial(runs.take, side))
        for side in ("caller", "answerer")
    ]
    return Comparison(_NAME, entries, rounds=1)


def _entry(
    cluster: BenchmarkCluster, layout: Layout, seconds: float, variant: str, make: _Make
) -> Entry:
    return Entry(
        Key(_NAME, "sunshower", variant, _UNIT), partial(_run, cluster, layout, seconds, make)
    )


def _run(cluster: BenchmarkCluster, layout: Layout, seconds: float, make: _Make) -> Sample:
    signal = cluster.start_signal()
    return cluster.run(make(signal, seconds), signal, layout).sample(1.0)


def _sized(cluster: BenchmarkCluster, seconds: float, size: int) -> list[Entry]:
    """Records and megabytes per second, from one run."""

    def run() -> dict[str, Sample]:
        figures = _run(cluster, Layout.ISOLATE, seconds, partial(sweep_topologies.sized, size=size))
        return {_UNIT: figures, "MB/s": Sample(figures.value * size / 1e6, figures.cores)}

    runs = SharedRun(run)
    names = {_UNIT: f"record-bytes-{size}", "MB/s": f"volume-of-record-bytes-{size}"}
    return [
        Entry(Key(_NAME, "sunshower", name, unit), partial(runs.take, unit))
        for unit, name in names.items()
    ]


def _calls(calls: int) -> dict[str, Sample]:
    """Microseconds of processor time for each call, of both actors."""
    with two_actors() as (caller, other):
        pids = dict(
            zip(
                ("caller", "answerer"),
                ray.get([caller.pid.remote(), other.pid.remote()]),
                strict=True,
            )
        )
        before_s = {side: machine.cpu_s([pid]) for side, pid in pids.items()}
        ray.get(caller.call_repeatedly.remote(other, calls, bytes(_CALL_BYTES), _AT_ONCE))
        after_s = {side: machine.cpu_s([pid]) for side, pid in pids.items()}
    if None in (*before_s.values(), *after_s.values()):
        raise BenchmarkError("this machine does not report the processor time of a process")
    return {side: Sample((after_s[side] - before_s[side]) / calls * 1e6) for side in pids}
