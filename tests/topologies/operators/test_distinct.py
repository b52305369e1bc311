"""`distinct` on ordinary streams: the first record of each key, and none is lost behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from sunshower import Records, Topology, count
from sunshower.errors import TopologyError
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.trident.states.stored_states import StateImport, states_of_program
from tests.seeds import seeds
from tests.trident.rigs.programs import SETTINGS, kill_three

TTL = 40


class Click(NamedTuple):
    id: str
    at: int


CLICKS = [Click("abcdefgh"[(n * n + n) // 2 % 8], n) for n in range(240)]


def clicks() -> Iterator[Click]:
    yield from CLICKS


def declare(topology: Topology, counts: Any, **settings: Any) -> None:
    distinct_clicks = topology.spout("clicks", Records(clicks)).distinct("id", **settings)
    distinct_clicks.group_by("id", "at").aggregate(count(), state=counts, name="counts")


def expected(ttl_s: float | None) -> set[tuple[str, int]]:
    until: dict[str, float] = {}
    rows = set()
    for click in CLICKS:
        if click.id not in until or (ttl_s is not None and until[click.id] <= click.at):
            until[click.id] = click.at + (ttl_s or 0)
            rows.add(tuple(click))
    return rows


@pytest.mark.parametrize("ttl_s", [None, TTL])
def test_a_key_is_new_once_or_after_its_time(ttl_s: float | None) -> None:
    topology, counts = Topology("clicks"), MemoryState(name="counts")
    declare(topology, counts, ttl_s=ttl_s, event_time="at", parallelism=2, state=MemoryState())
    run_inline(topology.graph())
    assert dict(counts.items()) == dict.fromkeys(expected(ttl_s), 1)


@seeds(20)
def test_no_key_is_lost_when_workers_are_killed(seed: int) -> None:
    """Records that are replayed may come in another order: which one is first may change."""
    topology, counts = Topology("clicks", **SETTINGS), MemoryState(name="counts")
    declare(topology, counts, state=MemoryState())
    sim = SimCluster(seed, check=True).submit(topology.graph(), Layout.ISOLATE)
    kill_three(sim, seed, lambda number: 0.2 + 0.13 * (number % 7))
    assert sim.wait(600.0)
    assert {key[0] for key, _ in counts.items()} == set("abcdefgh") & {c.id for c in CLICKS}


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"ttl_s": 0}, "ttl_s"), ({"on_timer": print}, "on_timer"), ({"on": "user"}, "user")],
)
def test_wrong_declarations(settings: Any, says: str) -> None:
    stream = Topology("clicks").spout("clicks", Records(clicks))
    with pytest.raises(TopologyError, match=says):
        stream.distinct(**{"on": "id", **settings})


def test_a_value_that_was_imported_without_its_timer_keeps_no_record_back() -> None:
    """A file that was exported while a record waited for its timer has the record alone."""
    topology, counts = Topology("clicks"), MemoryState(name="counts")
    declare(topology, counts, ttl_s=TTL, event_time="at", state=MemoryState(), name="ids")
    graph = topology.graph()
    (state,) = [state for state in states_of_program(graph) if state.name == "ids"]
    target = StateImport(graph.id, state, "waiting.jsonl", 1)
    waiting = Click("a", -1)
    target.add("a", [0.0, waiting])
    target.write()
    run_inline(graph)
    assert {*dict(counts.items())} == {*expected(TTL), waiting}
