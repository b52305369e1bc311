"""The experiment chaos: 20,000 tuples a second, a random actor is killed every 2 s, no loss."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.endurance.deliveries import DeliveryTimes, by_kind, causes
from benchmarks.endurance.kills import EVERY_S, kill_repeatedly, wait_for_end
from benchmarks.endurance.row_files import read_rows
from benchmarks.endurance.topologies import chaos_topology
from benchmarks.measure import Log
from benchmarks.start_signal import StartSignal
from sunshower.actors.cluster import RayCluster
from sunshower.runtime.plan import Layout

RECOVERY_MAX_S = 60.0  # after the end of the schedule; a run that takes longer has failed


def run_chaos(
    cluster: RayCluster,
    folder: Path,
    layout: Layout,
    seconds: float,
    rate: int,
    seed: int,
    kinds: Sequence[str],
    log: Log,
) -> dict[str, Any]:
    """One run. Raises BenchmarkError if it does not finish."""
    folder.mkdir()
    signal, total = StartSignal(folder), int(seconds * rate)
    run = cluster.submit(chaos_topology(signal, folder, rate, total).graph(), layout)
    try:
        signal.send()
        kills = kill_repeatedly(run, seconds, kinds, np.random.default_rng(seed), log)
        wait_for_end(run, time.monotonic() + EVERY_S + RECOVERY_MAX_S)
        snapshot = run.snapshot()
    finally:
        run.stop()
    deliveries = DeliveryTimes.of(
        total, *(read_rows(folder, what) for what in ("emitted", "sunk", "acked"))
    )
    failures = read_rows(folder, "failed")
    effects = [deliveries.effect_of(kill) for kill in kills]
    return {
        "layout": str(layout),
        "tuples": total,
        "lost": deliveries.lost,
        "acked_early": deliveries.acked_early,
        "rate": round(deliveries.rate),
        "kills": len(kills),
        "restarts": snapshot.restarts,
        "quarantined": len(snapshot.degraded),
        "dead_letters": snapshot.component("numbers").dead,
        "failures": causes(failures),
        "timeouts": causes(failures).get("timeout", 0),
        "replays": snapshot.component("numbers").replayed,
        "duplicates": deliveries.duplicates,
        "victims": by_kind(effects),
        "each": [
            {**asdict(effect.kill), "touched": effect.touched, "s": effect.seconds}
            for effect in effects
        ],
    }
