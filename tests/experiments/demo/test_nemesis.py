"""The demo's nemesis kills once, at a third of the lines, and measures the time to a replay."""

from __future__ import annotations

import time

import pytest

from sunshower.experiments.demo.nemesis import DemoNemesis
from sunshower.experiments.demo.topology import make_topology
from sunshower.runtime.events.metrics import Counts, Snapshot, TaskStats, WorkerStats
from sunshower.runtime.plan import Layout, Plan, make_plan

PID = 4711


class ScriptedRun:
    """A run of which only the plan is real."""

    def __init__(self) -> None:
        topology = make_topology([__file__], 300)
        self.plan: Plan = make_plan(topology.graph(), Layout.ISOLATE)
        self.killed: list[int] = []

    def kill_worker(self, worker: int) -> int:
        self.killed.append(worker)
        return PID


def at(acked: int, first_replay_s: float | None = None) -> Snapshot:
    task = TaskStats(1, "lines", Counts(acked=acked), first_replay_s=first_replay_s)
    return Snapshot("demo", {0: WorkerStats(0, 1, (task,))})


def test_it_kills_once_at_a_third_of_the_lines() -> None:
    run, told = ScriptedRun(), list[str]()
    nemesis = DemoNemesis(300, told.append)
    for acked in (0, 99, 100, 200):
        nemesis.look(run, at(acked))  # type: ignore[arg-type]
    assert run.killed == [run.plan.tasks_of("split")[0].worker]
    assert nemesis.killed_pid == PID
    assert "100 lines" in told[0]


def test_the_target_is_a_split_task_alone_on_its_worker() -> None:
    run = ScriptedRun()
    DemoNemesis(300, print).look(run, at(100))  # type: ignore[arg-type]
    assert [task.component for task in run.plan.tasks_on(run.killed[0])] == ["split"]


def test_a_finished_run_is_not_killed() -> None:
    run = ScriptedRun()
    DemoNemesis(300, print).look(run, at(300))  # type: ignore[arg-type]
    assert run.killed == []


def test_the_time_to_a_replay_is_measured_from_the_kill() -> None:
    nemesis = DemoNemesis(300, print)
    nemesis.look(ScriptedRun(), at(100))  # type: ignore[arg-type]
    seconds = nemesis.seconds_to_replay(at(200, first_replay_s=time.monotonic() + 2))
    assert seconds == pytest.approx(2, abs=0.5)


@pytest.mark.parametrize("first_replay_s", [None, 0.5])
def test_without_a_replay_after_the_kill_there_is_no_time(
    first_replay_s: float | None,
) -> None:
    nemesis = DemoNemesis(300, print)
    nemesis.look(ScriptedRun(), at(100))  # type: ignore[arg-type]
    assert nemesis.seconds_to_replay(at(200, first_replay_s)) is None
