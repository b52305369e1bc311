"""Stores the metadata of one partition by txid, and refuses writes of older attempts.

    …/user/<partition>/<txid>      {"epoch": 1, "attempt": 0, "metadata": …}, or without
                                   metadata if the batch has no rows of the partition

Nodes that Storm itself has written (metadata alone) are read as attempt -1. Storm:
RotatingTransactionalState, as the partitioned executors use it
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from sunshower.errors import FailedBatch, NodeExists, NoNode, StaleAttempt, WrongVersion
from sunshower.state.tree import Node, Tree
from sunshower.trident.coordination.attempts import Attempt
from sunshower.trident.coordination.txid_nodes import decode, encode, mismatch


class Nothing(Enum):
    """The batch has no rows of a partition, so the metadata of an earlier batch apply."""

    NOTHING = "nothing"

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing.NOTHING


class _Entry(NamedTuple):
    epoch: int
    attempt: int
    metadata: Any
    version: int


class Shelf:
    """The entries of a partition, in memory and in the tree; a new one reads them all. Raises
    StoreUnreachable, and StateMismatch for a node of another kind."""

    def __init__(self, tree: Tree, path: str, partition: str) -> None:
        self._tree = tree
        self._path = f"{path}/{quote(partition, safe='@ ')}"
        self._entries: dict[int, _Entry] = {}
        for name in tree.children(self._path):
            if not (name.isascii() and name.isdecimal()):
                raise mismatch(f"{self._path}/{name}", name, "the number of a batch")
            if (node := tree.get(self._node(int(name)))) is not None:
                self._entries[int(name)] = self._read(int(name), node)

    def __contains__(self, txid: int) -> bool:
        return txid in self._entries

    def __getitem__(self, txid: int) -> Any:
        return self._entries[txid].metadata

    def before(self, txid: int) -> Any:
        """The metadata of the greatest smaller txid that has some; NOTHING if none has."""
        found = [
            key
            for key, entry in self._entries.items()
            if key < txid and entry.metadata is not NOTHING
        ]
        return self._entries[max(found)].metadata if found else NOTHING

    def latest(self) -> int:
        """The greatest txid with metadata; 0 if there is none."""
        return max((key for key in self._entries if self[key] is not NOTHING), default=0)

    def keep_first(self, attempt: Attempt, metadata: Any) -> None:
        """Write the entry of a batch that has none; it is final. Raises FailedBatch if another life
        of this task has written one: the next attempt emits that one."""
        path, written = self._encoded(attempt, metadata)
        try:
            self._tree.create(path, written)
        except NodeExists:
            raise FailedBatch(
                f"{path} was written meanwhile by another life of this task; the next attempt "
                "emits what stands there"
            ) from None
        self._entries[attempt.txid] = self._read(attempt.txid, Node(written, 0))

    def keep(self, attempt: Attempt, metadata: Any) -> None:
        """Write the entry of an attempt over that of an earlier one. Raises StaleAttempt if there
        is one of a later attempt."""
        path, written = self._encoded(attempt, metadata)
        stamp = (attempt.epoch, attempt.attempt)
        while True:
            entry = self._entries.get(attempt.txid)
            if entry is not None and entry[:2] > stamp:
                raise StaleAttempt(
                    f"{path} was written in attempt {entry.attempt} of coordinator {entry.epoch}, "
                    f"which is later than attempt {stamp[1]} of coordinator {stamp[0]}: whoever "
                    "writes now was thought dead, and changes nothing"
                )
            try:
                if entry is None:
                    version = 0
                    self._tree.create(path, written)
                else:
                    version = self._tree.set(path, written, entry.version)
            except (NodeExists, NoNode, WrongVersion):
                self._look(attempt.txid)
            else:
                self._entries[attempt.txid] = self._read(attempt.txid, Node(written, version))
                return

    def cleanup(self, txid: int) -> None:
        """Once `txid` is committed, remove all entries before the last one with metadata. NOTHING
        entries after that stay, because a former life could otherwise write there."""
        known = [key for key in self._entries if key <= txid and self[key] is not NOTHING]
        last = max(known, default=0)
        for key in [key for key in self._entries if key < last]:
            with suppress(NoNode):
                self._tree.delete(self._node(key))
            del self._entries[key]

    def _encoded(self, attempt: Attempt, metadata: Any) -> tuple[str, bytes]:
        path = self._node(attempt.txid)
        value = {"epoch": attempt.epoch, "attempt": attempt.attempt}
        return path, encode(value if metadata is NOTHING else value | {"metadata": metadata}, path)

    def _look(self, txid: int) -> None:
        """Read an entry again that another writer has changed."""
        self._entries.pop(txid, None)
        if (node := self._tree.get(self._node(txid))) is not None:
            self._entries[txid] = self._read(txid, node)

    def _read(self, txid: int, node: Node) -> _Entry:
        value = decode(node, self._node(txid))
        if isinstance(value, dict) and {"epoch", "attempt"} <= value.keys():
            stamp = value["epoch"], value["attempt"]
            return _Entry(*stamp, value.get("metadata", NOTHING), node.version)
        return _Entry(0, -1, NOTHING if value is None else value, node.version)

    def _node(self, txid: int) -> str:
        return f"{self._path}/{txid}"
