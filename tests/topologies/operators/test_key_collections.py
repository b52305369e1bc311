"""KeyList and KeyMap: equal to a list and a dictionary in each store, whatever fails or moves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import Context, KeyList, KeyMap, KeyState, Records, Retry, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import RecordMismatch, StateMismatch, StoreUnreachable
from sunshower.records import Schema, key_of
from sunshower.state import MemoryState, PostgresState, RedisState, SqliteState, ZooKeeperState
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept
from tests.trident.rigs.programs import run

Operation = Callable[[Any], object]


class Step(NamedTuple):
    key: str
    number: int


class Names(NamedTuple):
    names: tuple[str, ...]


def context(index: int = 0, tasks: int = 1, clock: ManualClock | None = None) -> Context:
    return Context("shop", "steps", 1, index, tasks, clock=clock or ManualClock())


def value_of(draw: Random) -> Any:
    return draw.choice([None, draw.random(), "x", [draw.randrange(9)], Names(("a", "b"))])


def list_operation(draw: Random) -> Operation:
    """A random change of a list, or of a KeyList; what it returns must be equal."""
    value, index = value_of(draw), draw.randint(-4, 4)
    end = index + draw.randint(0, 3)
    operations: list[Operation] = [
        *[lambda items: items.append(value)] * 6,
        lambda items: items.insert(index, value),
        lambda items: items.extend([value, index]),
        lambda items: items.pop(),
        lambda items: items.pop(index),
        lambda items: items.pop(0),
        lambda items: items[index],
        lambda items: items[index:end],
        lambda items: items[::-2],
        lambda items: items.reverse(),
        lambda items: items.remove(value),
        lambda items: items.index(value),
        lambda items: value in items,
        lambda items: [*reversed(items)],
        len,
        lambda items: items.__setitem__(index, value),
        lambda items: items.__delitem__(index),
        lambda items: items.__setitem__(slice(index, end), [value, 1]),
        lambda items: items.__delitem__(slice(index, end)),
        lambda items: items.__iadd__([1, 2]) and None,
    ]
    if draw.random() < 0.03:
        return lambda items: items.clear()
    return draw.choice(operations)


def map_operation(draw: Random) -> Operation:
    """A random change of a dictionary, or of a KeyMap."""
    value = value_of(draw)
    name = draw.choice([None, *range(6), "a", 1.0, (1, "b"), Names(("a",)), True])
    operations: list[Operation] = [
        *[lambda entries: entries.__setitem__(name, value)] * 4,
        *[lambda entries: entries.__delitem__(name)] * 2,
        lambda entries: entries[name],
        lambda entries: entries.get(name, 7),
        lambda entries: entries.pop(name, None),
        lambda entries: entries.popitem(),
        lambda entries: entries.setdefault(name, value),
        lambda entries: entries.update({name: value, "more": 1}),
        lambda entries: name in entries,
        lambda entries: [*entries],
        lambda entries: [*entries.items()],
        len,
    ]
    if draw.random() < 0.03:
        return lambda entries: entries.clear()
    return draw.choice(operations)


class Outcome(NamedTuple):
    result: Any
    error: type[Exception] | None


def outcome(operation: Operation, collection: Any) -> Outcome:
    try:
        return Outcome(operation(collection), None)
    except (IndexError, KeyError, ValueError) as error:
        return Outcome(None, type(error))


KINDS = {KeyList: (list, list_operation), KeyMap: (dict, map_operation)}


def operator(factory: Any, kind: Any, **settings: Any) -> KeyedProcess:
    """A process whose function does the operations that it finds in `plan`."""
    plan: list[Any] = []

    def step(row: Step, state: Any) -> Iterator[Step]:
        yield from plan.pop(0)(state) or ()

    store = KeyedStore(factory, "steps", "here", [Names], **settings)
    process = KeyedProcess(step, ["key"], Schema.of(Step), Schema.of(Step), store)
    process.kind, store.has_rows = kind, True
    process.plan = plan  # type: ignore[attr-defined]
    return process


class Program:
    """Random calls for three keys, compared with a list or a dictionary for each key."""

    def __init__(self, draw: Random, factory: Any, kind: Any) -> None:
        self.draw, self.factory, self.kind = draw, factory, kind
        self.plain, self.make = KINDS[kind]
        self.expected: dict[str, Any] = {}
        self.clock = ManualClock()
        self.open()

    def open(self) -> None:
        self.process = operator(self.factory, self.kind)
        self.process.prepare(context(clock=self.clock))

    def call(self, row: Step) -> None:
        """Several operations in one call, which may raise at its end."""
        theirs = self.expected.setdefault(row.key, self.plain())
        fails, before = self.draw.random() < 0.15, deepcopy(theirs)
        operations = [self.make(self.draw) for _ in range(self.draw.randint(1, 6))]
        wanted = [outcome(operation, theirs) for operation in operations]

        def call(state: Any) -> None:
            assert [outcome(operation, state) for operation in operations] == wanted
            assert state == theirs
            if fails:
                raise RuntimeError

        self.process.plan.append(call)  # type: ignore[attr-defined]
        if fails:
            with pytest.raises(RuntimeError):
                list(self.process.expand(row))
            self.expected[row.key] = before
        else:
            list(self.process.expand(row))

    def batch(self) -> None:
        """A batch, which may fail as a whole."""
        self.clock.sleep(1.0)
        before = deepcopy(self.expected)
        rows = [Step(self.draw.choice("abc"), n) for n in range(self.draw.randint(1, 8))]
        self.process.announce(rows)
        for row in rows:
            self.call(row)
        if self.draw.random() < 0.15:
            self.process.discard()
            self.expected = before
        else:
            self.process.flush()

    def restart(self) -> None:
        """Another process of the task; what is in memory moves."""
        state = deepcopy(self.process.snapshot())
        self.process.cleanup()
        self.open()
        self.process.restore(state)

    def check(self) -> None:
        """Compare what queries and readers of the store see."""
        contents = self.contents
        assert self.process.stored(["a", "b", "c"]) == [contents.get(key) for key in "abc"]
        assert dict(self.process.stored_items()) == contents
        if self.factory is None:
            assert self.process.result() == contents
        else:
            stored = {key: _as_read(value) for key, value in self.factory.items()}
            assert stored == {key: _as_read(value) for key, value in contents.items()}

    def check_rows(self) -> None:
        """Check that no row is left behind, except holes in the order of a map."""
        entries = {key for key, _ in self.process.store.entries()}
        assert bool(entries) == bool(self.contents)
        if self.kind is KeyList:
            assert len(entries) == sum(1 + len(items) for items in self.contents.values())

    @property
    def contents(self) -> dict[str, Any]:
        return {key: value for key, value in self.expected.items() if value}


def check_program(draw: Random, factory: Any, kind: Any, batches: int = 12) -> None:
    """A random program, with calls that raise, batches that fail and restarts."""
    program = Program(draw, factory, kind)
    for _ in range(batches):
        program.batch()
        program.check()
        if draw.random() < 0.3:
            program.restart()
    program.check_rows()
    program.process.cleanup()


def _as_read(value: Any) -> Any:
    """A value with dictionaries for records."""
    if isinstance(value, Names):
        return {"names": value.names}
    if isinstance(value, dict):
        return {key_of(name): _as_read(element) for name, element in value.items()}
    return [*map(_as_read, value)] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", [KeyList, KeyMap])
@pytest.mark.parametrize("store", ["task", "memory", "sqlite"])
@seeds(60)
def test_random_programs_find_what_a_list_or_dictionary_has(
    seed: int, store: str, kind: Any, tmp_path: Path
) -> None:
    factory = {"task": None, "memory": MemoryState()}.get(store, SqliteState(tmp_path / "a.db"))
    check_program(Random(seed), factory, kind)


@pytest.mark.servers
@pytest.mark.long
@pytest.mark.parametrize("kind", [KeyList, KeyMap])
@pytest.mark.parametrize("server", ["redis", "postgres", "zookeeper"])
def test_random_programs_on_servers(request: pytest.FixtureRequest, server: str, kind: Any) -> None:
    for seed in range(5):
        name, service = f"steps {uuid.uuid4().hex[:8]}", request.getfixturevalue(server)
        factory: Any = {
            "redis": lambda: RedisState(service, name=name),  # noqa: B023
            "postgres": lambda: PostgresState(service, name=name),  # noqa: B023
            "zookeeper": lambda: ZooKeeperState(service.connect, name=name),  # noqa: B023
        }[server]()
        check_program(Random(seed), factory, kind, batches=6)


@pytest.mark.parametrize("kind", [KeyList, KeyMap])
def test_rows_move_with_their_key_to_other_tasks(kind: Any) -> None:
    state, keys = MemoryState(), [f"user {n}" for n in range(30)]
    expected: dict[str, Any] = {}
    for tasks in (1, 3, 2):
        for index in range(tasks):
            process = operator(state, kind)
            process.prepare(context(index, tasks))
            task_keys = keys if tasks == 1 else [key for key, _ in process.stored_items()]
            for key in task_keys:

                def call(collection: Any, key: str = key) -> None:
                    if kind is KeyList:
                        collection.append(f"{key} {tasks}")  # noqa: B023
                    else:
                        collection[f"{key} {tasks}"] = tasks  # noqa: B023
                    expected[key] = list(collection) if kind is KeyList else dict(collection)

                process.plan.append(call)  # type: ignore[attr-defined]
                list(process.expand(Step(key, 0)))
            process.flush()
            process.cleanup()
        assert dict(state.items()) == expected
    assert {len(value) for value in expected.values()} == {3}


@pytest.mark.parametrize("kind", [KeyList, KeyMap])
def test_a_list_that_is_too_old_is_absent_and_all_its_rows_are_removed(kind: Any) -> None:
    state, clock = MemoryState(), ManualClock()

    def add(key: str, *numbers: int) -> None:
        def call(collection: Any) -> None:
            sizes.append(len(collection))
            collection.extend(numbers) if kind is KeyList else collection.update(
                dict.fromkeys(numbers)
            )

        process.plan.append(call)  # type: ignore[attr-defined]
        list(process.expand(Step(key, 0)))

    sizes: list[int] = []
    process = operator(state, kind, ttl_s=10)
    process.prepare(context(clock=clock))
    add("a", 1, 2, 3)
    add("b", 1)
    process.flush()
    clock.sleep(6)
    add("b", 2)
    process.flush()
    clock.sleep(6)
    add("a", 7)
    assert sizes == [0, 0, 1, 0]
    process.flush()
    assert {key: [*value] for key, value in state.items()} == {"a": [7], "b": [1, 2]}
    clock.sleep(11)
    process.tick()
    assert {key for key, _ in process.store.entries()} == set()


def test_elements_are_copies() -> None:
    process = operator(None, KeyList)
    process.prepare(context())
    shared = [1]

    def call(state: Any) -> None:
        state.append(shared)
        shared.append(2)
        state[0].append(3)
        assert state == [[1]]

    process.plan.append(call)  # type: ignore[attr-defined]
    list(process.expand(Step("a", 0)))
    process.flush()
    assert process.result() == {"a": [[1]]}


def listed(step: Step, numbers: KeyList[int]) -> list[Step]:
    numbers.append(step.number)
    return [Step(step.key, sum(numbers))]


def mapped(step: Step, counts: KeyMap[str, int]) -> list[Step]:
    name = str(step.number % 3)
    counts[name] = counts.get(name, 0) + step.number
    return [Step(step.key, sum(counts.values()))]


STEPS = [Step("abc"[n % 3], n) for n in range(90)]


def test_functions_run_without_a_topology() -> None:
    numbers, counts = KeyList[int](), KeyMap[str, int]({"0": 5})
    assert [listed(step, numbers)[0].number for step in STEPS[:4]] == [0, 1, 3, 6]
    assert [mapped(step, counts)[0].number for step in STEPS[:4]] == [5, 6, 8, 11]
    assert numbers == [0, 1, 2, 3]
    assert counts == {"0": 8, "1": 1, "2": 2}


@pytest.mark.parametrize("function", [listed, mapped])
def test_lists_and_maps_are_states_of_both_kinds_of_stream(function: Any, tmp_path: Path) -> None:
    expected = {key: sum(s.number for s in STEPS if s.key == key) for key in "abc"}
    state = SqliteState(tmp_path / "a.db")
    for place in (None, state):
        topology = Topology("steps")
        stream = topology.spout("steps", Records(STEPS, type=Step)).group_by("key")
        stream.process(function, state=place, name="found", fields=Step)
        done = run_inline(topology.graph(), clock=ManualClock())
        contents = done.results["found"][0] if place is None else dict(state.items("found"))
        totals = {k: sum(v if function is listed else v.values()) for k, v in contents.items()}
        assert totals == expected
    in_batches = MemoryState()
    topology = Topology("steps")
    rows = batches(topology, "steps", FixedBatchSpout(STEPS, 7, type=Step), store=InMemory())
    rows.group_by("key").process(function, state=in_batches, name="found", fields=Step)
    run(topology)
    contents = dict(in_batches.items())
    totals = {k: sum(v if function is listed else v.values()) for k, v in contents.items()}
    assert totals == expected


def timed(step: Step, numbers: KeyList[int]) -> None:
    if step.number == 10:
        raise ValueError
    numbers.append(step.number)
    numbers.timer = numbers.time + 1


def fired(key: str, numbers: KeyList[int]) -> list[Step]:
    steps = [Step(key, number) for number in numbers]
    numbers.clear()
    return steps


def test_timers_of_lists_fire_and_a_record_that_fails_changes_nothing(tmp_path: Path) -> None:
    topology, dead = Topology("steps", attempts_max=1), tmp_path / "dead.jsonl"
    steps = topology.spout("steps", Records(STEPS, type=Step), retry=Retry(dead_letters=dead))
    state = SqliteState(tmp_path / "a.db")
    rows = steps.group_by("key").process(timed, on_timer=fired, state=state, fields=Step)
    rows.shuffle().bolt("kept", Kept)
    (records,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert sorted(records) == sorted(step for step in STEPS if step.number != 10)
    assert dict(state.items()) == {}


def test_a_value_that_was_a_list_is_continued_as_rows() -> None:
    state = MemoryState()
    for function in (whole, listed):
        topology = Topology("steps")
        steps = topology.spout("steps", Records(STEPS, type=Step)).group_by("key")
        steps.process(function, state=state, name="found", fields=Step)
        run_inline(topology.graph(), clock=ManualClock())
    assert dict(state.items())["a"] == [n for n in range(90) if n % 3 == 0] * 2


def whole(step: Step, numbers: KeyState[list[int]]) -> list[Step]:
    numbers.value = [*(numbers.value or []), step.number]
    return []


def test_a_list_is_not_read_as_a_map_or_as_a_value() -> None:
    state = MemoryState()
    for kind in (KeyList, KeyMap, KeyState):
        process = operator(state, kind)
        process.prepare(context(clock=ManualClock()))
        process.plan.append(lambda items: items.append(1))  # type: ignore[attr-defined]
        if kind is KeyList:
            list(process.expand(Step("a", 1)))
            process.flush()
        else:
            with pytest.raises(StateMismatch, match=r"stored as a (KeyList|list)"):
                list(process.expand(Step("a", 1)))
        process.cleanup()


def test_migrate_makes_each_element_anew() -> None:
    state = MemoryState()
    for kind, key in ((KeyList, "a"), (KeyMap, "b")):
        process = operator(state, kind)
        process.prepare(context(clock=ManualClock()))
        add: Any = (
            (lambda items: items.extend([1, 2]))
            if kind is KeyList
            else (lambda items: items.update({3: 4}))
        )
        process.plan.append(add)  # type: ignore[attr-defined]
        list(process.expand(Step(key, 1)))
        process.flush()
    process = operator(state, KeyList, version=2, migrate=lambda _, value: value * 10)
    process.prepare(context())
    assert dict(state.items()) == {"a": [10, 20], "b": {3: 40}}


def test_wrong_annotations_are_refused() -> None:
    def wrong(step: Step, state: list[int]) -> None: ...

    steps = Topology("steps").spout("steps", Records(STEPS, type=Step)).group_by("key")
    with pytest.raises(RecordMismatch, match="KeyList"):
        steps.process(wrong)  # type: ignore[type-var]


def test_an_outage_in_a_call_leaves_the_list_as_it_was() -> None:
    state = MemoryState()
    process = operator(state, KeyList)
    process.prepare(context())
    process.plan.append(lambda items: items.extend(range(5)))  # type: ignore[attr-defined]
    list(process.expand(Step("a", 0)))
    process.flush()

    def call(items: Any) -> None:
        items.pop(0)
        raise StoreUnreachable("away")

    process.plan.append(call)  # type: ignore[attr-defined]
    with pytest.raises(StoreUnreachable):
        list(process.expand(Step("a", 0)))
    process.flush()
    assert dict(state.items()) == {"a": [0, 1, 2, 3, 4]}
