"""Helpers for tests of states: a place, and batches that add numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sunshower.state.backing import Home
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import MapState, Place, StateKind
from sunshower.trident.states.factories import MemoryState

NON, TRANSACTIONAL, OPAQUE = (
    StateKind.NON_TRANSACTIONAL,
    StateKind.TRANSACTIONAL,
    StateKind.OPAQUE,
)
every_kind = pytest.mark.parametrize("kind", StateKind)
PLACE = Place("words", "counts", 0, 1)


def plus(number: int) -> Callable[[Any], Any]:
    return lambda old: (old or 0) + number


def stored(factory: MemoryState) -> dict[str, Any]:
    """The stored keys and values, decoded from JSON."""
    values = factory.shelf.values.get(Home("counts", 0), {})
    return {json.loads(key): json.loads(value) for key, value in values.items()}


def batch(
    state: MapState, txid: int, attempt: int = 0, epoch: int = 1, **numbers: int
) -> list[Any]:
    """Commit a batch that adds numbers, and return the new values."""
    at = Attempt(txid, attempt, epoch)
    state.begin_commit(at)
    new = state.multi_update([*numbers], [plus(number) for number in numbers.values()])
    state.commit(at)
    return new
