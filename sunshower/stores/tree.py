"""The port for what several processes share: a tree of small versioned values, with sessions.

It is ZooKeeper's model, and its paths. A path is `/a/b`; each node has a value, a version that
counts the writes since its creation, and children. An ephemeral node has an owner, the session
that made it, and goes with it. A session lives as long as its process is heard of.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sunshower.errors import StoreError

_PATH = re.compile(r"(/[^/\0]+)+")


class Session(StrEnum):
    """What becomes of one's own session."""

    CONNECTED = "connected"  # at the beginning it is so, and nobody is told
    SUSPENDED = "suspended"  # the store is not heard of; nodes of ours may be gone, or not
    LOST = "lost"  # our ephemeral nodes are gone; CONNECTED follows, with a new session


@dataclass(frozen=True)
class Node:
    """What a node holds."""

    value: bytes
    version: int  # 0 when it is created, one more with each write
    ephemeral: bool = False


class Watch(Protocol):
    """Somebody who wants to know."""

    def cancel(self) -> None:
        """Tell no more. A call that is on its way may still come."""


class Tree(Protocol):
    """A client of the store, with a session of its own. It may be used from several threads.

    All of it raises StoreUnreachable when the store does not answer in time.
    """

    def get(self, path: str) -> Node | None:
        """A node; None if it is not there."""

    def children(self, path: str) -> list[str]:
        """The names of the nodes right below, sorted; none if it is not there."""

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        """Make a node, and those above it that are missing. Raises NodeExists."""

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        """Write a node, if its version is still that; returns the new one.

        Raises NoNode, and WrongVersion if somebody else was first. None: any version.
        """

    def put(self, path: str, value: bytes, beside: str | None = None) -> None:
        """Write a node, or make it as `create` does; while `beside`, another node, is there, in one
        step. Raises NoNode when that is gone: then nothing is written."""

    def delete(self, path: str, version: int | None = None) -> None:
        """Remove a node. Raises NoNode, WrongVersion, and StoreError if it has children."""

    def withdraw(self, path: str, beside: str | None = None) -> None:
        """Remove an ephemeral node, if it is of this very session; else it stays as it is.

        Who has lost a session and does not know it removes nothing of those who came after.
        A store may look first whose it is, and a session may end between that and the removal:
        `beside`, another node of this session, by a name that no other session gives one, makes it
        one step. While that is gone, nothing is removed.
        """

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        """Call `changed` after the node, or the list of its children, may have changed.

        Several changes may be one call, and a call may come without a change: look again. The node
        need not be there. The calls come from a thread of the store's, which they must not block.
        """

    def listen(self, told: Callable[[Session], None]) -> Watch:
        """Call `told` with each change of the session, from a thread of the store's."""

    def close(self) -> None:
        """End the session: its ephemeral nodes go at once."""


def check(path: str) -> str:
    """The path, if it is one. Raises StoreError."""
    if not _PATH.fullmatch(path):
        raise StoreError(f"{path!r} is no path of a node: it must look like /one or /one/other")
    return path


def above(path: str) -> list[str]:
    """The nodes above one, the highest first: `/a/b/c` → `/a`, `/a/b`."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: length + 1]) for length in range(len(parts))]


def parent(path: str) -> str:
    """The node right above; `/` is above all."""
    return path.rpartition("/")[0] or "/"
