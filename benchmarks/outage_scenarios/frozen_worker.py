"""A worker's process is stopped for some time (SIGSTOP), then continued; it is replaced."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.outage_scenarios._outage_watch import CAUGHT_UP_S, Figures, Numbers
from sunshower import Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.runtime.plan import Layout

_RATE = 500.0
_AFTER_S = 10.0
_POLL_S = 0.2


def discard(number: Number) -> None: ...


def run(seconds: float) -> Figures:
    """The process of the only bolt is stopped."""

    def freeze(run: RayRun) -> None:
        (task,) = run.plan.tasks_of("discard")
        run.pause_worker(task.worker)
        threading.Timer(seconds, run.resume_worker, [task.worker]).start()

    return run_frozen(discard, freeze, seconds)


def run_frozen(
    bolt: Callable[[Number], None], begin: Callable[[RayRun], None], seconds: float
) -> Figures:
    """The figures of a topology whose bolt is frozen by `begin`, with default settings."""
    with tempfile.TemporaryDirectory() as folder, RayCluster() as cluster:
        end = Path(folder, "end")
        topology = Topology("frozen")
        topology.spout("numbers", Numbers(_RATE, end)).shuffle().bolt("discard", bolt)
        run = cluster.submit(topology.graph(), Layout.ISOLATE)
        time.sleep(_AFTER_S)
        begin(run)
        frozen_s, replaced_s, shown = time.monotonic(), -1.0, False
        while time.monotonic() < frozen_s + seconds + _AFTER_S:
            snapshot = run.snapshot()
            shown = shown or bool(snapshot.silent)
            if replaced_s < 0 and snapshot.restarts:
                replaced_s = time.monotonic() - frozen_s
            time.sleep(_POLL_S)
        end.touch()
        is_finished = run.wait(CAUGHT_UP_S)
        snapshot = run.snapshot()
        numbers = snapshot.component("numbers")
        emitted = numbers.emitted - numbers.replayed
        run.stop()
    return {
        "acked": numbers.acked,
        "lost": emitted - numbers.acked,
        "replaced_s": round(replaced_s, 1),
        "restarts": snapshot.restarts,
        "charged failures": numbers.causes.get("blocked", 0),
        "timeouts": numbers.causes.get("timeout", 0),
        "shown in status": int(shown),
        "state": snapshot.state if is_finished else "failed: not finished",
    }
