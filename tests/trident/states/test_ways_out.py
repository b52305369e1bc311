"""What a refused state says can be done instead is done: in programs, and where it is declared."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sunshower import KeyState, StaticState, Topology, count
from sunshower.errors import (
    ConfigError,
    DuplicateComponent,
    StaleAttempt,
    StateMismatch,
    StoreUnreachable,
    TopologyError,
    TopologyFailed,
)
from sunshower.runtime.inline import run_inline
from sunshower.runtime.transport.routing import task_index
from sunshower.state import MemoryState, SqliteState
from sunshower.state.backing import Mark
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.states import MapState, Place, StateKind
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, TextFileBatches, batches
from tests.trident.rigs.additions import OPAQUE, batch
from tests.trident.rigs.moving_states import Event

EVENTS = [Event("abcde"[number % 5], number, float(number)) for number in range(30)]
ALL = dict.fromkeys("abcde", 6)


@dataclass(frozen=True)
class Program:
    """Counts the events of each key in batches."""

    state: MemoryState
    store: InMemory
    id: str = "in"
    topology: str = "counted"

    def run(self) -> None:
        topology = Topology(self.topology)
        spout = FixedBatchSpout(EVENTS, 10, type=Event)
        rows = batches(topology, self.id, spout, store=self.store)
        rows.group_by("key").aggregate(count(), state=self.state, name="counts")
        run_inline(topology.graph())

    def check(self) -> None:
        """Run it; each key has been counted once."""
        self.run()
        assert dict(self.state.items("other" if self.state.name else "counts")) == ALL


def other_name(program: Program) -> Program:
    """Give the state another name, under which it begins empty: also the batches begin anew."""
    return replace(program, state=replace(program.state, name="other"), store=InMemory())


def damaged(change: Callable[[Mark], Mark]) -> Callable[[Program], Program]:
    """A program whose state has been written by somebody else."""

    def damage(program: Program) -> Program:
        marks = program.state.shelf.marks
        marks.update({home: change(mark) for home, mark in marks.items()})
        return program

    return damage


def of_version_9(mark: Mark) -> Mark:
    return Mark(json.dumps({**json.loads(mark.word), "version": 9}), mark.journal)


def other_kind(program: Program) -> Program:
    return replace(program, state=replace(program.state, kind=StateKind.TRANSACTIONAL))


@pytest.mark.parametrize(
    ("wrong", "says", "ways_out"),
    [
        (damaged(lambda _: Mark("?", "?")), "give the state another name, under", [other_name]),
        (
            damaged(of_version_9),
            "use the release that wrote it, or give the state another name",
            [other_name],
        ),
        (
            lambda program: replace(program, id="out"),
            "Give back the id and the store, or give the state another name",
            [lambda program: replace(program, id="in"), other_name],
        ),
        (
            lambda program: replace(program, store=InMemory()),
            "Give back the id and the store, or give the state another name",
            [None, other_name],
        ),
        (
            other_kind,
            "set that back, or give the state another name",
            [lambda program: replace(program, state=replace(program.state, kind=OPAQUE))],
        ),
        (
            lambda program: replace(program, topology="renamed"),
            "set that back, or give the state another name",
            [lambda program: replace(program, topology="counted"), other_name],
        ),
    ],
)
def test_a_program_of_batches(
    wrong: Callable[[Program], Program], says: str, ways_out: list[Any]
) -> None:
    for way_out in ways_out:
        program = Program(MemoryState(), InMemory())
        program.check()
        refused = wrong(program)
        with pytest.raises(TopologyFailed, match=says):
            refused.run()
        (program if way_out is None else way_out(refused)).check()


def test_the_batches_of_another_topology() -> None:
    """Each way out is taken after a run of the other one; if the topology was only renamed, it goes
    on where that one has ended."""

    def seen(store: InMemory, name: str, id: str = "in") -> int:
        topology, rows = Topology(name), list[Event]()
        spout = FixedBatchSpout(EVENTS, 10, type=Event)
        batches(topology, id, spout, store=store).peek(rows.append)
        run_inline(topology.graph())
        return len(rows)

    says = (
        "give this one's spout another id, or its batches another store; if it was only renamed, "
        "remove (/transactional/in/coordinator/topology)"
    )
    store = InMemory()
    assert seen(store, "counted") == 30
    with pytest.raises(TopologyFailed, match=says) as refused:
        seen(store, "renamed")
    assert seen(store, "renamed", "out") == seen(InMemory(), "renamed") == 30
    path = re.search(says, str(refused.value))
    assert path
    store().delete(path[1])
    assert seen(store, "renamed") == 0


def test_a_file_that_somebody_else_has_written() -> None:
    """Another id, another store, or the node is removed."""
    program = Program(MemoryState(), InMemory())
    program.check()
    tree, path = program.store(), "/transactional/in/coordinator/currtx"
    tree.set(path, b'"?"')
    says = "Give the spout another id or the group another store, or remove the node to start over"
    with pytest.raises(TopologyFailed, match=says):
        program.run()
    other_name(replace(program, id="out")).check()
    for node in tree.children("/transactional/in/coordinator"):
        remove(tree, f"/transactional/in/coordinator/{node}")
    replace(program, state=MemoryState()).check()


def remove(tree: Tree, path: str) -> None:
    """Remove a node with those below it."""
    for name in tree.children(path):
        remove(tree, f"{path}/{name}")
    tree.delete(path)


def test_files_of_another_list(tmp_path: Path) -> None:
    def read(*files: str, id: str = "in") -> list[str]:
        topology, lines = Topology("lines"), list[str]()
        spout = TextFileBatches(*(tmp_path / file for file in files))
        rows = batches(topology, id, spout, store=store)
        rows.peek(lambda line: lines.append(line.text))
        run_inline(topology.graph())
        return lines

    store = InMemory()
    for name in "abcdefghijk":
        (tmp_path / name).write_text(f"{name}\n")
    assert read("b") == ["b"]
    says = "give the same ones as before, and new ones only behind them, or the spout another id"
    for files in ("ab", "a", "cd"):
        with pytest.raises(TopologyFailed, match=says):
            read(*files)
    assert read("b") == []
    assert sorted(read("a", "b", id="out")) == ["a", "b"]
    assert read("b", "c") == ["c"]
    assert sorted(read(*"bcdefghijk")) == [*"defghijk"], "ten files in eight shares"
    with pytest.raises(TopologyFailed, match=says):
        read("b", "c")


def test_a_store_of_batches_that_was_removed_without_the_state() -> None:
    place, state = Place("words", "counts", 0, 1), MemoryState(OPAQUE)
    batch(state.make(place), 5, epoch=3, storm=3)
    with pytest.raises(StaleAttempt, match="remove both to start over"):
        batch(state.make(place), 1, epoch=1, storm=3)
    batch(MemoryState(OPAQUE).make(place), 1, epoch=1, storm=3)


# ---- states of functions -------------------------------------------------------------------------


def pair(*fields: Any) -> type[Any]:
    """The class of a release of the program."""
    kind = make_dataclass("Pair", fields)
    kind.__qualname__ = "Pair"
    return kind


OLD = pair(("x", int))
CONTEXT = Context("shop", "visits", 1, 0, 1)


def opened(state: MemoryState, kind: type[Any] = OLD, **settings: Any) -> KeyedStore:
    store = KeyedStore(state, "visits", "here", [kind], **settings)
    store.open(CONTEXT)
    return store


def written() -> MemoryState:
    """The state of the first release."""
    state = MemoryState()
    store = opened(state)
    store.put("a", OLD(1))
    store.commit()
    return state


def test_a_class_with_new_fields() -> None:
    new, with_default = pair(("x", int), ("y", int)), pair(("x", int), ("y", int, 7))

    def migrate(version: int, value: Any) -> Any:
        return new(value["x"], version)

    for says, way_out, value in (
        ("Give new fields a default", lambda state: opened(state, with_default), with_default(1)),
        (
            "give version=2 and migrate=",
            lambda state: opened(state, new, version=2, migrate=migrate),
            new(1, 1),
        ),
        ("another name=", lambda state: opened(replace(state, name="other"), new), None),
    ):
        state = written()
        with pytest.raises(StateMismatch, match=says):
            opened(state, new)
        assert way_out(state).get("a") == value


def test_values_of_another_version() -> None:
    state = written()
    says = "give migrate=, .* use the program that wrote them, or give the state another name="
    with pytest.raises(StateMismatch, match=says):
        opened(state, version=2)
    assert opened(state).get("a") == OLD(1), "the program that wrote them"
    assert opened(replace(state, name="other"), version=2).get("a") is None
    assert opened(state, version=2, migrate=lambda _, value: OLD(value["x"] + 1)).get("a") == OLD(2)
    with pytest.raises(StateMismatch, match="values are of version 2, and this is version 1"):
        opened(state)


def test_what_somebody_else_has_written() -> None:
    state = written()
    (values,) = state.shelf.values.values()
    (about,) = [key for key in values if "about" in key]
    values[about] = "7"
    with pytest.raises(StateMismatch, match="give the state another name=, and it begins empty"):
        opened(state)
    assert opened(replace(state, name="other")).get("a") is None


def test_keys_of_another_grouping() -> None:
    """The number of tasks stays, or the state gets another name."""
    state, tasks = MemoryState(), [replace(CONTEXT, index=index, parallelism=2) for index in (0, 1)]
    (foreign,) = [index for index in range(2) if task_index("total", 2) != index]

    def at(state: MemoryState, context: Context) -> KeyedStore:
        store = KeyedStore(state, "visits", "here", [OLD])
        store.open(context)
        return store

    store = at(state, tasks[foreign])
    store.put("total", OLD(1))
    store.commit()
    more = replace(CONTEXT, parallelism=3)
    says = "give it back the parallelism 2, or give the state another name"
    with pytest.raises(StateMismatch, match=says):
        at(state, more)
    assert at(state, tasks[foreign]).get("total") == OLD(1)
    assert at(replace(state, name="other"), more).get("total") is None


def test_a_state_that_has_moved_away_moves_back() -> None:
    """The former run can be started again when the other one has ended."""
    state, tasks = MemoryState(), [replace(CONTEXT, index=index, parallelism=2) for index in (0, 1)]
    former = [KeyedStore(state, "visits", "here", [OLD]) for _ in tasks]
    for store, context in zip(former, tasks, strict=True):
        store.open(context)
    opened(state).close()
    for store in former:
        store.put("a", OLD(1))
        with pytest.raises(StoreUnreachable, match="start this one again, and the sta"):
            store.commit()
    for context in tasks:
        again = KeyedStore(state, "visits", "here", [OLD])
        again.open(context)
        again.put("a", OLD(1))
        again.commit()


# ---- declarations --------------------------------------------------------------------------------


def seen(event: Event, state: KeyState[int]) -> None: ...


def rows_of(topology: Topology, id: str = "in") -> Any:
    return batches(topology, id, FixedBatchSpout(EVENTS, 10, type=Event), store=InMemory())


def looked_up(state: MapState, rows: Any) -> list[Any]:
    return state.multi_get([row.key for row in rows])


def test_a_name_of_a_state_that_another_place_has() -> None:
    def declared(second: str) -> Topology:
        topology = Topology("t")
        rows, state = rows_of(topology), MemoryState()
        rows.group_by("key").aggregate(count(), state=state, name="sums")
        rows.group_by("number").aggregate(count(), state=state, name=second)
        return topology

    with pytest.raises(DuplicateComponent, match="give this one another name="):
        declared("Sums")
    run_inline(declared("others").graph())


def test_queries_that_need_a_group_or_a_function() -> None:
    def asked(query: Callable[[Any, Any], Any], tasks: int = 1) -> None:
        topology = Topology("t")
        rows = rows_of(topology)
        sums = rows.group_by("key").aggregate(
            count(), state=MemoryState(), name="sums", parallelism=tasks
        )
        query(rows, sums)
        run_inline(topology.graph())

    function: Any = looked_up
    with pytest.raises(TopologyError, match=r"say which of them .*: \.group_by\(…\)\.state_query"):
        asked(lambda rows, state: rows.state_query(state, function, fields=("found",)), tasks=2)
    asked(lambda rows, state: rows.group_by("key").state_query(state), tasks=2)
    with pytest.raises(TopologyError, match="group by as many fields in that order, or give a fun"):
        asked(lambda rows, state: rows.group_by("key", "number").state_query(state))
    asked(lambda rows, state: rows.state_query(state, function, fields=("found",)))
    with pytest.raises(TopologyError, match=r"or StaticState\(…\)"):
        asked(lambda rows, _: rows.group_by("key").state_query({"a": 1}))
    asked(lambda rows, _: rows.group_by("key").state_query(StaticState({"a": 1})))


def test_a_static_state_is_not_written(tmp_path: Path) -> None:
    def keep(state: MapState, rows: Any) -> None:
        state.multi_put([rows[-1].key], [1])

    def kept(state: Any) -> None:
        topology = Topology("t")
        rows_of(topology).global_().partition_persist(state, keep, name="kept")
        run_inline(topology.graph())

    with pytest.raises(TopologyFailed, match="To write, use a SqliteState or another state"):
        kept(StaticState({}))
    kept(SqliteState(tmp_path / "kept.db"))


def test_a_store_with_several_states_is_asked_for_one() -> None:
    state = MemoryState()
    topology = Topology("t")
    rows = rows_of(topology)
    for name in ("first", "second"):
        rows.group_by("key").aggregate(count(), state=state, name=name)
    run_inline(topology.graph())
    with pytest.raises(ConfigError, match=r"say which, as in items\('first'\)"):
        dict(state.items())
    assert dict(state.items("first")) == ALL


def test_what_is_in_memory_is_not_sent_to_other_processes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'give SqliteState\("counts.db"\), or another store'):
        pickle.dumps(MemoryState())
    with pytest.raises(ConfigError, match=r'give store=InSqlite\("batches.db"\) or InZooKeeper'):
        pickle.dumps(InMemory())
    pickle.dumps((SqliteState(tmp_path / "counts.db"), InSqlite(tmp_path / "batches.db")))
