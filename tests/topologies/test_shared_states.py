"""Two states of one topology that would be one in their store are refused when it is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    KeyState,
    KeyValueState,
    MemoryState,
    Spout,
    SqliteState,
    StaticState,
    Topology,
    batches,
    count,
    tumbling,
)
from sunshower.errors import TopologyError
from sunshower.topologies.operators.state_slot import held_states
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.streams import Stream
from sunshower.trident import FixedBatchSpout, InMemory

Declare = Callable[[Stream[Any], str, StateFactory], Any]


class Click(NamedTuple):
    user: str
    at: int


class Clicks(Spout[Click]):
    def records(self) -> Iterator[Click]:
        yield Click("a", 1)


class Latest(Bolt[Click, Any]):
    state: KeyValueState[str, int]

    def process(self, click: Click) -> None:
        self.state[click.user] = click.at


def note(click: Click, state: KeyState[int]) -> None:
    state.value = click.at


DECLARED: dict[str, Declare] = {
    "aggregate": lambda s, id, state: s.group_by("user").aggregate(count(), name=id, state=state),
    "window": lambda s, id, state: s.group_by("user").window(
        tumbling(seconds=60, field="at"), count(), name=id, state=state
    ),
    "process": lambda s, id, state: s.group_by("user").process(note, name=id, state=state),
    "distinct": lambda s, id, state: s.distinct("user", name=id, state=state),
    "join": lambda s, id, state: s.join(
        s, "user", within=10, field="at", how="semi", name=id, state=state
    ),
    "bolt": lambda s, id, state: s.fields("user").bolt(id, Latest(), fields=(), state=state),
}


def declared(first: str, second: str, state: StateFactory, other: StateFactory) -> Topology:
    topology = Topology("clicks")
    stream = topology.spout("clicks", Clicks())
    DECLARED[first](stream, "one", state)
    DECLARED[second](stream, "two", other)
    return topology


@pytest.mark.parametrize(("first", "second"), [*product(DECLARED, DECLARED)])
def test_two_states_with_one_name_in_one_store_are_refused(
    first: str, second: str, tmp_path: Path
) -> None:
    file = tmp_path / "clicks.db"
    states = SqliteState(file, name="both"), SqliteState(file, name="BOTH")
    with pytest.raises(TopologyError, match=r"'one' and 'two' have one state, 'BOTH' in .*name="):
        declared(first, second, *states).graph()
    elsewhere = SqliteState(tmp_path / "other.db", name="both")
    for other in (SqliteState(file, name="other"), SqliteState(file), elsewhere):
        assert declared(first, second, states[0], other).graph()


OF_BATCHES: dict[str, Callable[[Any, StateFactory], Any]] = {
    "aggregate": lambda users, state: users.aggregate(count(), state=state, name="two"),
    "window": lambda users, state: users.window(
        tumbling(seconds=60, field="at"), count(), state=state, name="two"
    ),
    "process": lambda users, state: users.process(note, state=state, name="two"),
}


@pytest.mark.parametrize(("first", "second"), [*product(DECLARED, OF_BATCHES)])
def test_states_of_batches_and_of_ordinary_streams_are_compared(
    first: str, second: str, tmp_path: Path
) -> None:
    file, link = tmp_path / "clicks.db", tmp_path / "link.db"
    link.symlink_to(file)

    def declared(state: StateFactory) -> Topology:
        topology = Topology("clicks")
        source = FixedBatchSpout([Click("a", 1)], 1, type=Click)
        users = batches(topology, "in", source, store=InMemory()).group_by("user")
        totals = OF_BATCHES[second](users, state)
        if second == "aggregate":  # a query writes nothing
            users.state_query(totals).peek(print)
        DECLARED[first](topology.spout("clicks", Clicks()), "one", SqliteState(file, name="both"))
        return topology

    for same in (SqliteState(file, name="BOTH"), SqliteState(link, name="both")):
        with pytest.raises(TopologyError, match=r"have one state, '(BOTH|both)' in .*name="):
            declared(same).graph()
    assert declared(SqliteState(file, name="other")).graph()


@pytest.mark.parametrize("kind", DECLARED)
def test_the_states_of_a_component_are_listed_once(kind: str, tmp_path: Path) -> None:
    states = SqliteState(tmp_path / "a.db", name="a"), SqliteState(tmp_path / "b.db", name="b")
    graph = declared(kind, kind, *states).graph()
    for id, state in zip(("one", "two"), states, strict=True):
        (held,) = held_states(graph.components[id])
        name = getattr(held.slot.factory, "name", None)
        assert (name, held.operator is None) == (state.name, kind == "bolt")


@pytest.mark.parametrize("kind", OF_BATCHES)
def test_a_query_of_a_state_of_batches_is_no_state_of_its_own(kind: str, tmp_path: Path) -> None:
    topology, state = Topology("clicks"), SqliteState(tmp_path / "clicks.db")
    source = FixedBatchSpout([Click("a", 1)], 1, type=Click)
    users = batches(topology, "in", source, store=InMemory()).group_by("user")
    written = OF_BATCHES[kind](users, state)
    if kind == "aggregate":
        users.state_query(written).peek(print)
        users.state_query(StaticState({"a": 1})).peek(print)
    held = [held for each in topology.graph().components.values() for held in held_states(each)]
    assert [each.slot.factory for each in held].count(state) == 1
    assert len(held) == (2 if kind == "aggregate" else 1)


def test_a_state_in_memory_is_one_if_it_is_the_same_object() -> None:
    state = MemoryState(name="both")
    with pytest.raises(TopologyError, match="'one' and 'two' have one state, 'both' in memory"):
        declared("process", "aggregate", state, state).graph()
    assert declared("process", "aggregate", state, MemoryState(name="both")).graph()
