"""The log of a topology has a line for each event, with the place where it happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sunshower import Bolt, Context, Counter, Number, Retry, Topology
from sunshower.errors import Unavailable
from sunshower.runtime.control.topology_log import TopologyLog
from sunshower.runtime.events.health import Health, Standing, TaskError, Wait, WaitKind
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import Counts, TaskStats, WorkerStats
from sunshower.runtime.plan import Layout, make_plan
from sunshower.simulation.cluster import SimCluster, SimRun


class Refuses(Bolt[Number, None]):
    """Raises on every tenth of the first 200 records; each takes 0.1 s."""

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Number) -> None:
        self.clock.sleep(0.1)
        if record.value % 10 == 0 and record.value < 200:
            raise ValueError(f"{record.value} is wrong")


class BrieflyUnavailable(Bolt[Number, None]):
    """Its dependency is unavailable in its first six calls."""

    def __init__(self) -> None:
        self.calls = 0

    def process(self, record: Number) -> None:
        self.calls += 1
        if self.calls <= 6:
            raise Unavailable("the store does not answer")


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    with SimCluster(3) as simulated:
        yield simulated


def lines_of(run: SimRun, event: str) -> list[LogLine]:
    return [line for line in run.log_lines() if line.event == event]


def refusing(workers: int = 2, tasks: int = 1) -> Topology:
    topology = Topology("refusing", workers=workers)
    retry = Retry(attempts=2, dead_letters=True)
    numbers = topology.spout("numbers", Counter(), retry=retry)
    numbers.shuffle().bolt("work", Refuses, parallelism=tasks)
    numbers.stream("dead_letters").shuffle().bolt("letters", lambda _: None, fields=())
    return topology


def test_the_text_of_a_failure_names_the_task_of_its_line(cluster: SimCluster) -> None:
    run = cluster.submit(refusing(tasks=2).graph())
    run.wait(60.0)
    failed = lines_of(run, "failed")
    assert {line.task for line in failed} == {0, 1}
    assert all(f"exception in work[{line.task}]:" in line.text for line in failed)


def test_failures_and_dead_letters_have_component_task_cause_and_count(
    cluster: SimCluster,
) -> None:
    run = cluster.submit(refusing().graph())
    run.wait(60.0)
    failed = lines_of(run, "failed")
    assert {(line.component, line.task, line.level) for line in failed} == {("work", 0, "warning")}
    assert "tuples of spout 'numbers' failed: exception in work[0]: ValueError" in failed[0].text
    assert failed[0].worker == run.plan.tasks_of("work")[0].worker
    assert len(failed) < 20, "repeated ones are counted"
    letters = lines_of(run, "dead letter")
    assert {(line.component, line.task) for line in letters} == {("numbers", 0)}
    assert sum(line.count for line in lines_of(run, "failed")) == 40
    assert sum(line.count for line in lines_of(run, "dead letter")) == 20


def test_an_outage_begins_and_ends_once(cluster: SimCluster) -> None:
    topology = Topology("unavailable")
    topology.spout("numbers", Counter(50)).shuffle().bolt("store", BrieflyUnavailable)
    run = cluster.submit(topology.graph())
    assert run.wait(120.0)
    (begins,), (ends,) = lines_of(run, "outage begins"), lines_of(run, "outage ends")
    assert (begins.component, begins.task, begins.worker) == ("store", 0, 0)
    assert "the store does not answer" in begins.text
    assert begins.number < ends.number
    assert begins.time < ends.time


def test_workers_start_and_are_replaced(cluster: SimCluster) -> None:
    run = cluster.submit(refusing().graph(), Layout.ISOLATE)
    run.wait(5.0)
    assert {line.worker for line in lines_of(run, "started")} >= {0, 1}
    assert not lines_of(run, "replaced")
    run.kill_worker(1)
    run.wait(5.0)
    (again,) = lines_of(run, "replaced")
    assert (again.worker, again.level) == (1, "warning")
    assert "worker 1 was started again (life 2)" in again.text


def test_commands_and_a_rebalance_are_logged(cluster: SimCluster) -> None:
    run = cluster.submit(refusing(workers=1).graph())
    run.wait(5.0)
    run.deactivate()
    run.activate()
    run.rebalance(2)
    run.wait(2.0)
    events = [(line.event, line.text) for line in run.log_lines()]
    assert ("command", "deactivate") in events
    assert events.index(("command", "deactivate")) < events.index(("command", "activate"))
    names = [event for event, _ in events]
    assert "replaced" not in names
    assert names.index("rebalance begins") < names.index("rebalance ends")
    assert names.count("rebalance begins") == names.count("rebalance ends") == 1


def test_a_client_continues_to_read_where_it_was_even_after_the_master_has_died(
    cluster: SimCluster,
) -> None:
    run = cluster.submit(refusing().graph())
    run.wait(5.0)
    first = run.log_lines()
    numbers = [line.number for line in first]
    assert numbers == sorted(set(numbers))
    last = numbers[-1]
    assert run.log_lines(last - 1)[0].number == last
    run.kill_master()
    run.wait(5.0)
    run.kill_worker(0)
    run.wait(15.0)
    later = run.log_lines(last)
    assert [line.event for line in later if line.event == "replaced"]
    assert {line.number for line in later}.isdisjoint(numbers)
    old = {replace(line, number=0) for line in first if line.event == "failed"}
    assert old.isdisjoint({replace(line, number=0) for line in later})


class OneTask:
    """The log of a topology whose worker 0 runs `store[0]`, as the master keeps it."""

    def __init__(self) -> None:
        topology = Topology("unavailable")
        topology.spout("numbers", Counter()).shuffle().bolt("store", BrieflyUnavailable)
        self.plan = make_plan(topology.graph())
        (self.task,) = self.plan.tasks_of("store")
        self.now_s = 0.0
        self.log = TopologyLog(lambda: self.now_s)

    def begin(self, life: int) -> None:
        """A worker says hello."""
        self.log.start(0, life, [self.task], None)

    def report(self, life: int, health: Health, after_s: float = 60.0, dead: int = 0) -> None:
        """Its statistics arrive, `after_s` later."""
        self.now_s += after_s
        stats = TaskStats(self.task.id, "store", Counts(dead=dead), health=health)
        self.log.compare(WorkerStats(0, life, (stats,)), self.plan)

    def counts(self, *events: str) -> list[tuple[str, int]]:
        return [(line.event, line.count) for line in self.log.read() if line.event in events]


GONE = TaskError("store", 0, 0, "process of store[0] raised OSError: gone")


def test_errors_of_a_new_life_are_counted_from_its_beginning() -> None:
    task = OneTask()
    task.begin(1)
    task.report(1, Health(errors=2, last=(GONE,)))
    task.report(1, Health(errors=3, last=(GONE,)))
    task.begin(2)
    task.report(2, Health(errors=5, last=(GONE,)))
    assert task.counts("error") == [("error", 2), ("error", 1), ("error", 5)]


def test_the_first_error_is_logged_at_once_and_later_ones_are_counted_every_ten_seconds() -> None:
    task = OneTask()
    task.begin(1)
    for errors, after_s in (3, 5.0), (4, 1.0), (5, 8.9):
        task.report(1, Health(errors=errors, last=(GONE,)), after_s)
    assert task.counts("error") == [("error", 3)]
    task.now_s += 0.1
    assert task.counts("error") == [("error", 3), ("error", 2)]
    task.now_s += 99.0
    assert task.counts("error") == [("error", 3), ("error", 2)]


def test_an_error_delays_no_line_about_another_kind_of_failure() -> None:
    task = OneTask()
    task.begin(1)
    task.report(1, Health(errors=3, last=(GONE,)), 5.0)
    task.report(1, Health(errors=4, last=(GONE,)), 1.0, dead=2)
    assert task.counts("error", "dead letter") == [("error", 3), ("dead letter", 2)]


def test_an_outage_of_a_former_life_does_not_end_because_a_new_one_has_not_tried_yet() -> None:
    waits = Health(errors=1, last=(GONE,), wait=Wait(WaitKind.UNAVAILABLE, 1.0, 1, GONE, True))
    task = OneTask()
    task.begin(1)
    task.report(1, waits)
    task.begin(2)
    task.report(2, Health())
    task.report(2, waits)
    task.report(2, Health())
    events = [event for event, _ in task.counts("outage begins", "outage ends")]
    assert events == ["outage begins", "outage begins", "outage ends"]


def test_a_quarantine_that_lasts_for_several_lives_is_logged_once() -> None:
    bad = Health(Standing.QUARANTINED, last=(GONE,))
    task = OneTask()
    for life in 1, 2:
        task.begin(life)
        task.report(life, bad)
    task.report(2, Health(Standing.WAITING))
    task.report(2, Health())
    events = [event for event, _ in task.counts("quarantined", "quarantine ends")]
    assert events == ["quarantined", "quarantine ends"]


def test_workers_that_leave_drained_nodes_are_named_in_one_line() -> None:
    log = TopologyLog(lambda: 0.0)
    log.leave([1])
    log.leave([1, 2])
    assert [line.text for line in log.read()] == [
        "tasks of worker 1 move to another node: theirs is being drained",
        "tasks of workers 1, 2 move to other nodes: theirs are being drained",
    ]


def test_a_problem_is_logged_when_it_begins_and_when_it_returns() -> None:
    log = TopologyLog(lambda: 0.0)
    for problems in (["a"], ["a", "b"], ["a"], [], ["a"]):
        log.problems("no node", problems)
    assert [line.text for line in log.read()] == ["a", "b", "a"]
