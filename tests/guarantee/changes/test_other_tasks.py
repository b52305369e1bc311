"""Tests of changed numbers of tasks while a topology runs: nothing is lost, states are correct."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sunshower import Context, Topology
from sunshower.clock import ManualClock
from sunshower.errors import LifecycleError, TopologyFailed
from sunshower.runtime.plan import ACKER, Layout, make_plan
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.runtime.worker import Worker
from sunshower.simulation.cluster import SimCluster
from sunshower.simulation.worker import Killed, SimWorker
from sunshower.state import MemoryState
from tests.guarantee.changes.counted import TOTAL, Sink, Word, Words, change, check, program
from tests.seeds import seeds


@seeds(1_000)
def test_no_word_is_missing_after_deaths_while_the_tasks_change(seed: int) -> None:
    state, draw = MemoryState(), Random(seed)
    with SimCluster(seed, latency_s=0.005, nodes=1 + seed % 2) as cluster:
        run = cluster.submit(program(state, ackers=[None, 2][seed % 2]).graph())
        change(run, draw, steps=3, deaths=2)
        assert run.wait(600), run._describe()
        assert not run.snapshot().component("words").pending
    check(state, is_exact=False)


@seeds(200)
def test_without_deaths_each_word_is_counted_once(seed: int) -> None:
    state, draw = MemoryState(), Random(seed)
    with SimCluster(seed, latency_s=0.005) as cluster:
        run = cluster.submit(program(state).graph())
        for _ in range(3):
            run.wait(draw.expovariate(4.0))
            tasks = {name: draw.randint(1, 6) for name in ("parse", "count", ACKER)}
            try:
                run.rebalance(tasks=tasks, workers=draw.choice([None, 1, 4]))
            except LifecycleError:
                assert run.finished(), "a rebalance may be refused only if the run is finished"
                break
            plan = run.plan
            assert {name: len(plan.tasks_of(name)) for name in tasks} == tasks
            assert plan.graph.components["count"].parallelism == tasks["count"]
        assert run.wait(600), run._describe()
        (seen,) = run.results("sink")
    check(state, is_exact=True)
    assert seen == dict.fromkeys(range(TOTAL), 1), "states in memory move with their tasks"


def test_a_crash_report_of_a_task_that_has_ended_is_ignored() -> None:
    """It reaches workers whose plan no longer has the task."""
    plan = make_plan(program(MemoryState()).graph())
    worker = Worker(plan, 0, 1, np.random.default_rng(0), ManualClock())
    roots = np.array([1], np.uint64).tobytes()
    worker.peers({}, [CrashReport(1, 1, task=len(plan.tasks) + 1, roots=roots)])
    assert worker.stats().tasks


def test_each_process_knows_the_new_tasks() -> None:
    """Its log names them, and so do its reports of calls that do not return."""
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(MemoryState()).graph())
        run.rebalance(tasks={"parse": 5}, workers=4)
        workers = [
            process for process in run._env.network.there.values() if isinstance(process, SimWorker)
        ]
        assert [worker.plan.tasks for worker in workers] == [run.plan.tasks] * 4


class Dies(Sink):
    """Kills the process of a new task at each attempt of one word."""

    def prepare(self, context: Context) -> None:
        self.is_new = context.index > 0

    def process(self, word: Word) -> None:
        if word.number == TOTAL - 1 and self.is_new:
            raise Killed

    def restore(self, state: None) -> None: ...


@pytest.mark.parametrize("seed", range(5))
def test_a_record_that_ends_the_process_of_a_new_task_uses_up_its_attempts(seed: int) -> None:
    topology = Topology("words", workers=3, attempts_max=3)
    topology.spout("words", Words()).fields("text").bolt("dies", Dies())
    with SimCluster(seed, latency_s=0.005) as cluster:
        run = cluster.submit(topology.graph())
        run.rebalance(tasks={"dies": 4}, layout=Layout.ISOLATE)
        with pytest.raises(TopologyFailed, match=f"message {TOTAL - 1} of spout 'words' failed"):
            run.wait(600)
        assert not run._master.core.stored.quarantined
