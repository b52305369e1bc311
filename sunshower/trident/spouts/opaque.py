"""The emitter of opaque partitioned spouts: it stores partition metadata when a batch commits.

Until then only the task that emitted the batch knows the metadata. So a task continues in a
partition only if it emitted the preceding batch itself, or if all preceding batches are committed;
otherwise the batch has none of the partition's rows. So partitions may move between tasks while
batches are in progress, and tasks may crash: each row is in exactly one committed batch. A
partition without new rows is not written in the first attempt of a batch; in a later attempt it is,
to replace what an earlier attempt has written. Storm:
org.apache.storm.trident.spout.OpaquePartitionedTridentSpoutExecutor (there the new owner continues
from the last committed batch, and repeats the rows of those in progress)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sunshower.errors import FailedBatch, StaleAttempt
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.trident.coordination.attempts import Attempt
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.spouts.ownership import at_end, own, tell
from sunshower.trident.spouts.partition_tasks import PartitionsEmitter
from sunshower.trident.spouts.partitioned import Partitioned
from sunshower.trident.spouts.port import Rows
from sunshower.trident.spouts.shelf import NOTHING


class _Held(NamedTuple):
    """A batch whose share this task has emitted."""

    attempt: Attempt
    metadata: dict[str, Any]  # of each partition, after it; NOTHING: the batch has no rows of it
    same: frozenset[str]  # partitions that need no write


class OpaqueEmitter(PartitionsEmitter):
    """Emits and commits one task's share of opaque batches; see the port `Emitter`."""

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
        """The metadata before a batch: None for the partition's start, NOTHING if unknown."""
        at = txid - 1
        while at in self._held and self._held[at].metadata.get(name) is NOTHING:
            at -= 1
        if at in self._held and name in self._held[at].metadata:
            return self._held[at].metadata[name]
        if not self._settled.up_to(at):  # checked before the read, which then sees all of them
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
            if metadata is NOTHING:  # all before are committed: continue there
                held.metadata[name] = self._look(name).before(txid)
            if name not in held.same:
                shelf = self._shelves.get(name) or self._look(name)
                shelf.keep(attempt, held.metadata[name])

    def success(self, attempt: Attempt) -> None:
        self._held = {txid: one for txid, one in self._held.items() if txid >= attempt.txid}
        super().success(attempt)
