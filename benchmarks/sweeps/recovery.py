"""Recovery: from the SIGKILL of a worker to the first ack of a tuple that was emitted after it.

It takes one round of four runs of 8 s: 35 s. `python -m benchmarks.endurance chaos` has more kills.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.benchmark_cluster import BenchmarkCluster, wait
from benchmarks.endurance import kills, row_files, topologies
from benchmarks.endurance.deliveries import NEVER, DeliveryTimes
from benchmarks.endurance.kills import kill_victim, victims
from benchmarks.endurance.topologies import Numbers, Sink, relay
from benchmarks.figures import Key
from benchmarks.measure import BenchmarkError, Comparison, Entry, Sample
from benchmarks.start_signal import StartSignal
from sunshower import Topology
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import Layout

RATE = 2_000  # tuples a second
SECONDS = 5.0  # of load, with a kill after the first second
_KILL_S = 1.0
_NAME = "recovery"
_VICTIMS = {Layout.PACK: ("worker",), Layout.ISOLATE: ("bolt", "spout", "acker")}


def comparison(cluster: BenchmarkCluster) -> Comparison:
    """Seconds without an ack of a new tuple, by layout and kind of worker, with one task each."""
    ship([row_files, kills, topologies])
    return Comparison(
        _NAME,
        [
            Entry(
                Key(_NAME, "sunshower", f"{layout.value}-{kind}", "s"),
                partial(_run, cluster, layout, kind, SECONDS),
            )
            for layout, kinds in _VICTIMS.items()
            for kind in kinds
        ],
        rounds=1,
    )


def _run(cluster: BenchmarkCluster, layout: Layout, kind: str, seconds: float) -> Sample:
    with cluster.fresh_folder() as folder:
        signal, total = cluster.start_signal(), int(seconds * RATE)
        with cluster.running(_topology(signal, folder, total), layout) as run:
            signal.send()
            time.sleep(_KILL_S)
            victim = victims(run.plan, (kind,))[0]
            kill = kill_victim(run, victim, lambda _: None)
            wait(run.finished)
        names = ("emitted", "sunk", "acked")
        deliveries = DeliveryTimes.of(total, *(row_files.read_rows(folder, name) for name in names))
    if deliveries.lost:
        raise BenchmarkError(
            f"{deliveries.lost:,} tuples were lost after the kill of {victim.label}"
        )
    effect = deliveries.effect_of(kill)
    more = {"successor_s": kill.back_s or 0.0, "last_touched_s": effect.seconds}
    return Sample(first_ack_s(deliveries, kill.at_ns), more=more)


def first_ack_s(deliveries: DeliveryTimes, kill_ns: int) -> float:
    """Seconds from the kill to the first ack of a tuple that was first emitted after it."""
    later = deliveries.acked[deliveries.emitted > kill_ns]
    first = int(later.min(initial=NEVER))
    return float(np.inf) if first == NEVER else (first - kill_ns) / 1e9


def _topology(signal: StartSignal, folder: Path, total: int) -> Topology:
    topology = Topology("recovery", ackers=1)
    items = topology.spout("numbers", Numbers(signal, folder, RATE, total))
    items.shuffle().bolt("relay", relay).fields("key").bolt("sink", Sink(folder))
    return topology
