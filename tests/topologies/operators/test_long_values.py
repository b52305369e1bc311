"""Long values that calls change in place: as if each call had a copy of its own.

Each program runs twice, with values that are lent to calls and with values that are copied.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import random
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from operator import methodcaller as calling
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import Context, KeyState, Records, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import StateMismatch, Unserialisable
from sunshower.records import Schema
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.keyed import long_values
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.keyed.long_values import purity_of
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.seeds import seeds
from tests.trident.rigs.programs import run


@dataclass
class Note:
    number: int
    text: str = ""


class Step(NamedTuple):
    key: str
    action: str
    number: int


@dataclass
class Asked:
    """The same as a record that can change."""

    key: str
    action: str
    number: int


@dataclass
class Found:
    key: str
    numbers: Any = None


@dataclass
class Value:
    numbers: list[int] = field(default_factory=list)
    notes: dict[str, Note] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    pairs: list[list[int]] = field(default_factory=list)


class Stop(BaseException):
    """Not an Exception."""


class Other:
    """Not a class of the state."""


def step(row: Any, state: KeyState[Value]) -> Iterator[Found]:  # noqa: C901, PLR0912
    """Changes a value as the action of the row says."""
    value, number = state.value, row.number
    if value is None:
        value = state.value = Value()
    if row.action == "append":
        value.numbers.append(number)
    elif row.action == "many":
        value.numbers.extend(range(number))
    elif row.action == "heap":
        heapq.heappush(value.numbers, number)
    elif row.action == "note":
        value.notes.setdefault(str(number % 4), Note(number)).text += "x"
    elif row.action == "see":
        value.counts[str(number % 3)] += 1
    elif row.action == "nest":
        value.pairs.append([number])
        value.pairs[0].append(number)
    elif row.action == "remove":
        del value.numbers[:3]
        value.numbers.reverse()
    elif row.action == "replace":
        state.value = Value([*value.numbers, number], value.notes, value.counts)
    elif row.action == "forget":
        state.value = None
    elif row.action == "emit":
        yield Found(row.key, value.pairs)
        value.pairs.append([number])
    elif row.action == "show":
        yield Found(row.key, value.numbers)
        value.numbers.append(number)
    elif row.action == "keep":
        value.notes["kept"] = note = Note(number)
        yield Found(row.key, note)
        note.text = "later"
    elif row.action == "count":
        yield Found(row.key, len(value.numbers))
    elif row.action == "fail":
        value.numbers.append(-1)
        value.notes.clear()
        raise ValueError
    elif row.action == "stop":
        value.numbers.clear()
        yield Found(row.key)
        raise Stop
    elif row.action == "wrong":
        value.numbers.append(Other())  # type: ignore[arg-type]
    row.action  # noqa: B018


ACTIONS = (
    *("append",) * 6,
    *("many", "heap", "note", "see", "nest", "remove", "replace", "emit", "keep", "count"),
    *("fail", "fail", "stop", "wrong", "abandon", "show"),
)
SOME = 0.2
CHANGEABLE = {"note", "nest", "emit", "keep"}  # make elements that can change: they are copied
CLASSES = (Value, Note)


def process_of(
    factory: Any, function: Any = step, row: type[Any] = Step, makes: type[Any] = Found
) -> KeyedProcess:
    store = KeyedStore(factory, "steps", "here", CLASSES)
    process = KeyedProcess(function, ["key"], Schema.of(row), Schema.of(makes), store)
    process.prepare(Context("shop", "steps", 1, 0, 1, clock=ManualClock()))
    return process


def call(process: KeyedProcess, row: Any) -> list[Any]:
    """The records of a call, which may be ended in the middle, or what it raises."""
    outputs: list[Any] = []
    records = process.expand(row)
    try:
        for record in records:
            outputs.append(record)
            if row.action == "abandon":
                records.close()  # type: ignore[attr-defined]
                break
    except (ValueError, Stop, Unserialisable) as error:
        return [type(error)]
    return outputs


def program(draw: Random, factory: Any, row: type[Any]) -> list[Any]:
    """Runs batches of calls on a process. Returns all that can be seen of it. What it has emitted
    is changed by its reader."""
    process = process_of(factory, row=row)
    actions = [action for action in ACTIONS if action not in CHANGEABLE or draw.random() < SOME]
    seen: list[Any] = []
    emitted: list[Any] = []
    for _ in range(15):
        rows = [
            row(draw.choice("ab"), draw.choice(actions), draw.randrange(30))
            for _ in range(draw.randint(1, 6))
        ]
        process.announce(rows)
        for input_row in rows:
            records = call(process, input_row)
            seen.append(deepcopy(records))
            emitted += records
        if draw.random() < 0.15:
            process.discard()
        else:
            process.flush()
        for record in emitted:
            if isinstance(record, Found) and isinstance(record.numbers, list):
                record.numbers.append("of a reader")
            elif isinstance(record, Found) and isinstance(record.numbers, Note):
                record.numbers.text += "of a reader"
        seen.append(deepcopy((process.stored(["a", "b", "c"]), dict(process.stored_items()))))
        if draw.random() < 0.3:
            seen.append(deepcopy(process.result()))
        if draw.random() < 0.2:
            state = deepcopy(process.snapshot())
            if draw.random() < 0.5:  # it moves
                process.cleanup()
                process = process_of(factory, row=row)
                process.restore(state)
    process.cleanup()
    return seen


@pytest.mark.parametrize("row", [Step, Asked])
@pytest.mark.parametrize("store", ["task", "memory", "sqlite"])
@seeds(100)
def test_programs_see_the_same_with_values_that_are_lent_and_copied(
    seed: int, store: str, row: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, lent_values = [], []
    lend = KeyedProcess.lent

    def counted(self: KeyedProcess, key: Any) -> Any:
        value = lend(self, key)
        lent_values[-1] += value is not None
        return value

    monkeypatch.setattr(KeyedProcess, "lent", counted)
    for length in (2, 1 << 40):
        lent_values.append(0)
        monkeypatch.setattr(long_values, "LONG", length)
        sqlite = SqliteState(tmp_path / f"{length}.db")
        factory = {"task": None, "memory": MemoryState()}.get(store, sqlite)
        outcomes.append(program(Random(seed), factory, row))
    lent, copied = outcomes
    assert lent_values[1] == 0
    for number, (actual, expected) in enumerate(zip(lent, copied, strict=True)):
        assert actual == expected, number


# ---- what is lent --------------------------------------------------------------------------------

NUMBERS: dict[str, int] = {}


def of_a_global(row: Step, state: KeyState[list[int]]) -> None:
    NUMBERS[row.key] = row.number


def of_chance(row: Step, state: KeyState[list[int]]) -> None:
    if state.value is not None:
        state.value.append(random.randrange(9))


def of_the_clock(row: Step, state: KeyState[list[Any]]) -> None:
    if state.value is not None:
        state.value.append(datetime.now(UTC))


def of_time(row: Step, state: KeyState[list[float]]) -> None:
    if state.value is not None:
        state.value.append(time.time())


def by_another(row: Step, state: KeyState[list[Any]]) -> None:
    of_the_clock(row, state)


def with_an_import(row: Step, state: KeyState[list[Any]]) -> None:
    import os

    state.value = [os.getpid()]


class Counting:
    """A callable object may keep what it likes."""

    def __call__(self, row: Step, state: KeyState[list[int]]) -> None: ...


class Impure(NamedTuple):
    """A record with a method that is not pure."""

    x: int

    def number(self) -> float:
        return self.x + random.random()


LIMIT = 10


def of_a_constant_that_others_may_bind_anew(row: Step, state: KeyState[list[int]]) -> None:
    state.value = [LIMIT]


def of_a_name_around(limit: int) -> Callable[..., None]:
    def inner(row: Step, state: KeyState[list[int]]) -> None:
        state.value = [limit]

    return inner


class Attributes:
    """Attributes that functions could change, or that have effects."""

    seen = 0
    waiting = deque[int]()  # noqa: RUF012
    ids = itertools.count()
    pick = random.choice
    _cache_: dict[str, int] = {}  # noqa: RUF012


class Counted(Enum):
    """A member may count."""

    A = 1

    def count(self) -> None:
        self.hits = 1


def of_a_class(row: Step, state: KeyState[list[int]]) -> None:
    Attributes.seen += 1


def of_a_member(row: Step, state: KeyState[list[int]]) -> None:
    Counted.A.count()


def of_an_alias(row: Step, state: KeyState[list[Any]]) -> None:
    kind = Note
    kind.hits = 1  # type: ignore[attr-defined]


def of_a_module_in_a_module(row: Step, state: KeyState[list[Any]]) -> None:
    state.value = [statistics.random.random()]  # type: ignore[attr-defined]


def by_name(row: Step, state: KeyState[list[Any]]) -> None:
    state.value = [calling("now")(datetime)]


@functools.wraps(heapq.heappush)
def with_the_name_of_another(row: Step, state: KeyState[list[Any]]) -> None:
    NUMBERS[row.key] = row.number


def closing(values: Any) -> Callable[..., None]:
    def inner(row: Step, state: KeyState[list[Any]]) -> None:
        values.append(state.value)

    return inner


def counting() -> Callable[..., None]:
    number = 0

    def inner(row: Step, state: KeyState[list[Any]]) -> None:
        nonlocal number
        number += 1

    return inner


def with_helper(row: Step, state: KeyState[list[int]]) -> list[Step]:
    values = helped(state.value or [], row.number)
    state.value = values
    return [Step(row.key, "x", sum(values))]


def helped(values: list[int], number: int) -> list[int]:
    heapq.heappush(values, number)
    return values


IMPURE = [
    *(of_a_global, of_chance, of_the_clock, of_time, by_another, with_an_import, Counting()),
    *(closing([]), counting(), of_a_name_around(1), of_a_constant_that_others_may_bind_anew),
    *(of_a_class, of_a_member, of_an_alias, of_a_module_in_a_module, by_name),
    with_the_name_of_another,
]


@pytest.mark.parametrize("function", IMPURE)
def test_functions_that_may_do_something_else_when_called_again_get_copies(function: Any) -> None:
    assert not purity_of([function], CLASSES)


def test_methods_of_records_count() -> None:
    assert purity_of([with_helper], [Step, *CLASSES])
    assert not purity_of([with_helper], [Impure])


@pytest.mark.parametrize("function", [step, with_helper])
def test_functions_of_their_record_and_state_are_lent_values(function: Any) -> None:
    deepcopy([Note(1), Value()])  # Python notes something in the classes
    assert purity_of([function], [Step, Asked, *CLASSES])


def shares(row: Step, state: KeyState[list[list[int]]]) -> None:
    if state.value is None:
        state.value = []
    if row.number % 100 == 50:
        state.value.append(state.value[0])
    elif row.number % 7 == 3:
        state.value[0].append(row.number)
    else:
        state.value.append([row.number])


class Both(NamedTuple):
    first: list[int]
    second: list[int]


def shares_fields(row: Step, state: KeyState[Both]) -> None:
    value = state.value or Both([], [])
    if row.number % 100 == 50:
        value = Both(value.first, value.first)
    value.first.append(row.number)
    state.value = value


def iterates(row: Step, state: KeyState[list[Any]]) -> None:
    if state.value is None:
        state.value = [{"a", "b", "c"}]
    state.value.append(",".join(state.value[0]))
    state.value[0].add(f"{row.number}")
    state.value[0].discard(f"{row.number - 2}")


@pytest.mark.parametrize("function", [shares, shares_fields, iterates])
def test_a_part_that_is_in_two_places_of_a_value_is_two_for_the_next_call(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = []
    for length in (2, 1 << 40):
        monkeypatch.setattr(long_values, "LONG", length)
        store = KeyedStore(None, "steps", "here", [Both])
        process = KeyedProcess(function, ["key"], Schema.of(Step), Schema.of(Found), store)
        process.prepare(Context("shop", "steps", 1, 0, 1, clock=ManualClock()))
        for number in range(400):
            process.announce([row := Step("a", "", number)])
            list(process.expand(row))
            process.flush()
        stored.append(store.stored(["a"]))
    assert stored[0] == stored[1]


def append(row: Step, state: KeyState[list[int]]) -> None:
    if state.value is None:
        state.value = []
    state.value.append(row.number)
    if row.action == "fail":
        state.value.clear()
        raise ValueError


CONVERSIONS_MAX = 6.0  # elements that are converted, for each of the value at the end


@pytest.mark.parametrize("size", [1, 250])
def test_elements_are_converted_a_few_times_each(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is converted grows with the number of records, not with its square."""
    process, converted = process_of(None, append), 0
    plain = process.store.values.plain

    def counted(value: Any) -> Any:
        nonlocal converted
        converted += len(value) if isinstance(value, list) else 1
        return plain(value)

    monkeypatch.setattr(process.store.values, "plain", counted)
    total = 16_000
    for first in range(0, total, size):
        rows = [Step("a", "append", n) for n in range(first, first + size)]
        process.announce(rows)
        for row in rows:
            list(process.expand(row))
        process.flush()
    assert process.store.stored(["a"]) == [[*range(total)]]
    assert converted < CONVERSIONS_MAX * total + 256**2


def test_a_value_that_was_left_by_thousands_of_calls_survives_a_failure() -> None:
    process = process_of(None, append)
    expected: list[int] = []
    for number in range(3_000):
        action = "fail" if number in (700, 2_400) else "append"
        process.announce([row := Step("a", action, number)])
        if action == "fail":
            with pytest.raises(ValueError):  # noqa: PT011
                list(process.expand(row))
        else:
            list(process.expand(row))
            expected.append(number)
        process.flush()
        if number % 500 == 0:
            assert process.stored(["a"]) == [expected]
    assert process.result() == {"a": expected}


def test_a_function_that_does_something_else_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = process_of(None, append)
    for number in range(600):
        list(process.expand(Step("a", "append", number)))
    with pytest.raises(ValueError):  # noqa: PT011
        list(process.expand(Step("a", "fail", 1)))

    def broken(row: Step, state: KeyState[list[int]]) -> None:
        raise RuntimeError("another time")

    monkeypatch.setattr(append, "__code__", broken.__code__)
    with pytest.raises(StateMismatch, match="cannot be restored"):
        list(process.expand(Step("a", "append", 1)))


def test_a_long_value_in_batches_is_that_of_a_plain_program(tmp_path: Path) -> None:
    steps = [Step("ab"[n % 2], "append", n) for n in range(1_500)]
    expected = {key: [s.number for s in steps if s.key == key] for key in "ab"}
    state = MemoryState()
    topology = Topology("steps")
    rows = batches(topology, "steps", FixedBatchSpout(steps, 40, type=Step), store=InMemory())
    rows.group_by("key").process(append, state=state, name="found")
    run(topology)
    assert dict(state.items()) == expected
    stored = SqliteState(tmp_path / "steps.db")
    topology = Topology("steps")
    source = topology.spout("steps", Records(steps, type=Step)).group_by("key")
    source.process(append, state=stored, name="found")
    run_inline(topology.graph(), clock=ManualClock())
    assert dict(stored.items()) == expected
