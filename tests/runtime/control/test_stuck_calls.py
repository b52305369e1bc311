"""The master shows calls of user code that do not return, and forgets them when they do."""

from __future__ import annotations

import pytest

from sunshower import Counter, Number, Topology
from sunshower.cli.health import start_problems
from sunshower.failures import Cause
from sunshower.runtime.control import events
from sunshower.runtime.control.limits import ProgressWatch
from sunshower.runtime.control.master import Master
from sunshower.runtime.events.metrics import Counts, StuckCall, TaskStats, WorkerStats
from sunshower.runtime.plan import make_plan
from sunshower.runtime.tasks.flight_recorder import CrashReport


def keep(number: Number) -> None: ...


@pytest.fixture
def master() -> Master:
    """Of a topology on two workers, whose task 2 is stuck in a call."""
    topology = Topology("t", workers=2)
    topology.spout("numbers", Counter(9)).shuffle().bolt("keep", keep, parallelism=2)
    core = Master(make_plan(topology.graph()))
    for worker in (0, 1):
        core.apply(events.Hello(worker), 0.0)
    core.apply(events.Stuck(0, 1, 2, 10.0, "a.py:3 in keep: wait()"), 50.0)
    return core


def test_age_of_a_call_grows_without_further_reports(master: Master) -> None:
    where = "a.py:3 in keep: wait()"
    assert master.snapshot(55.0).stuck == {2: StuckCall("keep", 0, 0, 15.0, where)}


def test_call_is_forgotten_when_its_worker_sends_its_statistics(master: Master) -> None:
    master.apply(events.Statistics(WorkerStats(1, 1)), 55.0)
    assert master.snapshot(55.0).stuck
    master.apply(events.Statistics(WorkerStats(0, 1)), 56.0)
    assert not master.snapshot(56.0).stuck


def test_call_is_forgotten_when_its_worker_has_died(master: Master) -> None:
    master.apply(events.Hello(0), 60.0)
    assert not master.snapshot(60.0).stuck


def test_report_of_a_worker_that_does_not_run_the_task_is_ignored(master: Master) -> None:
    master.apply(events.Stuck(1, 1, 2, 10.0, "late"), 56.0)
    assert [call.worker for call in master.snapshot(56.0).stuck.values()] == [0]


PLACE = "a.py:3 in keep: wait()"


@pytest.mark.parametrize(("stack", "timeout"), [(f"  File a.py\n{PLACE}", ""), ("", "silent")])
def test_a_process_that_was_replaced_for_its_call_is_named_until_the_task_goes_on(
    master: Master, stack: str, timeout: str
) -> None:
    if timeout:
        master.stored.fenced[0] = 1
    report = CrashReport(0, 1, 2, b"12345678", stack)
    master.apply(events.Hello(0, report), 60.0)
    snapshot = master.snapshot(61.0)
    assert [(id, call.cause) for id, call in snapshot.ended.items()] == [(2, Cause.BLOCKED)]
    reason = timeout or f"did not return within 60 s: {PLACE}"
    (line, *others) = start_problems(snapshot, master.plan)
    assert line.startswith("a call of keep[0] has ended its process: it")
    assert reason in line
    assert not [other for other in others if "keep[0]" in other or "numbers" in other]
    watch = ProgressWatch(lambda: 0.0)
    watch.see({}, {}, 0, 61.0)
    progress = watch.added(master.plan, snapshot, 61.0).progress
    assert progress is not None
    assert progress.limit.component == "keep"
    assert reason in progress.limit.text

    for executed, is_named in ((0, True), (1, False)):
        task = TaskStats(2, "keep", Counts(executed=executed))
        master.apply(events.Statistics(WorkerStats(0, 2, (task,))), 62.0)
        assert bool(master.snapshot(62.0).ended) is is_named


def test_a_worker_that_died_of_something_else_is_not_named_so(master: Master) -> None:
    master.apply(events.Hello(0, CrashReport(0, 1, 2, b"12345678")), 60.0)
    assert not master.snapshot(61.0).ended
