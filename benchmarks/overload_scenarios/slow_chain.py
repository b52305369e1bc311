"""Overload with all defaults: a source without an end → a fast function → a bolt of 1 ms.

`speed` is what was acked, of what the same bolt does alone in another process during the same time,
at the priority of a worker: whatever else the machine does concerns both.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator
from multiprocessing.sharedctypes import Synchronized

from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.niceness import step_back
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.errors import TopologyFailed

Figures = dict[str, float | int | str]
PAUSE_S = 0.001
_LOOK_S = 1.0


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
            return _watch(running, seconds)
        finally:
            running.stop()


class Alone:
    """A process that calls the slow bolt again and again."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._calls = context.Value("q", 0)
        self._process = context.Process(target=_call, args=(self._calls,), daemon=True)

    def __enter__(self) -> Alone:
        self._process.start()
        while not self.calls:  # it is still importing
            time.sleep(PAUSE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    @property
    def calls(self) -> int:
        """How many calls it has made."""
        return int(self._calls.value)


def _call(calls: Synchronized[int]) -> None:
    step_back()
    record = Number(0)
    while True:
        slow(record)
        calls.value += 1


def _watch(running: RayRun, seconds: float) -> Figures:
    begun_s, acked, pauses_s, moved_s = time.monotonic(), 0, 0.0, time.monotonic()
    try:
        with Alone() as alone:
            acked_at_first, calls_at_first = running.snapshot().component("n").acked, alone.calls
            while time.monotonic() - begun_s < seconds:
                time.sleep(_LOOK_S)
                now = running.snapshot().component("n").acked
                if now > acked:
                    acked, moved_s = now, time.monotonic()
                pauses_s = max(pauses_s, time.monotonic() - moved_s)
            snapshot, calls = running.snapshot(), alone.calls
    except TopologyFailed as failed:
        lasted_s = round(time.monotonic() - begun_s)
        return {"state": f"failed after {lasted_s} s", "why": str(failed).splitlines()[0][:300]}
    counts, took_s = snapshot.component("n"), time.monotonic() - begun_s
    speed = (counts.acked - acked_at_first) / (calls - calls_at_first)
    p99_s = snapshot.latencies("n").percentile(99)
    return {
        "state": snapshot.state,
        "acked": counts.acked,
        "acked_per_s": round(counts.acked / took_s),
        "speed": round(speed, 3),
        "failed": counts.failed,
        "timeouts": counts.causes.get("timeout", 0),
        "longest_pause_s": round(pauses_s, 1),
        "latency_p99_s": -1.0 if p99_s is None else round(p99_s, 2),
    }
