"""Running programs of batches change: their numbers of tasks, and their code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from random import Random
from typing import Any

import pytest

from sunshower import Context
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.control.lifecycle import State
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from sunshower.topologies.operators.states import StateKind
from tests.seeds import seeds
from tests.trident.rigs.moving_states import STATES, Event, Life, MovingProgram
from tests.trident.rigs.programs import SETTINGS

KINDS = [
    (True, StateKind.OPAQUE),
    (False, StateKind.OPAQUE),
    (False, StateKind.TRANSACTIONAL),
]
PACE = {"interval_s": 0.05, **SETTINGS}


def program_of(seed: int) -> MovingProgram:
    is_opaque, kind = KINDS[seed % len(KINDS)]
    return MovingProgram(seed, is_opaque, kind, lambda name, kind: MemoryState(kind, name))


def tasks_of(draw: Random) -> dict[str, int]:
    return {name: draw.choice((1, 2, 3)) for name in STATES}


@contextmanager
def unless_finished(run: SimRun) -> Iterator[None]:
    """A command is refused if the program finishes while it is on its way."""
    try:
        yield
    except LifecycleError:
        assert run.snapshot().state is State.FINISHED


def change(cluster: SimCluster, run: SimRun, program: MovingProgram, draw: Random) -> SimRun:
    """Change the program once. Returns the run that goes on."""
    topology = program.topology(Life(), tasks_of(draw), **PACE)
    match draw.choice(("tasks", "code", "savepoint")):
        case "tasks":
            run.rebalance(tasks=tasks_of(draw))
        case "code":
            run.upgrade(topology.graph())
        case _:
            savepoint = run.keep()
            run.kill()
            run.stop()
            return cluster.submit(topology.graph(), resume=savepoint)
    return run


@cache
def expected(seed: int) -> dict[str, dict[Any, Any]]:
    """The outcome of the same program in one process; a third of the time of a test."""
    plain = program_of(seed)
    assert plain.run(Life(), dict.fromkeys(STATES, 1))
    return plain.outcome()


@seeds(1_000, kinds=len(KINDS))
def test_a_program_changes_between_two_batches(seed: int) -> None:
    """No batch is repeated."""
    program, draw = program_of(seed), Random(seed)
    with SimCluster(seed, latency_s=0.002) as cluster:
        topology = program.topology(Life(), tasks_of(draw), **PACE)
        run, failed = cluster.submit(topology.graph()), 0
        for _ in range(3):
            if run.wait(draw.uniform(0.1, 1.0)):
                break
            failed += run.snapshot().component("$mastercoord-in").failed
            with unless_finished(run):
                run = change(cluster, run, program, draw)
        assert run.wait(120.0), run._describe()
        failed += run.snapshot().component("$mastercoord-in").failed
    assert not failed
    assert program.outcome() == expected(seed)


@seeds(100, kinds=len(KINDS))
def test_an_inactive_program_is_changed_between_two_batches_too(seed: int) -> None:
    """What has begun when it is deactivated is committed, and no batch is repeated."""
    program, draw, calls = program_of(seed), Random(seed), Counter[int]()

    def counted(event: Event) -> Iterator[Event]:
        calls[event.number] += 1
        yield event

    program.code = counted
    with SimCluster(seed, latency_s=0.02) as cluster:
        run = cluster.submit(program.topology(Life(), tasks_of(draw), **PACE).graph())
        for _ in range(3):
            if run.wait(draw.uniform(0.2, 0.8)):
                break
            with unless_finished(run):
                run.deactivate()
                run.wait(draw.choice((0.0, 0.1)))
                run = change(cluster, run, program, draw)
                if run.snapshot().state is State.INACTIVE:
                    run.activate()
        assert run.wait(120.0), run._describe()
    assert {*calls.values()} == {1}
    assert program.outcome() == expected(seed)


@seeds(1_000, kinds=len(KINDS))
def test_each_row_counts_once_when_processes_die_while_a_program_changes(seed: int) -> None:
    program, draw = program_of(seed), Random(seed)
    with SimCluster(seed, latency_s=0.002) as cluster:
        run = cluster.submit(program.topology(Life(), tasks_of(draw), **PACE).graph())
        for _ in range(4):
            if run.wait(draw.uniform(0.1, 1.0)):
                break
            with suppress(LifecycleError, ClusterError):  # it ends, or the worker has just died
                run.rebalance(tasks=tasks_of(draw), waits=False)
                run.wait(draw.uniform(0.0, 0.3))
                run.kill_worker(draw.choice(run.plan.workers))
        assert run.wait(300.0), run._describe()
    assert program.outcome() == expected(seed)


@seeds(20)
def test_a_batch_that_is_not_committed_in_time_is_repeated_after_the_change(seed: int) -> None:
    program, draw = program_of(seed), Random(seed)
    with SimCluster(seed, latency_s=0.02) as cluster:
        run = cluster.submit(program.topology(Life(), dict.fromkeys(STATES, 2), **PACE).graph())
        run.wait(draw.uniform(0.3, 0.6))
        run.rebalance(tasks=dict.fromkeys(STATES, 3), wait_s=0.0)
        assert len(run.plan.tasks_of("totals")) == 3
        run.wait(draw.uniform(0.1, 0.3))
        topology = program.topology(Life(), dict.fromkeys(STATES, 1), **PACE)
        run.upgrade(topology.graph(), wait_s=0.0)
        assert len(run.plan.tasks_of("totals")) == 1
        assert run.wait(120.0), run._describe()
    assert program.outcome() == expected(seed)


def test_new_code_that_does_not_open_is_rolled_back() -> None:
    """The states have moved to its numbers of tasks, and move back."""
    program = program_of(0)

    class Prepared:
        def prepare(self, context: Context) -> None:
            raise ValueError("the new code does not open")

        def __call__(self, event: Event) -> Iterator[Event]:
            yield event

    with SimCluster(0, latency_s=0.002) as cluster:
        run = cluster.submit(program.topology(Life(), dict.fromkeys(STATES, 2), **PACE).graph())
        run.wait(0.5)
        program.code = Prepared()
        broken = program.topology(Life(), dict.fromkeys(STATES, 3), **PACE)
        with pytest.raises(LifecycleError, match="the new code does not open"):
            run.upgrade(broken.graph())
        assert len(run.plan.tasks_of("totals")) == 2
        assert run.wait(120.0)
    assert program.outcome() == expected(0)


def test_an_upgrade_keeps_the_numbers_of_tasks_that_a_rebalance_has_made() -> None:
    program = program_of(0)
    with SimCluster(0, latency_s=0.002) as cluster:
        declared = dict.fromkeys(STATES, 1)
        run = cluster.submit(program.topology(Life(), declared, **PACE).graph())
        run.wait(0.3)
        run.rebalance(tasks={"totals": 3})
        run.kill_master()
        lines = run.upgrade(program.topology(Life(), declared, **PACE).graph())
        assert "totals: keeps the 3 tasks that a rebalance has made" in lines
        run.wait(0.2)
        run.upgrade(program.topology(Life(), declared | {"totals": 2}, **PACE).graph())
        assert len(run.plan.tasks_of("totals")) == 2, "the file says so"
        assert run.wait(120.0), run._describe()
    assert program.outcome() == expected(0)


@pytest.mark.parametrize(
    ("component", "why"),
    [("in", "its tasks are those of the source"), ("odd-rows", "chooses the keys itself")],
)
def test_what_keeps_its_number_of_tasks_says_why(component: str, why: str) -> None:
    program = program_of(0)
    with SimCluster(0, latency_s=0.002) as cluster:
        run = cluster.submit(program.topology(Life(), dict.fromkeys(STATES, 2), **PACE).graph())
        with pytest.raises(LifecycleError, match=why):
            run.rebalance(tasks={component: 2})
        assert run.wait(120.0)
