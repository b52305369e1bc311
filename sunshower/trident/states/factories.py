"""State factories: values that open a state in each task, in memory or in SQLite.

stream.aggregate(…, state=SqliteState("counts.db"))
dict(SqliteState("counts.db").items())       reads the state, also while the topology runs
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sunshower.arguments import check_all, checked
from sunshower.errors import ConfigError
from sunshower.state.backing import Backing, Home
from sunshower.state.memory_backing import MemoryBacking, MemoryShelf
from sunshower.state.sqlite import SqliteFile
from sunshower.topologies.operators.keyed.keyed_store import as_read
from sunshower.topologies.operators.keyed.moved_parts import ABOUT, is_own
from sunshower.topologies.operators.keyed.stored_texts import key_of, text_of_key, values_of
from sunshower.topologies.operators.states import Key, Place, StateKind
from sunshower.trident.states.marks import StateOwner
from sunshower.trident.states.moves import Move
from sunshower.trident.states.parts import Parts
from sunshower.trident.states.stored_map import StoredMap
from sunshower.trident.states.values import unpacked


class KeptState(ABC):
    """The base of all state factories. `name` overrides the state's name in the topology."""

    kind: StateKind
    name: str | None

    def __post_init__(self) -> None:
        check_all(self, {}, f"{type(self).__name__}: ")

    @property
    @abstractmethod
    def where(self) -> str:
        """The store, for messages."""

    @abstractmethod
    def open(self, home: Home) -> Backing:
        """A client for one task's part of a state. Raises StoreUnreachable."""

    @abstractmethod
    def homes(self) -> list[Home]:
        """All task parts in this store, in order."""

    def make(self, place: Place) -> StoredMap:
        """Open the state of one task (port StateFactory)."""
        home = Home(self.name or place.state, place.index)
        owner = StateOwner(place, self.kind, self.where)
        if place.moving is not None:
            with Parts(self.open, home.state, self.where) as parts:
                home = Move(parts, owner, place.moving, self.homes).home()
        elif place.index == 0:  # one task is enough: nothing is committed before all have started
            for other in self.homes():
                owner.check_home(other, home)
        backing = self.open(home)
        try:
            return StoredMap(backing, owner)
        except BaseException:
            backing.close()
            raise

    @checked()
    def items(self, state: str | None = None) -> Iterator[tuple[Key, Any]]:
        """All keys that have a value, with the value, over all tasks, in no order.

        `state` may be omitted if the store has only one. Each task's part is read as of its last
        commit; while the topology runs, the parts may differ by a batch. In Redis and ZooKeeper one
        part may too, because several commands read its keys. While the state moves to another
        number of tasks each key is there once. In states of `process` a record is a dictionary of
        its fields, and an Enum the name of its member.
        """
        homes = self.homes()
        names = {home.state for home in homes}
        name = state or self.name or (min(names) if len(names) == 1 else None)
        if name is None and names:
            raise ConfigError(
                f"{self.where} has several states: say which, as in items({min(names)!r}); it has "
                f"{', '.join(sorted(names))}"
            )
        numbers = [home.task for home in homes if home.state == name]
        if name is None or not numbers:
            return
        with Parts(self.open, name, self.where) as parts:
            yield from _items(parts, numbers)


def _items(parts: Parts, numbers: Sequence[int]) -> Iterator[tuple[Key, Any]]:
    mark = parts.mark(numbers[0])
    kind = StateKind(mark.word["kind"]) if mark else StateKind.OPAQUE
    is_keyed = any(parts.backing(one).get([text_of_key(ABOUT)]) != [None] for one in numbers)
    entries = parts.entries() if parts.mark(0) else _entries(parts, numbers)
    for key, text in entries:
        value = unpacked(kind, values_of([text]))[0].value
        if value is not None and not is_own(found := key_of(key)):
            yield found, as_read(value) if is_keyed else value


def _entries(parts: Parts, numbers: Sequence[int]) -> Iterator[tuple[str, str]]:
    for number in numbers:
        yield from parts.backing(number).items()


@dataclass(frozen=True)
class MemoryState(KeptState):
    """In this process, for topologies that run in it alone, as in the simulator. Copies share the
    state, so it survives crashes of simulated processes."""

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
class SqliteState(SqliteFile, KeptState):
    """In a SQLite file, which all processes of the topology must share; one table per state. Keys
    and values are JSON: SELECT key, value FROM "counts". Opening it on another machine than the one
    where it was declared raises ConfigError."""

    instead = "give PostgresState, RedisState or ZooKeeperState"
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None

    @property
    def where(self) -> str:
        return str(self.file)

    def open(self, home: Home) -> Backing:
        from sunshower.state.sqlite_backing import SqliteBacking

        return SqliteBacking(self.path, home)

    def homes(self) -> list[Home]:
        from sunshower.state.sqlite_backing import homes

        return homes(self.path)
