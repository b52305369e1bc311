"""A state in each store, for tests that all of them must pass."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from sunshower.state import MemoryState, PostgresState, RedisState, SqliteState, ZooKeeperState
from sunshower.topologies.operators.states import StateKind
from sunshower.trident.states.factories import KeptState

SERVERS = ("redis", "postgres", "zookeeper")


def stores(*first: str, marks: Any = pytest.mark.servers) -> list[Any]:
    """The names of stores, for `parametrize`: these, and the servers with their marks."""
    return [*first, *(pytest.param(server, marks=marks) for server in SERVERS)]


def state_in(
    request: pytest.FixtureRequest, store: str, folder: Path, kind: StateKind = StateKind.OPAQUE
) -> KeptState:
    """A state in a store, whose name has a space and differs for each call."""
    name = f"counts {uuid.uuid4().hex[:8]}"
    match store:
        case "memory":
            return MemoryState(kind, name)
        case "sqlite":
            return SqliteState(folder / "states.db", kind, name)
        case "redis":
            return RedisState(request.getfixturevalue("redis"), kind, name)
        case "postgres":
            return PostgresState(request.getfixturevalue("postgres"), kind, name)
    return ZooKeeperState(request.getfixturevalue("zookeeper").connect, kind, name)
