"""The master shows calls of user code that do not return, and forgets them when they do."""

from __future__ import annotations

import pytest

from sunshower import Counter, Number, Topology
from sunshower.runtime.control import events
from sunshower.runtime.control.master import Master
from sunshower.runtime.events.metrics import StuckCall, WorkerStats
from sunshower.runtime.plan import make_plan


def keep(number: Number) -> None: ...


@pytest.fixture
def master() -> Master:
    """Of a topology on two workers, whose task 2 is stuck in a call."""
    topology = Topology("t", workers=2)
    topology.spout("numbers", Counter(9)).shuffle().bolt("keep", keep, parallelism=2)
    made = Master(make_plan(topology.graph()))
    for worker in (0, 1):
        made.apply(events.Hello(worker), 0.0)
    made.apply(events.Stuck(0, 1, 2, 10.0, "a.py:3 in keep: wait()"), 50.0)
    return made


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
