"""Partitioned, opaque: what a batch has of each partition is kept when it is committed.

Until then only the task knows that emitted it. So a task goes on in a partition only where it has
emitted the batch right before itself, or all batches before are committed; else the batch has none
of the partition's rows. So a partition may change hands while batches are in progress, and tasks
may die: each row is in exactly one committed batch. Where a partition has nothing new in the first
attempt of a batch, nothing is written; in a later one it is, over what an earlier one has written.
Storm: org.apache.storm.trident.spout.OpaquePartitionedTridentSpoutExecutor (where the new owner
goes on from the last committed batch, and repeats what those in progress have)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sunshower.errors import FailedBatch, StaleAttempt
from sunshower.stores.tree import Tree
from sunshower.topologies.components import Context
from sunshower.trident.attempts import Attempt
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.spouts.ownership import at_end, own, tell
from sunshower.trident.spouts.partition_tasks import PartitionsEmitter
from sunshower.trident.spouts.partitioned import Partitioned
from sunshower.trident.spouts.port import Rows
from sunshower.trident.spouts.shelf import NOTHING


class _Held(NamedTuple):
    """A batch that this task has emitted its share of."""

    attempt: Attempt
    metadata: dict[str, Any]  # of each partition, after it; NOTHING: it has none of its rows
    same: frozenset[str]  # those of which there is nothing to write


class OpaqueEmitter(PartitionsEmitter):
    """See the port `Emitter`."""

    commits = True

    def __init__(self, spout: Partitioned, tree: Tree, path: str, context: Context) -> None:
        super().__init__(spout, tree, path, context)
        self._held: dict[int, _Held] = {}

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        held = self._held.get(attempt.txid)
        if held is not None and held.attempt > attempt:
            raise StaleAttempt(f"{attempt} comes after {held.attempt}, which is a later one")
        self._held = {txid: one for txid, one in self._held.items() if txid < attempt.txid}
        tell(self._spout, metadata)
        last = {
            name: NOTHING if name in metadata["gone"] else self._before(name, attempt.txid)
            for name in own(metadata, self._context)
        }
        certain = {name: one for name, one in last.items() if one is not NOTHING}
        ended = frozenset(n for n, one in certain.items() if at_end(self._spout, n, one))
        wanted = {name: one for name, one in certain.items() if name not in ended}
        room = Room(self._spout.bounds, self._context.clock)
        found = self._spout.emit_all_new(wanted, room) if wanted else {}
        after = {name: found.get(name, one) for name, one in last.items()}
        same = {name for name, one in last.items() if after[name] == one and not attempt.attempt}
        self._held[attempt.txid] = _Held(attempt, after, ended | same)
        rows.emit(room.rows)

    def _before(self, name: str, txid: int) -> Any:
        """What came before in a partition: metadata, None for its start, NOTHING if uncertain."""
        at = txid - 1
        while at in self._held and self._held[at].metadata.get(name) is NOTHING:
            at -= 1
        if at in self._held and name in self._held[at].metadata:
            return self._held[at].metadata[name]
        if not self._settled.up_to(at):  # before the look: it must see all that
            return NOTHING
        found = self._look(name).before(at + 1)
        return None if found is NOTHING else found

    def commit(self, attempt: Attempt) -> None:
        txid = attempt.txid
        self._settled.heard(txid - 1)
        held = self._held.get(txid)
        if held is None or held.attempt != attempt:
            raise FailedBatch(
                f"attempt {attempt.attempt} of batch {txid} cannot be committed: this task, "
                f"{self._context.component}[{self._context.index}], was started again and does not "
                "know what it emitted; it is emitted again"
            )
        self._shelves = {name: one for name, one in self._shelves.items() if name in held.metadata}
        for name, metadata in [*held.metadata.items()]:
            if metadata is NOTHING:  # all before are committed: there it goes on
                held.metadata[name] = self._look(name).before(txid)
            if name not in held.same:
                shelf = self._shelves.get(name) or self._look(name)
                shelf.keep(attempt, held.metadata[name])

    def success(self, attempt: Attempt) -> None:
        self._held = {txid: one for txid, one in self._held.items() if txid >= attempt.txid}
        super().success(attempt)
