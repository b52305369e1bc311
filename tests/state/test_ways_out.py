"""What a store says instead of a name, a file or a size that it cannot have is done, and works."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sunshower import Topology, count
from sunshower.errors import TopologyFailed
from sunshower.runtime.inline import run_inline
from sunshower.state import PostgresState, SqliteState, ZooKeeperState
from sunshower.trident import FixedBatchSpout, InMemory, batches
from sunshower.trident.states.factories import KeptState
from tests.trident.rigs.moving_states import Event


def counted(state: KeptState, keys: Mapping[str, int], at_once: int = 1_000) -> None:
    """Count the rows of each key, in batches of so many."""
    topology = Topology("counted")
    events = [Event(key, n, 0.0) for key, times in keys.items() for n in range(times)]
    spout = FixedBatchSpout(events, at_once, type=Event)
    rows = batches(topology, "in", spout, store=InMemory()).group_by("key")
    rows.aggregate(count(), state=state, name="counts")
    run_inline(topology.graph())


def assert_works(state: KeptState, keys: Mapping[str, int], at_once: int = 1_000) -> None:
    counted(state, keys, at_once)
    assert dict(state.items(state.name or "counts")) == keys


def refused(state: KeptState, says: str, keys: Mapping[str, int]) -> None:
    with pytest.raises(TopologyFailed, match=says):
        counted(state, keys)


FEW = {"a": 2, "b": 1}


def a_table_in_lower_case(path: Path) -> KeptState:
    assert_works(SqliteState(path, name="sums"), FEW)
    return SqliteState(path, name="Sums")


def a_folder(path: Path) -> KeptState:
    path.mkdir()
    return SqliteState(path)


def a_damaged_file(path: Path) -> KeptState:
    path.write_bytes(b"this is no database, and longer than its head" * 100)
    return SqliteState(path)


def removed(state: SqliteState) -> KeptState:
    Path(state.file).unlink()
    return state


@pytest.mark.parametrize(
    ("wrong", "says", "way_out"),
    [
        (
            lambda path: SqliteState(path, name="sqlite_counts"),
            "give the state another one with `name`",
            lambda state: replace(state, name="counts"),
        ),
        (
            a_table_in_lower_case,
            "give the state another one with `name`",
            lambda state: replace(state, name="other"),
        ),
        (
            a_folder,
            r"is a folder; give a file, such as .*/store\.db",
            lambda state: replace(state, file=f"{state.file}/store.db"),
        ),
        (a_damaged_file, "If it is damaged, restore it, or remove it to start over", removed),
    ],
)
def test_a_file(
    tmp_path: Path, wrong: Callable[[Path], Any], says: str, way_out: Callable[[Any], Any]
) -> None:
    state = wrong(tmp_path / "counts.db")
    refused(state, says, FEW)
    assert_works(way_out(state), FEW)


@pytest.mark.servers
def test_a_name_that_postgresql_would_cut(postgres: str) -> None:
    name = f"counts-{uuid.uuid4().hex}"
    state = PostgresState(postgres, name=name * 2)
    refused(state, "give the state another one with `name`", FEW)
    assert_works(replace(state, name=name), FEW)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("keys", "says", "at_once"),
    [
        ({"k" * 1_000_000: 1}, "keep the state in SQLite, Redis or PostgreSQL", 0),
        (
            {f"{n} {'k' * 9_000}": 1 for n in range(60)},
            "make batches smaller, or keep the state in SQLite, Redis or PostgreSQL",
            20,
        ),
    ],
)
def test_what_is_too_large_for_zookeeper(
    zookeeper: Any, tmp_path: Path, keys: Mapping[str, int], says: str, at_once: int
) -> None:
    state = ZooKeeperState(zookeeper.connect, name=f"counts-{uuid.uuid4().hex[:8]}")
    refused(state, says, keys)
    if at_once:  # "make batches smaller"
        assert_works(replace(state, name=f"{state.name}-2"), keys, at_once)
    assert_works(SqliteState(tmp_path / "counts.db"), keys)
