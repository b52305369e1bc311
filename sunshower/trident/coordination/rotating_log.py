"""Stores the metadata of a spout's last batches: txid → value, written through to a tree of nodes.

    path/7  {"from": 10, "to": 20}
    path/8  {"from": 20, "to": 30}      previous(9) → this; cleanup_before(8) removes 7

Storm: org.apache.storm.trident.topology.state.RotatingTransactionalState.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sunshower.errors import NodeExists, NoNode, StoreUnreachable, WrongVersion
from sunshower.state.tree import Tree
from sunshower.trident.coordination.txid_nodes import decode, encode, mismatch


class RotatingState:
    """Values by txid below `path`, in memory and in the tree; opening it reads them all.

    Values are returned as JSON decodes them, so a tuple becomes a list at once. Every method may
    raise StoreUnreachable; the next call then reads the nodes again. Each write names the version
    it replaces, so a late write changes nothing. Only one process at a time may write below a path.
    Raises StateMismatch for a node of another kind.
    """

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path
        self._known: dict[int, Any] | None = None
        self._versions: dict[int, int] = {}  # node versions of `_known`
        self._values()

    def keys(self) -> list[int]:
        """The txids that have a value, ascending."""
        return sorted(self._values())

    def __contains__(self, txid: object) -> bool:
        return txid in self._values()

    def get(self, txid: int) -> Any:
        """The value of a txid; None if there is none."""
        return self._values().get(txid)

    def previous(self, txid: int) -> Any:
        """The value of the greatest smaller txid that has one; None if there is none."""
        keys = self.keys()
        at = bisect_left(keys, txid)
        return self.get(keys[at - 1]) if at else None

    def last(self) -> Any:
        """The value of the greatest txid; None if there is none."""
        keys = self.keys()
        return self.get(keys[-1]) if keys else None

    def override(self, txid: int, value: Any) -> None:
        """Set a value, replacing any other. Raises BatchError if JSON cannot represent it."""
        values, path = self._values(), self._node(txid)
        written = encode(value, path)
        if txid in values and encode(values[txid], path) == written:
            return
        with self._writing(path):
            self._versions[txid] = self._replace(path, written, self._versions.get(txid))
            values[txid] = json.loads(written)

    def remove(self, txid: int) -> None:
        """Remove a value, if there is one."""
        self._remove([txid])

    def cleanup_before(self, txid: int) -> None:
        """Remove the values of all smaller txids."""
        self._remove([key for key in self.keys() if key < txid])

    def _remove(self, txids: list[int]) -> None:
        values = self._values()
        for txid in txids:
            if txid in values:
                path = self._node(txid)
                with self._writing(path), suppress(NoNode):
                    self._tree.delete(path, self._versions[txid])
                del values[txid], self._versions[txid]

    @contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        """Drop the cached values unless the write succeeds."""
        known, self._known = self._known, None
        try:
            yield
        except (WrongVersion, NodeExists) as error:
            raise StoreUnreachable(
                f"{path} has changed meanwhile ({error}): a write that was not answered has come "
                "late. It is read anew"
            ) from error
        self._known = known

    def _replace(self, path: str, value: bytes, version: int | None) -> int:
        if version is not None:
            with suppress(NoNode):  # removed by a write without an answer
                return self._tree.set(path, value, version)
        self._tree.create(path, value)
        return 0

    def _values(self) -> dict[int, Any]:
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        self._versions.clear()
        for name in self._tree.children(self._path):
            path = f"{self._path}/{name}"
            if not (name.isascii() and name.isdecimal()):
                raise mismatch(path, name, "the number of a batch")
            if (node := self._tree.get(path)) is not None:
                found[int(name)], self._versions[int(name)] = decode(node, path), node.version
        return found

    def _node(self, txid: int) -> str:
        return f"{self._path}/{txid}"
