"""Tests of restarts and rebalances in the simulator: peers, positions and injected faults."""

from __future__ import annotations

from typing import Any

import pytest

from sunshower.runtime.events.injected_faults import NO_FAULTS, InjectedFaults, SlowTask
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimMaster, SimRun
from sunshower.simulation.worker import SimWorker
from tests.contract.topologies import TOTAL, Paced, chain
from tests.seeds import seeds

SLOW = InjectedFaults(slows=(SlowTask(component="relay", seconds=0.001),))


def submitted(seed: int, layout: Layout = Layout.ISOLATE, **settings: Any) -> SimRun:
    topology = chain(Paced(TOTAL, 2.0), sinks=2, workers=2)
    return SimCluster(seed, check=True).submit(topology.graph(), layout, **settings)


def slowed(run: SimRun) -> set[str]:
    """The components into whose tasks faults are injected."""
    cores = [
        process.core
        for process in run._env.network.there.values()
        if isinstance(process, SimWorker)
    ]
    bolts = [bolt for core in cores if core for bolt in core._wired.bolts.values()]
    return {bolt.task.component for bolt in bolts if bolt.instrument.faults is not NO_FAULTS}


@seeds(30)
def test_a_restarted_worker_informs_the_others_itself_if_the_masters_message_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = SimMaster.call_worker

    def lose_peers(master: SimMaster, worker: int, method: str, *arguments: Any) -> None:
        if method != "peers" or max(arguments[0].values()) == 1:
            call(master, worker, method, *arguments)

    monkeypatch.setattr(SimMaster, "call_worker", lose_peers)
    run = submitted(seed)
    run.wait(0.5)
    run.kill_worker(run.plan.workers[seed % len(run.plan.workers)])
    assert run.wait(20.0), "a worker was never informed of the new life"
    assert "timeout" not in run.snapshot().component("numbers").causes


@seeds(30)
def test_a_restarted_spout_emits_nothing_that_its_master_knows_to_be_settled(
    seed: int,
) -> None:
    run = submitted(seed)
    (task,) = run.plan.tasks_of("numbers")
    run.wait(1.0)
    settled = run._master.core.stored.positions[task.id]
    assert settled > 0
    run.kill_worker(task.worker)
    while (process := run._env.network.there.get(task.worker)) is None or process.core is None:
        run.wait(0.01)
    assert [spout.committed >= settled for spout in process.core._spouts] == [True]
    assert run.wait(60.0)


@seeds(10)
def test_injected_faults_remain_after_restarts_and_after_a_rebalance(
    seed: int,
) -> None:
    run = submitted(seed, Layout.PACK)
    run.disturb(SLOW)
    run.wait(0.2)
    run.kill_master()
    run.kill_worker(run.plan.tasks_of("relay")[0].worker)
    run.wait(2.0)
    assert slowed(run) == {"relay"}
    run.rebalance(workers=3)
    assert slowed(run) == {"relay"}
    run.disturb(InjectedFaults())
    run.wait(0.2)
    assert slowed(run) == set()


@seeds(10)
def test_an_event_log_changes_nothing_in_a_run(seed: int) -> None:
    ends = []
    for sample in (None, 1, 7):
        run = submitted(seed, sample=sample)
        run.wait(0.3)
        run.kill_worker(run.plan.workers[seed % len(run.plan.workers)])
        assert run.wait(60.0)
        ends.append((run.now(), run.snapshot().component("numbers")))
    assert ends[0] == ends[1] == ends[2]


def test_a_process_that_cannot_be_created_is_logged_once_and_the_run_can_be_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(master: SimMaster, worker: int) -> None:
        raise ValueError("no TPU")

    run = submitted(1, Layout.PACK)
    workers = run.plan.workers
    monkeypatch.setattr(SimMaster, "create_worker", refuse)
    run.rebalance(workers=len(workers) + 1, wait_s=0.0, waits=False)
    run.wait(5.0)
    assert [line.text for line in run.log_lines() if line.event == "not created"] == [
        f"worker {len(workers)} has no process, and creating one failed: ValueError: no TPU"
    ]
    run.kill(0.0)
    assert run.stopped
