"""Runs a simulated topology with a frozen or cut off worker; a timeout would end the topology."""

from __future__ import annotations

from sunshower import Counter, Number, Topology
from sunshower.runtime.events.injected_faults import InjectedFaults, Link
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun


def work(number: Number) -> None: ...


def frozen(seed: int) -> SimRun:
    """A run with the bolt `work` that is not active yet."""
    topology = Topology("frozen", attempts_max=1)
    topology.spout("numbers", Counter(40)).shuffle().bolt("work", work)
    return SimCluster(seed).submit(topology.graph(), Layout.ISOLATE, active=False)


def after_freezing(seed: int) -> Snapshot:
    """Freeze the worker of the bolt for good; everything is processed within a minute."""
    run = frozen(seed)
    (task,) = run.plan.tasks_of("work")
    run.pause_worker(task.worker)
    run.activate()
    assert run.wait(60.0)
    return run.snapshot()


def after_cutting(seed: int) -> Snapshot:
    """Cut the bolt off for two minutes; half a minute later everything is processed."""
    run = frozen(seed)
    run.disturb(InjectedFaults(links=(Link(target="work", vanish=1.0),)))
    run.activate()
    assert not run.wait(120.0)
    run.disturb(InjectedFaults())
    assert run.wait(30.0)
    return run.snapshot()
