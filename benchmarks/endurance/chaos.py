"""The experiment chaos: 20,000 tuples a second, a random actor is killed every 2 s, no loss."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.endurance.deliveries import DeliveryTimes, Kill, by_kind, causes
from benchmarks.endurance.kills import draw_victims, kill_victim, victims
from benchmarks.endurance.row_files import read_rows
from benchmarks.endurance.topologies import chaos_topology
from benchmarks.measure import BenchmarkError, Log
from benchmarks.start_signal import StartSignal
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.runtime.plan import Layout

EVERY_S = 2.0
_JITTER_S = 0.25  # otherwise all kills might be between two bursts of the source
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
        kills = _kill_repeatedly(run, seconds, kinds, np.random.default_rng(seed), log)
        _wait_for_end(run, time.monotonic() + EVERY_S + RECOVERY_MAX_S)
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


def _kill_repeatedly(
    run: RayRun, seconds: float, kinds: Sequence[str], generator: np.random.Generator, log: Log
) -> list[Kill]:
    """Kill a victim every 2 s, with jitter. If a successor takes longer, the following kills are
    delayed, but never closer together."""
    begun_s = time.monotonic()
    kills: list[Kill] = []
    due_s = begun_s
    for victim in draw_victims(victims(run.plan, kinds), generator):
        due_s = max(due_s + EVERY_S, time.monotonic())
        if due_s >= begun_s + seconds:
            break
        at_s = due_s + generator.uniform(-_JITTER_S, _JITTER_S)
        time.sleep(max(at_s - time.monotonic(), 0))
        kills.append(kill_victim(run, victim, log))
    time.sleep(max(begun_s + seconds - time.monotonic(), 0))
    return kills


def _wait_for_end(run: RayRun, end_s: float) -> None:
    while not run.finished():
        if time.monotonic() >= end_s:
            raise BenchmarkError(f"the run has not finished: {run.snapshot()}")
        time.sleep(0.1)
