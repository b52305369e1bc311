"""A stored state that is opened with another number of tasks: each task has its keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sunshower import Context
from sunshower.clock import ManualClock
from sunshower.errors import FailedBatch, StaleAttempt, StateMismatch, StoreUnreachable
from sunshower.json_values import key_of, text_of_key
from sunshower.runtime.transport.routing import task_index
from sunshower.state import MemoryState
from sunshower.state.backing import Home
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import StateDraft, StateSlot, TaskMemory
from sunshower.topologies.operators.states import (
    BEHIND,
    OWED,
    TIME,
    TIMER,
    Place,
    Spread,
    StateKind,
)
from sunshower.trident.states.factories import KeptState
from tests.trident.rigs.additions import batch
from tests.trident.rigs.every_store import state_in, stores

FIRST = Attempt(1, 0, 0)
KEYS: list[Any] = [
    *(f"user {n} 你" for n in range(20)),
    *(-1, 7, 2.5, True, None, "", "__sunshower", Decimal("1.10"), b"\0\xff"),
    *((), ("a", 1), ("a", (2, None)), frozenset({1, "x"}), datetime(2026, 1, 1, tzinfo=UTC)),
]


@pytest.fixture
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> KeptState:
    return state_in(request, request.param, tmp_path)


every_store = pytest.mark.parametrize("factory", stores("memory", "sqlite"), indirect=True)


def task(index: int, tasks: int, clock: ManualClock | None = None) -> Context:
    return Context("shop", "visits", 1, index, tasks, clock=clock or ManualClock())


def open_store(factory: Any, index: int, tasks: int, **settings: Any) -> KeyedStore:
    store = KeyedStore(factory, "visits", "here", **settings)
    store.open(task(index, tasks))
    return store


def add(store: KeyedStore, key: Any, number: int) -> None:
    store.put(key, [*(store.get(key) or ()), number])
    store.commit()


def write(slot: StateSlot, key: str = "late") -> None:
    slot.begin_commit(FIRST)
    slot.state.multi_put([key], [1])
    slot.commit(FIRST)


USERS = [f"user {n}" for n in range(12)]


def filled_state(tasks: int) -> MemoryState:
    inner = MemoryState(name="visits")
    fill(inner, tasks)
    return inner


def fill(factory: KeptState, tasks: int) -> None:
    """Give each user a list, in the state of so many tasks."""
    for index in range(tasks):
        store = open_store(factory, index, tasks)
        for user in [user for user in USERS if task_index(user, tasks) == index]:
            store.put(user, [0])
        store.commit()
        store.close()


# ---- every store --------------------------------------------------------------------------------


@every_store
def test_each_task_has_its_keys_whatever_the_number_of_tasks_was(factory: KeptState) -> None:
    expected: dict[Any, list[int]] = {key: [] for key in KEYS}
    for number, tasks in enumerate((2, 5, 1, 3, 3, 2)):
        stores = [open_store(factory, index, tasks) for index in reversed(range(tasks))][::-1]
        if number:
            assert dict(factory.items(factory.name)) == expected
        for index, store in enumerate(stores):
            keys = [key for key in KEYS if task_index(key, tasks) == index]
            assert dict(store.items()) == {key: expected[key] for key in keys if expected[key]}
            for key in keys:
                expected[key].append(number)
                store.put(key, expected[key])
            store.commit()
            store.close()
        items = [*factory.items(factory.name)]
        assert dict(items) == expected
        assert len(items) == len(expected)
        parts = [[*factory.open(home).items()] for home in _homes(factory)]
        assert sum(map(len, parts)) == len(KEYS) + tasks  # no copies are left


@every_store
def test_a_former_run_that_resumes_late_writes_nothing(factory: KeptState) -> None:
    former = [open_store(factory, index, 2) for index in range(2)]
    totals: Any = replace(factory, name="totals")  # type: ignore[type-var]
    slots = [StateSlot(totals, "totals", "here") for _ in range(2)]
    for index, (store, slot) in enumerate(zip(former, slots, strict=True)):
        slot.open(task(index, 2))
        for key in [key for key in KEYS if task_index(key, 2) == index]:
            add(store, key, 1)
    now = open_store(factory, 0, 1)
    slot = StateSlot(totals, "totals", "here")
    slot.open(task(0, 1))
    before = {home: [*factory.open(home).items()] for home in _homes(factory)}
    for store, old in zip(former, slots, strict=True):
        store.put("late", 1)
        with pytest.raises(StoreUnreachable, match="moved to a run with 1 tasks"):
            store.commit()
        assert not store.is_open
        with pytest.raises(StoreUnreachable, match="moved to a run with 1 tasks"):
            store.open(task(0, 2))
        with pytest.raises(StoreUnreachable, match="moved to a run with 1 tasks"):
            write(old)
    assert {home: [*factory.open(home).items()] for home in _homes(factory)} == before
    add(now, "late", 2)
    assert dict(factory.items(factory.name)) == {**{key: [1] for key in KEYS}, "late": [2]}


def test_two_lives_that_open_totals_at_the_same_time_overwrite_nothing() -> None:
    """Their clocks are equal, so their writes could have the same number."""
    state, clock = MemoryState(name="totals"), ManualClock()
    slots = [StateSlot(state, "totals", "here") for _ in range(2)]
    for slot in slots:
        slot.open(task(0, 1, clock))
        write(slots[0], "former")
    with pytest.raises(FailedBatch, match="was written meanwhile"):
        write(slots[1])
    slots[1].state.abort()
    write(slots[1])
    assert dict(state.items()) == {"former": 1, "late": 1}


def test_two_lives_of_totals_that_write_the_same_number_lose_nothing() -> None:
    """A transactional state takes an update under the same number for one that was made."""
    state, clock = MemoryState(StateKind.TRANSACTIONAL, "totals"), ManualClock()

    def update(slot: StateSlot, key: str) -> None:
        slot.begin_commit(FIRST)
        slot.state.multi_update([key], [lambda before: (before or 0) + 1])
        slot.commit(FIRST)

    former, later = (StateSlot(state, "totals", "here") for _ in range(2))
    former.open(task(0, 1, clock))
    update(former, "a")
    later.open(task(0, 1, clock))
    update(later, "b")
    with pytest.raises((FailedBatch, StaleAttempt)):
        update(former, "b")
    assert dict(state.items()) == {"a": 1, "b": 1}


class OwnState:
    """A state of a user, whose `last_attempt` asks the store."""

    kind = StateKind.NON_TRANSACTIONAL

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.last: Attempt | None = None

    def make(self, place: Place) -> Any:
        return _OwnPart(self)


class _OwnPart(TaskMemory):
    def __init__(self, state: OwnState) -> None:
        super().__init__()
        self.values, self._state = state.values, state

    @property
    def last_attempt(self) -> Attempt | None:
        return self._state.last

    def commit(self, attempt: Attempt) -> None:
        last = self._state.last
        if last is not None and (attempt.epoch, attempt.txid) <= (last.epoch, last.txid):
            raise StaleAttempt(f"{attempt} is not after {last}")
        super().commit(attempt)
        self._state.last = attempt


def test_a_former_life_is_kept_out_of_a_state_that_says_at_any_time_who_wrote_last() -> None:
    state, clock = OwnState(), ManualClock()
    former, later = (KeyedStore(state, "visits", "here") for _ in range(2))
    former.open(task(0, 1, clock))
    former.put("a", 1)
    former.commit()
    clock.sleep(1)
    later.open(task(0, 1, clock))
    later.put("a", later.get("a") + 10)
    later.commit()
    former.put("a", former.get("a") + 1)
    with pytest.raises(StoreUnreachable, match="a later life of this task"):
        former.commit()
    assert (state.values["a"], former.is_open) == (11, False)


def test_a_key_that_is_put_and_removed_at_once_leaves_nothing() -> None:
    state = MemoryState(name="panes")
    part = state.make(Place("shop", "panes", 0, 1))
    part.begin_commit(FIRST)
    draft = StateDraft(part)
    draft.put("new", 1)
    draft.remove("new")
    draft.remove("other")
    draft.write()
    part.commit(FIRST)
    assert [entry for home in state.homes() for entry in state.open(home).items()] == []


def _homes(factory: KeptState) -> list[Home]:
    return [home for home in factory.homes() if home.state in (factory.name, "totals")]


# ---- data besides the values of keys ------------------------------------------------------------


def test_owed_rows_move_to_one_task_each_and_the_time_is_the_latest() -> None:
    state, by_group = MemoryState(name="visits"), {"spread": Spread.BY_GROUP, "has_panes": True}
    for index in range(3):
        store = open_store(state, index, 3, **by_group)
        for user in [user for user in USERS if task_index(user, 3) == index]:
            store.put(("pane", user, 1), [index])
        store.put((OWED, 7), [1, index, [[f"row {index}"]]])
        store.put(("full",), [[f"full {index}"]])
        store.put((TIME,), 10.0 * index)
        store.commit()
    contents = [dict(open_store(state, index, 2, **by_group).entries()) for index in range(2)]
    for index, entries in enumerate(contents):
        former_tasks = [former for former in range(3) if former % 2 == index]
        assert entries[OWED, -1] == [-1, 0, [[f"row {former}"] for former in former_tasks]]
        assert entries[("full",)] == [[f"full {former}"] for former in former_tasks]
        assert entries[(TIME,)] == 20.0
        users = [user for user in USERS if task_index(user, 2) == index]
        assert {key[1] for key in entries if key[0] == "pane"} == {*users}
        behind = {key[1]: time for key, time in entries.items() if key[0] == BEHIND}
        times = {user: 10.0 * task_index(user, 3) for user in users}
        assert behind == {user: time for user, time in times.items() if time < 20}


def test_timers_and_times_to_live_move_with_their_key() -> None:
    state = MemoryState(name="visits")
    for index in range(2):
        store = open_store(state, index, 2, ttl_s=10.0)
        for user in [user for user in USERS if task_index(user, 2) == index]:
            store.put(user, 1)
            store.put((TIMER, user), 5.0)
        store.commit()
    for index in range(3):
        store = KeyedStore(state, "visits", "here", ttl_s=10.0)
        store.open(context := task(index, 3))
        users = {user for user in USERS if task_index(user, 3) == index}
        assert {key for key, _ in store.items()} == users
        assert {key[1] for key, _ in store.entries() if key[0] == TIMER} == users
        context.clock.sleep(10.0)
        assert {key for key, _ in store.items()} == set()


def test_a_table_in_every_task_is_copied_to_new_tasks() -> None:
    state = MemoryState(name="visits")
    for tasks in (2, 5, 1):
        for index in range(tasks):
            store = open_store(state, index, tasks, spread=Spread.EVERYWHERE)
            if tasks > 2:
                assert dict(store.items()) == dict.fromkeys(USERS, 1)
            for user in USERS:
                store.put(user, 1)
            store.commit()
        assert sorted(state.items("visits")) == [(user, 1) for user in sorted(USERS)]


def test_values_of_two_versions_are_migrated_each_from_its_version() -> None:
    """Of two tasks, only the first has opened its state with the new version."""
    state = filled_state(2)

    def migrate(version: int, value: Any) -> Any:
        assert version == 1
        return [*value, 2]

    open_store(state, 0, 2, version=2, migrate=migrate)
    with pytest.raises(StateMismatch, match="of version 1, and this is version 2: give migrate="):
        open_store(state, 0, 1, version=2)
    store = open_store(state, 0, 1, version=2, migrate=migrate)
    assert dict(store.items()) == {user: [0, 2] for user in USERS}


# ---- refused moves ------------------------------------------------------------------------------


def test_the_number_of_tasks_of_batches_cannot_change() -> None:
    state = MemoryState(name="counts")
    batch(state.make(Place("words", "counts", 0, 1)), 1, storm=3)
    with pytest.raises(StateMismatch, match=r"parallelism 1, and this is 2: set that back, or .*"):
        state.make(Place("words", "counts", 0, 2))


def test_another_topology_or_kind_is_refused_and_moves_nothing() -> None:
    state = filled_state(2)
    marks = dict(state.shelf.marks)
    other = KeyedStore(state, "visits", "here")
    with pytest.raises(StateMismatch, match="topology 'shop', and this is 'other'"):
        other.open(replace(task(0, 3), topology="other"))
    slot = StateSlot(state, "visits", "here")
    with pytest.raises(StateMismatch, match="kind 'non-transactional', and this is 'opaque'"):
        slot.open(task(0, 3))
    assert state.shelf.marks == marks


def test_keys_of_another_grouping_are_refused_before_anything_moves() -> None:
    state = filled_state(2)
    (foreign,) = [index for index in range(2) if task_index("total", 2) != index]
    store = open_store(state, foreign, 2)
    store.put("total", 1)
    store.commit()
    with pytest.raises(StateMismatch, match=r'key "total" was written by task . of 2, and records'):
        open_store(state, 0, 3)
    assert open_store(state, foreign, 2).get("total") == 1


@pytest.mark.parametrize("key", KEYS)
def test_a_stored_key_has_the_task_of_its_records(key: Any) -> None:
    assert task_index(key_of(text_of_key(key)), 1_000) == task_index(key, 1_000)
