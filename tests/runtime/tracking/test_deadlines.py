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
    found = Rig(topology).spout("numbers")
    found.emit(0.0, 3)
    return found


def test_nothing_is_overdue_while_deadlines_are_stopped() -> None:
    one = spout()
    one.deadlines.hold(True, 10.0)
    assert one.next_look_s == float("inf"), "the task does not wake up for them"
    one.look(10_000.0)
    assert len(one.pending) == 3


@pytest.mark.parametrize("held_s", [1.0, 600.0])
def test_after_the_outage_each_tree_has_the_time_that_it_had_left(held_s: float) -> None:
    one = spout()
    one.deadlines.hold(True, 10.0)
    one.deadlines.hold(False, 10.0 + held_s)
    assert one.next_look_s == pytest.approx(TIMEOUT_S + held_s)
    one.look(TIMEOUT_S + held_s - 0.1)
    assert len(one.pending) == 3
    one.look(TIMEOUT_S + held_s)
    assert dict(one.replays.causes) == {Cause.TIMEOUT: 3}


def test_repeated_messages_count_once() -> None:
    one = spout()
    for now in (10.0, 12.0, 14.0):
        one.deadlines.hold(True, now)
    for now in (20.0, 22.0):
        one.deadlines.hold(False, now)
    assert one.next_look_s == pytest.approx(TIMEOUT_S + 10.0)


def test_trees_that_a_crash_affected_fail_although_deadlines_are_stopped() -> None:
    one = spout(internals=Internals(sweep_grace_s=1.0))
    one.deadlines.hold(True, 10.0)
    one.sweep(12.0, Failure(Cause.ACTOR_DIED, "next", 0), None, 1)
    assert one.next_look_s == 13.0
    one.look(13.0)
    assert dict(one.replays.causes) == {Cause.ACTOR_DIED: 3}


def test_timeout_says_where_tuples_wait_longest_and_what_to_change() -> None:
    one = spout()
    one.deadlines.hold(False, 10.0)
    one.deadlines.slowest = "tuples wait longest before 'next', about 40 s: give it more tasks"
    one.look(31.0)
    notice = one.replays.notices.take(float("inf"))[0]
    assert "no verdict within 30 s; tuples wait longest before 'next', about 40 s" in notice
