"""Overload with all defaults: a source without an end → a fast function → a bolt of 1 ms.

`speed` is what was acked, of what the slow bolt does alone in this process and time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.errors import TopologyFailed

Figures = dict[str, float | int | str]
PAUSE_S = 0.001
_LOOK_S = 1.0
_ALONE = 500  # calls of the slow bolt, to know its speed alone


def parse(record: Number) -> Iterator[Number]:
    """Takes no time."""
    yield record


def slow(record: Number) -> None:
    """Takes a millisecond, and what the machine adds to it."""
    del record
    time.sleep(PAUSE_S)


def run(seconds: float) -> Figures:
    """Run it for so long."""
    ship([sys.modules[__name__]])
    topology = Topology("slow-chain")
    topology.spout("n", Counter()).shuffle().bolt("parse", parse).shuffle().bolt("slow", slow)
    with RayCluster() as cluster:
        running = cluster.submit(topology.graph())
        try:
            alone = _alone()
            return _watch(running, seconds, alone)
        finally:
            running.stop()


def _alone() -> float:
    begun_s = time.perf_counter()
    for value in range(_ALONE):
        slow(Number(value))
    return _ALONE / (time.perf_counter() - begun_s)


def _watch(running: RayRun, seconds: float, alone: float) -> Figures:
    begun_s, acked, pauses_s, moved_s = time.monotonic(), 0, 0.0, time.monotonic()
    try:
        while time.monotonic() - begun_s < seconds:
            time.sleep(_LOOK_S)
            now = running.snapshot().component("n").acked
            if now > acked:
                acked, moved_s = now, time.monotonic()
            pauses_s = max(pauses_s, time.monotonic() - moved_s)
        snapshot = running.snapshot()
    except TopologyFailed as failed:
        lasted_s = round(time.monotonic() - begun_s)
        return {"state": f"failed after {lasted_s} s", "why": str(failed).splitlines()[0][:300]}
    counts, took_s = snapshot.component("n"), time.monotonic() - begun_s
    p99_s = snapshot.latencies("n").percentile(99)
    return {
        "state": snapshot.state,
        "acked": counts.acked,
        "acked_per_s": round(counts.acked / took_s),
        "speed": round(counts.acked / took_s / alone, 3),
        "failed": counts.failed,
        "timeouts": counts.causes.get("timeout", 0),
        "longest_pause_s": round(pauses_s, 1),
        "latency_p99_s": -1.0 if p99_s is None else round(p99_s, 2),
    }
