"""The states of a topology: each command in each state, and what happens after the waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sunshower.errors import LifecycleError
from sunshower.runtime.control.lifecycle import (
    Command,
    Lifecycle,
    Observations,
    State,
    why_not_kept,
    why_unchanged,
)
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.plan import Task

WORKING = Observations(joined=True, arrived=True, quiet=False, done=False)
ABSENT = Observations(joined=False, arrived=False, quiet=False, done=False)
QUIET = replace(WORKING, quiet=True)
DONE = replace(QUIET, done=True)
TASKS = [Task(1, "count", 0, 1), Task(7, "count", 1, 1)]

STATES: dict[State, tuple[MasterState, Observations]] = {
    State.STARTING: (MasterState(), ABSENT),
    State.ACTIVE: (MasterState(), WORKING),
    State.INACTIVE: (MasterState(active=False), WORKING),
    State.REBALANCING: (MasterState(next_tasks=TASKS), WORKING),
    State.DRAINING: (MasterState(draining=True), WORKING),
    State.FINISHED: (MasterState(), DONE),
    State.KILLED: (MasterState(draining=True, killing=True, killed=True), WORKING),
    State.FAILED: (MasterState(error="a bolt raised"), WORKING),
}
POSSIBLE = {  # by command: activate, deactivate, rebalance, upgrade, keep, drain, kill
    State.STARTING: (True, True, False, False, False, True, True),
    State.ACTIVE: (True, True, True, True, True, True, True),
    State.INACTIVE: (True, True, True, True, True, True, True),
    State.REBALANCING: (False, False, False, False, False, True, True),
    State.DRAINING: (False, False, False, False, False, True, True),
    State.FINISHED: (False, False, False, False, False, True, True),
    State.KILLED: (False, False, False, False, False, False, True),
    State.FAILED: (False, False, False, False, False, False, True),
}


@pytest.mark.parametrize("state", State)
def test_every_state_follows_from_the_stored_state_and_the_observations(state: State) -> None:
    stored, facts = STATES[state]
    assert Lifecycle("t", stored, 0.0).state(facts) is state


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("command", Command)
def test_every_command_in_every_state(command: Command, state: State) -> None:
    possible = dict(zip(Command, POSSIBLE[state], strict=True))[command]
    stored, _ = STATES[state]
    lifecycle = Lifecycle("words", stored, 0.0)
    if possible:
        lifecycle.allow(command, state)
        return
    with pytest.raises(LifecycleError) as error:
        lifecycle.allow(command, state)
    refusal, _, ways_out = str(error.value).partition("possible are: ")
    assert refusal.startswith(f"topology 'words' is {state}")
    assert f"{command} is not possible" in refusal
    assert ways_out.split(", ") == [
        other for other, can in zip(Command, POSSIBLE[state], strict=True) if can
    ]


def test_a_refusal_says_why_a_topology_has_failed() -> None:
    with pytest.raises(LifecycleError, match=r"is failed \(a bolt raised\)"):
        Lifecycle("t", MasterState(error="a bolt raised"), 0.0).allow(
            Command.ACTIVATE, State.FAILED
        )


def test_state_is_starting_before_the_first_lives_and_rebalancing_after_a_move() -> None:
    assert Lifecycle("t", MasterState(), 0.0).state(ABSENT) is State.STARTING
    assert Lifecycle("t", MasterState(moves=1), 0.0).state(ABSENT) is State.REBALANCING


def test_drained_topology_is_finished_and_a_killed_one_killed() -> None:
    stored = MasterState()
    lifecycle = Lifecycle("t", stored, 0.0)
    lifecycle.drain()
    assert lifecycle.state(DONE) is State.FINISHED
    lifecycle.kill(30.0, now=5.0)
    assert lifecycle.state(DONE) is State.DRAINING
    lifecycle.look(DONE, 5.0)
    assert lifecycle.state(DONE) is State.KILLED


def test_kill_ends_when_its_wait_is_over_and_a_second_one_begins_a_new_wait() -> None:
    lifecycle = Lifecycle("t", MasterState(), 0.0)
    lifecycle.kill(30.0, now=100.0)
    lifecycle.kill(10.0, now=120.0)
    lifecycle.look(WORKING, 129.9)
    assert lifecycle.state(WORKING) is State.DRAINING
    lifecycle.look(WORKING, 130.0)
    assert lifecycle.state(WORKING) is State.KILLED


def test_next_master_restarts_the_wait() -> None:
    stored = MasterState()
    Lifecycle("t", stored, 0.0).kill(30.0, now=100.0)
    successor = Lifecycle("t", MasterState.from_bytes(stored.to_bytes()), 7.0)
    successor.look(WORKING, 36.9)
    assert successor.state(WORKING) is State.DRAINING
    successor.look(WORKING, 37.0)
    assert successor.state(WORKING) is State.KILLED


def test_failed_topology_is_killed_without_a_wait() -> None:
    lifecycle = Lifecycle("t", MasterState(error="why"), 0.0)
    lifecycle.kill(30.0, now=1.0)
    lifecycle.look(WORKING, 1.0)
    assert lifecycle.state(WORKING) is State.KILLED


@pytest.mark.parametrize(("facts", "now"), [(QUIET, 1.0), (WORKING, 30.0)], ids=["quiet", "waited"])
def test_rebalance_packs_when_all_is_at_rest_or_the_wait_is_over(
    facts: Observations, now: float
) -> None:
    stored = MasterState(lives={0: 4, 1: 2})
    lifecycle = Lifecycle("t", stored, 0.0)
    assert lifecycle.change(TASKS, TASKS, 30.0, now=0.0) == 1
    lifecycle.look(WORKING, 29.9)
    assert not stored.packing
    lifecycle.look(facts, now)
    assert stored.packing
    lifecycle.move()
    assert (stored.tasks, stored.next_tasks, stored.packing) == (TASKS, None, False)
    assert (stored.floor, stored.moves, stored.last_task_id) == (4, 1, 7)


def test_a_drain_cancels_an_upgrade_that_is_not_packing_and_says_so() -> None:
    stored = MasterState()
    lifecycle = Lifecycle("t", stored, 0.0)
    change = lifecycle.change(TASKS, TASKS, 30.0, 0.0, is_upgrade=True)
    assert stored.next_plan == change
    lifecycle.drain()
    assert (stored.next_tasks, stored.next_plan) == (None, None)
    assert "drained or killed" in (why_unchanged(stored, change, State.DRAINING) or "")


def test_the_id_of_a_task_that_ends_is_not_used_again() -> None:
    stored = MasterState()
    Lifecycle("t", stored, 0.0).change(TASKS, TASKS[:1], 30.0, 0.0)
    assert stored.last_task_id == max(task.id for task in TASKS)


def test_a_plan_that_is_opening_counts_as_a_rebalance_also_for_the_next_master() -> None:
    stored = MasterState(lives={0: 1}, plan=1, change=1, proven={"count"})
    lifecycle = Lifecycle("t", stored, 0.0)
    lifecycle.change(TASKS, TASKS, 0.0, 0.0, is_upgrade=True)
    lifecycle.move()
    assert (stored.plan, stored.former_plan, stored.former_tasks) == (2, 1, None)
    assert not stored.proven, "the new code has succeeded with nothing yet"
    again = MasterState.from_bytes(stored.to_bytes())
    assert again == stored
    assert Lifecycle("t", again, 0.0).state(WORKING) is State.REBALANCING
    assert again.other_plan == 1


def test_a_change_that_cannot_pack_moves_back_to_the_present_tasks() -> None:
    stored = MasterState(lives={0: 1})
    lifecycle = Lifecycle("t", stored, 0.0)
    change = lifecycle.change(TASKS, TASKS, 0.0, 0.0, is_upgrade=True)
    lifecycle.look(QUIET, 0.0)
    lifecycle.cancel("no snapshot", TASKS[:1])
    assert (stored.next_tasks, stored.next_plan, stored.packing) == (TASKS[:1], None, True)
    lifecycle.move()
    assert (stored.tasks, stored.plan, stored.former_plan, stored.moves) == (TASKS[:1], 0, None, 1)
    assert why_unchanged(stored, change, State.ACTIVE) == "has not been changed: no snapshot"


def test_a_change_that_a_kill_has_overtaken_is_in_doubt() -> None:
    stored = MasterState()
    lifecycle = Lifecycle("t", stored, 0.0)
    change = lifecycle.change(TASKS, TASKS, 30.0, 0.0)
    lifecycle.look(QUIET, 0.0)
    lifecycle.kill(0.0, 1.0)
    doubt = "was drained or killed before it was known whether all tasks can move; see `sunshower"
    assert doubt in (why_unchanged(stored, change, State.KILLED) or "")
    assert "failed before it was known" in (why_unchanged(stored, change, State.FAILED) or "")
    stored.next_plan = change
    assert "whether the new code opens" in (why_unchanged(stored, change, State.DRAINING) or "")
    assert why_unchanged(stored, change, State.REBALANCING) is None
    assert why_unchanged(stored, 0, State.KILLED) is None


def test_only_the_last_reasons_are_kept() -> None:
    stored = MasterState()
    for _ in range(20):
        Lifecycle("t", stored, 0.0).change(TASKS, TASKS, 0.0, 0.0)
        stored.note_cancelled("why")
    assert sorted(stored.cancelled) == [*range(13, 21)]


def test_rebalance_does_not_pack_lives_that_have_not_arrived() -> None:
    stored = MasterState()
    lifecycle = Lifecycle("t", stored, 0.0)
    lifecycle.change(TASKS, TASKS, 0.0, now=0.0)
    lifecycle.look(ABSENT, 99.0)
    assert not stored.packing


@pytest.mark.parametrize("packing", [False, True])
def test_kill_cancels_a_rebalance_unless_tasks_are_packed(packing: bool) -> None:
    stored = MasterState(next_tasks=TASKS, packing=packing)
    lifecycle = Lifecycle("t", stored, 0.0)
    lifecycle.kill(30.0, now=0.0)
    assert stored.next_tasks == (TASKS if packing else None)
    assert lifecycle.state(WORKING) is State.DRAINING


def test_missing_savepoint_has_a_reason() -> None:
    stored = MasterState(lives={0: 1})
    lifecycle = Lifecycle("t", stored, 0.0)
    number = lifecycle.change(TASKS, TASKS, 0.0, 0.0, keeps=True)
    lifecycle.look(QUIET, 0.0)
    assert why_not_kept(stored, number, State.REBALANCING) is None
    assert "drained or killed before all" in (why_not_kept(stored, number, State.DRAINING) or "")
    assert "failed before all" in (why_not_kept(stored, number, State.FAILED) or "")
    assert "has continued" in (why_not_kept(stored, number - 1, State.REBALANCING) or "")
    assert lifecycle.go_on(number, TASKS)
    assert "was not stored" in (why_not_kept(stored, number, State.REBALANCING) or "")


def test_topology_with_a_savepoint_is_killed_at_once_and_does_not_continue() -> None:
    stored = MasterState(lives={0: 1})
    lifecycle = Lifecycle("t", stored, 0.0)
    number = lifecycle.change(TASKS, TASKS, 0.0, 0.0, keeps=True)
    lifecycle.look(QUIET, 0.0)
    lifecycle.kill(30.0, 1.0, number)
    assert not lifecycle.go_on(number, TASKS)
    lifecycle.look(WORKING, 1.0, is_kept=True)
    assert stored.killed
    lifecycle.kill(30.0, 1.0, number)  # the call is repeated, because the master has died
    assert stored.killed
