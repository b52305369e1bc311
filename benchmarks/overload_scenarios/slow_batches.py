"""Overload with default settings: exactly-once batches of an endless source, a function of 1 ms.

`speed` is the number of committed rows, as a fraction of the calls that another process makes with
only this function in the same time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.overload_scenarios import slow_chain
from benchmarks.overload_scenarios.slow_chain import PAUSE_S, ReferenceProcess
from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.errors import TopologyFailed
from sunshower.state import SqliteState
from sunshower.trident import InSqlite, PlainSpout, batches, count

Figures = dict[str, float | int | str]
_MASTER = "$mastercoord-numbers"
_DRAIN_MAX_S = 120.0


def slow(number: Number) -> bool:
    """Takes a millisecond, and lets the number pass."""
    del number
    time.sleep(PAUSE_S)
    return True


def run(seconds: float) -> Figures:
    """Run for `seconds`, then drain."""
    ship([slow_chain, sys.modules[__name__]])
    with tempfile.TemporaryDirectory() as folder, RayCluster() as cluster:
        state = SqliteState(Path(folder) / "counts.db")
        topology = Topology("slow-batches")
        store = InSqlite(Path(folder) / "batches.db")
        rows = batches(topology, "numbers", PlainSpout(Counter(), repeats=True), store=store)
        rows.filter(slow).aggregate(count(), state=state)
        running = cluster.submit(topology.graph())
        try:
            figures = _measure(running, seconds)
        except TopologyFailed as failed:
            return {"state": "failed", "why": str(failed).splitlines()[0][:300]}
        finally:
            running.stop()
        counted = sum(int(value) for _, value in state.items())
    return {**figures, "rows": counted, "speed": round(counted / int(figures["calls alone"]), 3)}


def _measure(running: RayRun, seconds: float) -> Figures:
    with ReferenceProcess() as reference:
        calls = reference.calls
        running.wait(seconds)
        running.drain()
        ended = running.wait(_DRAIN_MAX_S)
        snapshot, calls = running.snapshot(), reference.calls - calls
    master = snapshot.component(_MASTER)
    latency_s = snapshot.latencies(_MASTER).percentile(99)
    return {
        "state": snapshot.state if ended else f"{snapshot.state}, not drained",
        "batches": int(snapshot.figures(_MASTER).get("txid", 0)),
        "calls alone": calls,
        "timeouts": master.causes.get("timeout", 0),
        "failed": master.failed,
        "needless_replacements": snapshot.restarts,
        "latency_p99_s": -1.0 if latency_s is None else round(latency_s, 2),
    }
