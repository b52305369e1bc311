"""A move of a state that ends at any call of its store, or meets others: nothing is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest

from sunshower.clock import ManualClock
from sunshower.errors import StoreUnreachable
from sunshower.runtime.transport.hashing import task_index
from sunshower.state.backing import Backing, Home, Mark
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.states import StateKind
from sunshower.trident import MemoryState
from sunshower.trident.states import moves
from sunshower.trident.states.factories import KeptState
from tests.seeds import seeds
from tests.topologies.operators.moves.test_moved_states import USERS, add, filled, opened, task


class GoingOn(ManualClock):
    """A clock that shows no time twice."""

    def now(self) -> float:
        self.sleep(0.001)
        return super().now()


class Ended(Exception):
    """The process has ended."""


@dataclass
class Turns:
    """Decides before and after each call of a client whether the process goes on."""

    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None


class TurnBacking:
    """A client whose process may end, or wait for its turn, at each call."""

    def __init__(self, inner: Backing, turns: Turns) -> None:
        self._inner, self._turns = inner, turns

    def mark(self) -> Mark | None:
        self._turns.before()
        return self._inner.mark()

    def get(self, keys: Sequence[str]) -> list[str | None]:
        self._turns.before()
        return self._inner.get(keys)

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        self._turns.before()
        self._inner.put(changes, mark, seen)
        self._turns.after()

    def items(self) -> Iterator[tuple[str, str]]:
        self._turns.before()
        return self._inner.items()

    def count(self) -> int | None:
        return self._inner.count()

    def close(self) -> None: ...


@dataclass(frozen=True)
class TurnState(KeptState):
    """A state in memory with such clients."""

    inner: MemoryState
    turns: Turns = field(default_factory=Turns, compare=False, repr=False)
    kind: StateKind = StateKind.NON_TRANSACTIONAL
    name: str | None = None
    where = "memory"

    def open(self, home: Home) -> Backing:
        return TurnBacking(self.inner.open(home), self.turns)

    def homes(self) -> list[Home]:
        return self.inner.homes()


@pytest.mark.parametrize(("former", "tasks"), [(3, 2), (2, 5), (1, 2), (4, 2)])
def test_a_process_may_end_at_any_call_and_the_next_one_continues(
    former: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call of the first opening, with and without its effect; then the state is complete,
    also for those who read it, and with another number of tasks."""
    monkeypatch.setattr(moves, "_KEYS_AT_ONCE", 2)
    expected = {user: [0] for user in USERS}
    for last in range(1_000):
        inner, calls = filled(former), 0

        def count(last: int = last) -> None:
            nonlocal calls
            calls += 1
            if calls > last // 2 + last % 2:
                raise Ended

        def nothing() -> None: ...

        turns = Turns(count, nothing) if last % 2 else Turns(nothing, count)
        for index in range(tasks):
            try:
                opened(TurnState(inner, turns), index, tasks)
            except Ended:
                break
        else:
            assert last > 20
            return
        items = [*inner.items("visits")]
        assert dict(items) == expected
        assert len(items) == len(expected)
        again = (tasks, former, 3)[last % 3]
        found: dict[Any, Any] = {}
        for index in range(again):
            own = dict(opened(inner, index, again).items())
            assert all(task_index(user, again) == index for user in own)
            found |= own
        assert found == expected
        assert dict(inner.items("visits")) == expected
    raise AssertionError("it never ends")


class Scheduler:
    """Runs functions in threads of which one at a time makes a call, chosen by a seed."""

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
    """The tasks of a former run go on writing, those of one or two new ones open, and somebody
    reads; each call of the store is in an order of its own. What a commit has acknowledged stays,
    and a reader finds each key once."""
    monkeypatch.setattr(moves, "_KEYS_AT_ONCE", 2)
    draw, scheduler, clock = Random(seed), Scheduler(seed), GoingOn()
    former = draw.randrange(1, 4)
    inner = filled(former)
    state = TurnState(inner, Turns(scheduler.turn))
    acked: list[tuple[str, int]] = []
    number = iter(range(1, 10_000))

    def write(store: KeyedStore, index: int, tasks: int, times: int) -> None:
        own = [user for user in USERS if task_index(user, tasks) == index]
        for _ in range(times if own else 0):
            user, one = draw.choice(own), next(number)
            add(store, user, one)
            acked.append((user, one))

    def task_of_former(store: KeyedStore, index: int) -> None:
        with suppress(StoreUnreachable):  # it has moved
            write(store, index, former, 5)

    def task_of_new(index: int, tasks: int) -> None:
        store = KeyedStore(state, "visits", "here")
        for _ in range(20):
            with suppress(StoreUnreachable):  # it is opened again, as after any outage
                if not store.is_open:
                    store.open(task(index, tasks, clock))
                write(store, index, tasks, 1)
        store.close()

    def read() -> None:
        for _ in range(3):
            before = [*acked]
            found = [*state.items("visits")]
            keys = [key for key, _ in found]
            assert Counter(keys) == Counter(USERS)
            assert all(one in dict(found)[user] for user, one in before)

    functions: dict[str, Callable[[], None]] = {"reader": read}
    for index in range(former):
        store = KeyedStore(inner, "visits", "here")
        store.open(task(index, former))
        opened_map: Any = store._opened
        opened_map._backing = TurnBacking(opened_map._backing, state.turns)
        functions[f"former {index}"] = partial(task_of_former, store, index)
    for new in range(draw.randrange(1, 3)):
        tasks = draw.randrange(1, 5)
        for index in range(tasks):
            functions[f"new {new} {index}"] = partial(task_of_new, index, tasks)
    scheduler.run(**functions)
    assert not scheduler.errors, scheduler.errors
    found = dict(inner.items("visits"))
    assert found.keys() == {*USERS}
    assert not [one for one in acked if one[1] not in found[one[0]]]
