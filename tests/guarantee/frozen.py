"""A topology in the simulator, in which a timeout would be fatal, and a fault of two minutes."""

from __future__ import annotations

from sunshower import Counter, Number, Topology
from sunshower.runtime.events.injected_faults import InjectedFaults, Link
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.simulation.run import SimRun


def work(number: Number) -> None: ...


def frozen(seed: int) -> SimRun:
    """Not active yet; its bolt is `work`."""
    topology = Topology("frozen", attempts_max=1)
    topology.spout("numbers", Counter(40)).shuffle().bolt("work", work)
    return SimCluster(seed).submit(topology.graph(), Layout.ISOLATE, active=False)


def after_freezing(seed: int) -> Snapshot:
    """The worker of the bolt is frozen for good, and everything is processed within a minute."""
    run = frozen(seed)
    (task,) = run.plan.tasks_of("work")
    run.pause_worker(task.worker)
    run.activate()
    assert run.wait(60.0)
    return run.snapshot()


def after_cutting(seed: int) -> Snapshot:
    """Nothing reaches the bolt for two minutes; half a minute later everything is processed."""
    run = frozen(seed)
    run.disturb(InjectedFaults(links=(Link(target="work", vanish=1.0),)))
    run.activate()
    assert not run.wait(120.0)
    run.disturb(InjectedFaults())
    assert run.wait(30.0)
    return run.snapshot()
