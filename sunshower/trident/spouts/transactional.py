"""Partitioned, transactional: what a batch has of each partition is kept before any row leaves.

A task goes on in a partition only where it is certain of what came before: the entry of the batch
right before is kept, or all batches before are committed. Else the batch has none of the
partition's rows, which is kept as well. So a partition may change hands while batches are in
progress, and orders may get lost: no row is left out, or in two batches.
Storm: org.apache.storm.trident.spout.PartitionedTridentSpoutExecutor (where it may be in two)
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from sunshower.stores.tree import Tree
from sunshower.topologies.components import Context
from sunshower.trident.attempts import Attempt
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.spouts.ownership import PartitionsCoordinator, at_end, own, tell
from sunshower.trident.spouts.partitioned import PartitionedSpout
from sunshower.trident.spouts.port import Coordinator, Emitter, Rows
from sunshower.trident.spouts.settled import Settled
from sunshower.trident.spouts.shelf import NOTHING, Shelf
from sunshower.trident.spouts.unplanned import BaseEmitter


class AdaptedPartitionedSpout:
    """See the port `TridentSpout`."""

    commits = False

    def __init__(self, spout: PartitionedSpout) -> None:
        self._spout = spout
        self.emits, self.kind = spout.emits, spout.kind
        self.parallelism_max = spout.parallelism_max

    def coordinator(self, tree: Tree, path: str, context: Context) -> Coordinator:
        return PartitionsCoordinator(self._spout, tree, path, context)

    def emitter(self, tree: Tree, path: str, context: Context) -> Emitter:
        return TransactionalEmitter(self._spout, tree, path, context)


class TransactionalEmitter(BaseEmitter):
    """See the port `Emitter`."""

    def __init__(self, spout: PartitionedSpout, tree: Tree, path: str, context: Context) -> None:
        self._spout = deepcopy(spout)
        self._spout.open(context)
        self._tree, self._path, self._context = tree, path, context
        self._settled = Settled(tree, path)
        self._shelves: dict[str, Shelf] = {}

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        names = own(metadata, self._context)
        tell(self._spout, metadata)
        self._shelves = {name: one for name, one in self._shelves.items() if name in names}
        room = Room(self._spout.bounds, self._context.clock)
        try:
            self._emit(attempt, names, room)
        except BaseException:
            self._shelves = {}  # what stands there may be more than is known here
            raise
        rows.emit(room.rows)

    def _emit(self, attempt: Attempt, names: list[str], room: Room) -> None:
        txid = attempt.txid
        again, last = {}, {}
        for name in names:
            if name not in self._shelves:
                self._look(name)
            shelf = self._shelves[name]
            if txid in shelf:
                again[name] = shelf[txid]
            elif not at_end(self._spout, name, shelf.before(txid)):
                last[name] = self._before(name, txid)
        again = {name: one for name, one in again.items() if one is not NOTHING}
        if again:
            self._spout.emit_all_again(again, room)
        certain = {name: one for name, one in last.items() if one is not NOTHING}
        found: Mapping[str, Any] = self._spout.emit_all_new(certain, room) if certain else {}
        for name in last:
            self._shelves[name].keep_first(attempt, found.get(name, NOTHING))

    def _before(self, name: str, txid: int) -> Any:
        """What came before in a partition: metadata, None for its start, NOTHING if uncertain."""
        if self._shelves[name].latest() > txid:
            return NOTHING  # later batches have gone on: it was not there in this one
        at = self._last_that_may_have(name, txid)
        if at not in self._shelves[name]:
            committed = self._settled.up_to(at)  # before the look: it must see all that
            self._look(name)
            at = self._last_that_may_have(name, txid)
            if at not in self._shelves[name]:
                found = self._shelves[name].before(at + 1)
                return NOTHING if not committed else None if found is NOTHING else found
        return self._shelves[name][at]

    def _last_that_may_have(self, name: str, txid: int) -> int:
        """The last batch before that may have rows of a partition: it has, or nothing is known."""
        shelf, at = self._shelves[name], txid - 1
        while at in shelf and shelf[at] is NOTHING:
            at -= 1
        return at

    def _look(self, name: str) -> None:
        self._shelves[name] = Shelf(self._tree, self._path, name)

    def success(self, attempt: Attempt) -> None:
        self._settled.heard(attempt.txid)
        for shelf in self._shelves.values():
            shelf.cleanup(attempt.txid)
        self._spout.committed(
            {name: shelf.before(attempt.txid + 1) for name, shelf in self._shelves.items()}
        )

    def close(self) -> None:
        self._spout.close()

    def figures(self) -> Mapping[str, float]:
        return self._spout.figures()
