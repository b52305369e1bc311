"""Tests of changes that fail: the error says why, and the topology continues with its old code."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from sunshower import Bolt, Context, Spout, SpoutCollector, Topology
from sunshower.errors import LifecycleError
from sunshower.runtime.control import events
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from tests.guarantee.changes.counted import (
    TOTAL,
    WORDS,
    Note,
    Sink,
    Word,
    check,
    next_program,
    program,
)


def test_the_caller_limits_the_time_in_which_new_code_opens() -> None:
    state, draw = MemoryState(), Random(1)
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(0.5)
        code = next_program(state, draw, opens=False, task_errors_max=1_000).graph()
        with pytest.raises(LifecycleError, match=r"did not open within 5 s \(--timeout\)"):
            run.upgrade(code, open_s=5.0)
        assert run.wait(600), run._describe()
    check(state, is_exact=True)


@pytest.mark.parametrize("killed", [True, False])
def test_an_upgrade_that_a_drain_or_a_kill_overtakes_is_an_error(killed: bool) -> None:
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(0.5)
        run.upgrade(next_program(state, Random(1), opens=True).graph(), waits=False)
        change = run._master.core.stored.change
        if killed:
            run._ask(lambda master: master.apply(events.Kill(0.0)))
        else:
            run.drain()
        with pytest.raises(LifecycleError, match="the topology was drained or killed before"):
            run._wait_for_change(change, None)
        assert "upper" not in run.plan.graph.components


class SnapshotRaises(Sink):
    """Has a snapshot that raises."""

    def snapshot(self) -> None:
        raise OSError("no space left")


@pytest.mark.parametrize(
    ("sink", "why"),
    [(SnapshotRaises(), "OSError: no space left"), (Note(), "a state that it keeps in mem")],
)
def test_an_upgrade_ends_if_a_bolt_cannot_be_packed_and_the_old_code_continues(
    sink: Bolt[Word, None], why: str
) -> None:
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, sink).graph())
        run.wait(0.5)
        before = run.plan
        with pytest.raises(LifecycleError, match=f"has not been changed: (?s:.)*{why}"):
            run.upgrade(next_program(state, Random(1), opens=True).graph())
        assert run.plan == before
        assert run.wait(600), run._describe()
        (seen,) = run.results("sink")
    check(state, is_exact=True)
    assert type(sink) is SnapshotRaises or seen == dict.fromkeys(range(TOTAL), 1), (
        "its memory is kept"
    )


def test_a_rebalance_ends_if_a_snapshot_cannot_be_copied() -> None:
    class Uncopied(Note):
        def snapshot(self) -> Iterator[int]:
            return (number for number in self.seen)

    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Uncopied()).graph())
        run.wait(0.5)
        with pytest.raises(LifecycleError, match=r"'sink' cannot move to another process: .*plain"):
            run.rebalance(layout=Layout.ISOLATE)
        assert len(run.plan.workers) == 2, "as before"
        assert run.wait(600), run._describe()
        (seen,) = run.results("sink")
    check(state, is_exact=True)
    assert seen == dict.fromkeys(range(TOTAL), 1), "its memory is kept"


class Movable(Sink):
    def restore(self, state: None) -> None: ...


@pytest.mark.parametrize("sink", [Movable(), Note()])
def test_only_a_class_without_state_gets_other_numbers_of_tasks(
    sink: Bolt[Word, None],
) -> None:
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, sink).graph())
        run.wait(0.5)
        if type(sink) is Movable:
            run.rebalance(tasks={"sink": 3})
        else:
            with pytest.raises(LifecycleError, match=r"snapshot\(\) of 'sink' returned a state"):
                run.rebalance(tasks={"sink": 3})
        assert len(run.plan.tasks_of("sink")) == (3 if type(sink) is Movable else 1)
        assert run.wait(600), run._describe()
    check(state, is_exact=True)


class Manual(Spout[Word]):
    """Has no state; the runtime keeps its unacked messages."""

    def open(self, context: Context) -> None:
        self.number = 0

    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        if self.number < TOTAL:
            out.emit(Word(self.number, WORDS[self.number**2 % len(WORDS)]), self.number)
            self.number += 1

    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


def test_an_upgrade_is_refused_while_a_spout_has_records_in_memory() -> None:
    def refuses(word: Word) -> Iterator[Word]:
        raise ValueError("try again")
        yield word

    def topology() -> Topology:
        declared = Topology("words", attempts_max=1_000)
        declared.spout("words", Manual()).shuffle().bolt("refuses", refuses)
        return declared

    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(topology().graph())
        run.wait(0.5)
        with pytest.raises(LifecycleError, match="of the spout 'words' are processed yet: 60 in"):
            run.upgrade(topology().graph(), wait_s=0.1)
        assert run.snapshot().state is State.ACTIVE


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.6, 1.0, 1.5, 2.5, 4.0])
@pytest.mark.parametrize("opens", [True, False])
def test_the_next_master_has_the_plan_in_force(after_s: float, opens: bool) -> None:
    """The master dies while spouts stop, tasks pack, the new code opens, or later."""
    state, draw = MemoryState(), Random(1)
    with SimCluster(3, latency_s=0.05) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(0.3)
        run.upgrade(next_program(state, draw, opens=opens).graph(), waits=False)
        run.wait(after_s)
        run.kill_master()
        assert run.wait(600), run._describe()
        stored = run._master.core.stored
        assert ("upper" in run.plan.graph.components) is opens
        assert (stored.plan, stored.former_plan) == (int(opens), None)
        assert [*run._env.plans] == [1] * opens
        assert bool(stored.cancelled) is not opens
    check(state, is_exact=False)


def test_successes_of_the_old_code_do_not_count_for_the_new_code() -> None:
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, Sink()).graph())
        run.wait(0.5)
        proven = run._master.core.stored.proven
        assert {"parse", "count", "sink"} <= proven
        with pytest.raises(LifecycleError, match="did not open"):
            run.upgrade(next_program(state, Random(1), opens=False).graph())
        assert run._master.core.stored.proven is not proven
