"""The transactional log of one partition, which refuses writes of older attempts.

    …/user/<partition>/<txid>      {"epoch": 1, "attempt": 0, "metadata": …}, or without
                                   metadata if the batch has no rows of the partition
                                   … "at": [12.5, 11.0, false]     a PartitionAt, with windows

Nodes that Storm itself has written (metadata alone) are read as attempt -1. Storm:
RotatingTransactionalState, as the partitioned executors use it
"""

from __future__ import annotations

import json
import math
from enum import Enum
from typing import Any, Final
from urllib.parse import quote

from sunshower.errors import FailedBatch, NodeExists, NoNode, StaleAttempt, WrongVersion
from sunshower.state.tree import Tree, parent
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.coordination.stored_progress import current_batch
from sunshower.trident.coordination.transactional_log import JsonNode, TransactionalLog, encode
from sunshower.trident.spouts.reached_times import UNKNOWN, PartitionAt


class Nothing(Enum):
    """The batch has no rows of a partition, so the metadata of an earlier batch apply."""

    NOTHING = "nothing"

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing.NOTHING


class PartitionLog(TransactionalLog):
    """The entries of a partition, in memory and in the tree. Raises StoreUnreachable, and
    StateMismatch for a node of another kind."""

    def __init__(self, tree: Tree, path: str, partition: str) -> None:
        super().__init__(tree, f"{path}/{quote(partition, safe='@ ')}")

    def __getitem__(self, txid: int) -> Any:
        """The metadata of a batch that has an entry, or NOTHING."""
        value = self._nodes()[txid].value
        if _is_stamped(value):
            return value.get("metadata", NOTHING)
        return NOTHING if value is None else value

    def at(self, txid: int) -> PartitionAt | None:
        """How far the partition is after a batch that has an entry; None: it is not known."""
        value = self._nodes()[txid].value
        return PartitionAt.of(value["at"]) if _is_stamped(value) and "at" in value else None

    def at_before(self, txid: int) -> PartitionAt:
        """The same after the batches before `txid`."""
        known = [key for key in self._nodes() if key < txid and self.at(key) is not None]
        return (self.at(max(known)) if known else None) or UNKNOWN

    def before(self, txid: int) -> Any:
        """The metadata of the greatest smaller txid that has some; NOTHING if none has."""
        found = self.latest(txid - 1)
        return self[found] if found else NOTHING

    def latest(self, up_to: float = math.inf) -> int:
        """The greatest txid up to this one that has metadata; 0 if none has."""
        known = (key for key in self._nodes() if key <= up_to and self[key] is not NOTHING)
        return max(known, default=0)

    def is_same(self, metadata: Any, before: Any) -> bool:
        """Whether metadata of a spout are, as stored, those of the batch before. Raises BatchError
        if JSON cannot represent them."""
        if metadata is NOTHING or before is NOTHING:
            return metadata is before
        return bool(json.loads(encode(metadata, self._path)) == before)

    def keep_first(self, attempt: Attempt, metadata: Any, at: PartitionAt | None = None) -> None:
        """Write the entry of a batch that has none; it is final. Raises FailedBatch if another life
        of this task has written one: the next attempt emits that one."""
        node = JsonNode(self._tree, self._path_of(attempt.txid))
        try:
            node.write(_entry(attempt, metadata, at))
        except NodeExists:
            raise FailedBatch(
                f"{node.path} was written meanwhile by another life of this task; the next attempt "
                "emits what stands there"
            ) from None
        self._nodes()[attempt.txid] = node

    def keep(self, attempt: Attempt, metadata: Any, at: PartitionAt | None = None) -> None:
        """Write the entry of an attempt over that of an earlier one. Raises StaleAttempt if there
        is one of a later attempt."""
        stamp = (attempt.epoch, attempt.attempt)
        while True:
            found = self.get(attempt.txid)
            epoch, number = (found["epoch"], found["attempt"]) if _is_stamped(found) else (0, -1)
            if (epoch, number) > stamp:
                raise StaleAttempt(
                    f"{self._path_of(attempt.txid)} was written in attempt {number} of coordinator "
                    f"{epoch}, which is later than attempt {stamp[1]} of coordinator {stamp[0]}: "
                    "this writer was replaced, and changes nothing"
                )
            try:
                return self._write(attempt.txid, _entry(attempt, metadata, at))
            except (NodeExists, NoNode, WrongVersion):
                continue  # another writer: the entry is read again

    def cleanup(self, txid: int) -> None:
        """Once `txid` is committed, remove all entries before the last one with metadata. NOTHING
        entries after that stay, because a former life could otherwise write there."""
        self.cleanup_before(self.latest(txid))


def _is_stamped(value: Any) -> bool:
    return isinstance(value, dict) and {"epoch", "attempt"} <= value.keys()


def _entry(attempt: Attempt, metadata: Any, at: PartitionAt | None) -> dict[str, Any]:
    value: dict[str, Any] = {"epoch": attempt.epoch, "attempt": attempt.attempt}
    if metadata is not NOTHING:
        value["metadata"] = metadata
    if at is not None:
        value["at"] = at.stored()
    return value


class CommittedBatches:
    """The txid up to which all batches are committed in all tasks, as an emitter knows it from
    `$success` and from the store. `path`: the emitter's …/user."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._coordinator = f"{parent(path)}/coordinator"
        self._txid = 0

    def heard(self, txid: int) -> None:
        """All batches up to `txid` are committed."""
        self._txid = max(self._txid, txid)

    def includes(self, txid: int) -> bool:
        """Whether all batches up to `txid` are known to be committed. Raises StateMismatch."""
        if self._txid < txid:
            self.heard(current_batch(self._tree, [self._coordinator]) - 1)
        return self._txid >= txid
