"""A tree in memory, for tests and for data that need not outlive the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sunshower.errors import NodeExists, NoNode, StoreError, WrongVersion
from sunshower.state.listeners import Listener, Listeners, Told
from sunshower.state.tree import Node, Session, above, check, parent


@dataclass
class _Kept:
    value: bytes
    version: int
    owner: MemoryTree | None


@dataclass(frozen=True)
class _Watch:
    path: str
    changed: Callable[[], None]
    among: list[_Watch]

    def cancel(self) -> None:
        if self in self.among:
            self.among.remove(self)


class MemoryForest:
    """The nodes, which the trees of one process share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, _Kept] = {}
        self.watches: list[_Watch] = []

    def names(self, path: str) -> list[str]:
        """The names of a node's children, sorted."""
        return sorted(node.rpartition("/")[2] for node in self.nodes if parent(node) == path)

    def tell(self, paths: Iterable[str]) -> None:
        """Call the watches of these nodes and of their parents."""
        changed = {*paths} | {parent(path) for path in paths}
        for watch in [watch for watch in self.watches if watch.path in changed]:
            watch.changed()

    def drop(self, owner: MemoryTree) -> None:
        """Remove the ephemeral nodes of a session."""
        with self.lock:
            gone = [path for path, kept in self.nodes.items() if kept.owner is owner]
            for path in gone:
                del self.nodes[path]
        self.tell(gone)


class MemoryTree:
    """Implements the port `Tree`. The thread that makes a change calls watches and listeners."""

    def __init__(self, forest: MemoryForest) -> None:
        self._forest = forest
        self._listeners = Listeners()

    def get(self, path: str) -> Node | None:
        with self._forest.lock:
            kept = self._forest.nodes.get(check(path))
        return Node(kept.value, kept.version, kept.owner is not None) if kept else None

    def children(self, path: str) -> list[str]:
        with self._forest.lock:
            return self._forest.names(path if path == "/" else check(path))

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        nodes = self._forest.nodes
        with self._forest.lock:
            if check(path) in nodes:
                raise NodeExists(f"{path} is there already")
            made = [one for one in above(path) if one not in nodes]
            if any(nodes[one].owner for one in above(path) if one in nodes):
                raise StoreError(f"{path} would be below an ephemeral node, which has no children")
            nodes.update({one: _Kept(b"", 0, None) for one in made})
            nodes[path] = _Kept(value, 0, self if ephemeral else None)
        self._forest.tell([*made, path])

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        with self._forest.lock:
            kept = self._found(path, version)
            kept.value, kept.version = value, kept.version + 1
            written = kept.version
        self._forest.tell([path])
        return written

    def put(self, path: str, value: bytes, beside: str | None = None) -> None:
        with self._forest.lock:
            if not self._is_there(beside):
                raise NoNode(f"{beside} is not there")
            if path in self._forest.nodes:
                self.set(path, value)
            else:
                self.create(path, value)

    def delete(self, path: str, version: int | None = None) -> None:
        with self._forest.lock:
            self._found(path, version)
            if self._forest.names(path):
                raise StoreError(f"{path} has children, so it cannot be removed")
            del self._forest.nodes[path]
        self._forest.tell([path])

    def withdraw(self, path: str, beside: str | None = None) -> None:
        with self._forest.lock:
            kept = self._forest.nodes.get(check(path))
            if kept is None or kept.owner is not self or not self._is_there(beside):
                return
            del self._forest.nodes[path]
        self._forest.tell([path])

    def watch(self, path: str, changed: Callable[[], None]) -> _Watch:
        watch = _Watch(check(path), changed, self._forest.watches)
        self._forest.watches.append(watch)
        return watch

    def listen(self, told: Told) -> Listener:
        return self._listeners.add(told)

    def expire(self) -> None:
        """End the session as a store does after the session timeout, for tests."""
        self._forest.drop(self)
        self._listeners.tell(Session.LOST, Session.CONNECTED)

    def close(self) -> None:
        self._forest.drop(self)
        self._listeners.clear()

    def _is_there(self, path: str | None) -> bool:
        return path is None or check(path) in self._forest.nodes

    def _found(self, path: str, version: int | None) -> _Kept:
        kept = self._forest.nodes.get(check(path))
        if kept is None:
            raise NoNode(f"{path} is not there")
        if version not in {None, kept.version}:
            raise WrongVersion(f"{path} has version {kept.version}, not {version}")
        return kept
