"""The states of a topology: each event in each state, and what happens after the waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sunshower import Counter, Topology
from sunshower.errors import LifecycleError
from sunshower.runtime.control import events
from sunshower.runtime.control.lifecycle import (
    TABLE,
    Observations,
    State,
    state_of,
    why_not_kept,
    why_unchanged,
)
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.plan import Plan, make_plan
from tests.structure.reading import ROOT

WORKING = Observations(joined=True, arrived=True, quiet=False, done=False)
ABSENT = Observations(joined=False, arrived=False, quiet=False, done=False)
QUIET = replace(WORKING, quiet=True)
DONE = replace(QUIET, done=True)


def plan() -> Plan:
    topology = Topology("words", ackers=1, workers=1)
    topology.spout("numbers", Counter(9)).shuffle().bolt("count", lambda _: None, fields=())
    return make_plan(topology.graph())


PLAN = plan()
TASKS = [*PLAN.tasks]


class Observed(Master):
    """A master whose observations the test makes."""

    def __init__(
        self, stored: MasterState | None = None, facts: Observations = WORKING, now: float = 0.0
    ) -> None:
        super().__init__(PLAN, stored or MasterState(lives={0: 1}), now)
        self.facts = facts

    def _facts(self, now: float) -> Observations:
        return self.facts

    def does(self, event: events.Event, now: float = 0.0) -> State:
        """The state after an event."""
        self.apply(event, now)
        return self.state(now)


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
COMMANDS: list[events.Event] = [
    events.Activate(),
    events.Deactivate(),
    events.RebalanceTasks(2),
    events.Upgrade(PLAN, None, 60.0),
    events.Keep(),
    events.DrainSpouts(),
    events.Kill(),
]
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
    assert state_of(*STATES[state]) is state


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.command)
def test_every_command_in_every_state(command: events.Event, state: State) -> None:
    stored, facts = STATES[state]
    master = Observed(replace(stored), facts)
    before = master.stored.to_bytes()
    names = [other.command for other in COMMANDS]
    can = dict(zip(names, POSSIBLE[state], strict=True))
    if can[command.command]:
        assert master.does(command) in TABLE[type(command)][state]
        return
    with pytest.raises(LifecycleError) as error:
        master.apply(command, 0.0)
    refusal, _, ways_out = str(error.value).partition("possible are: ")
    assert refusal.startswith(f"topology 'words' is {state}")
    assert f"{command.command} is not possible" in refusal
    assert ways_out.split(", ") == [name for name in names if can[name]]
    assert master.stored.to_bytes() == before, "nothing has changed"


def test_the_table_has_exactly_the_commands() -> None:
    assert [*TABLE] == [type(command) for command in COMMANDS]


def test_the_table_in_the_docs_is_that_of_the_code() -> None:
    def cell(states: set[State] | None) -> str:
        return "–" if states is None else ", ".join(state for state in State if state in states)

    lines = [["", *State], ["---"] * (1 + len(State))]
    lines += [
        [event.command, *(cell(row.get(state)) for state in State)] for event, row in TABLE.items()
    ]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    assert table in (ROOT / "docs/ARCHITECTURE.md").read_text(), f"it should be:\n{table}"


def test_the_master_applies_every_event() -> None:
    kinds = [*events.Event.__subclasses__()]
    for kind in kinds:
        kinds += kind.__subclasses__()
    for kind in kinds:
        assert kind is events.OfLife or hasattr(Master, f"_on_{kind.kind}")


def test_a_refusal_says_why_a_topology_has_failed() -> None:
    with pytest.raises(LifecycleError, match=r"is failed \(a bolt raised\)"):
        Observed(MasterState(error="a bolt raised")).apply(events.Activate(), 0.0)


def test_state_is_starting_before_the_first_lives_and_rebalancing_after_a_move() -> None:
    assert state_of(MasterState(), ABSENT) is State.STARTING
    assert state_of(MasterState(moves=1), ABSENT) is State.REBALANCING


def test_drained_topology_is_finished_and_a_killed_one_killed() -> None:
    master = Observed(facts=DONE)
    assert master.does(events.DrainSpouts()) is State.FINISHED
    assert master.does(events.Kill(30.0), 5.0) is State.KILLED


def test_kill_ends_when_its_wait_is_over_and_a_second_one_begins_a_new_wait() -> None:
    master = Observed()
    master.apply(events.Kill(30.0), 100.0)
    master.apply(events.Kill(20.0), 120.0)
    assert master.does(events.Tick(), 139.9) is State.DRAINING
    assert master.does(events.Tick(), 140.0) is State.KILLED


def test_next_master_restarts_the_wait() -> None:
    master = Observed()
    master.apply(events.Kill(30.0), 100.0)
    successor = Observed(MasterState.from_bytes(master.stored.to_bytes()), now=7.0)
    assert successor.does(events.Tick(), 36.9) is State.DRAINING
    assert successor.does(events.Tick(), 37.0) is State.KILLED


def test_failed_topology_is_killed_without_a_wait() -> None:
    assert Observed(MasterState(error="why")).does(events.Kill(30.0), 1.0) is State.KILLED


@pytest.mark.parametrize(("facts", "now"), [(QUIET, 1.0), (WORKING, 30.0)], ids=["quiet", "waited"])
def test_rebalance_packs_when_all_is_at_rest_or_the_wait_is_over(
    facts: Observations, now: float
) -> None:
    master = Observed(MasterState(lives={0: 4}))
    stored = master.stored
    assert master.apply(events.RebalanceTasks(2, None, 30.0), 0.0).answer == 1
    next_tasks = stored.next_tasks
    master.apply(events.Tick(), 29.9)
    assert not stored.packing
    master.facts = facts
    master.apply(events.Tick(), now)
    assert stored.packing
    master._packed.add(0)
    master.apply(events.Tick(), now)
    assert (stored.tasks, stored.next_tasks, stored.packing) == (next_tasks, None, False)
    assert (stored.floor, stored.moves, stored.last_task_id) == (4, 1, TASKS[-1].id)


def test_a_drain_cancels_an_upgrade_that_is_not_packing_and_says_so() -> None:
    master = Observed()
    change, _ = master.apply(events.Upgrade(PLAN, 30.0, 60.0), 0.0).answer
    assert master.stored.next_plan == change
    master.apply(events.DrainSpouts(), 0.0)
    assert (master.stored.next_tasks, master.stored.next_plan) == (None, None)
    assert "drained or killed" in (why_unchanged(master.stored, change, State.DRAINING) or "")


def test_the_id_of_a_task_that_ends_is_not_used_again() -> None:
    master = Observed()
    master.apply(events.RebalanceTasks(tasks={"count": 3}), 0.0)
    highest = max(task.id for task in master.stored.next_tasks or [])
    assert master.stored.last_task_id == highest > max(task.id for task in TASKS)


def moved(master: Observed, event: events.Event) -> int:
    """Let a change pack, and move. Returns its number."""
    answer = master.apply(event, 0.0).answer
    master.facts = QUIET
    master.apply(events.Tick(), 0.0)
    master._packed |= {*master.plan.workers}
    master.apply(events.Tick(), 0.0)
    return int(answer[0] if isinstance(answer, tuple) else answer)


def test_a_plan_that_is_opening_counts_as_a_rebalance_also_for_the_next_master() -> None:
    master = Observed(MasterState(lives={0: 1}, plan=1, change=1, proven={"count"}))
    stored = master.stored
    moved(master, events.Upgrade(PLAN, 0.0, 60.0))
    assert (stored.plan, stored.former_plan, stored.former_tasks) == (2, 1, None)
    assert not stored.proven, "the new code has succeeded with nothing yet"
    again = MasterState.from_bytes(stored.to_bytes())
    assert again == stored
    assert state_of(again, WORKING) is State.REBALANCING
    assert again.other_plan == 1


def test_a_change_that_cannot_pack_moves_back_to_the_present_tasks() -> None:
    master = Observed(facts=QUIET)
    stored = master.stored
    change, _ = master.apply(events.Upgrade(PLAN, 0.0, 60.0), 0.0).answer
    master.apply(events.Tick(), 0.0)
    master.apply(events.PackFailed(0, 1, "no snapshot"), 0.0)
    assert (stored.next_tasks, stored.next_plan, stored.packing) == (TASKS, None, True)
    master._packed.add(0)
    master.apply(events.Tick(), 0.0)
    assert (stored.tasks, stored.plan, stored.former_plan, stored.moves) == (TASKS, 0, None, 1)
    assert why_unchanged(stored, change, State.ACTIVE) == "has not been changed: no snapshot"


def test_a_change_that_a_kill_has_overtaken_is_in_doubt() -> None:
    master = Observed(facts=QUIET)
    stored = master.stored
    change = master.apply(events.RebalanceTasks(2, None, 30.0), 0.0).answer
    master.apply(events.Tick(), 0.0)
    master.apply(events.Kill(0.0), 1.0)
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
        stored.change += 1
        stored.note_cancelled("why")
    assert sorted(stored.cancelled) == [*range(13, 21)]


def test_rebalance_does_not_pack_lives_that_have_not_arrived() -> None:
    master = Observed()
    master.apply(events.RebalanceTasks(2, None, 0.0), 0.0)
    master.facts = ABSENT
    master.apply(events.Tick(), 99.0)
    assert not master.stored.packing


@pytest.mark.parametrize("packing", [False, True])
def test_kill_cancels_a_rebalance_unless_tasks_are_packed(packing: bool) -> None:
    master = Observed(MasterState(lives={0: 1}, next_tasks=TASKS, packing=packing))
    assert master.does(events.Kill(30.0)) is State.DRAINING
    assert master.stored.next_tasks == (TASKS if packing else None)


def test_missing_savepoint_has_a_reason() -> None:
    master = Observed(facts=QUIET)
    stored = master.stored
    number = master.apply(events.Keep(0.0), 0.0).answer
    master.apply(events.Tick(), 0.0)
    assert why_not_kept(stored, number, State.REBALANCING) is None
    assert "drained or killed before all" in (why_not_kept(stored, number, State.DRAINING) or "")
    assert "failed before all" in (why_not_kept(stored, number, State.FAILED) or "")
    assert "has continued" in (why_not_kept(stored, number - 1, State.REBALANCING) or "")
    assert master.apply(events.GoOn(number), 0.0).answer
    assert "was not stored" in (why_not_kept(stored, number, State.REBALANCING) or "")


def test_topology_with_a_savepoint_is_killed_at_once_and_does_not_continue() -> None:
    master = Observed(facts=QUIET)
    number = master.apply(events.Keep(0.0), 0.0).answer
    master.apply(events.Tick(), 0.0)
    master._packed.add(0)
    master.facts = WORKING
    assert master.does(events.Kill(30.0, number), 1.0) is State.KILLED
    assert not master.apply(events.GoOn(number), 1.0).answer
    master.apply(events.Kill(30.0, number), 1.0)  # repeated: the master has died
    assert master.stored.killed


def test_a_refused_change_is_shown_for_an_hour() -> None:
    wall_s = [1_000.0]
    master = Master(PLAN, MasterState(lives={0: 1}), wall=lambda: wall_s[0])
    with pytest.raises(LifecycleError, match="has no component 'none'"):
        master.apply(events.RebalanceTasks(tasks={"none": 2}), 0.0)
    shown = master.snapshot(1.0).unchanged
    assert shown is not None
    assert (shown.command, shown.at_s) == ("rebalance", 1_000.0)
    assert "has no component 'none'" in shown.why
    wall_s[0] += 3_599.0
    assert master.snapshot(1.0).unchanged == shown
    wall_s[0] += 1.0
    assert master.snapshot(1.0).unchanged is None
