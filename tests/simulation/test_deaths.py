"""Tests of processes and nodes that die at any point, and of the processes that replace them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sunshower import Context
from sunshower.errors import TopologyFailed
from sunshower.runtime.events.event_log import What
from sunshower.runtime.plan import Layout
from sunshower.simulation.run import SimRun
from sunshower.simulation.worker import Killed, SimWorker
from tests.seeds import seeds
from tests.simulation.probes import Work, all_done, submitted, working

SEEDS = seeds(10, kinds=2)


class Once(Work):
    """Calls a function for one number, at its first attempt."""

    def __init__(self, what: Callable[[Context], None], number: int = 7) -> None:
        super().__init__()
        self.what, self.number = what, number

    def __call__(self, number: int, context: Context) -> None:
        if number == self.number and self.asked[number] == 1:
            self.what(context)


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
    found = run._env.network.there[task.worker]
    assert isinstance(found, SimWorker)
    return found


@SEEDS
@pytest.mark.parametrize("layout", Layout)
def test_user_code_that_kills_its_process_is_found_out_and_nothing_is_lost(
    seed: int, layout: Layout
) -> None:
    work = Once(die)
    run = submitted(seed, working(work), layout)
    all_done(run, work)
    assert work.asked[7] >= 2
    assert run.snapshot().restarts == 1
    if layout is Layout.ISOLATE:  # else its spout died too, and its counts start at 0
        assert causes(run) == {"actor died"}


class Slow(Work):
    def __call__(self, number: int, context: Context) -> None:
        context.clock.sleep(1.0)
        context.wrote(number, number)


@SEEDS
def test_the_dead_have_done_nothing_after_their_end_but_what_they_wrote(seed: int) -> None:
    work = Slow()
    run = submitted(seed, working(work, workers=1, message_timeout_s=1_000.0), Layout.PACK)
    while not work.asked:
        run.wait(0.01)
    run.wait(0.4)  # now it is in the middle of a record
    (task,) = run.plan.tasks_of("work")
    assert What.ACKED in after(run), "a time slice is recorded up to its end when it begins"
    run.kill_worker(task.worker)
    assert after(run) == {What.WROTE}, "external effects of user code cannot be undone"
    all_done(run, work)
    assert run.snapshot().restarts == 1


def after(run: SimRun) -> set[What]:
    """The kinds of the events that the history has after the present time."""
    return {entry.what for entry in run.history() if entry.at_s > run.now()}


@SEEDS
def test_a_call_that_takes_too_long_ends_its_process_in_time(seed: int) -> None:
    work = Once(lambda context: context.clock.sleep(3_600.0))
    run = submitted(seed, working(work, block_max_s=10.0, message_timeout_s=1_000.0))
    all_done(run, work)
    (crash_report,) = run._master.core.crash_reports.values()
    assert "context.clock.sleep(3_600.0)" in crash_report.stack
    assert 9.9 < run.now() < 16.0, "10 s, an eighth of that, and the way back"
    restarted = [e.at_s for e in run.history() if e.what is What.STARTED and e.detail[1] == 2]
    assert 9.9 < restarted[0] < 13.0


def test_a_call_that_takes_long_and_not_too_long_is_waited_for() -> None:
    work = Once(lambda context: context.clock.sleep(9.0))
    run = submitted(0, working(work, block_max_s=10.0))
    all_done(run, work)
    assert run.snapshot().restarts == 0
    assert run.now() > 8.9


@SEEDS
def test_one_that_is_killed_in_the_middle_of_a_call_tells_which_records_it_had(seed: int) -> None:
    work = Once(lambda context: context.clock.sleep(2.0))
    run = submitted(seed, working(work))
    while not work.asked[7]:
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
def test_a_successor_on_another_machine_finds_the_black_box(seed: int) -> None:
    work = Once(die)
    run = submitted(seed, working(work), nodes=3)
    all_done(run, work)
    where = {node: workers for node, workers in run.nodes().items() if workers}
    assert sorted(worker for workers in where.values() for worker in workers) == run.plan.workers
    found = run._master.core.crash_reports[process(run, "work").address]
    assert found.task == run.plan.tasks_of("work")[0].id


@SEEDS
def test_a_black_box_is_lost_with_its_machine(seed: int) -> None:
    work = Once(lambda context: context.clock.sleep(2.0))
    run = submitted(seed, working(work), nodes=3)
    while not work.asked[7]:
        run.wait(0.05)
    first = process(run, "work")
    run.kill_node(first.node)
    all_done(run, work)
    assert first.address not in run._master.core.crash_reports


@SEEDS
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_poison_kills_as_many_processes_as_it_has_attempts_on_any_number_of_machines(
    seed: int, nodes: int
) -> None:
    work = Poison()
    run = submitted(seed, working(work, attempts_max=4), nodes=nodes)
    with pytest.raises(TopologyFailed, match=r"message 7 of spout 'numbers' failed [45] times"):
        all_done(run, work)
    assert work.asked[7] in (4, 5), "it may be sent again before the last death is detected"


@SEEDS
def test_a_machine_takes_only_its_own_processes_along(seed: int) -> None:
    work = Work()
    run = submitted(seed, working(work, total=100, spout_pending=5), nodes=2)
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
def test_while_the_master_is_dead_who_is_born_waits_for_the_next_one(seed: int) -> None:
    work = Work()
    run = submitted(seed, working(work, total=100, spout_pending=5))
    run.wait(0.01)
    bolt = process(run, "work").address
    run.kill_worker(bolt)
    run.kill_master()
    all_done(run, work, 100)
    assert run.snapshot().restarts == 1


def test_a_master_that_comes_when_all_is_done_finds_out_that_it_is() -> None:
    work = Work()
    run = submitted(0, working(work))
    all_done(run, work)
    run.kill_master()
    assert run.wait(60.0)


@SEEDS
def test_everybody_may_die_again_and_again(seed: int) -> None:
    work = Work()
    run = submitted(seed, working(work, total=60, spout_pending=5, ackers=2), nodes=1 + seed % 3)
    draw = run._world.draw
    for _ in range(8):
        there = sorted(run._env.network.there)
        victim = there[int(draw() * len(there))] if there else None
        if victim == -1:
            run.kill_master()
        elif victim is not None:
            run.kill_worker(victim)
        run.wait(draw())
    all_done(run, work, 60)
    assert "timeout" not in causes(run), "a loss was detected only by the deadline"


DRAINED = 1_000  # records: so that there is load while a node is drained


@seeds(20)
def test_workers_leave_a_drained_machine_and_its_end_costs_nothing(seed: int) -> None:
    work = Work()
    made = working(work, total=DRAINED, spout_pending=5)
    run = submitted(seed, made, nodes=3, call_s=0.01)
    run.wait(0.01)
    node = next(name for name, workers in run.nodes().items() if workers)
    there = run.nodes()[node]
    run.drain_node(node)
    while run.nodes()[node]:
        assert not run.wait(0.1)
    assert not {*there} & {*run.plan.workers}, "their tasks are in new processes"
    run.kill_node(node)
    all_done(run, work, DRAINED)
    assert run.snapshot().restarts == 0
    assert run.snapshot().component("numbers").failed == 0, "all trees had the time to complete"


@seeds(10, kinds=3)
def test_processes_may_die_while_a_machine_is_drained(seed: int) -> None:
    work = Work()
    run = submitted(seed, working(work, total=DRAINED, spout_pending=5), nodes=3, call_s=0.01)
    run.wait(0.01)
    node = next(name for name, workers in run.nodes().items() if workers)
    run.drain_node(node)
    run.wait(0.5 + 0.2 * seed)
    run.kill_master()
    run.kill_worker(run.plan.workers[seed % len(run.plan.workers)])
    all_done(run, work, DRAINED)
    assert not run.nodes()[node]
