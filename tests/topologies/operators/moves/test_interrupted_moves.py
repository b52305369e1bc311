"""A move of a state loses nothing if it is interrupted, or while other processes write."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sunshower.clock import ManualClock
from sunshower.errors import StoreUnreachable
from sunshower.runtime.transport.routing import task_index
from sunshower.state import MemoryState
from sunshower.state.backing import Backing, Home, Mark
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.states import StateKind
from sunshower.trident.states import factories
from sunshower.trident.states.factories import KeptState
from tests.seeds import seeds
from tests.topologies.operators.moves.test_moved_states import (
    USERS,
    add,
    fill,
    filled_state,
    open_store,
    task,
)
from tests.trident.rigs.every_store import state_in, stores
from tests.trident.rigs.moving_states import Life, MortalState
from tests.trident.rigs.moving_states import ProcessEnded as ProcessStopped

LONG = [pytest.mark.servers, pytest.mark.long]  # each opening connects anew


class AdvancingClock(ManualClock):
    """A clock that shows a later time at each call."""

    def now(self) -> float:
        self.sleep(0.001)
        return super().now()


class ProcessEnded(Exception):
    """The process ends at this call."""


@dataclass
class CallHooks:
    """Runs before and after each call of a client, and may end the process."""

    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None


class HookedBacking:
    """A client that runs the hooks at each call."""

    def __init__(self, inner: Backing, hooks: CallHooks) -> None:
        self._inner, self._hooks = inner, hooks

    def mark(self) -> Mark | None:
        self._hooks.before()
        return self._inner.mark()

    def get(self, keys: Sequence[str]) -> list[str | None]:
        self._hooks.before()
        return self._inner.get(keys)

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        self._hooks.before()
        self._inner.put(changes, mark, seen)
        self._hooks.after()

    def items(self) -> Iterator[tuple[str, str]]:
        self._hooks.before()
        return self._inner.items()

    def count(self) -> int | None:
        return self._inner.count()

    def close(self) -> None: ...


@dataclass(frozen=True)
class HookedState(KeptState):
    """A state in memory whose clients run the hooks."""

    inner: MemoryState
    hooks: CallHooks = field(default_factory=CallHooks, compare=False, repr=False)
    kind: StateKind = StateKind.NON_TRANSACTIONAL
    name: str | None = None
    where = "memory"

    def open(self, home: Home) -> Backing:
        return HookedBacking(self.inner.open(home), self.hooks)

    def homes(self) -> list[Home]:
        return self.inner.homes()


@pytest.mark.parametrize(("former", "tasks"), [(3, 2), (2, 5), (1, 2), (4, 2)])
def test_a_process_may_end_at_any_call_and_the_next_one_continues(
    former: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first opening ends at each of its calls, before or after the call takes effect. Then the
    state is complete, for readers and for another number of tasks."""
    monkeypatch.setattr(factories, "_KEYS_AT_ONCE", 2)
    expected = {user: [0] for user in USERS}
    for last in range(1_000):
        inner, calls = filled_state(former), 0

        def count(last: int = last) -> None:
            nonlocal calls
            calls += 1
            if calls > last // 2 + last % 2:
                raise ProcessEnded

        def nothing() -> None: ...

        hooks = CallHooks(count, nothing) if last % 2 else CallHooks(nothing, count)
        for index in range(tasks):
            try:
                open_store(HookedState(inner, hooks), index, tasks)
            except ProcessEnded:
                break
        else:
            assert last > 20
            return
        items = [*inner.items("visits")]
        assert dict(items) == expected
        assert len(items) == len(expected)
        again = (tasks, former, 3)[last % 3]
        merged: dict[Any, Any] = {}
        for index in range(again):
            contents = dict(open_store(inner, index, again).items())
            assert all(task_index(user, again) == index for user in contents)
            merged |= contents
        assert merged == expected
        assert dict(inner.items("visits")) == expected
    raise AssertionError("the opening never completes")


@pytest.mark.parametrize("store", stores("sqlite", marks=LONG))
def test_a_process_may_end_at_any_write_in_each_store_and_the_next_one_continues(
    store: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(factories, "_KEYS_AT_ONCE", 2)
    expected = {user: [0] for user in USERS}
    for last in range(1, 1_000):
        factory = state_in(request, store, tmp_path, StateKind.NON_TRANSACTIONAL)
        fill(factory, 3)
        life = Life((last + 1) // 2, is_after=last % 2 == 0)
        mortal = MortalState(factory, life, factory.kind, factory.name)
        try:
            for index in range(2):
                open_store(mortal, index, 2).close()
        except ProcessStopped:
            pass
        else:
            break
        assert dict(factory.items()) == expected
        again, merged = (2, 3, 4)[last % 3], dict[Any, Any]()
        for index in range(again):
            store_of_task = open_store(factory, index, again)
            merged |= dict(store_of_task.items())
            store_of_task.close()
        assert merged == dict(factory.items()) == expected
    assert last > 15


class Scheduler:
    """Runs functions in threads. A seed chooses the thread that makes the next call."""

    def __init__(self, seed: int) -> None:
        self._draw = Random(seed)
        self._waiting: dict[str, threading.Event] = {}
        self._changed = threading.Condition()
        self._running = 0
        self.errors: list[BaseException] = []

    def turn(self) -> None:
        """Wait until this thread is chosen."""
        event = threading.Event()
        with self._changed:
            self._waiting[threading.current_thread().name] = event
            self._running -= 1
            self._changed.notify()
        event.wait()

    def run(self, **functions: Callable[[], None]) -> None:
        threads = []
        for name, function in functions.items():
            threads.append(threading.Thread(target=self._do, args=(function,), name=name))
        self._running = len(threads)
        for thread in threads:
            thread.start()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._running)
                if not self._waiting:
                    break
                name = self._draw.choice(sorted(self._waiting))
                self._running += 1
                self._waiting.pop(name).set()
        for thread in threads:
            thread.join()

    def _do(self, function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            self.errors.append(error)
        with self._changed:
            self._running -= 1
            self._changed.notify()


@seeds(300)
def test_many_processes_open_write_and_read_at_once_and_nothing_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of a former run continue to write, the tasks of one or two new runs open the state,
    and a reader reads it, with their calls in random order. Acknowledged writes are kept, and a
    reader finds each key once."""
    monkeypatch.setattr(factories, "_KEYS_AT_ONCE", 2)
    draw, scheduler, clock = Random(seed), Scheduler(seed), AdvancingClock()
    former = draw.randrange(1, 4)
    inner = filled_state(former)
    state = HookedState(inner, CallHooks(scheduler.turn))
    acked: list[tuple[str, int]] = []
    number = iter(range(1, 10_000))

    def write(store: KeyedStore, index: int, tasks: int, times: int) -> None:
        users = [user for user in USERS if task_index(user, tasks) == index]
        for _ in range(times if users else 0):
            user, value = draw.choice(users), next(number)
            add(store, user, value)
            acked.append((user, value))

    def task_of_former(store: KeyedStore, index: int) -> None:
        with suppress(StoreUnreachable):  # the state has moved
            write(store, index, former, 5)

    def task_of_new(index: int, tasks: int) -> None:
        store = KeyedStore(state, "visits", "here")
        for _ in range(20):
            with suppress(StoreUnreachable):  # the store is opened again, as after an outage
                if not store.is_open:
                    store.open(task(index, tasks, clock))
                write(store, index, tasks, 1)
        store.close()

    def read() -> None:
        for _ in range(3):
            before = [*acked]
            items = [*state.items("visits")]
            keys = [key for key, _ in items]
            assert Counter(keys) == Counter(USERS)
            assert all(value in dict(items)[user] for user, value in before)

    functions: dict[str, Callable[[], None]] = {"reader": read}
    for index in range(former):
        store = KeyedStore(inner, "visits", "here")
        store.open(task(index, former))
        opened_map: Any = store.slot.state
        opened_map._backing = HookedBacking(opened_map._backing, state.hooks)
        functions[f"former {index}"] = partial(task_of_former, store, index)
    for new in range(draw.randrange(1, 3)):
        tasks = draw.randrange(1, 5)
        for index in range(tasks):
            functions[f"new {new} {index}"] = partial(task_of_new, index, tasks)
    scheduler.run(**functions)
    assert not scheduler.errors, scheduler.errors
    stored = dict(inner.items("visits"))
    assert stored.keys() == {*USERS}
    assert not [value for value in acked if value[1] not in stored[value[0]]]
