"""The experiment slow: a bolt 100 times slower than its spout; no timeouts, bounded memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.benchmark_cluster import worker_pids
from benchmarks.endurance.deliveries import causes
from benchmarks.endurance.row_files import read_rows
from benchmarks.endurance.topologies import slow_topology
from benchmarks.measure import BenchmarkError, Log
from benchmarks.start_signal import StartSignal
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.config import Config
from sunshower.runtime.plan import Layout

RATE = 100_000  # tuples a second that the spout could emit
PAUSE_S = 0.001  # that the bolt takes for each
_RECORD_BYTES = 120  # of an Item in memory: a tuple of two, and its number
_SETTLED_S = 2.0  # after the start: code is loaded, buffers have their first size
_FINISH_MAX_S = 60.0  # for the tuples that are open at the end
_MIB = 1 << 20


def run_slow(cluster: RayCluster, folder: Path, seconds: float, log: Log) -> dict[str, Any]:
    """One run. Raises BenchmarkError if the open tuples are not finished at the end."""
    folder.mkdir()
    signal = StartSignal(folder)
    topology = slow_topology(signal, folder, RATE, int((seconds + _FINISH_MAX_S) * RATE), PAUSE_S)
    run = cluster.submit(topology.graph(), Layout.ISOLATE)
    try:
        signal.send()
        sizes = _measure_memory(run, seconds, log)
        run.drain()
        if not run.wait(_FINISH_MAX_S):
            raise BenchmarkError(f"the run has not finished: {run.snapshot()}")
        counts = run.snapshot().component("numbers")
    finally:
        run.stop()
    bound = bound_mib(topology.config)
    growth = max(peak - start for start, peak in sizes.values())
    return {
        "acked": counts.acked,
        "rate": round(counts.acked / seconds),
        "timeouts": causes(read_rows(folder, "failed")).get("timeout", 0),
        "replays": counts.replayed,
        "memory_mib": {name: {"start": s, "peak": p} for name, (s, p) in sizes.items()},
        "growth_mib": growth,
        "bound_mib": bound,
        "of_bound": round(growth / bound, 3),
    }


def bound_mib(config: Config) -> float:
    """The memory in MiB that a worker of this topology may need: see docs/ARCHITECTURE.md.

    It is that of the pending table with its records, the slots of an acker shard, and the packets
    on their way, at both ends. The window of a bolt that takes 1 ms, 250 records, is negligible.
    """
    pending = config.spout_pending * (_RECORD_BYTES + 52 + 16)
    packets = 2 * config.internals.calls_in_flight_max * config.internals.packet_bytes_max
    return round((pending + packets) / _MIB, 1)


def _measure_memory(run: RayRun, seconds: float, log: Log) -> dict[str, tuple[float, float]]:
    """Each worker's resident memory in MiB: after the start, and its highest value."""
    pids = dict(zip(run.plan.workers, worker_pids(run), strict=True))
    names = {w: run.plan.tasks_on(w)[0].component.strip("_") for w in pids}
    begun_s = time.monotonic()
    time.sleep(_SETTLED_S)
    start = {worker: _resident_mib(pid) for worker, pid in pids.items()}
    peak = dict(start)
    while (left_s := begun_s + seconds - time.monotonic()) > 0:
        time.sleep(min(1.0, left_s))
        peak = {worker: max(peak[worker], _resident_mib(pid)) for worker, pid in pids.items()}
    log(f"{run.snapshot().component('numbers').acked:,} tuples through the slow bolt")
    return {names[worker]: (start[worker], peak[worker]) for worker in pids}


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / _MIB, 1)
