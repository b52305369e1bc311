"""The port for the storage of states: texts under keys, written atomically batch by batch.

A home is the part of a store that one task of one state uses: its values and a mark, which
identifies the last write. A put names the mark it expects and writes a new one with the values
(compare and set): a late write of a process that was replaced therefore changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from sunshower.errors import ConfigError, WrongVersion

# The default time limit of a call. Several in a row still end before the tuple tree that depends
# on them times out, so that the failure is attributed to the store, not to the tuple.
ANSWER_WITHIN_S = 10.0


class Home(NamedTuple):
    """One task's part of a state."""

    state: str
    task: int  # its index, from 0

    def __str__(self) -> str:
        return f"{self.state}/{self.task}"


class Mark(NamedTuple):
    """Identifies the last write and its keys, for a task that has to repeat it."""

    word: str  # compared; unique to each write
    journal: str


class Backing(Protocol):
    """A client of the store, for one home. Every call may raise StoreUnreachable."""

    def mark(self) -> Mark | None:
        """The mark of the last batch; None if there was none."""

    def get(self, keys: Sequence[str]) -> list[str | None]:
        """The values of these keys, in their order; None for a missing one."""

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        """Write these values (None: delete) if the stored mark's word is still `seen`.

        Atomic. Raises WrongVersion if another client has written since. If `mark` is stored
        already, an earlier try of this call succeeded and its answer was lost: it does nothing.
        When it raises StoreUnreachable, the write may have happened, or happen later.
        """

    def items(self) -> Iterator[tuple[str, str]]:
        """All keys and values, in no order."""

    def count(self) -> int | None:
        """How many keys there are. None if a server would have to be asked: it may be away, and
        the tasks of a worker would wait for a mere number."""

    def close(self) -> None:
        """Close connections."""


def table_of(home: Home) -> str:
    """The quoted table name of a state. Raises ConfigError for reserved names."""
    if home.state.lower().startswith(("sqlite_", "pg_", "sunshower_")) or "\0" in home.state:
        raise ConfigError(
            f"{home.state!r} is no name for a state, which is a table's name: it begins with a "
            "word that the database needs itself; give the state another one with `name`"
        )
    return '"' + home.state.replace('"', '""') + '"'


def is_there(home: Home, stored: str | None, mark: Mark, seen: str | None) -> bool:
    """Whether a put was applied already. Raises WrongVersion if it must not be applied."""
    if stored == mark.word:
        return True
    if stored != seen:
        raise WrongVersion(f"{home} was written by another process: {stored}")
    return False


# ---- memory backing ------------------------------------------------------------------------------


class MemoryShelf:
    """The data that the backings of one process share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.marks: dict[Home, Mark] = {}
        self.values: dict[Home, dict[str, str]] = {}


class MemoryBacking:
    """Implements the port `Backing`."""

    def __init__(self, shelf: MemoryShelf, home: Home) -> None:
        self._shelf = shelf
        self._home = home

    def mark(self) -> Mark | None:
        return self._shelf.marks.get(self._home)

    def get(self, keys: Sequence[str]) -> list[str | None]:
        values = self._shelf.values.get(self._home, {})
        return [values.get(key) for key in keys]

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        with self._shelf.lock:
            stored = self._shelf.marks.get(self._home)
            if is_there(self._home, stored.word if stored else None, mark, seen):
                return
            self._shelf.marks[self._home] = mark
            values = self._shelf.values.setdefault(self._home, {})
            for key, value in changes.items():
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value

    def items(self) -> Iterator[tuple[str, str]]:
        return iter([*self._shelf.values.get(self._home, {}).items()])

    def count(self) -> int:
        return len(self._shelf.values.get(self._home, {}))

    def close(self) -> None:
        pass
