"""The master derives from the health of all tasks which components succeed, wait or are slow."""

from __future__ import annotations

import pytest

from sunshower import Counter, Number, Topology
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.overview import ConditionTracker
from sunshower.runtime.events.health import WELL, Health, TaskError, Wait, WaitKind
from sunshower.runtime.events.metrics import Counts, TaskStats, WorkerStats
from sunshower.runtime.plan import make_plan

ERROR = TaskError("work", 0, 1, "work[0] raised ValueError: no")


def keep(record: Number) -> None: ...


def tracker(state: MasterState | None = None) -> ConditionTracker:
    topology = Topology("t", message_timeout_s=30)
    topology.spout("numbers", Counter()).shuffle().bolt("work", keep, parallelism=3)
    plan = make_plan(topology.graph())
    return ConditionTracker(plan, state or MasterState())


def waits(kind: WaitKind, *, sure: bool = True) -> Health:
    return Health(wait=Wait(kind, 1.0, 3, ERROR, True, sure))


def work(task: int, acked: int = 0, health: Health = WELL, queue_s: float = 0.0) -> TaskStats:
    return TaskStats(task, "work", Counts(acked=acked), health=health, queue_s=queue_s)


def look(conditions: ConditionTracker, *tasks: TaskStats) -> None:
    conditions.look({0: WorkerStats(0, 1, tasks)})


def test_component_has_succeeded_once_a_task_of_it_has_acked_or_a_spout_emitted() -> None:
    here = tracker()
    look(here, work(1), TaskStats(0, "numbers", Counts(pending=1)))
    assert here.now.proven == frozenset()
    look(here, work(1), work(2, acked=1), TaskStats(0, "numbers", Counts(emitted=1)))
    assert here.now.proven == {"work", "numbers"}


def test_success_is_remembered_after_restarts_of_workers_and_of_the_master() -> None:
    state = MasterState()
    here = tracker(state)
    look(here, work(1, acked=1))
    look(here, work(1))  # its counters start again at zero
    assert here.now.proven == {"work"}
    successor = MasterState.from_bytes(state.to_bytes())
    assert tracker(successor).now.proven == {"work"}


@pytest.mark.parametrize("kind", WaitKind)
def test_component_waits_while_any_task_of_it_does(kind: WaitKind) -> None:
    here = tracker()
    look(here, work(1, health=waits(kind)), work(2, acked=5))
    assert here.now.waiting == {"work"}
    look(here, work(1), work(2, acked=5))
    assert here.now.waiting == frozenset()


def test_component_succeeds_where_another_task_acks_while_one_is_in_doubt() -> None:
    here, doubting = tracker(), work(1, health=waits(WaitKind.DOUBT))
    for _ in range(2):
        look(here, doubting, work(2, acked=5))
        assert here.now.succeeding == frozenset(), "its acks before the doubt prove nothing"
        assert here.now.in_doubt == {("work", 1)}
    look(here, doubting, work(2, acked=6))
    assert here.now.succeeding == {"work"}
    assert here.now.in_doubt == frozenset()
    look(here, work(1), work(2, acked=6))
    assert here.now.succeeding == frozenset()


def test_a_task_that_doubts_because_of_another_one_keeps_no_third_one_in_doubt() -> None:
    here = tracker()
    follows = waits(WaitKind.DOUBT, sure=False)
    look(here, work(1, health=waits(WaitKind.DOUBT)), work(2, health=follows), work(3))
    assert here.now.in_doubt == {("work", 1)}
    look(here, work(1), work(2, health=follows), work(3))
    assert here.now.in_doubt == frozenset()


def test_acks_that_are_reported_late_prove_nothing() -> None:
    """The statistics of another worker may be older than the doubt: only the next ones count."""
    here, doubting = tracker(), work(1, health=waits(WaitKind.DOUBT))
    old = work(2, acked=5)
    for _ in range(3):  # the first worker reports, and the other one does not
        look(here, doubting, old)
    look(here, doubting, work(2, acked=8))  # acked before the doubt
    assert here.now.succeeding == frozenset()
    look(here, doubting, work(2, acked=9))
    assert here.now.succeeding == {"work"}


def test_acks_of_a_task_that_has_ended_its_doubt_prove_nothing_at_first() -> None:
    """Its counter includes all its earlier acks."""
    here, doubting = tracker(), work(1, health=waits(WaitKind.DOUBT))
    look(here, doubting, work(2, acked=5, health=waits(WaitKind.DOUBT)))
    for _ in range(2):
        look(here, doubting, work(2, acked=6))
        assert here.now.succeeding == frozenset()
    look(here, doubting, work(2, acked=7))
    assert here.now.succeeding == {"work"}


def test_component_where_tuples_wait_for_a_quarter_of_the_timeout_is_named() -> None:
    here = tracker()
    look(here, work(1, queue_s=7.0))
    assert here.now.slowest == ("", 0.0)
    look(here, work(1, queue_s=1.0), work(2, queue_s=9.0))
    assert here.now.slowest == ("work", 9.0)


def test_component_is_named_again_when_the_wait_has_become_half_as_long_again() -> None:
    here, waits_s = tracker(), []
    for queue_s in (9.0, 10.0, 13.0, 14.0, 20.0, 21.5):
        look(here, work(1, queue_s=queue_s))
        waits_s.append(here.now.slowest[1])
    assert waits_s == [9.0, 9.0, 9.0, 14.0, 14.0, 21.5]
