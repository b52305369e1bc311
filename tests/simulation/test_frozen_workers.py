"""Tests of workers that are frozen, or cut off from the master or from each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sunshower import Bolt, Context, Counter, Number, Topology
from sunshower.experiments.checkers import AtLeastOnce, EachEdgeOnce, Liveness, NoPrematureAck
from sunshower.experiments.experiment import Experiment, relayed, run_experiment
from sunshower.experiments.fault_kinds import (
    Fault,
    acker,
    component,
    cut,
    isolate,
    master,
    pause,
    spout,
)
from sunshower.experiments.fault_plan import at
from sunshower.experiments.outcome import Outcome, Verdict
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.events.injected_faults import InjectedFaults, Link
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from tests.seeds import seeds

OUTAGE_S, REPLACED_S, RESUMED_S = 120.0, 60.0, 30.0
FEW, MANY = 2, 20_000


def keep(number: Number) -> None: ...


class Slow(Bolt[Number, None]):
    """Takes 0.1 s for each number."""

    def prepare(self, context: Context) -> None:
        self._clock = context.clock

    def process(self, number: Number) -> None:
        self._clock.sleep(0.1)


def submit(cluster: SimCluster, total: int, **settings: float) -> SimRun:
    """A topology that is not active yet."""
    topology = Topology("frozen", **settings)  # type: ignore[arg-type]
    topology.spout("numbers", Counter(total)).shuffle().bolt("keep", keep)
    return cluster.submit(topology.graph(), Layout.ISOLATE, active=False)


@pytest.mark.parametrize("total", [FEW, MANY])
@pytest.mark.parametrize("component", ["numbers", "keep", "__acker"])
def test_a_worker_that_stays_frozen_is_replaced(total: int, component: str) -> None:
    with SimCluster(1) as cluster:
        run = submit(cluster, total)
        (frozen,) = run.plan.tasks_of(component)
        run.pause_worker(frozen.worker)
        begun_s = run.now()
        run.activate()
        assert run.wait(3_600.0)
        snapshot = run.snapshot()
        numbers = snapshot.component("numbers")
        assert (snapshot.state, snapshot.restarts) == (State.FINISHED, 1)
        assert "timeout" not in numbers.causes
        assert total == MANY or run.now() - begun_s < REPLACED_S


def test_status_shows_which_worker_is_silent_and_for_how_long() -> None:
    with SimCluster(1) as cluster:
        run = submit(cluster, MANY)
        (frozen,) = run.plan.tasks_of("keep")
        run.pause_worker(frozen.worker)
        run.activate()
        run.wait(12.0)
        assert run.snapshot().silent == {frozen.worker: pytest.approx(12.0, abs=2.0)}
        run.wait(15.0)
        assert not run.snapshot().silent


@seeds(20)
def test_a_zombie_that_wakes_is_refused_and_ends(seed: int) -> None:
    with SimCluster(seed) as cluster:
        run = submit(cluster, MANY)
        (frozen,) = run.plan.tasks_of("keep")
        run.activate()
        run.wait(0.01)
        run.pause_worker(frozen.worker)
        run.wait(REPLACED_S)
        assert run.snapshot().restarts == 1
        run.resume_worker(frozen.worker)
        run._world.run_until(run.now() + 5.0)
        assert run.wait(3_600.0)
        assert run.snapshot().restarts == 1, "the zombie must not count as a restart"
        assert not run._machines._zombies


def outcome(seed: int, fault: Fault, relays: int = 2) -> Outcome:
    """Run a topology with one fault at 0.5 s; with one attempt only, a timeout would end it."""

    def declared() -> Topology:
        topology = relayed(400, rate=100, parallelism=relays)
        topology.config = replace(topology.config, attempts_max=1)
        return topology

    experiment = Experiment(
        name="frozen",
        topology=declared,
        plan=lambda: at(0.5, fault),
        checkers=(AtLeastOnce(), NoPrematureAck(), EachEdgeOnce(), Liveness(RESUMED_S)),
        layout=Layout.ISOLATE,
        seconds_max=600.0,
    )
    with SimCluster(seed) as cluster:
        return run_experiment(experiment, cluster, seed)[0]


LONG = {
    "pause": lambda: pause(component("relay"), OUTAGE_S),
    "pause the spout": lambda: pause(spout(), OUTAGE_S),
    "isolate": lambda: isolate(component("relay"), OUTAGE_S),
    "isolate the acker": lambda: isolate(acker(), OUTAGE_S),
    "pause the master": lambda: pause(master(), OUTAGE_S),
    "cut": lambda: cut("numbers", "relay", OUTAGE_S),
    "cut the acker": lambda: cut("relay", "__acker", OUTAGE_S),
}


@seeds(4)
@pytest.mark.parametrize("fault", LONG)
def test_a_fault_of_two_minutes_loses_nothing_and_charges_no_timeout(fault: str, seed: int) -> None:
    result = outcome(seed, LONG[fault]())
    assert result.verdict is Verdict.HOLDS, (result.error, result.findings)


@pytest.mark.parametrize("component", ["keep", "__acker"])
def test_workers_that_are_cut_from_each_other_only_are_not_replaced(component: str) -> None:
    with SimCluster(1) as cluster:
        run = submit(cluster, 1_000, attempts_max=1)
        ends = ("numbers", component)
        links = tuple(Link(source=a, target=b, vanish=1.0) for a, b in (ends, ends[::-1]))
        run.disturb(InjectedFaults(links=links))
        run.activate()
        assert not run.wait(OUTAGE_S)
        assert any(worker.links for worker in run.snapshot().workers.values()), "status shows it"
        run.disturb(InjectedFaults())
        assert run.wait(RESUMED_S)
        snapshot = run.snapshot()
        assert snapshot.restarts == 0
        assert "timeout" not in snapshot.component("numbers").causes


def test_a_worker_without_its_master_pauses_and_continues() -> None:
    with SimCluster(1) as cluster:
        run = submit(cluster, MANY)
        run.activate()
        run.wait(0.01)
        run.pause_master()
        run.wait(OUTAGE_S)
        assert not any(
            worker.lease.holds(worker.clock.now()) for worker in run._machines._workers()
        )
        run.resume_master()
        assert run.wait(3_600.0)
        assert run.snapshot().restarts == 0, "the master was stopped itself"


@seeds(10)
def test_time_in_which_a_worker_is_paused_without_a_master_extends_its_deadlines(
    seed: int,
) -> None:
    with SimCluster(seed) as cluster:
        topology = Topology("slow")
        topology.spout("numbers", Counter(500)).shuffle().bolt("slow", Slow())
        run = cluster.submit(topology.graph(), Layout.ISOLATE)
        run.wait(2.0)
        run.pause_master()
        run.wait(OUTAGE_S)
        run.resume_master()
        assert run.wait(120.0)
        assert not run.snapshot().component("numbers").causes


@seeds(10)
def test_a_resumed_spout_reads_verdicts_before_it_checks_deadlines(
    seed: int,
) -> None:
    with SimCluster(seed) as cluster:
        run = submit(cluster, 2_000, message_timeout_s=5.0, spout_pending=64)
        (spout,) = run.plan.tasks_of("numbers")
        run.activate()
        for _ in range(5):
            run.wait(0.005)
            run.pause_worker(spout.worker)
            run.wait(12.0)
            run.resume_worker(spout.worker)
        assert run.wait(60.0)
        assert not run.snapshot().component("numbers").causes
