"""States from outside: what an export writes an import reads, and all of it or nothing is there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import (
    KeyList,
    KeyMap,
    KeyState,
    MemoryState,
    Records,
    SqliteState,
    Topology,
    count,
    sessions,
)
from sunshower.clock import SystemClock
from sunshower.connectors.state_files import content_of, read_into
from sunshower.errors import ConfigError, FailedBatch, StoreUnreachable
from sunshower.json_values import json_text
from sunshower.runtime.transport.routing import task_index
from sunshower.state.sqlite import SqliteBacking
from sunshower.topologies.components import Context
from sunshower.topologies.graph import Graph
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import StateKind
from sunshower.trident import FixedBatchSpout, batches
from sunshower.trident.coordination.transactional_log import StoredProgress
from sunshower.trident.declaration.stage_builder import InMemory
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.states import factories
from sunshower.trident.states.factories import KeptState
from sunshower.trident.states.stored_states import StateImport, StoredState, states_of_program
from tests.runtime.field_values import Access, Color, Level, Line, Point, Unit, exactly
from tests.runtime.field_values import values as field_values
from tests.trident.rigs.every_store import state_in, stores
from tests.trident.rigs.moving_states import Life, MortalState, ProcessEnded
from tests.trident.states.test_texts import keys as plain_keys
from tests.trident.states.test_texts import values as plain_values

LONG = [pytest.mark.servers, pytest.mark.long]  # each of many processes connects anew


class Word(NamedTuple):
    word: str
    number: int = 0


class Visit(NamedTuple):
    count: int
    color: Color = Color.RED


def any_value(
    row: Word, state: KeyState[Any | Color | Level | Unit | Access | Point | Line]
) -> None: ...
def listed(row: Word, state: KeyList[Any]) -> None: ...
def mapped(row: Word, state: KeyMap[Any, Any]) -> None: ...
def visited(row: Word, state: KeyState[Visit]) -> None: ...


def words() -> Iterator[Word]:
    yield Word("a")


def program(process: Any, factory: KeptState, **options: Any) -> Graph:
    """An ordinary program with one keyed state."""
    topology = Topology("seen")
    rows = topology.spout("words", Records(words)).group_by("word")
    rows.process(process, state=factory, name="state", **options)
    return topology.graph()


def totals(factory: KeptState, tasks: int = 2) -> Graph:
    """An ordinary program with totals."""
    topology = Topology("seen")
    rows = topology.spout("words", Records(words)).group_by("word")
    rows.aggregate(count(), state=factory, name="state", parallelism=tasks)
    return topology.graph()


def only(graph: Graph) -> StoredState:
    """The one state of a program that it declares."""
    (state,) = [state for state in states_of_program(graph) if state.component]
    return state


def imported(
    graph: Graph, entries: dict[Any, Any] | bytes, name: str = "f.jsonl", checksum: int = 1
) -> StoredState:
    """The state of a program after an import."""
    state = only(graph)
    target = StateImport(graph.id, state, name, checksum)
    if isinstance(entries, bytes):
        read_into(target, state, Path(name), entries)
    else:
        for key, value in entries.items():
            target.add(key, value)
    target.write()
    return state


def fresh(folder: Path) -> SqliteState:
    return SqliteState(folder / "states.db", name=f"s{uuid.uuid4().hex}")


# ---- files ---------------------------------------------------------------------------------------


def check_round_trip(graphs: Callable[[], Graph], entries: dict[Any, Any]) -> None:
    """What an export has is what was imported, and an import of that is the same again."""
    first = imported(graphs(), entries)
    stored = dict(first.items())
    for parquet in (False, True):
        content = content_of(first, [*stored.items()], parquet=parquet)
        name = "f.parquet" if parquet else "f.jsonl"
        second = imported(graphs(), content, name)
        assert exactly(dict(second.items())) == exactly(stored)
    for key, value in stored.items():
        assert exactly(first.get(key)) == exactly(value)


@given(
    st.dictionaries(plain_keys, field_values.filter(lambda value: value is not None), max_size=3)
)
def test_an_export_of_values_of_all_types_can_be_imported(entries: dict[Any, Any]) -> None:
    check_round_trip(lambda: program(any_value, MemoryState(), parallelism=2), entries)


@given(st.dictionaries(plain_keys, st.lists(plain_values, max_size=4), max_size=3))
def test_an_export_of_lists_can_be_imported(entries: dict[Any, Any]) -> None:
    check_round_trip(lambda: program(listed, MemoryState()), entries)


@given(
    st.dictionaries(plain_keys, st.dictionaries(plain_keys, plain_values, max_size=4), max_size=3)
)
def test_an_export_of_maps_can_be_imported(entries: dict[Any, Any]) -> None:
    check_round_trip(lambda: program(mapped, MemoryState()), entries)


def test_records_of_one_declared_type_have_a_column_for_each_field(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    state = imported(program(visited, fresh(tmp_path)), {"a": Visit(3), "b": Visit(4, Color.RED)})
    data = content_of(state, [*state.items()], parquet=True)
    # The values of this Enum are not of one type, so its column cannot be.
    assert parquet.read_table(pa.BufferReader(data)).column_names == ["key", "value_json"]
    plain = imported(program(_counted, fresh(tmp_path)), {"a": Word("x", 3)})
    data = content_of(plain, [*plain.items()], parquet=True)
    assert parquet.read_table(pa.BufferReader(data)).column_names == ["key", "word", "number"]


def _counted(row: Word, state: KeyState[Word]) -> None: ...


def test_a_table_with_columns_of_a_record_is_imported(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"key": ["a", "b"], "word": ["x", "y"]}), sink)
    state = imported(program(_counted, fresh(tmp_path)), bytes(sink.getvalue()), "f.parquet")
    assert dict(state.items()) == {"a": Word("x", 0), "b": Word("y", 0)}


def test_a_table_without_values_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"key": ["a", "b"]}), sink)
    with pytest.raises(ConfigError, match="its columns are key; they are key or key_json, and"):
        imported(totals(fresh(tmp_path)), bytes(sink.getvalue()), "f.parquet")


class Camel(msgspec.Struct, rename="camel"):
    unit_price: int
    sold_on: date | None = None


class Keyed(msgspec.Struct, rename={"word": "key"}):
    word: str
    number: int = 0


class Valued(msgspec.Struct, rename={"word": "value"}):
    word: str


@attrs.define
class Private:
    _number: int


def camel(row: Word, state: KeyState[Camel]) -> None: ...
def keyed(row: Word, state: KeyState[Keyed]) -> None: ...
def valued(row: Word, state: KeyState[Valued]) -> None: ...
def private(row: Word, state: KeyState[Private]) -> None: ...


@pytest.mark.parametrize(
    ("process", "record"),
    [
        (camel, Camel(3, date(2026, 1, 2))),
        (keyed, Keyed("x", 4)),
        (valued, Valued("x")),
        (private, Private(5)),
    ],
)
def test_records_with_other_names_in_messages_can_be_imported(process: Any, record: Any) -> None:
    check_round_trip(lambda: program(process, MemoryState()), {"a": record, "b": record})
    line = json_text({"key": "a", "value": record}).encode()
    state = imported(program(process, MemoryState()), line)
    assert dict(state.items()) == {"a": record}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('{"key":"a","value":{"word":"x"}}\n{"key":"b","value":{"word":7}}', "line 2.*word"),
        ('{"key":"a","value":{"word":"x","numbr":1}}', "line 1: 'numbr' is not a field"),
        ('{"key":"a","value":7}', "line 1: 7 is not a Word"),
        ('{"key":"a"}', 'line 1: it is not an object with "key" and "value"'),
        ("{", "line 1"),
        ('{"key":"a","value":{"<Other>":{"x":1}}}', "line 1.*no annotation"),
        ('{"key":"a","value":{"word":"x"}}\n\n{"key":"a","value":null}', "line 3.*twice"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_imported(
    tmp_path: Path, lines: str, says: str
) -> None:
    graph = program(_counted, fresh(tmp_path))
    with pytest.raises(ConfigError, match=rf"f\.jsonl, {says}"):
        imported(graph, lines.encode())
    assert only(graph).summary().tasks == 0


def test_a_value_that_an_aggregator_cannot_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 1: 'x' is not a value of its aggregator"):
        imported(totals(fresh(tmp_path)), b'{"key":"a","value":"x"}')


def test_a_null_removes_a_key_and_other_keys_stay(tmp_path: Path) -> None:
    factory = fresh(tmp_path)
    imported(totals(factory), {"a": 1, "b": 2, "c": 3})
    state = imported(totals(factory), b'{"key":"b","value":null}\n{"key":"c","value":4}')
    assert dict(state.items()) == {"a": 1, "c": 4}


# ---- stores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", stores("sqlite"))
def test_each_store_is_listed_read_and_imported_into(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    factory = state_in(request, store, tmp_path)
    state = imported(totals(factory), {"a": 1, ("b", 2): 3})
    assert dict(state.items()) == {"a": 1, ("b", 2): 3}
    assert (state.get("a"), state.get("x")) == (1, None)
    summary = state.summary()
    assert (summary.tasks, summary.keys, summary.last_write) == (2, 2, "import")
    assert factory.name in {other.name for other in states_of_program(totals(replace(factory)))}


# ---- interruptions -------------------------------------------------------------------------------


def mortal(factory: KeptState, last: int) -> KeptState:
    """The state in a process that ends before or after one of its writes: 1, 2: the first one."""
    life = Life((last + 1) // 2, is_after=last % 2 == 0)
    return MortalState(factory, life, factory.kind, factory.name)


def imported_instead(graph: Graph, entries: dict[Any, Any], name: str, checksum: int) -> None:
    target = StateImport(graph.id, only(graph), name, checksum, process=name, instead=True)
    for key, value in entries.items():
        target.add(key, value)
    target.write()


@pytest.mark.parametrize("store", stores("memory", "sqlite", marks=LONG))
@pytest.mark.parametrize("process", [visited, listed])
def test_an_import_that_ends_at_any_write_is_completed_by_the_same_one(
    store: str,
    process: Any,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(factories, "_KEYS_AT_ONCE", 2)
    old, new = ([1, 2], [3]) if process is listed else (Visit(1), Visit(2))
    before, after = dict.fromkeys("abcd", old), {**dict.fromkeys("abcx", new), "d": old}
    second = dict.fromkeys("abcx", new), "second.jsonl", 2
    for last in range(1, 100):
        factory = state_in(request, store, tmp_path)
        graph = program(process, factory, parallelism=2)
        imported(graph, before)
        try:
            imported(program(process, mortal(factory, last), parallelism=2), *second)
        except ProcessEnded:
            pass
        else:
            break
        try:
            entries = dict(only(graph).items())
        except StoreUnreachable:
            entries = after
            with pytest.raises(StoreUnreachable, match=r"second\.jsonl"):
                imported(graph, {"a": old}, "third.jsonl", 3)
        assert entries in (before, after)
        tasks = 2 + last % 2
        assert len({_opens(process, factory, index, tasks) for index in range(tasks)}) == 1
        imported(graph, *second)
        assert dict(only(graph).items()) == after
    assert last > 14


def test_values_are_migrated_once_wherever_an_import_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factories, "_KEYS_AT_ONCE", 2)
    migration: Any = {"version": 2, "migrate": lambda _, value: Visit(value["count"] + 10)}
    entries = {"c": Visit(5), "x": Visit(6)}
    for last in range(1, 100):
        factory = fresh(tmp_path)
        imported(program(visited, factory), dict.fromkeys("abcdefg", Visit(1)))
        try:
            imported(program(visited, mortal(factory, last), **migration), entries)
        except ProcessEnded:
            pass
        else:
            break
        state = imported(program(visited, factory, **migration), entries)
        assert dict(state.items()) == {**dict.fromkeys("abdefg", Visit(11)), **entries}
    assert last > 6


@pytest.mark.parametrize("store", stores("memory", "sqlite", marks=LONG))
@pytest.mark.parametrize("writes", [1, 4, 5])
def test_an_import_instead_of_an_interrupted_one_ends_at_any_write_and_is_repeated(
    store: str,
    writes: int,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one has written its first fence, or some values. Who repeats the other one need not
    say again that it is instead of the first one, unless that was not known to the store yet."""
    monkeypatch.setattr(factories, "_KEYS_AT_ONCE", 2)
    other = {"a": Visit(3), "y": Visit(3)}, "other.jsonl", 2
    for last in range(1, 100):
        factory = state_in(request, store, tmp_path)
        graph = program(visited, factory, parallelism=2)
        imported(graph, dict.fromkeys("abcd", Visit(1)))
        begun = program(visited, mortal(factory, 2 * writes), parallelism=2)
        with pytest.raises(ProcessEnded):
            imported(begun, dict.fromkeys("abcx", Visit(2)), "first.jsonl", 1)
        try:
            imported_instead(program(visited, mortal(factory, last), parallelism=2), *other)
        except ProcessEnded:
            assert not _opens(visited, factory, 0, 2) or last > 12
        else:
            break
        if last == 1:
            with pytest.raises(StoreUnreachable, match="another one with --instead"):
                imported(graph, *other)
            imported_instead(graph, *other)
        else:
            imported(graph, *other)
        _check_instead(graph, factory)
    _check_instead(graph, factory)
    assert last > 14


def _check_instead(graph: Graph, factory: KeptState) -> None:
    """The keys of the second file are there, and of others what was there, or some of the first."""
    entries = dict(only(graph).items())
    assert entries.pop("a") == entries.pop("y") == Visit(3)
    assert entries.keys() - {"x"} == {*"bcd"}
    assert {*entries.values()} <= {Visit(1), Visit(2)}
    assert all(_opens(visited, factory, index, 2) for index in range(2))


class Meanwhile(Life):
    """Calls a function before write number `last`."""

    def __init__(self, last: int, function: Callable[[], None]) -> None:
        super().__init__(last)
        self.function = function

    def write(self, function: Callable[[], None]) -> None:
        self.writes += 1
        if self.writes == self.last:
            self.function()
        function()


@pytest.mark.parametrize("file", ["first.jsonl", "other.jsonl"])
def test_of_two_imports_at_once_the_one_that_takes_over_may_end_at_any_write(file: str) -> None:
    """Each writes as far as it can. Then the file of the second one is imported again, without
    --instead: it is completed, unless the first one was completed before."""
    values = dict.fromkeys("abcd", Visit(1))
    others = values if file == "first.jsonl" else dict.fromkeys("abcd", Visit(2))
    taken = 0
    for at in range(1, 9):
        for last in range(1, 20):
            factory = MemoryState(name="state")
            ended = False

            def take_over(factory: MemoryState = factory, last: int = last) -> None:
                nonlocal ended
                try:
                    second = program(visited, mortal(factory, last), parallelism=2)
                    imported_instead(second, others, file, 1)
                except (ProcessEnded, ConfigError):
                    ended = True

            hooked = MortalState(factory, Meanwhile(at, take_over), factory.kind, factory.name)
            with suppress(ConfigError):
                imported(program(visited, hooked, parallelism=2), values, "first.jsonl", 1)
            taken += ended
            graph = program(visited, factory, parallelism=2)
            if only(graph).summary().importing:
                assert only(graph).summary().importing == file
                imported(graph, others, file, 1)
            assert dict(only(graph).items()) in (values, others), (at, last)
            assert all(_opens(visited, factory, index, 2) for index in range(2))
    assert taken > 50


@pytest.mark.parametrize("file", ["first.jsonl", "other.jsonl"])
@pytest.mark.parametrize("writes", range(1, 7))
def test_a_process_that_imports_notices_that_another_one_has_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int, file: str
) -> None:
    """It does not write over what the program has written since then."""
    factory = fresh(tmp_path)
    graph = program(visited, factory, parallelism=2)
    put, left = SqliteBacking.put, writes

    def put_after_another(self: SqliteBacking, *arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            monkeypatch.setattr(SqliteBacking, "put", put)
            other = program(visited, factory, parallelism=2)
            target = StateImport(other.id, only(other), file, 1, process="two", instead=True)
            for key in "abcd":
                target.add(key, Visit(1))
            target.write()
            for index in range(2):
                running = _slot_of(program(visited, factory, parallelism=2))
                running.open(Context("seen", "state", index, index, 2))
                key = next(key for key in "abcd" if task_index(key, 2) == index)
                running.put(key, Visit(9))
                running.commit()
        put(self, *arguments)

    monkeypatch.setattr(SqliteBacking, "put", put_after_another)
    with pytest.raises(ConfigError, match=r"has taken over|a program runs on it"):
        imported(graph, dict.fromkeys("abcd", Visit(1)), "first.jsonl", 1)
    assert sorted(visit.count for visit in dict(only(graph).items()).values()) == [1, 1, 9, 9]
    assert all(_opens(visited, factory, index, 2) for index in range(2))


def _opens(process: Any, factory: KeptState, index: int, tasks: int) -> bool:
    """Whether a task can open the state."""
    store: Any = only(program(process, factory, parallelism=tasks)).store
    try:
        store.open(Context("seen", "state", index, index, tasks))
    except StoreUnreachable:
        return False
    store.close()
    return True


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_state_that_has_not_moved_completely_is_read_and_not_imported_into(
    tmp_path: Path, tasks: int
) -> None:
    """Wherever the move has ended, the program completes it, and then a file can be imported."""
    old = dict.fromkeys("abcdefgh", 1)
    for last in range(1, 100):
        factory = fresh(tmp_path)
        imported(totals(factory, 2), old)
        life = Life((last + 1) // 2, is_after=last % 2 == 0)
        try:
            for index in range(tasks):
                mortal = MortalState(factory, life, factory.kind, factory.name)
                _opened(totals(mortal, tasks), index, tasks)
        except ProcessEnded:
            is_over = False
        else:
            is_over = True
        state = only(totals(factory, tasks))
        assert dict(state.items()) == {key: state.get(key) for key in old} == old
        try:
            imported(totals(factory, tasks), {"a": 2, "z": 3})
        except ConfigError as error:
            if "is moving to" not in str(error):
                raise
            for index in range(tasks):
                _opened(totals(factory, tasks), index, tasks)
            imported(totals(factory, tasks), {"a": 2, "z": 3})
        assert dict(state.items()) == {**old, "a": 2, "z": 3}
        if is_over:
            break
    assert last > 6


def test_a_key_that_was_removed_after_a_move_is_not_looked_for_where_it_was(
    tmp_path: Path,
) -> None:
    """The parts of the former tasks have values until all new tasks have opened the state."""
    factory = fresh(tmp_path)
    imported(totals(factory, 2), dict.fromkeys("abcdefgh", 1))
    slot: Any = only(totals(factory, 3)).slot
    slot.open(Context("seen", "state", 0, 0, 3))
    removed, changed, *_ = (key for key in "abcdefgh" if task_index(key, 3) == 0)
    slot.write({removed: None, changed: 2})
    state = only(totals(factory, 3))
    expected = {**dict.fromkeys("abcdefgh", 1), changed: 2, removed: None}
    assert {key: state.get(key) for key in expected} == expected
    del expected[removed]
    assert dict(state.items()) == expected


def _opened(graph: Graph, index: int, tasks: int) -> None:
    """Open the state of a task, as a start of the program does, and close it."""
    slot: Any = only(graph).slot
    slot.open(Context("seen", "state", index, index, tasks))
    slot.close()


# ---- order ---------------------------------------------------------------------------------------


def _slot_of(graph: Graph) -> Any:
    """The keyed store of a program."""
    return only(graph).store


def _context() -> Context:
    return Context("seen", "state", 0, 0, 1)


def test_fence_migration_import_and_expiry_have_one_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old process writes until the fence. From then on nobody reads or writes, until all has
    been migrated and imported. Afterwards values expire, those of the file by the time of the
    import."""
    wall_s = 2e9
    monkeypatch.setattr(SystemClock, "wall", lambda _: wall_s)
    factory = fresh(tmp_path)
    before = _slot_of(program(visited, factory, ttl_s=100))
    before.open(_context())
    before.put("old", Visit(1))
    before.put("changed", Visit(1))
    before.commit()
    wall_s += 60
    graph = program(
        visited, factory, ttl_s=100, version=2, migrate=lambda _, value: Visit(value["count"] + 10)
    )
    put, seen = SqliteBacking.put, list[str]()

    def watched_put(self: SqliteBacking, changes: Any, mark: Any, expected: Any) -> None:
        put(self, changes, mark, expected)
        monkeypatch.setattr(SqliteBacking, "put", put)
        if "importing" in json.loads(mark.word):
            if not seen:
                before.put("late", Visit(1))
                with pytest.raises(StoreUnreachable):
                    before.commit()
            seen.append("fenced")
            for other in (before, _slot_of(graph)):
                with pytest.raises(StoreUnreachable, match="is being imported"):
                    other.open(_context())
            with pytest.raises(StoreUnreachable, match="is being imported"):
                dict(only(graph).items())
        monkeypatch.setattr(SqliteBacking, "put", watched_put)

    monkeypatch.setattr(SqliteBacking, "put", watched_put)
    imported(graph, {"changed": Visit(5), "new": Visit(6)})
    monkeypatch.setattr(SqliteBacking, "put", put)
    assert len(seen) >= 2
    after = _slot_of(graph)
    after.open(_context())
    assert dict(after.items()) == {"old": Visit(11), "changed": Visit(5), "new": Visit(6)}
    wall_s += 50
    assert dict(after.items()) == {"changed": Visit(5), "new": Visit(6)}
    after.commit()
    wall_s += 60
    assert dict(after.items()) == {}


def test_a_program_that_writes_meanwhile_is_noticed_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = fresh(tmp_path)
    graph = program(visited, factory)
    running = _slot_of(graph)
    running.open(_context())
    put = SqliteBacking.put

    def put_after_another(self: SqliteBacking, *arguments: Any) -> None:
        monkeypatch.setattr(SqliteBacking, "put", put)
        running.put("a", Visit(1))
        running.commit()
        put(self, *arguments)

    monkeypatch.setattr(SqliteBacking, "put", put_after_another)
    with pytest.raises(ConfigError, match=r"a program runs on it\. Kill it"):
        imported(graph, {"a": Visit(7)})
    running.put("b", Visit(2))
    running.commit()
    assert dict(only(graph).items()) == {"a": Visit(1), "b": Visit(2)}


# ---- batches -------------------------------------------------------------------------------------


def _in_batches(factory: KeptState, store: InMemory, tasks: int = 1) -> Graph:
    topology = Topology("seen")
    rows = batches(topology, "words", FixedBatchSpout([Word("a")], 1, type=Word), store=store)
    rows.group_by("word").aggregate(count(), state=factory, name="state", parallelism=tasks)
    return topology.graph()


@pytest.mark.parametrize("kind", [StateKind.TRANSACTIONAL, StateKind.OPAQUE])
@pytest.mark.parametrize("batches_before", [0, 2])
def test_the_batch_after_an_import_counts_on_and_once(
    tmp_path: Path, kind: StateKind, batches_before: int
) -> None:
    store, factory = InMemory(), replace(fresh(tmp_path), kind=kind)
    graph = _in_batches(factory, store)
    slot: Any = only(graph).slot
    assert isinstance(slot, BatchSlot)

    def add(txid: int, attempt: int) -> None:
        slot.close()
        slot.open(Context("seen", "state", 0, 0, 1))
        _add(slot, ["a", "b"], Attempt(txid, attempt, 1))

    def commit(txid: int) -> None:
        tree = store()
        StoredProgress(tree, "/transactional", ["words"], "seen").committed(txid)

    for txid in range(1, batches_before + 1):
        add(txid, 0)
        commit(txid)
    imported(graph, {"a": 100, "b": None})
    add(batches_before + 1, 0)
    add(batches_before + 1, 1)
    assert dict(only(graph).items()) == {"a": 101, "b": 1}
    with pytest.raises(ConfigError, match="not committed, so it will be repeated: start the prog"):
        imported(graph, {"a": 1})
    commit(batches_before + 1)  # as the program does when it is started
    assert dict(imported(graph, {"a": 1}).items()) == {"a": 1, "b": 1}


def test_a_part_that_is_ready_is_not_imported_into_again(tmp_path: Path) -> None:
    """A program that was not killed has gone on with it, when the import is repeated."""
    store, factory, values = InMemory(), fresh(tmp_path), dict.fromkeys("abcdefgh", 100)
    running: Any = only(_in_batches(factory, store, 2)).slot
    running.open(Context("seen", "state", 1, 1, 2))
    # It ends after two fences and the values of two parts, when the second part is ready.
    mortal = MortalState(factory, Life(5, is_after=True), factory.kind, factory.name)
    with pytest.raises(ProcessEnded):
        imported(_in_batches(mortal, store, 2), values)
    keys = [key for key in values if task_index(key, 2) == 1]
    with pytest.raises(FailedBatch, match="written meanwhile by an import"):  # it reads the mark
        _add(running, keys, Attempt(1, 0, 1))
    _add(running, keys, Attempt(1, 1, 1))
    state = imported(_in_batches(factory, store, 2), values)
    assert dict(state.items()) == {**values, **dict.fromkeys(keys, 101)}


@pytest.mark.parametrize("kind", [StateKind.TRANSACTIONAL, StateKind.OPAQUE])
def test_keys_that_the_last_batch_removed_leave_the_store_wherever_an_import_ends(
    tmp_path: Path, kind: StateKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factories, "_KEYS_AT_ONCE", 2)
    for last in range(1, 100):
        store, factory = InMemory(), replace(fresh(tmp_path), kind=kind)
        slot: Any = only(_in_batches(factory, store)).slot
        slot.open(Context("seen", "state", 0, 0, 1))
        _add(slot, [*"abcd"], Attempt(1, 0, 1))
        slot.begin_commit(Attempt(2, 0, 1))
        slot.state.multi_put([*"abc"], [None] * 3)
        slot.commit(Attempt(2, 0, 1))
        mortal = MortalState(factory, Life(last, is_after=True), kind, factory.name)
        StoredProgress(store(), "/transactional", ["words"], "seen").committed(2)
        try:
            imported(_in_batches(mortal, store), {"a": 5, "e": 6})
        except ProcessEnded:
            imported(_in_batches(factory, store), {"a": 5, "e": 6})
        else:
            break
        (home,) = [home for home in factory.homes() if home.state == factory.name]
        assert {key for key, _ in factory.open(home).items()} == {'"a"', '"d"', '"e"'}
    assert last > 3


def _add(slot: Any, keys: list[str], attempt: Attempt) -> None:
    """Commit a batch that adds one to each key."""
    slot.begin_commit(attempt)
    slot.state.multi_update(keys, [lambda old: (old or 0) + 1] * len(keys))
    slot.commit(attempt)


def test_windows_are_only_read(tmp_path: Path) -> None:
    from sunshower.trident import tumbling

    topology = Topology("seen")
    rows = batches(topology, "words", FixedBatchSpout([Word("a")], 1, type=Word))
    rows.window(tumbling(count=2), count(), state=fresh(tmp_path))
    graph = topology.graph()
    with pytest.raises(ConfigError, match="can only be read: it is that of a window"):
        StateImport(graph.id, only(graph), "f", 1)


def test_windows_have_a_key_for_each_pane_and_show_nothing_else(tmp_path: Path) -> None:
    from sunshower.simulation.cluster import SimCluster
    from sunshower.trident import tumbling

    topology, factory = Topology("seen"), fresh(tmp_path)
    source = FixedBatchSpout([Word("a", n) for n in range(25)], 5, type=Word)
    rows = batches(topology, "words", source, store=InMemory())
    window = tumbling(seconds=10, field="number", at_end="keep")
    rows.group_by("word").window(window, count(), state=factory)
    with SimCluster(1) as cluster:
        assert cluster.submit(topology.graph()).wait(60.0)
    state = only(topology.graph())
    assert state.summary().keys == 1
    entries = dict(state.items())
    ((group, pane),) = entries
    assert group == "a"
    assert state.get((group, pane)) == entries[group, pane]
    assert state.get("$windows") is None


def test_sessions_of_batches_have_a_key_for_each_group(tmp_path: Path) -> None:
    from sunshower.simulation.cluster import SimCluster

    topology, factory = Topology("seen"), fresh(tmp_path)
    source = FixedBatchSpout([Word("ab"[n % 2], n) for n in range(9)], 5, type=Word)
    rows = batches(topology, "words", source, store=InMemory())
    window = sessions(gap=5, field="number", at_end="keep")
    rows.group_by("word").window(window, count(), state=factory)
    with SimCluster(1) as cluster:
        assert cluster.submit(topology.graph()).wait(60.0)
    state = only(topology.graph())
    assert {key: session[:2] for key, (session,) in state.items()} == {
        ("a",): [0, 8],
        ("b",): [1, 7],
    }
    assert state.get(("b",)) == dict(state.items())[("b",)]
    assert state.summary().keys == 2


def test_a_state_says_what_has_it(tmp_path: Path) -> None:
    topology = Topology("seen")
    topology.spout("words", Records(words)).distinct("word", state=fresh(tmp_path))
    in_batches = batches(topology, "rows", FixedBatchSpout([Word("a")], 1, type=Word))
    in_batches.distinct("word", state=fresh(tmp_path), name="other")
    assert [state.holder for state in states_of_program(topology.graph())] == ["distinct"] * 2
