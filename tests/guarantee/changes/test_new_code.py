"""Tests of upgrades: nothing is lost, and new code that does not open is rolled back."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import replace
from random import Random

import pytest

from sunshower import Bolt, Context
from sunshower.errors import LifecycleError
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.plan import ACKER
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from tests.guarantee.changes.counted import (
    Sink,
    Word,
    change,
    check,
    kill_a_process,
    next_program,
    program,
)
from tests.seeds import seeds


@seeds(1_000)
def test_no_word_is_missing_after_deaths_during_an_upgrade(seed: int) -> None:
    state, draw = MemoryState(), Random(seed)
    opens = seed % 3 > 0
    with SimCluster(seed, latency_s=0.005, nodes=1 + seed % 2) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(draw.expovariate(2.0))
        with suppress(LifecycleError):  # the topology is finished
            code = next_program(state, draw, opens=opens).graph()
            run.upgrade(code, draw.choice([0.0, 0.3, None]), waits=False)
        for _ in range(draw.randint(0, 3)):
            run.wait(draw.expovariate(4.0))
            kill_a_process(run, draw)
        if seed % 4 == 0:
            change(run, draw, steps=1, deaths=1)
        assert run.wait(600), run._describe()
        assert not run.snapshot().component("words").pending
    check(state, is_exact=False)


@seeds(200)
def test_without_deaths_each_word_is_counted_once(seed: int) -> None:
    state, draw = MemoryState(), Random(seed)
    with SimCluster(seed, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(draw.uniform(0.1, 1.0))
        lines = run.upgrade(next_program(state, draw, opens=True).graph())
        assert lines[0].startswith("upper is new: ")
        assert "upper" in run.plan.graph.components
        assert [*run._env.plans] == [1]
        assert run.wait(600), run._describe()
        assert run.snapshot().component("upper").executed
    check(state, is_exact=True)


def test_code_that_does_not_open_is_rolled_back_and_nothing_is_lost() -> None:
    state, draw = MemoryState(), Random(1)
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(0.5)
        before, ids = run.plan, {task.id for task in run.plan.tasks}
        code = next_program(state, draw, opens=False).graph()
        with pytest.raises(LifecycleError, match="has not been changed: the new code did not open"):
            run.upgrade(code)
        assert run.plan == before
        assert not run._env.plans, "the plan that did not open was removed"
        assert run.snapshot().state is State.ACTIVE
        assert "topology failed" not in [entry.event for entry in run.log_lines()]
        (line,) = [entry for entry in run.log_lines() if entry.event == "upgrade rolled back"]
        assert "no such table" in line.text
        for kill in (lambda: None, run.kill_master):
            kill()
            run.wait(0.5)
            unchanged = run.snapshot().unchanged
            assert unchanged is not None
            assert unchanged.command == "upgrade"
            assert "no such table" in unchanged.why
        tried = run._master.core.stored.last_task_id
        run.upgrade(next_program(state, draw, opens=True).graph())
        assert run.snapshot().unchanged is None
        assert min({task.id for task in run.plan.tasks} - ids) > tried, "no id is used twice"
        assert run.wait(600), run._describe()
    check(state, is_exact=True)


class Ticks(Bolt[Word, None]):
    """Adds the times of its ticks to a list that the test reads."""

    def __init__(self, times: list[float]) -> None:
        self.times = times

    def __deepcopy__(self, memo: object) -> Ticks:
        return Ticks(self.times)

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, word: Word) -> None: ...

    def tick(self) -> None:
        self.times.append(self.clock.now())


@pytest.mark.parametrize("opens", [True, False])
def test_bolts_do_not_tick_before_all_components_are_open(opens: bool) -> None:
    state, tick_times = MemoryState(), list[float]()
    topology = next_program(state, Random(1), opens=opens, ticks=Ticks(tick_times))
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(0.5)
        with nullcontext() if opens else pytest.raises(LifecycleError, match="did not open"):
            run.upgrade(topology.graph())
        assert opens or not tick_times
        assert run.wait(600), run._describe()
    assert bool(tick_times) is opens


@pytest.mark.parametrize("dies", ["", "before", "while it opens"])
def test_an_upgrade_keeps_what_a_rebalance_has_changed(dies: str) -> None:
    """Also in the next upgrade, and by the next process of the master."""
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(0.1)
        run.rebalance(workers=4, tasks={"parse": 3, "count": 5, ACKER: 2})
        for _ in range(2):
            if dies == "before":
                run.kill_master()
            planned = {*run.upgrade(program(state, Sink()).graph(), dry_run=True)}
            assert "count: keeps the 5 tasks that a rebalance has made" in planned
            lines = run.upgrade(program(state, Sink()).graph(), waits=not dies)
            if dies:
                run.wait(0.05)
                run.kill_master()
                run._until(lambda: run.snapshot().state is not State.REBALANCING)
            assert {*lines} <= planned
            assert numbers(run) == {"words": 1, "parse": 3, "count": 5, "sink": 1, ACKER: 2}
            assert len(run.plan.workers) == 4
        lines = run.upgrade(program(state, Sink(), workers=2).graph())
        assert "workers: 4 → 2" in lines, "the file has changed"
        assert numbers(run)["count"] == 5
        assert run.wait(600), run._describe()
    check(state, is_exact=not dies)


def test_a_rollback_keeps_what_a_rebalance_has_changed() -> None:
    state, draw = MemoryState(), Random(1)
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(0.1)
        run.rebalance(tasks={"count": 5})
        with pytest.raises(LifecycleError, match="the new code did not open"):
            run.upgrade(next_program(state, draw, opens=False).graph())
        assert numbers(run)["count"] == 5
        run.upgrade(program(state, Sink()).graph())
        assert numbers(run)["count"] == 5, "what was rolled back has declared nothing"
        assert run.wait(600), run._describe()
    check(state, is_exact=True)


def numbers(run: SimRun) -> dict[str, int]:
    return Counter(task.component for task in run.plan.tasks)


def test_what_is_refused_is_shown_until_the_next_change() -> None:
    graph = program(MemoryState(), Sink()).graph()
    other = replace(graph, config=replace(graph.config, worker_timeout_s=17.0))
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(graph)
        run.wait(0.1)
        with pytest.raises(LifecycleError, match="cannot be upgraded"):
            run.upgrade(other, dry_run=True)
        assert run.snapshot().unchanged is None
        for workers in (1, 2):
            with pytest.raises(LifecycleError, match="cannot be upgraded") as refused:
                run.upgrade(other)
            unchanged = run.snapshot().unchanged
            assert unchanged is not None
            assert (unchanged.command, unchanged.why) == ("upgrade", str(refused.value))
            refusals = [line.text for line in run.log_lines() if line.event == "upgrade refused"]
            assert refusals[-1:] == [unchanged.why]
            run.rebalance(workers=workers)
            assert run.snapshot().unchanged is None


def test_a_dry_run_changes_nothing() -> None:
    state, draw = MemoryState(), Random(1)
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        lines = run.upgrade(next_program(state, draw, opens=True).graph(), dry_run=True)
        assert lines[0].startswith("upper is new: ")
        assert any(line.startswith("continue with the new code: ") for line in lines)
        assert any(line.startswith("state ") and " is kept" in line for line in lines)
        assert "upper" not in run.plan.graph.components
        assert run.snapshot().state is State.ACTIVE
