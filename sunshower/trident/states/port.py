"""The port of states: what a batch writes, in its commit phase, in the order of txids.

    state.begin_commit(attempt)
    state.multi_get(keys) · state.multi_update(keys, functions) · state.multi_put(keys, values)
    state.commit(attempt)        all of it is kept now, or commit has raised, and nothing is

Both are called for every batch, also where a task has no rows of it: an earlier attempt may have
had some, and what that has written is undone then. (A first attempt without rows writes nothing.)
Between batches `multi_get` reads what is kept.
Storm: org.apache.storm.trident.state.State, MapState, StateFactory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from sunshower.trident.attempts import Attempt

Key = Hashable  # a value, or a tuple of values, of a row
Update = Callable[[Any], Any]  # the new value of a key, from the old one (None: there was none)


class StateKind(Enum):
    """What is stored with each value; decides with which spouts it is exactly once."""

    NON_TRANSACTIONAL = "non-transactional"  # the value
    TRANSACTIONAL = "transactional"  # the value and its txid
    OPAQUE = "opaque"  # the value, its txid, and the value before


@dataclass(frozen=True)
class Place:
    """Which part of which state: each task has its own."""

    topology: str
    state: str  # its name, by which a later run finds it again
    index: int
    parallelism: int


class State(Protocol):
    """Something that is written once for each batch."""

    def begin_commit(self, attempt: Attempt) -> None:
        """A batch is about to be written. Raises StaleAttempt if a later one was."""

    def commit(self, attempt: Attempt) -> None:
        """Keep what was written since `begin_commit`, all or nothing. Raises StaleAttempt."""

    def abort(self) -> None:
        """Forget what was written since `begin_commit`, if anything was."""

    def close(self) -> None:
        """Let go of connections."""


class MapState(State, Protocol):
    """Values under keys. What this batch has written it reads."""

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        """The values of keys, in their order; None where there is none."""

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> list[Any]:
        """Put `updates[i](old value)` under `keys[i]`; returns the new values."""

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Put values, whatever was there. A repeat of the batch puts them again."""

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove keys; a repeat of the batch finds them as they were before it."""


class StateFactory(Protocol):
    """Makes the state of one task. It is a value: pickled, and opened in each task."""

    @property
    def kind(self) -> StateKind:
        """What it stores with each value."""

    def make(self, place: Place) -> MapState:
        """Open it. Raises StoreUnreachable, and StateMismatch for one that is not ours."""
