"""A tree in memory, for tests and for data that need not outlive the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sunshower.state.tree import (
    Node,
    SessionState,
    above,
    below_ephemeral,
    check,
    check_version,
    has_children,
    no_node,
    node_exists,
    parent,
)


@dataclass
class _Kept:
    value: bytes
    version: int
    owner: MemoryTree | None


class MemoryForest:
    """The nodes, which the trees of one process share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, _Kept] = {}
        self.watches: list[tuple[MemoryTree, str, Callable[[], None]]] = []  # owner, path, function

    def names(self, path: str) -> list[str]:
        """The names of a node's children, sorted."""
        return sorted(node.rpartition("/")[2] for node in self.nodes if parent(node) == path)

    def tell(self, paths: Iterable[str]) -> None:
        """Call the watches of these nodes and of their parents."""
        changed = {*paths} | {parent(path) for path in paths}
        for call in [call for _, path, call in self.watches if path in changed]:
            call()

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
        self._listeners: list[Callable[[SessionState], None]] = []

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
                raise node_exists(path)
            made = [one for one in above(path) if one not in nodes]
            if any(nodes[one].owner for one in above(path) if one in nodes):
                raise below_ephemeral(path)
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
                raise no_node(str(beside))
            if path in self._forest.nodes:
                self.set(path, value)
            else:
                self.create(path, value)

    def delete(self, path: str, version: int | None = None) -> None:
        with self._forest.lock:
            self._found(path, version)
            if self._forest.names(path):
                raise has_children(path)
            del self._forest.nodes[path]
        self._forest.tell([path])

    def withdraw(self, path: str, beside: str | None = None) -> None:
        with self._forest.lock:
            kept = self._forest.nodes.get(check(path))
            if kept is None or kept.owner is not self or not self._is_there(beside):
                return
            del self._forest.nodes[path]
        self._forest.tell([path])

    def watch(self, path: str, changed: Callable[[], None]) -> None:
        self._forest.watches.append((self, check(path), changed))

    def listen(self, told: Callable[[SessionState], None]) -> None:
        self._listeners.append(told)

    def expire(self) -> None:
        """End the session as a store does after the session timeout, for tests."""
        self._forest.drop(self)
        for session in (SessionState.LOST, SessionState.CONNECTED):
            for told in self._listeners:
                told(session)

    def close(self) -> None:
        forest = self._forest
        forest.watches = [watch for watch in forest.watches if watch[0] is not self]
        forest.drop(self)
        self._listeners.clear()

    def _is_there(self, path: str | None) -> bool:
        return path is None or check(path) in self._forest.nodes

    def _found(self, path: str, version: int | None) -> _Kept:
        kept = self._forest.nodes.get(check(path))
        if kept is None:
            raise no_node(path)
        check_version(path, kept.version, version)
        return kept
