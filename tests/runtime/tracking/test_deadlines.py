"""Deadlines stop while a component downstream waits for a dependency."""

from __future__ import annotations

from typing import Any

import pytest

from sunshower import Cause, Failure, Number, Records, Topology
from sunshower.config import Internals
from tests.runtime.rig import Rig, sink

TIMEOUT_S = 30.0


def spout(**settings: Any) -> Any:
    """A spout task with three trees, emitted at 0 s."""
    topology = Topology("t", ackers=1, message_timeout_s=TIMEOUT_S, **settings)
    source = topology.spout("numbers", Records([Number(n) for n in range(3)], type=Number))
    source.shuffle().bolt("next", sink)
    task = Rig(topology).spout("numbers")
    task.emit(0.0, 3)
    return task


def test_nothing_is_overdue_while_deadlines_are_stopped() -> None:
    task = spout()
    task.deadlines.hold(True, 10.0)
    assert task.next_look_s == float("inf"), "the task does not wake up for them"
    task.look(10_000.0)
    assert len(task.pending) == 3


@pytest.mark.parametrize("held_s", [1.0, 600.0])
def test_after_the_outage_each_tree_has_the_time_that_it_had_left(held_s: float) -> None:
    task = spout()
    task.deadlines.hold(True, 10.0)
    task.deadlines.hold(False, 10.0 + held_s)
    assert task.next_look_s == pytest.approx(TIMEOUT_S + held_s)
    task.look(TIMEOUT_S + held_s - 0.1)
    assert len(task.pending) == 3
    task.look(TIMEOUT_S + held_s)
    assert dict(task.replays.causes) == {Cause.TIMEOUT: 3}


def test_repeated_messages_count_once() -> None:
    task = spout()
    for now in (10.0, 12.0, 14.0):
        task.deadlines.hold(True, now)
    for now in (20.0, 22.0):
        task.deadlines.hold(False, now)
    assert task.next_look_s == pytest.approx(TIMEOUT_S + 10.0)


def test_trees_that_a_crash_affected_fail_although_deadlines_are_stopped() -> None:
    task = spout(internals=Internals(sweep_grace_s=1.0))
    task.deadlines.hold(True, 10.0)
    task.sweep(12.0, Failure(Cause.ACTOR_DIED, "next", 0), None, 1)
    assert task.next_look_s == 13.0
    task.look(13.0)
    assert dict(task.replays.causes) == {Cause.ACTOR_DIED: 3}


def test_timeout_says_where_tuples_wait_longest_and_what_to_change() -> None:
    task = spout()
    task.deadlines.hold(False, 10.0)
    task.deadlines.slowest = "tuples wait longest before 'next', about 40 s: give it more tasks"
    task.look(31.0)
    notice = task.replays.notices.take(float("inf"))[0]
    assert "no verdict within 30 s; tuples wait longest before 'next', about 40 s" in notice
