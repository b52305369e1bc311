"""Storage of states in memory, for topologies in one process, and for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

from sunshower.state.backing import Home, Mark, is_there


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
            found = self._shelf.marks.get(self._home)
            if is_there(self._home, found.word if found else None, mark, seen):
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
