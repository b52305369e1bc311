"""Where states are kept: values that open a state in each task; all kinds, by the same rules.

stream.persistent_aggregate(SqliteState("counts.db"), …)
dict(SqliteState("counts.db").items())       what is there, also while the topology runs
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from sunshower.arguments import PATH
from sunshower.errors import ConfigError
from sunshower.stores.backing import Backing, Home
from sunshower.stores.memory_backing import MemoryBacking, MemoryShelf
from sunshower.trident.states.marks import Owner
from sunshower.trident.states.port import Key, Place, StateKind
from sunshower.trident.states.stored_map import StoredMap
from sunshower.trident.states.texts import key_of, values_of
from sunshower.trident.states.values import unpacked


class KeptState(ABC):
    """What all of them have in common. `name` is the state's own, if it is not to be the one that
    the topology gives it."""

    kind: StateKind
    name: str | None

    @property
    @abstractmethod
    def where(self) -> str:
        """The store, for messages."""

    @abstractmethod
    def open(self, home: Home) -> Backing:
        """A client for one task's part of a state. Raises StoreUnreachable."""

    @abstractmethod
    def homes(self) -> list[Home]:
        """All that has been written in this store, in order."""

    def make(self, place: Place) -> StoredMap:
        """See the port StateFactory."""
        home = Home(self.name or place.state, place.index)
        owner = Owner(place, self.kind, self.where)
        if place.index == 0:  # one is enough: nothing is committed before all tasks are there
            for other in self.homes():
                owner.check_home(other, home)
        backing = self.open(home)
        try:
            return StoredMap(backing, owner)
        except BaseException:
            backing.close()
            raise

    def items(self, state: str | None = None) -> Iterator[tuple[Key, Any]]:
        """All keys that have a value, with it, of all tasks; in no order.

        `state` may be left out if the store has only one. Each task's part is as its last commit
        left it; between two of them there may be a batch's difference while the topology runs. In
        Redis and ZooKeeper also within one: its keys are read by several commands.
        """
        homes = self.homes()
        names = {home.state for home in homes}
        name = state or self.name or (min(names) if len(names) == 1 else None)
        if name is None and names:
            raise ConfigError(
                f"{self.where} has several states: say which, as in items({min(names)!r}); it has "
                f"{', '.join(sorted(names))}"
            )
        for home in homes:
            if home.state == name:
                yield from _items(self.open(home))


def _items(backing: Backing) -> Iterator[tuple[Key, Any]]:
    try:
        mark = backing.mark()
        kind = StateKind(json.loads(mark.word)["kind"]) if mark else StateKind.OPAQUE
        for key, text in backing.items():
            value = unpacked(kind, values_of([text]))[0].value
            if value is not None:
                yield key_of(key), value
    finally:
        backing.close()


@dataclass(frozen=True)
class MemoryState(KeptState):
    """In this process: for a topology that runs in it alone, as in the simulator. Copies share it,
    so it survives the deaths of simulated processes."""

    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    shelf: MemoryShelf = field(default_factory=MemoryShelf, compare=False, repr=False)
    where = "memory"

    def open(self, home: Home) -> Backing:
        return MemoryBacking(self.shelf, home)

    def homes(self) -> list[Home]:
        return sorted(self.shelf.marks)

    def __deepcopy__(self, memo: Any) -> MemoryState:
        return self

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a state in memory cannot be shared by several processes: give "
            'SqliteState("counts.db"), or another store that all of them reach'
        )


@dataclass(frozen=True)
class SqliteState(KeptState):
    """In a file of SQLite, which all processes of the topology must see; a table for each state.

    Keys and values are JSON there: SELECT key, value FROM "counts".
    """

    file: str | PurePath
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None

    def __post_init__(self) -> None:
        PATH.check("SqliteState: file", self.file)
        # Workers have a working directory of their own.
        object.__setattr__(self, "file", Path(self.file).absolute())

    @property
    def where(self) -> str:
        return str(self.file)

    def open(self, home: Home) -> Backing:
        from sunshower.stores.sqlite_backing import SqliteBacking

        return SqliteBacking(Path(self.file), home)

    def homes(self) -> list[Home]:
        from sunshower.stores.sqlite_backing import homes

        return homes(Path(self.file))
