"""`process` in batches: each key has the state that a plain program computes, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import KeyState, Topology
from sunshower.errors import RecordMismatch, TopologyError, TopologyFailed
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import (
    BatchStream,
    FixedBatchSpout,
    InMemory,
    InSqlite,
    StateKind,
    batches,
    sum_,
)
from tests.seeds import seeds
from tests.trident.rigs.one_process import stub_stream
from tests.trident.rigs.programs import SETTINGS, kill_three, run


class Click(NamedTuple):
    user: str
    page: str


class Visit(NamedTuple):
    pages: set[str]
    clicks: int


class Numbered(NamedTuple):
    user: str
    number: int


CLICKS = [Click("abcde"[n * n % 5], f"/{n % 7}") for n in range(120)]
LAST = 20  # the click that ends a visit


def visits(click: Click, state: KeyState[Visit]) -> Iterator[Numbered]:
    visit = state.value or Visit(set(), 0)
    visit.pages.add(click.page)
    state.value = Visit(visit.pages, visit.clicks + 1)
    yield Numbered(click.user, state.value.clicks)
    if state.value.clicks == LAST:
        state.value = None


def plain() -> tuple[dict[str, Visit], int]:
    """The expected states, and the expected sum of the emitted numbers."""
    states: dict[str, KeyState[Visit]] = {}
    numbers = 0
    for click in CLICKS:
        state = states.setdefault(click.user, KeyState(None))
        numbers += sum(row.number for row in visits(click, state))
    return {
        user: key_state.value for user, key_state in states.items() if key_state.value is not None
    }, numbers


def declare(topology: Topology, state: Any, numbers: Any, **options: Any) -> BatchStream[Any]:
    spout = FixedBatchSpout(CLICKS, 6, type=Click)
    options.setdefault("store", InMemory())
    clicks = batches(topology, "clicks", spout, **options)
    visited = clicks.group_by("user").process(visits, state=state, parallelism=2)
    visited.aggregate(sum_("number"), state=numbers, name="numbers")
    return visited


def read(state: Any) -> dict[str, Visit]:
    """The states, from what a reader without their classes sees."""
    return {user: Visit(value["pages"], value["clicks"]) for user, value in state.items()}


@pytest.mark.parametrize("max_batches", [1, 4])
def test_states_and_rows_are_those_of_a_plain_program(max_batches: int) -> None:
    topology, state, numbers = Topology("clicks"), MemoryState(), MemoryState(name="numbers")
    declare(topology, state, numbers, max_batches=max_batches)
    run(topology)
    expected, total = plain()
    assert (read(state), dict(numbers.items())) == (expected, {"$GLOBAL$": total})


@seeds(40)
def test_a_batch_changes_a_state_once_when_workers_are_killed(seed: int) -> None:
    layout = (Layout.ISOLATE, Layout.PACK)[seed % 2]
    topology = Topology("clicks", **SETTINGS)
    state, numbers = MemoryState(), MemoryState(name="numbers")
    declare(topology, state, numbers, max_batches=1 + seed % 3, interval_s=0.2)
    sim = SimCluster(seed, check=True, nodes=1 + seed % 2).submit(topology.graph(), layout)
    kill_three(sim, seed, lambda number: 0.4 + 0.13 * (number % 7))
    assert sim.wait(600.0)
    assert sim.snapshot().restarts
    expected, total = plain()
    assert (read(state), dict(numbers.items())) == (expected, {"$GLOBAL$": total})


def test_a_later_run_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    state, store = SqliteState(tmp_path / "visits.db"), InSqlite(tmp_path / "batches.db")
    for _ in range(2):
        topology = Topology("clicks")
        declare(topology, state, SqliteState(tmp_path / "numbers.db"), store=store)
        run(topology)
        assert read(SqliteState(tmp_path / "visits.db")) == plain()[0]


def test_a_function_that_raises_leaves_the_states_of_its_batch_as_they_were() -> None:
    def raising(click: Click, state: KeyState[int]) -> None:
        state.value = (state.value or 0) + 1
        if click.page == "/6":
            raise ValueError("odd")

    topology, state = Topology("clicks"), MemoryState()
    spout = FixedBatchSpout(CLICKS, 6, type=Click)
    clicks = batches(topology, "clicks", spout, store=InMemory())
    clicks.group_by("user").process(raising, state=state)
    with pytest.raises(TopologyFailed, match="ValueError: odd"):
        run(topology)
    assert sum(count for _, count in state.items()) == 6, "batch 1 and no other"


def test_a_program_can_query_the_state_of_a_key() -> None:
    answers: list[Any] = []

    def note(answer: Any) -> None:
        answers.append(answer[2])

    topology = Topology("clicks")
    spout = FixedBatchSpout(CLICKS, 6, type=Click)
    clicks = batches(topology, "clicks", spout, store=InMemory(), max_batches=1)
    visited = clicks.group_by("user").process(visits, state=MemoryState())
    clicks.group_by("user").state_query(visited, fields="visit").peek(note)
    run(topology)
    assert len(answers) == len(CLICKS)
    assert {type(answer) for answer in answers} == {Visit, type(None)}


def with_timer(key: str, state: KeyState[Visit]) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({}, TopologyError, r"None(Type)? is not a state"),
        ({"event_time": "page"}, TopologyError, "event_time= is for ttl_s=, or on_timer="),
        ({"late": 2}, TopologyError, "late=, ahead= and unit= are for timers"),
        ({"on_timer": with_timer, "late": 2}, TopologyError, "late= needs event_time="),
        ({"version": 2}, TopologyError, "version= is for ordinary streams"),
        ({"state": MemoryState(StateKind.TRANSACTIONAL)}, TopologyError, "take one of kind opaque"),
        (
            {"state": MemoryState(StateKind.NON_TRANSACTIONAL)},
            TopologyError,
            "take one of kind opaque",
        ),
        ({"state": MemoryState(), "tasks": 2}, TopologyError, "tasks"),
        ({"state": MemoryState(), "fields": ["a"]}, RecordMismatch, "declared to emit"),
    ],
)
def test_wrong_declarations(settings: Any, error: Any, says: str) -> None:
    _, clicks = stub_stream(Click)
    with pytest.raises(error, match=says):
        clicks.group_by("user").process(visits, **settings)
