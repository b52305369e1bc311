"""The emitter of transactional partitioned spouts: it stores metadata before any row is sent.

A task continues in a partition only if it knows what came before: the entry of the preceding batch
is stored, or all preceding batches are committed. Otherwise the batch has none of the partition's
rows, which is stored too. So partitions may move between tasks while batches are in progress, and
`$batch` tuples may get lost: no row is skipped or in two batches. Storm:
org.apache.storm.trident.spout.PartitionedTridentSpoutExecutor (there a row may be in two)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sunshower.errors import IncompleteBatch
from sunshower.trident.coordination.attempts import Attempt
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.spouts.ownership import at_end, own, tell
from sunshower.trident.spouts.partition_tasks import PartitionsEmitter
from sunshower.trident.spouts.port import Rows
from sunshower.trident.spouts.shelf import NOTHING


class TransactionalEmitter(PartitionsEmitter):
    """Emits one task's share of transactional batches; see the port `Emitter`."""

    commits = False

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        names = own(metadata, self._context)
        tell(self._spout, metadata)
        self._shelves = {name: one for name, one in self._shelves.items() if name in names}
        room = Room(self._spout.bounds, self._context.clock)
        try:
            self._emit(attempt, names, room)
        except BaseException as error:
            if isinstance(error, IncompleteBatch):
                error.rows = room.rows
            self._shelves = {}  # the store may hold more than is cached
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
        incomplete = None
        try:
            if again:
                self._spout.emit_all_again(again, room)
        except IncompleteBatch as error:  # others are stored first: it may be skipped
            incomplete = error
        certain = {name: one for name, one in last.items() if one is not NOTHING}
        found: Mapping[str, Any] = self._spout.emit_all_new(certain, room) if certain else {}
        for name in last:
            self._shelves[name].keep_first(attempt, found.get(name, NOTHING))
        if incomplete is not None:
            raise incomplete

    def _before(self, name: str, txid: int) -> Any:
        """The metadata before a batch: None for the partition's start, NOTHING if unknown."""
        if self._shelves[name].latest() > txid:
            return NOTHING  # later batches have continued, so this one has no rows of it
        at = self._last_that_may_have(name, txid)
        if at not in self._shelves[name]:
            committed = self._settled.up_to(at)  # before the read, which then sees all of them
            self._look(name)
            at = self._last_that_may_have(name, txid)
            if at not in self._shelves[name]:
                found = self._shelves[name].before(at + 1)
                return NOTHING if not committed else None if found is NOTHING else found
        return self._shelves[name][at]

    def _last_that_may_have(self, name: str, txid: int) -> int:
        """The last earlier batch that may have rows of a partition: it has some, or that is
        unknown."""
        shelf, at = self._shelves[name], txid - 1
        while at in shelf and shelf[at] is NOTHING:
            at -= 1
        return at
