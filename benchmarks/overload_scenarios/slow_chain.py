"""Overload with default settings: an endless source → a fast function → a bolt of 1 ms.

`speed` is the number of acked tuples, as a fraction of the calls that another process makes with
only this bolt in the same time. It has the priority of a worker, so other work on the machine slows
both down.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator
from multiprocessing.sharedctypes import Synchronized

from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.actors.worker import step_back
from sunshower.errors import TopologyFailed

Figures = dict[str, float | int | str]
PAUSE_S = 0.001
_POLL_S = 1.0


def parse(record: Number) -> Iterator[Number]:
    """Takes no time."""
    yield record


def slow(record: Number) -> None:
    """Takes a millisecond, and any delay of the machine."""
    del record
    time.sleep(PAUSE_S)


def run(seconds: float) -> Figures:
    """Run for `seconds`."""
    ship([sys.modules[__name__]])
    topology = Topology("slow-chain")
    topology.spout("n", Counter()).shuffle().bolt("parse", parse).shuffle().bolt("slow", slow)
    with RayCluster() as cluster:
        running = cluster.submit(topology.graph())
        try:
            return _measure(running, seconds)
        finally:
            running.stop()


class ReferenceProcess:
    """A process that only calls the slow bolt, repeatedly."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._calls = context.Value("q", 0)
        self._process = context.Process(target=_call, args=(self._calls,), daemon=True)

    def __enter__(self) -> ReferenceProcess:
        self._process.start()
        while not self.calls:  # it is still importing
            time.sleep(PAUSE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    @property
    def calls(self) -> int:
        """The number of calls up to now."""
        return int(self._calls.value)


def _call(calls: Synchronized[int]) -> None:
    step_back()
    record = Number(0)
    while True:
        slow(record)
        calls.value += 1


def _measure(running: RayRun, seconds: float) -> Figures:
    begun_s, acked, pauses_s, moved_s = time.monotonic(), 0, 0.0, time.monotonic()
    try:
        with ReferenceProcess() as reference:
            acked_at_first, calls_at_first = (
                running.snapshot().component("n").acked,
                reference.calls,
            )
            while time.monotonic() - begun_s < seconds:
                time.sleep(_POLL_S)
                now = running.snapshot().component("n").acked
                if now > acked:
                    acked, moved_s = now, time.monotonic()
                pauses_s = max(pauses_s, time.monotonic() - moved_s)
            snapshot, calls = running.snapshot(), reference.calls
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
