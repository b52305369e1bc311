"""Runs stream programs for tests: in one process, or in the simulator while workers are killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sunshower import Topology
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.inline import run_inline
from sunshower.simulation.cluster import SimRun

# Tasks restart soon, however often their processes die.
SETTINGS = {
    "internals": Internals(sweep_grace_s=0.2, peer_link_retry_s=0.1, restart_backoff_s=0.05),
    "deaths_max": 99,
}


def run(topology: Topology) -> None:
    """Run a topology to its end in this process."""
    run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)


def kill_three(run: SimRun, seed: int, waits: Callable[[int], float]) -> None:
    """Kill a worker three times, each after `waits(seed + number)` seconds."""
    for killed in range(3):
        run.wait(waits(seed + killed))
        workers = sorted(run.snapshot().workers)
        with suppress(ClusterError):  # it has just died
            run.kill_worker(workers[(seed * 5 + killed) % len(workers)])


def heal(run: SimRun) -> None:
    """End all faults: every worker runs, and so does the topology, unless it has finished."""
    for worker in run.plan.workers:
        run.resume_worker(worker)
    run.disturb(InjectedFaults())
    for _ in range(600):  # while tasks change, it cannot be activated
        if run.snapshot().state is not State.REBALANCING:
            break
        run.wait(0.1)
    with suppress(LifecycleError):
        run.activate()
