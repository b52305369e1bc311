"""Machines that are drained under load: their workers leave, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.simulation.probes import Work, all_done, submitted, working

TOTAL = 1_000


@pytest.mark.parametrize("seed", range(20))
def test_workers_leave_a_drained_machine_and_its_end_costs_nothing(seed: int) -> None:
    work = Work()
    made = working(work, total=TOTAL, spout_pending=5)
    run = submitted(seed, made, nodes=3, call_s=0.01)
    run.wait(0.01)
    node = next(name for name, workers in run.nodes().items() if workers)
    there = run.nodes()[node]
    run.drain_node(node)
    while run.nodes()[node]:
        assert not run.wait(0.1)
    assert not {*there} & {*run.plan.workers}, "their tasks are in new processes"
    run.kill_node(node)
    all_done(run, work, TOTAL)
    assert run.snapshot().restarts == 0
    assert run.snapshot().component("numbers").failed == 0, "all trees had the time to complete"


@pytest.mark.parametrize("seed", range(10))
def test_processes_may_die_while_a_machine_is_drained(seed: int) -> None:
    work = Work()
    run = submitted(seed, working(work, total=TOTAL, spout_pending=5), nodes=3, call_s=0.01)
    run.wait(0.01)
    node = next(name for name, workers in run.nodes().items() if workers)
    run.drain_node(node)
    run.wait(0.5 + 0.2 * seed)
    run.kill_master()
    run.kill_worker(run.plan.workers[seed % len(run.plan.workers)])
    all_done(run, work, TOTAL)
    assert not run.nodes()[node]
