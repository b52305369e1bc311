"""The transactional log: JSON values by txid in a tree of nodes, for metadata and progress.

    path/7  {"from": 10, "to": 20}
    path/8  {"from": 20, "to": 30}      previous(9) → this; cleanup_before(8) removes 7

Storm: org.apache.storm.trident.topology.state.RotatingTransactionalState, TransactionalState
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from sunshower.errors import (
    BatchError,
    NodeExists,
    NoNode,
    StateMismatch,
    StoreUnreachable,
    WrongVersion,
)
from sunshower.state.tree import Node, Tree


def mismatch(path: str, found: Any, wanted: str) -> StateMismatch:
    """The error for a node with an unexpected value."""
    return StateMismatch(
        f"{path} holds {found!r:.200}, which is not {wanted}: it is corrupt, or of something else. "
        "Give the spout another id or the group another root, or remove the node to start over"
    )


def encode(value: Any, path: str) -> bytes:
    """A value for the node at `path`. Raises BatchError if JSON cannot represent it."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BatchError(
            f"{value!r:.200} cannot be kept at {path}: {error}. Make it of numbers, strings, lists "
            "and objects, as in JSON"
        ) from error


def decode(node: Node, path: str) -> Any:
    """The value of a node. Raises StateMismatch if it is not JSON."""
    try:
        return json.loads(node.value)
    except ValueError as error:
        raise mismatch(path, node.value, "JSON") from error


class JsonNode:
    """A node as last read or written by this client. Each write names the version that it replaces,
    so neither a late write nor one of an earlier life can replace a later one."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self.path = path
        self.version: int | None = None  # None: it does not exist
        self.value: Any = None  # as JSON decodes it, so a tuple is a list
        self.unanswered: list[bytes] = []  # writes that may have replaced the node, or still may

    def read(self) -> bool:
        """Read the node. Returns whether it exists; raises StateMismatch if it is not JSON."""
        node = self._tree.get(self.path)
        self.version = None if node is None else node.version
        self.value = None if node is None else decode(node, self.path)
        return node is not None

    def write(self, value: Any) -> None:
        """Write the node. Raises WrongVersion, NodeExists or NoNode if another client has written
        or removed it since."""
        written = encode(value, self.path)
        try:
            if self.version is None:
                self._tree.create(self.path, written)
                self.version = 0
            else:
                self.version = self._tree.set(self.path, written, self.version)
        except StoreUnreachable:
            self.unanswered.append(written)
            raise
        self.unanswered.clear()  # the new version makes late writes fail
        self.value = json.loads(written)

    def overwrite(self, value: Any) -> None:
        """Write the node, whatever it holds; clients that have read it before can write no more."""
        while True:
            self.read()
            with suppress(WrongVersion, NodeExists, NoNode):
                return self.write(value)

    def holds_unanswered(self) -> bool:
        """Whether the node holds what an own write without an answer has written, or an equal value
        of another client."""
        if not self.unanswered or (node := self._tree.get(self.path)) is None:
            return False
        return node.version == self._next_version and node.value in self.unanswered

    def accept_unanswered(self) -> None:
        """Let the next write replace what an own write without an answer has written."""
        self.version = self._next_version
        self.unanswered.clear()

    @property
    def _next_version(self) -> int:
        return 0 if self.version is None else self.version + 1


class TransactionalLog:
    """Values by txid below `path`, in memory and in the tree; opening it reads them all.

    Values are returned as JSON decodes them. Every method may raise StoreUnreachable; the next call
    then reads the nodes again. Only one process at a time may write below a path. Raises
    StateMismatch for a node of another kind.
    """

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path
        self._known: dict[int, JsonNode] | None = None  # None: read them first
        self._nodes()

    def keys(self) -> list[int]:
        """The txids that have a value, ascending."""
        return sorted(self._nodes())

    def __contains__(self, txid: object) -> bool:
        return txid in self._nodes()

    def get(self, txid: int) -> Any:
        """The value of a txid; None if there is none."""
        node = self._nodes().get(txid)
        return None if node is None else node.value

    def previous(self, txid: int) -> Any:
        """The value of the greatest smaller txid that has one; None if there is none."""
        return self.get(max((key for key in self._nodes() if key < txid), default=0))

    def last(self) -> Any:
        """The value of the greatest txid; None if there is none."""
        return self.get(max(self._nodes(), default=0))

    def override(self, txid: int, value: Any) -> None:
        """Set a value, replacing any other. Raises BatchError if JSON cannot represent it."""
        path = self._path_of(txid)
        if txid in self and encode(self.get(txid), path) == encode(value, path):
            return
        try:
            try:
                self._write(txid, value)
            except NoNode:  # removed by a write without an answer
                self._write(txid, value)
        except (WrongVersion, NodeExists) as error:
            raise self._changed(path, error) from error

    def remove(self, txid: int) -> None:
        """Remove a value, if there is one."""
        if txid in self:
            try:
                self._delete(txid, self._nodes()[txid].version)
            except WrongVersion as error:
                raise self._changed(self._path_of(txid), error) from error

    def cleanup_before(self, txid: int) -> None:
        """Remove the values of all smaller txids, which nobody needs any more."""
        for key in self.keys():
            if key < txid:
                self._delete(key, None)

    def _delete(self, txid: int, version: int | None) -> None:
        nodes, self._known = self._nodes(), None
        with suppress(NoNode):
            self._tree.delete(self._path_of(txid), version)
        del nodes[txid]
        self._known = nodes

    def _write(self, txid: int, value: Any) -> None:
        """Write over the value that is known. Raises what `JsonNode.write` does; unless the write
        succeeds, all nodes are read again."""
        nodes = self._nodes()
        node = nodes.get(txid) or JsonNode(self._tree, self._path_of(txid))
        self._known = None
        node.write(value)
        nodes[txid] = node
        self._known = nodes

    def _nodes(self) -> dict[int, JsonNode]:
        if self._known is None:
            found: dict[int, JsonNode] = {}
            for name in self._tree.children(self._path):
                node = JsonNode(self._tree, f"{self._path}/{name}")
                if not (name.isascii() and name.isdecimal()):
                    raise mismatch(node.path, name, "the number of a batch")
                if node.read():
                    found[int(name)] = node
            self._known = found
        return self._known

    def _path_of(self, txid: int) -> str:
        return f"{self._path}/{txid}"

    @staticmethod
    def _changed(path: str, error: Exception) -> StoreUnreachable:
        return StoreUnreachable(
            f"{path} has changed meanwhile ({error}): a write that was not answered has come late. "
            "It is read again"
        )
