"""States of batches that move to other numbers of tasks, wherever a run has ended before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sunshower import Topology, count
from sunshower.errors import StoreUnreachable, TopologyFailed
from sunshower.runtime.inline import run_inline
from sunshower.runtime.transport.routing import task_index
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import nothing_else
from sunshower.topologies.operators.states import MapState, Moving, Place, Spread, StateKind
from sunshower.trident import FixedBatchSpout, InMemory, batches
from sunshower.trident.states import factories
from sunshower.trident.states.factories import KeptState
from tests.seeds import seeds
from tests.trident.rigs.additions import OPAQUE, TRANSACTIONAL, plus
from tests.trident.rigs.every_store import state_in, stores
from tests.trident.rigs.moving_states import (
    STATES,
    Event,
    Life,
    MortalState,
    MovingProgram,
    ProcessEnded,
)

KINDS = [
    (True, StateKind.OPAQUE),
    (False, StateKind.OPAQUE),
    (False, StateKind.TRANSACTIONAL),
]


def tasks_of(draw: Random) -> dict[str, int]:
    return {name: draw.choice((1, 2, 3)) for name in (*STATES, "in")}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize(("is_opaque", "kind"), KINDS)
@seeds(100)
def test_runs_with_other_numbers_of_tasks_that_end_anywhere_count_each_row_once(
    seed: int, is_opaque: bool, kind: StateKind, store: str, tmp_path: Path
) -> None:
    """Totals, totals of totals, `process`, and windows of time and of a count; and their source."""

    def state(name: str, kind: StateKind) -> Any:
        if store == "memory":
            return MemoryState(kind, name)
        return SqliteState(tmp_path / "states.db", kind, name)

    plain = MovingProgram(seed, is_opaque, kind, lambda name, kind: MemoryState(kind, name))
    assert plain.run(Life(), dict.fromkeys(STATES, 1))
    program, draw = MovingProgram(seed, is_opaque, kind, state), Random(seed)
    ends = 0
    for _ in range(8):
        life = Life(draw.randrange(1, 80), draw.random() < 0.5)
        ends += not program.run(life, tasks_of(draw))
    assert program.run(Life(), tasks_of(draw))
    assert ends
    assert program.outcome() == plain.outcome()


# ---- each write of a move ------------------------------------------------------------------------

KEYS = "abcdefgh"


def nothing_noted(_: int, __: Attempt | None) -> None: ...


def opened(factory: Any, index: int, tasks: int) -> MapState:
    """The state of a task, whose keys choose the tasks of rows."""
    moving = Moving(Spread.BY_KEY, nothing_else, True, nothing_noted)
    state: MapState = factory.make(Place("words", "counts", index, tasks, moving=moving))
    return state


def write(state: MapState, index: int, tasks: int, attempt: Attempt, keys: Sequence[str]) -> None:
    """Commit the rows of a task: each adds one to its key."""
    counts = Counter(key for key in keys if task_index(key, tasks) == index)
    state.begin_commit(attempt)
    state.multi_update([*counts], [plus(number) for number in counts.values()])
    state.commit(attempt)


def filled(factory: Any, tasks: int) -> None:
    """Write one batch in all tasks, and the next one in some."""
    for index in range(tasks):
        state = opened(factory, index, tasks)
        write(state, index, tasks, Attempt(1, 0, 1), KEYS * 2)
        if index % 2 == 0:
            write(state, index, tasks, Attempt(2, 0, 1), KEYS)
        state.close()


@pytest.mark.parametrize("store", stores("memory", "sqlite"))
@pytest.mark.parametrize("kind", [OPAQUE, TRANSACTIONAL])
@pytest.mark.parametrize(("former", "tasks"), [(3, 2), (1, 3)])
def test_a_process_may_end_at_each_write_of_a_move(
    former: int,
    tasks: int,
    kind: StateKind,
    store: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run, also one with a third number of tasks, repeats the batch that some tasks had
    written: with the same rows, or others if the state is opaque."""
    monkeypatch.setattr(factories, "_KEYS_AT_ONCE", 2)
    for last in range(1, 1_000):
        factory = state_in(request, store, tmp_path, kind)
        filled(factory, former)
        life = Life((last + 1) // 2, is_after=last % 2 == 0)
        try:
            for index in range(tasks):
                opened(MortalState(factory, life, kind, factory.name), index, tasks).close()
        except ProcessEnded:
            pass
        else:
            assert last > 15
            return
        again = (tasks, former, 4)[last % 3]
        rows = KEYS if kind is TRANSACTIONAL else KEYS[last % 3 :] + "a"
        for index in range(again):
            state = opened(factory, index, again)
            write(state, index, again, Attempt(2, 1, 2), rows)
            write(state, index, again, Attempt(3, 0, 2), "abc")
            state.close()
        assert Counter(dict(factory.items())) == Counter(KEYS * 2 + rows + "abc")
    raise AssertionError("the opening never completes")


@pytest.mark.parametrize("kind", [OPAQUE, TRANSACTIONAL])
def test_a_process_of_the_former_run_writes_nothing_after_the_move(kind: StateKind) -> None:
    factory = MemoryState(kind)
    former = [opened(factory, index, 2) for index in range(2)]
    for index, state in enumerate(former):
        write(state, index, 2, Attempt(1, 0, 1), KEYS)
    opened(factory, 0, 3)
    for index, state in enumerate(former):
        with pytest.raises(StoreUnreachable, match="has moved to a run with 3 tasks"):
            write(state, index, 2, Attempt(2, 0, 1), KEYS)
    assert dict(factory.items()) == dict.fromkeys(KEYS, 1)


# ---- programs ------------------------------------------------------------------------------------

EVENTS = [Event("abcde"[number % 5], number, float(number)) for number in range(30)]


def counted(store: InMemory, state: KeptState, tasks: int, life: Life | None = None) -> None:
    """Count the events of each key in a program of batches."""
    topology = Topology("counted")
    spout = FixedBatchSpout(EVENTS, 10, type=Event)
    rows = batches(topology, "in", spout, store=store).group_by("key")
    factory: Any = state if life is None else MortalState(state, life, state.kind, state.name)
    rows.aggregate(count(), state=factory, parallelism=tasks)
    run_inline(topology.graph())


def test_a_part_that_was_rolled_back_is_refused_before_anything_moves() -> None:
    """Also if it is the part of a task that the new run does not have."""
    store, state = InMemory(), MemoryState(name="counts")
    with pytest.raises(TopologyFailed):
        counted(store, state, 2, Life(5))
    behind = max(home for home in state.shelf.marks if home.task < 2)
    marks, values = state.shelf.marks, state.shelf.values
    backup = dict(marks), {home: dict(entries) for home, entries in values.items()}
    del marks[behind]
    values.pop(behind, None)
    for tasks in (1, 3, 2):
        with pytest.raises(TopologyFailed, match=f"task {behind.task} is empty, but it had batch"):
            counted(store, state, tasks)
    state.shelf.marks, state.shelf.values = backup
    counted(store, state, 1)
    assert dict(state.items()) == dict.fromkeys("abcde", 6)


def test_a_state_whose_function_chooses_the_keys_keeps_its_number_of_tasks() -> None:
    """The error names ways out: the former number, and another name."""

    def run(tasks: int, name: str) -> None:
        topology = Topology("kept")
        rows = batches(topology, "in", FixedBatchSpout(EVENTS, 10, type=Event), store=store)
        rows.partition_by("key", parallelism=tasks).partition_persist(state, keep, name=name)
        run_inline(topology.graph())

    def keep(state: MapState, rows: list[Event]) -> None:
        state.multi_put(["last"], [rows[-1].number])

    store, state = InMemory(), MemoryState()
    run(2, "kept")
    with pytest.raises(TopologyFailed, match=r"chooses its keys itself|give it back the parall"):
        run(1, "kept")
    with pytest.raises(TopologyFailed, match="chooses its keys itself"):
        run(3, "kept")
    run(2, "kept")
    run(3, "kept-by-three")
