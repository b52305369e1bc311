"""Tests of processes and nodes that die at any point, and of the processes that replace them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sunshower import Context
from sunshower.errors import TopologyFailed
from sunshower.runtime.events.event_log import What
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimRun
from sunshower.simulation.worker import Killed, SimWorker
from tests.seeds import seeds
from tests.simulation.probes import Work, all_done, submit, working

SEEDS = seeds(10, kinds=2)


class CallOnce(Work):
    """Calls a function for one number, at its first attempt."""

    def __init__(self, function: Callable[[Context], None], number: int = 7) -> None:
        super().__init__()
        self.function, self.number = function, number

    def __call__(self, number: int, context: Context) -> None:
        if number == self.number and self.begun[number] == 1:
            self.function(context)


def die(context: Context) -> None:
    raise Killed


class Poison(Work):
    """One number kills its process every time."""

    def __call__(self, number: int, context: Context) -> None:
        if number == 7:
            raise Killed


def causes(run: SimRun) -> set[str]:
    return set(run.snapshot().component("numbers").causes)


def process(run: SimRun, component: str) -> SimWorker:
    (task,) = run.plan.tasks_of(component)
    worker = run._env.network.there[task.worker]
    assert isinstance(worker, SimWorker)
    return worker


@SEEDS
@pytest.mark.parametrize("layout", Layout)
def test_user_code_that_kills_its_process_is_charged_and_nothing_is_lost(
    seed: int, layout: Layout
) -> None:
    work = CallOnce(die)
    run = submit(seed, working(work), layout)
    all_done(run, work)
    assert work.begun[7] >= 2
    assert run.snapshot().restarts == 1
    if layout is Layout.ISOLATE:  # else its spout died too, and its counts start at 0
        assert causes(run) == {"actor died"}


class Slow(Work):
    def __call__(self, number: int, context: Context) -> None:
        context.clock.sleep(1.0)
        context.wrote(number, number)


@SEEDS
def test_of_a_killed_process_only_external_writes_remain_after_its_end(seed: int) -> None:
    work = Slow()
    run = submit(seed, working(work, workers=1, message_timeout_s=1_000.0), Layout.PACK)
    while not work.begun:
        run.wait(0.01)
    run.wait(0.4)  # now it is in the middle of a record
    (task,) = run.plan.tasks_of("work")
    assert What.ACKED in kinds_after_now(run), "a slice is recorded up to its end"
    run.kill_worker(task.worker)
    assert kinds_after_now(run) == {What.WROTE}, "external effects of user code cannot be undone"
    all_done(run, work)
    assert run.snapshot().restarts == 1


def kinds_after_now(run: SimRun) -> set[What]:
    """The kinds of the events that the history has after the present time."""
    return {entry.what for entry in run.history() if entry.at_s > run.now()}


@SEEDS
def test_a_call_that_takes_too_long_ends_its_process_in_time(seed: int) -> None:
    work = CallOnce(lambda context: context.clock.sleep(3_600.0))
    run = submit(seed, working(work, block_max_s=10.0, message_timeout_s=1_000.0))
    all_done(run, work)
    (crash_report,) = run._master.core.crash_reports.values()
    assert "context.clock.sleep(3_600.0)" in crash_report.stack
    assert 9.9 < run.now() < 16.0, "10 s, an eighth of that, and the way back"
    restarted = [e.at_s for e in run.history() if e.what is What.STARTED and e.detail[1] == 2]
    assert 9.9 < restarted[0] < 13.0


def test_a_call_that_takes_long_and_not_too_long_is_waited_for() -> None:
    work = CallOnce(lambda context: context.clock.sleep(9.0))
    run = submit(0, working(work, block_max_s=10.0))
    all_done(run, work)
    assert run.snapshot().restarts == 0
    assert run.now() > 8.9


@SEEDS
def test_the_crash_report_of_a_process_killed_in_a_call_lists_its_records(seed: int) -> None:
    work = CallOnce(lambda context: context.clock.sleep(2.0))
    run = submit(seed, working(work))
    while not work.begun[7]:
        run.wait(0.05)
    run.wait(0.5)
    bolt = process(run, "work")
    run.kill_worker(bolt.address)
    run.wait(1.0)
    (crash_report,) = run._master.core.crash_reports.values()
    (task,) = run.plan.tasks_of("work")
    assert (crash_report.worker, crash_report.task) == (bolt.address, task.id)
    assert len(crash_report.suspects) > 0
    all_done(run, work)


@SEEDS
def test_a_successor_on_another_node_finds_the_flight_recorder(seed: int) -> None:
    work = CallOnce(die)
    run = submit(seed, working(work), nodes=3)
    all_done(run, work)
    where = {node: workers for node, workers in run.nodes().items() if workers}
    assert sorted(worker for workers in where.values() for worker in workers) == run.plan.workers
    report = run._master.core.crash_reports[process(run, "work").address]
    assert report.task == run.plan.tasks_of("work")[0].id


@SEEDS
def test_a_flight_recorder_is_lost_with_its_node(seed: int) -> None:
    work = CallOnce(lambda context: context.clock.sleep(2.0))
    run = submit(seed, working(work), nodes=3)
    while not work.begun[7]:
        run.wait(0.05)
    first = process(run, "work")
    run.kill_node(first.node)
    all_done(run, work)
    assert first.address not in run._master.core.crash_reports


@SEEDS
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_poison_kills_as_many_processes_as_it_has_attempts_on_any_number_of_nodes(
    seed: int, nodes: int
) -> None:
    work = Poison()
    run = submit(seed, working(work, attempts_max=4), nodes=nodes)
    with pytest.raises(TopologyFailed, match=r"message 7 of spout 'numbers' failed [45] times"):
        all_done(run, work)
    assert work.begun[7] in (4, 5), "it may be sent again before the last death is detected"


@SEEDS
def test_the_death_of_a_node_ends_only_its_own_processes(seed: int) -> None:
    work = Work()
    run = submit(seed, working(work, total=100, spout_pending=5), nodes=2)
    run.wait(0.01)
    nodes = run.nodes()
    assert all(nodes.values())
    master_node = run._env.network.there[-1].node
    node = next(name for name in nodes if name != master_node)
    assert len(run.kill_node(node)) == len(nodes[node])
    assert set(run._env.network.there) == {
        -1,
        *(w for n in nodes if n != node for w in nodes[n]),
    }
    all_done(run, work, 100)
    assert run.snapshot().restarts == len(nodes[node])


@SEEDS
def test_a_worker_that_starts_without_a_master_waits_for_the_next_one(seed: int) -> None:
    work = Work()
    run = submit(seed, working(work, total=100, spout_pending=5))
    run.wait(0.01)
    bolt = process(run, "work").address
    run.kill_worker(bolt)
    run.kill_master()
    all_done(run, work, 100)
    assert run.snapshot().restarts == 1


def test_a_master_that_starts_after_the_end_finds_that_the_topology_is_finished() -> None:
    work = Work()
    run = submit(0, working(work))
    all_done(run, work)
    run.kill_master()
    assert run.wait(60.0)


@SEEDS
def test_any_process_may_die_repeatedly(seed: int) -> None:
    work = Work()
    run = submit(seed, working(work, total=60, spout_pending=5, ackers=2), nodes=1 + seed % 3)
    draw = run._world.draw
    for _ in range(8):
        processes = sorted(run._env.network.there)
        victim = processes[int(draw() * len(processes))] if processes else None
        if victim == -1:
            run.kill_master()
        elif victim is not None:
            run.kill_worker(victim)
        run.wait(draw())
    all_done(run, work, 60)
    assert "timeout" not in causes(run), "a loss was detected only by the deadline"


DRAINED = 1_000  # records: so that there is load while a node is drained


@seeds(20)
def test_workers_leave_a_drained_node_and_its_death_fails_no_tree(seed: int) -> None:
    work = Work()
    topology = working(work, total=DRAINED, spout_pending=5)
    run = submit(seed, topology, nodes=3, call_s=0.01)
    run.wait(0.01)
    node = next(name for name, workers in run.nodes().items() if workers)
    processes = run.nodes()[node]
    run.drain_node(node)
    while run.nodes()[node]:
        assert not run.wait(0.1)
    assert not {*processes} & {*run.plan.workers}, "their tasks are in new processes"
    run.kill_node(node)
    all_done(run, work, DRAINED)
    assert run.snapshot().restarts == 0
    assert run.snapshot().component("numbers").failed == 0, "all trees had the time to complete"


@seeds(10, kinds=3)
def test_processes_may_die_while_a_node_is_drained(seed: int) -> None:
    work = Work()
    run = submit(seed, working(work, total=DRAINED, spout_pending=5), nodes=3, call_s=0.01)
    run.wait(0.01)
    node = next(name for name, workers in run.nodes().items() if workers)
    run.drain_node(node)
    run.wait(0.5 + 0.2 * seed)
    run.kill_master()
    run.kill_worker(run.plan.workers[seed % len(run.plan.workers)])
    all_done(run, work, DRAINED)
    assert not run.nodes()[node]
