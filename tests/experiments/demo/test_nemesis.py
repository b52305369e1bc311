"""Tests of the demo's nemesis: it kills once, and measures the time to a replay."""

from __future__ import annotations

import time
from collections.abc import Callable

from sunshower.experiments.demo import DemoNemesis, make_topology
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


def nemesis_after(
    *acked: int, say: Callable[[str], None] = print
) -> tuple[ScriptedRun, DemoNemesis]:
    """A run of 300 lines, and the nemesis after snapshots with these numbers of acked lines."""
    run, nemesis = ScriptedRun(), DemoNemesis(300, say)
    for count in acked:
        nemesis.look(run, at(count))  # type: ignore[arg-type]
    return run, nemesis


def test_it_kills_once_at_a_third_of_the_lines() -> None:
    messages: list[str] = []
    run, nemesis = nemesis_after(0, 99, 100, 200, say=messages.append)
    target = run.plan.tasks_of("split")[0]
    assert run.killed == [target.worker]
    assert run.plan.tasks_on(target.worker) == [target]  # alone, so that nothing else is killed
    assert nemesis.killed_pid == PID
    assert "100 lines" in messages[0]


def test_a_finished_run_is_not_killed() -> None:
    run, _ = nemesis_after(300)
    assert run.killed == []


def test_the_time_to_a_replay_is_measured_from_the_kill() -> None:
    before_s = time.monotonic()
    _, nemesis = nemesis_after(100)
    after_s = time.monotonic()
    seconds = nemesis.seconds_to_replay(at(200, first_replay_s=after_s + 2))
    assert seconds is not None
    assert 1.999 <= seconds <= after_s + 2.001 - before_s, "it is rounded"
    for earlier_s in (None, 0.5):  # no replay after the kill
        assert nemesis.seconds_to_replay(at(200, earlier_s)) is None
