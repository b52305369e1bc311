"""The port for data that several processes share: a tree of small versioned values, with sessions.

The model and the paths are ZooKeeper's. A path is `/a/b`; each node has a value, a version that
counts the writes since its creation, and children. An ephemeral node is owned by the session that
created it, and removed with it. A session lives as long as its client sends heartbeats.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sunshower.errors import NodeExists, NoNode, StoreError, WrongVersion

_PATH = re.compile(r"(/[^/\0]+)+")


class SessionState(StrEnum):
    """The states of a client's session."""

    CONNECTED = "connected"  # the initial state, which is not reported
    SUSPENDED = "suspended"  # the store does not answer; our ephemeral nodes may be gone
    LOST = "lost"  # our ephemeral nodes are gone; CONNECTED follows, with a new session


@dataclass(frozen=True)
class Node:
    """The content of a node."""

    value: bytes
    version: int  # 0 at its creation, plus one for each write
    ephemeral: bool = False


class Tree(Protocol):
    """A client of the store, with its own session. Several threads may use it.

    Every call raises StoreUnreachable when the store does not answer in time.
    """

    def get(self, path: str) -> Node | None:
        """A node; None if it does not exist."""

    def children(self, path: str) -> list[str]:
        """The names of the node's children, sorted; empty if it does not exist."""

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node and its missing parents. Raises NodeExists."""

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        """Write a node if it has this version; returns the new one.

        Raises NoNode, and WrongVersion if another client wrote first. None: any version.
        """

    def put(self, path: str, value: bytes, beside: str | None = None) -> None:
        """Write a node, or create it as `create` does. If `beside` is given, atomically check that
        this other node exists: raises NoNode, and writes nothing, if it does not."""

    def delete(self, path: str, version: int | None = None) -> None:
        """Remove a node. Raises NoNode, WrongVersion, and StoreError if it has children."""

    def withdraw(self, path: str, beside: str | None = None) -> None:
        """Remove an ephemeral node if the current session owns it; else leave it.

        So a client that has lost its session unnoticed cannot remove a successor's node.
        A store may check the owner first, and the session may end before the removal. `beside`,
        another node of this session, whose name no other session uses, makes both one step: if it
        does not exist, nothing is removed.
        """

    def watch(self, path: str, changed: Callable[[], None]) -> None:
        """Call `changed` after the node, or the list of its children, may have changed.

        Several changes may cause one call, and a call may come without a change: read again. The
        node need not exist. A thread of the store makes the calls; do not block it.
        """

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Call `told` with each change of the session's state, from a thread of the store."""

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes at once. Watches and listeners of this
        tree are called no more."""


def check(path: str) -> str:
    """The path, if it is valid. Raises StoreError."""
    if not _PATH.fullmatch(path):
        raise StoreError(f"{path!r} is no path of a node: it must look like /one or /one/other")
    return path


def above(path: str) -> list[str]:
    """The ancestors of a node, the highest first: `/a/b/c` → `/a`, `/a/b`."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: length + 1]) for length in range(len(parts))]


def parent(path: str) -> str:
    """The parent of a node; `/` is the root."""
    return path.rpartition("/")[0] or "/"


def node_exists(path: str) -> NodeExists:
    """The error for a node that was to be created and is there."""
    return NodeExists(f"{path} is there already")


def no_node(path: str) -> NoNode:
    """The error for a node that does not exist."""
    return NoNode(f"{path} is not there")


def check_version(path: str, version: int, wanted: int | None) -> None:
    """Raise WrongVersion unless a node has the wanted version; None: any."""
    if wanted not in {None, version}:
        raise WrongVersion(f"{path} has version {version}, not {wanted}")


def has_children(path: str) -> StoreError:
    """The error for a node that cannot be removed."""
    return StoreError(f"{path} has children, so it cannot be removed")


def below_ephemeral(path: str) -> StoreError:
    """The error for a child of an ephemeral node."""
    return StoreError(f"{path} would be below an ephemeral node, which has no children")


def incarnation(tree: Tree, folders: Sequence[str]) -> str:
    """Identifies one creation of a set of folders, and changes when they are recreated.

    The first client that asks writes it to `<folder>/incarnation`. All clients get the same value
    while at least one folder remains; others are copied from it. Raises StoreUnreachable.
    """
    paths = [f"{folder}/incarnation" for folder in sorted(folders)]
    nodes = [tree.get(path) for path in paths]
    if not any(nodes):
        with suppress(NodeExists):
            tree.create(paths[0], uuid.uuid4().hex.encode())
        nodes[0] = tree.get(paths[0])
    value = next(node.value for node in nodes if node is not None)
    for path, node in zip(paths, nodes, strict=True):
        if node is None:
            with suppress(NodeExists):
                tree.create(path, value)
    return value.decode(errors="replace")


# ---- memory tree ---------------------------------------------------------------------------------


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
        return sorted(node.rpartition("/")[2] for node in self.nodes if parent(node) == path)

    def tell(self, paths: Iterable[str]) -> None:
        """Call the watches of these nodes and of their parents."""
        changed = {*paths} | {parent(path) for path in paths}
        for call in [call for _, path, call in self.watches if path in changed]:
            call()

    def drop(self, owner: MemoryTree) -> None:
        """Remove the ephemeral nodes of a session."""
        with self.lock:
            gone = [path for path, node in self.nodes.items() if node.owner is owner]
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
            node = self._forest.nodes.get(check(path))
        return Node(node.value, node.version, node.owner is not None) if node else None

    def children(self, path: str) -> list[str]:
        with self._forest.lock:
            return self._forest.names(path if path == "/" else check(path))

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        nodes = self._forest.nodes
        with self._forest.lock:
            if check(path) in nodes:
                raise node_exists(path)
            parents_missing = [parent for parent in above(path) if parent not in nodes]
            if any(nodes[parent].owner for parent in above(path) if parent in nodes):
                raise below_ephemeral(path)
            nodes.update({parent: _Kept(b"", 0, None) for parent in parents_missing})
            nodes[path] = _Kept(value, 0, self if ephemeral else None)
        self._forest.tell([*parents_missing, path])

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        with self._forest.lock:
            node = self._found(path, version)
            node.value, node.version = value, node.version + 1
            written = node.version
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
            node = self._forest.nodes.get(check(path))
            if node is None or node.owner is not self or not self._is_there(beside):
                return
            del self._forest.nodes[path]
        self._forest.tell([path])

    def watch(self, path: str, changed: Callable[[], None]) -> None:
        self._forest.watches.append((self, check(path), changed))

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def expire(self) -> None:
        """End the session as a store does after the session timeout, for tests."""
        self._forest.drop(self)
        for session in (SessionState.LOST, SessionState.CONNECTED):
            for listener in self._listeners:
                listener(session)

    def close(self) -> None:
        forest = self._forest
        forest.watches = [watch for watch in forest.watches if watch[0] is not self]
        forest.drop(self)
        self._listeners.clear()

    def _is_there(self, path: str | None) -> bool:
        return path is None or check(path) in self._forest.nodes

    def _found(self, path: str, version: int | None) -> _Kept:
        node = self._forest.nodes.get(check(path))
        if node is None:
            raise no_node(path)
        check_version(path, node.version, version)
        return node
