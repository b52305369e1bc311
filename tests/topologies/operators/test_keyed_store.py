"""The guarantees of a keyed store with each backend: memory, SQLite, and three real servers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, make_dataclass, replace
from datetime import UTC, date, datetime
from enum import Enum, Flag
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import Context
from sunshower.clock import ManualClock
from sunshower.errors import (
    RecordMismatch,
    StateMismatch,
    StoreUnreachable,
    TopologyError,
    Unserialisable,
)
from sunshower.records import DictKey, Schema
from sunshower.state import MemoryState
from sunshower.state.backing import MemoryBacking
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.states import ABOUT, StateFactory
from tests.trident.rigs.every_store import state_in, stores


class Color(Enum):
    RED = 1


class Rights(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Visit:
    at: datetime
    where: list[Point]
    color: Color = Color.RED
    rights: Rights = Rights.READ


VISIT = Visit(datetime(2026, 1, 1, tzinfo=UTC), [Point(1, 2.0)], Color.RED, Rights(3))
CLASSES = Schema.of(Visit).classes


@pytest.fixture
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> StateFactory | None:
    return None if request.param == "task" else state_in(request, request.param, tmp_path)


# tests/state tests the servers
KEPT = stores("memory", "sqlite", marks=[pytest.mark.servers, pytest.mark.long])
every_kept_store = pytest.mark.parametrize("factory", KEPT, indirect=True)
every_store = pytest.mark.parametrize("factory", ["task", *KEPT], indirect=True)


CONTEXT = Context("shop", "visits", 1, 0, 1, clock=ManualClock())


def open_store(factory: StateFactory | None, at: float = 1.0, **settings: Any) -> KeyedStore:
    clock = ManualClock()
    clock.sleep(at)
    store = KeyedStore(factory, "visits", "here", CLASSES, **settings)
    store.open(replace(CONTEXT, clock=clock))
    return store


@every_store
def test_put_values_are_seen_and_discarded_ones_are_not(factory: StateFactory | None) -> None:
    store = open_store(factory)
    store.put("a", 1)
    store.put(("b", 2), [1])
    assert (store.get("a"), store.get(("b", 2)), store.get("c")) == (1, [1], None)
    store.commit()
    store.put("a", 2)
    store.remove(("b", 2))
    store.put("c", 0)
    assert dict(store.items()) == {"a": 2, "c": 0}
    store.discard()
    assert (store.get("a"), store.get(("b", 2)), store.get("c")) == (1, [1], None)
    assert dict(store.items()) == {"a": 1, ("b", 2): [1]}
    store.remove("a")
    store.commit()
    assert dict(store.items()) == {("b", 2): [1]}
    store.close()


@every_kept_store
def test_committed_values_are_kept_after_a_restart(factory: StateFactory) -> None:
    store = open_store(factory)
    store.put(("ann", date(2026, 1, 1)), VISIT)
    store.commit()
    store.put("bob", VISIT)  # without a commit
    store.close()
    later = open_store(factory)
    assert dict(later.items()) == {("ann", date(2026, 1, 1)): VISIT}
    assert later.get(("ann", date(2026, 1, 1))) == VISIT
    later.close()


@every_kept_store
def test_a_former_life_can_store_nothing(factory: StateFactory) -> None:
    former = open_store(factory)
    former.put("a", 1)
    former.commit()
    later = open_store(factory)
    former.put("a", 100)
    for _ in range(2):
        with pytest.raises(StoreUnreachable, match="a later life of this task"):
            former.commit()
        former.put("b", 100)
    later.put("a", later.get("a") + 1)
    later.commit()
    assert dict(later.items()) == {"a": 2}
    assert later.is_open
    assert not former.is_open
    former.open(CONTEXT)
    former.put("b", 3)
    former.commit()
    assert dict(former.items()) == {"a": 2, "b": 3}
    former.close()
    later.close()


@every_store
def test_keys_that_are_fetched_together_are_read_once(factory: StateFactory | None) -> None:
    store = open_store(factory, cache_bytes=0)
    for number in range(50):
        store.put(number, number)
    store.commit()
    store.fetch([*range(60), 1.0])
    assert [store.get(number) for number in range(60)] == [*range(50), *[None] * 10]
    store.close()


VALUES: list[Any] = [
    *(0, -(2**70), "你", 1.5, True, b"\0\xff", datetime(2026, 1, 1, tzinfo=UTC), ()),
    *([], {}, {"a": {"b": [None]}}, {1: "a", (2, 3): "b"}, {"(set)": 1}, {"<Visit>": 1}, (1, [2])),
    *({1, 2}, frozenset("ab"), {Point(1, 2.0)}, Counter("aab"), Color.RED, Rights(3), VISIT),
    *({Color.RED: [VISIT]}, [Point(0, 0.0)], {"(a set)": {"<Point>": {}}}),
]


@every_store
def test_values_come_back_equal_and_of_their_type(factory: StateFactory | None) -> None:
    store = open_store(factory)
    for number, value in enumerate(VALUES):
        store.put(number, value)
    assert [store.get(number) for number in range(len(VALUES))] == VALUES
    store.commit()
    if factory is not None:
        store.close()
        store = open_store(factory)
    values = [store.get(number) for number in range(len(VALUES))]
    assert values == VALUES
    assert [*map(type, values)] == [*map(type, VALUES)]
    assert dict(store.items()) == dict(enumerate(VALUES))
    store.close()


@pytest.mark.parametrize("factory", ["task", "sqlite"], indirect=True)
def test_values_are_copied(factory: StateFactory | None) -> None:
    store = open_store(factory)
    value = [1, {2}]
    store.put("a", value)
    value.append(2)
    store.get("a").append(3)
    store.commit()
    store.get("a")[1].add(4)
    assert store.get("a") == [1, {2}]
    store.close()


@pytest.mark.parametrize("ttl_s", [None, 1e6])
@pytest.mark.parametrize("factory", ["task", "sqlite"], indirect=True)
def test_only_lists_of_immutable_values_are_shared(
    factory: StateFactory | None, ttl_s: float | None
) -> None:
    """A property test: what is below the lists that `view` and `replace` may share is a copy."""
    store, draw = open_store(factory, ttl_s=ttl_s), Random(1)
    keys = range(6)
    committed = dict[Any, Any]()
    for number in range(300):
        depth, values = draw.choice([1, 2, 3]), dict(committed)
        changes = {key: _value(draw, 3) for key in draw.sample(keys, 2)}
        values |= deepcopy(changes)
        store.replace(changes, depth)
        for value in changes.values():
            _change_below(value, depth)
        for _ in range(2):
            viewed = store.view([*keys], depth)
            assert viewed == [values.get(key) for key in keys], number
            assert viewed == [store.get(key) for key in keys], number
            for value in viewed:
                _change_below(value, depth)
        if draw.random() < 0.5:
            store.commit()
            committed = values
        else:
            store.discard()
        store.view([*keys], depth)
    assert {key for key, value in store.items()} == {
        k for k, v in committed.items() if v is not None
    }
    store.close()


def _value(draw: Random, depth: int) -> Any:
    """A value of random parts, at most `depth` in each other."""
    kind = draw.choice([list, list, dict, set, tuple, int]) if depth else int
    if kind is int:
        return draw.choice([None, 1, 2.5, "a"])
    if kind is set:
        return {draw.random()}
    parts = [_value(draw, depth - 1) for _ in range(2)]
    return {str(at): part for at, part in enumerate(parts)} if kind is dict else kind(parts)


def _change_below(value: Any, depth: int) -> None:
    """Change all parts of a value but its lists of the first `depth` levels."""
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(value, list | dict | tuple) else ():
        _change_below(part, depth - 1 if isinstance(value, list) else 0)
    if isinstance(value, dict):
        value["changed"] = 1
    elif isinstance(value, set):
        value.add("changed")
    elif isinstance(value, list) and depth <= 0:
        value.append("changed")


@pytest.mark.parametrize("value", [print, [{"a": print}], {1: object()}])
def test_a_value_that_cannot_be_stored_changes_nothing(value: Any) -> None:
    store = open_store(MemoryState())
    store.put("a", 1)
    with pytest.raises(Unserialisable, match="here"):
        store.put("a", value)
    store.commit()
    assert dict(store.items()) == {"a": 1}


def test_the_cache_of_values_is_bounded() -> None:
    store = open_store(MemoryState(), cache_bytes=100_000)
    for number in range(1_000):
        store.put(number, "x" * 1_000)
        store.commit()
        assert len(store._batch) <= 100
    assert len(store._batch) > 10


def renamed(name: str, *fields: Any) -> type[Any]:
    """Return another class of this name, such as the next release of a program may have."""
    record_type = make_dataclass(name, fields)
    record_type.__qualname__ = name
    return record_type


PAIR = renamed("Pair", ("x", int), ("y", int))


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (PAIR, ""),
        (renamed("Pair", ("x", int), ("y", int), ("z", int, 3)), ""),
        (renamed("Pair", ("x", int), ("y", int), ("z", int)), "and is (x, y, z)"),
        (renamed("Pair", ("x", int)), "Pair was stored as (x, y), and is (x)"),
        (renamed("Other", ("x", int), ("y", int)), "a record Pair is stored, and no annotation"),
    ],
)
def test_a_class_that_changed_is_refused_unless_its_records_can_be_built(
    pair: type[Any], message: str
) -> None:
    state, context = MemoryState(), Context("shop", "visits", 1, 0, 1)
    store = KeyedStore(state, "visits", "here", [PAIR])
    store.open(context)
    store.put("a", PAIR(1, 2))
    store.commit()
    changed = KeyedStore(state, "visits", "here", [pair])
    if not message:
        changed.open(context)
        assert changed.get("a") == pair(1, 2)
        return
    with pytest.raises(StateMismatch, match=re.escape(message)):
        changed.open(context)
    assert not changed.is_open
    store.open(context)
    assert store.get("a") == PAIR(1, 2)


def test_records_in_sets_and_keys_are_migrated_as_dictionaries() -> None:
    def renewed(version: int, value: Any) -> Any:
        points, by_point = value
        assert points == {DictKey(x=1, y=2.0)}
        return {Point(**fields) for fields in points}, {Point(**key): n for key, n in by_point}

    state = MemoryState()
    store = open_store(state)
    store.put("a", ({Point(1, 2.0)}, {(Point(3, 4.0), 5)}))
    store.commit()
    later = open_store(state, 2.0, version=2, migrate=renewed)
    assert later.get("a") == ({Point(1, 2.0)}, {Point(3, 4.0): 5})


def test_expired_values_are_absent_and_removed_by_a_later_commit() -> None:
    clock, state = ManualClock(), MemoryState()
    context = Context("shop", "visits", 1, 0, 1, clock=clock)
    stores = [KeyedStore(state, "visits", "here", ttl_s=10) for _ in range(2)]
    stores[0].open(context)
    for key in "ab":
        stores[0].put(key, [key])
    stores[0].commit()
    clock.sleep(6)
    stores[0].put("b", ["c"])
    stores[0].commit()
    clock.sleep(6)
    for store in stores:  # the second store reads the stored times
        store.open(context)
        assert [store.get(key) for key in "ab"] == [None, ["c"]]
        assert dict(store.items()) == {"b": ["c"]}
    assert {key for key, _ in state.items()} == {"a", "b"}
    stores[1].commit()
    assert dict(state.items()) == {"b": ["c"]}
    clock.sleep(6)
    stores[1].commit()
    assert not dict(state.items())
    unlimited = KeyedStore(state, "visits", "here")
    unlimited.open(context)
    assert unlimited.get("b") is None


@pytest.mark.parametrize(
    "plain",
    [
        *({"(dict)": 3}, {"(dict)": [[[], 1]]}, {"(a set)": [[1]]}, {"(Counter)": [[1]]}),
        *({"<Visit>": 3}, {"<Visit>": {"no": 1}}, {"<Color>": "BLUE"}, {"<os.system>": {}}),
        *({"(at)": 3}, {"(at)": [1e12, {"(dict)": 1}]}, {"(at)": ["1", 2]}),
    ],
)
def test_an_unknown_value_is_refused_when_it_is_read(plain: Any) -> None:
    store, state = open_store(None, ttl_s=5), open_store(None)
    for restored in (store, state):
        restored.restore({"a": plain, "b": 1})
        with pytest.raises(StateMismatch, match="here"):
            restored.get("a")
        assert restored.get("b") == 1


def test_unknown_metadata_of_a_state_is_refused() -> None:
    state = MemoryState()
    store = open_store(state)
    store.slot.write({ABOUT: "nothing"})
    with pytest.raises(StateMismatch, match="is not what a state says of itself"):
        open_store(state)


def test_wrong_stores_are_refused() -> None:
    with pytest.raises(TopologyError, match="'visits' is not a state"):
        KeyedStore("visits", "visits", "here")  # type: ignore[arg-type]
    other = renamed("Point", ("x", int))
    with pytest.raises(RecordMismatch, match="two classes are called Point"):
        KeyedStore(None, "visits", "here", [Point, other])


def test_a_state_in_memory_moves_to_another_process() -> None:
    store = open_store(None)
    store.put("a", VISIT)
    store.commit()
    moved = open_store(None)
    moved.restore(store.snapshot())
    store.put("a", 1)
    store.commit()
    assert moved.get("a") == VISIT


def test_a_store_equals_a_dictionary_although_its_calls_fail() -> None:
    """A property test: 200 seeds, each with calls that raise before or after they took effect."""
    failed = 0
    for seed in range(200):
        draw = Random(seed)
        state = MemoryState()
        faults = _CallFaults(draw)
        expected: dict[Any, Any] = {}
        unsure: list[dict[Any, Any]] = []
        store = open_store(state, cache_bytes=draw.choice([0, 500, 1 << 20]))
        _inject(store, faults.call)
        for _ in range(30):
            batch = dict(expected)
            try:
                for key in draw.sample(range(8), 3):
                    assert store.get(key) == batch.get(key), seed
                    batch[key] = draw.choice([None, key, [draw.random()]])
                    store.put(key, batch[key])
                store.commit()
                expected, unsure = batch, []
            except StoreUnreachable:
                store.discard()
                failed += 1
                faults.is_off = True
                stored = {key: store.get(key) for key in range(8)}
                faults.is_off = False
                store.discard()
                unsure = [expected, batch]
                expected = {key: value for key, value in stored.items() if value is not None}
                assert any(_equal(expected, possible) for possible in unsure), seed
        faults.is_off = True
        assert _equal(dict(store.items()), expected), seed
    assert failed > 500


def _equal(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    present = [{k: v for k, v in values.items() if v is not None} for values in (left, right)]
    return present[0] == present[1]


@dataclass
class _CallFaults:
    draw: Random
    is_off: bool = False

    def call(self, call: Callable[..., Any], *args: Any) -> Any:
        fails = not self.is_off and self.draw.random() < 0.2
        if fails and self.draw.random() < 0.5:
            raise StoreUnreachable("the store is unavailable")
        result = call(*args)
        if fails:
            raise StoreUnreachable("its answer was lost")
        return result


def _inject(store: KeyedStore, around: Callable[..., Any]) -> None:
    backing: MemoryBacking = store.slot.state._backing  # type: ignore[attr-defined]
    with suppress(AttributeError):
        for name in ("get", "put", "mark"):
            call = getattr(backing, name)
            setattr(backing, name, lambda *args, call=call: around(call, *args))
