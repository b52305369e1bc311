"""The emitters of partitioned spouts, and the adapter that selects one by the kind of the spout.

A task continues in a partition only if it knows where the batch before ended; otherwise its batch
has none of the partition's rows. So partitions may move between tasks while batches are in
progress, tasks may crash, and `$batch` tuples may get lost: each row is in one committed batch.

transactional   the metadata are stored before rows are sent, also for a batch without rows. A task
                knows if the entry of the batch before is stored, or all before are committed
opaque          the metadata are stored when the batch commits. A task knows if it has emitted the
                batch before itself, or all before are committed. A partition without new rows is
                written only if an earlier attempt may have written it

The spout gets copies of metadata, so it may change them in place. Metadata that are equal to those
of the batch before mean that the batch has no rows of the partition.

Storm: org.apache.storm.trident.spout.PartitionedTridentSpoutExecutor (there a row may be in two
batches), OpaquePartitionedTridentSpoutExecutor (there the new owner continues from the last
committed batch, and repeats the rows of those in progress)
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar, NamedTuple

from sunshower.errors import FailedBatch, IncompleteBatch, StaleAttempt
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.spouts.partition_coordinator import (
    PartitionsCoordinator,
    at_end,
    begin_batch,
    own,
)
from sunshower.trident.spouts.partition_log import NOTHING, CommittedBatches, PartitionLog
from sunshower.trident.spouts.partitioned import Partitioned
from sunshower.trident.spouts.port import Coordinator, Emitter, Rows

_REASONS_MAX = 3  # of records that cannot be emitted, in an error


class PartitionsEmitter(Emitter):
    """The base of partitioned emitters (port `Emitter`); subclasses implement `emit_batch`."""

    commits: ClassVar[bool]  # whether it takes part in the commit phase

    def __init__(self, spout: Partitioned, tree: Tree, path: str, context: Context) -> None:
        self._spout: Any = deepcopy(spout)
        self._spout.open(context)
        self._tree, self._path, self._context = tree, path, context
        self._committed = CommittedBatches(tree, path)
        self._logs: dict[str, PartitionLog] = {}

    def _look(self, name: str) -> PartitionLog:
        """Read the stored entries of a partition again."""
        self._logs[name] = log = PartitionLog(self._tree, self._path, name)
        return log

    def success(self, attempt: Attempt) -> None:
        self._committed.heard(attempt.txid)
        for log in self._logs.values():
            log.cleanup(attempt.txid)
        self._spout.committed(
            {name: log.before(attempt.txid + 1) for name, log in self._logs.items()}
        )

    def close(self) -> None:
        self._spout.close()

    def figures(self) -> Mapping[str, float]:
        found: Mapping[str, float] = self._spout.figures()
        return found


class TransactionalEmitter(PartitionsEmitter):
    """Emits one task's share of transactional batches."""

    commits = False

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        names = own(metadata, self._context)
        begin_batch(self._spout, metadata)
        self._logs = {name: one for name, one in self._logs.items() if name in names}
        room = Room(self._spout.bounds, self._context.clock, rows.records_max)
        try:
            self._emit(attempt, names, room, rows.is_skipped)
        except BaseException as error:
            if isinstance(error, IncompleteBatch):
                error.rows = room.rows
            self._logs = {}  # the store may hold more than is cached
            raise
        rows.emit(room.rows)

    def _emit(self, attempt: Attempt, names: list[str], room: Room, is_skipped: bool) -> None:
        txid = attempt.txid
        again, last = {}, {}
        for name in names:
            log = self._logs.get(name) or self._look(name)
            if txid in log:
                again[name] = log[txid]
            elif not at_end(self._spout, name, log.before(txid)):
                last[name] = self._before(name, txid)
        again = {name: one for name, one in again.items() if one is not NOTHING}
        incomplete = None
        try:
            if again:
                self._spout.emit_all_again(deepcopy(again), room)
        except IncompleteBatch as error:  # others are stored first: it may be skipped
            incomplete = error
        certain = {name: one for name, one in last.items() if one is not NOTHING}
        found = self._spout.emit_all_new(deepcopy(certain), room) if certain else {}
        if not is_skipped:
            _check_complete(room)  # before they are stored, so that the source can be corrected
        for name, before in last.items():
            metadata = found.get(name, NOTHING)
            if name not in room.filled and self._logs[name].is_same(metadata, before):
                metadata = NOTHING
            self._logs[name].keep_first(attempt, metadata)
        if incomplete is not None:
            raise incomplete
        _check_complete(room)

    def _before(self, name: str, txid: int) -> Any:
        """The metadata before a batch: None for the partition's start, NOTHING if unknown."""
        if self._logs[name].latest() > txid:
            return NOTHING  # later batches have continued, so this one has no rows of it
        at = self._last_that_may_have(name, txid)
        if at not in self._logs[name]:
            committed = self._committed.includes(at)  # before the read, which then sees all of them
            self._look(name)
            at = self._last_that_may_have(name, txid)
            if at not in self._logs[name]:
                found = self._logs[name].before(at + 1)
                return NOTHING if not committed else None if found is NOTHING else found
        return self._logs[name][at]

    def _last_that_may_have(self, name: str, txid: int) -> int:
        """The last earlier batch that may have rows of a partition: it has some, or that is
        unknown."""
        log, at = self._logs[name], txid - 1
        while at in log and log[at] is NOTHING:
            at -= 1
        return at


def _check_complete(room: Room) -> None:
    """Raise IncompleteBatch if some records were refused."""
    if room.refused:
        more = len(room.refused) - _REASONS_MAX
        shown = [*room.refused[:_REASONS_MAX], *([f"and {more} more"] if more > 0 else [])]
        raise IncompleteBatch("; ".join(shown))


class _EmittedShare(NamedTuple):
    """The share of a batch that this task has emitted."""

    attempt: Attempt
    metadata: dict[str, Any]  # of each partition, after it; NOTHING: the batch has no rows of it
    same: frozenset[str]  # partitions that need no write


class OpaqueEmitter(PartitionsEmitter):
    """Emits and commits one task's share of opaque batches."""

    commits = True

    def __init__(self, spout: Partitioned, tree: Tree, path: str, context: Context) -> None:
        super().__init__(spout, tree, path, context)
        self._held: dict[int, _EmittedShare] = {}

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        held = self._held.get(attempt.txid)
        if held is not None and held.attempt > attempt:
            raise StaleAttempt(f"{attempt} comes after {held.attempt}, which is a later one")
        self._held = {txid: one for txid, one in self._held.items() if txid < attempt.txid}
        begin_batch(self._spout, metadata)
        last = {
            name: NOTHING if name in metadata["gone"] else self._before(name, attempt.txid)
            for name in own(metadata, self._context)
        }
        certain = {name: one for name, one in last.items() if one is not NOTHING}
        ended = frozenset(n for n, one in certain.items() if at_end(self._spout, n, one))
        wanted = {name: one for name, one in certain.items() if name not in ended}
        room = Room(self._spout.bounds, self._context.clock, rows.records_max)
        found = self._spout.emit_all_new(deepcopy(wanted), room) if wanted else {}
        _check_complete(room)
        after = {name: found.get(name, one) for name, one in last.items()}
        same = {name for name, one in last.items() if after[name] == one and not attempt.attempt}
        self._held[attempt.txid] = _EmittedShare(attempt, after, ended | same)
        rows.emit(room.rows)

    def _before(self, name: str, txid: int) -> Any:
        """The metadata before a batch: None for the partition's start, NOTHING if unknown."""
        at = txid - 1
        while at in self._held and self._held[at].metadata.get(name) is NOTHING:
            at -= 1
        if at in self._held and name in self._held[at].metadata:
            return self._held[at].metadata[name]
        if not self._committed.includes(at):  # before the read, which then sees all of them
            return NOTHING
        found = self._look(name).before(at + 1)
        return None if found is NOTHING else found

    def commit(self, attempt: Attempt) -> None:
        txid = attempt.txid
        self._committed.heard(txid - 1)
        held = self._held.get(txid)
        if held is None or held.attempt != attempt:
            raise FailedBatch(
                f"attempt {attempt.attempt} of batch {txid} cannot be committed: this task, "
                f"{self._context.component}[{self._context.index}], was started again and does not "
                "know what it emitted; it is emitted again"
            )
        self._logs = {name: one for name, one in self._logs.items() if name in held.metadata}
        for name, metadata in [*held.metadata.items()]:
            if metadata is NOTHING:  # all before are committed: continue there
                held.metadata[name] = self._look(name).before(txid)
            if name not in held.same:
                log = self._logs.get(name) or self._look(name)
                log.keep(attempt, held.metadata[name])

    def success(self, attempt: Attempt) -> None:
        self._held = {txid: one for txid, one in self._held.items() if txid >= attempt.txid}
        super().success(attempt)


class AdaptedPartitionedSpout:
    """Adapts a partitioned spout to the port `TridentSpout`, with the emitter of its kind."""

    def __init__(self, spout: Partitioned, emitter: type[PartitionsEmitter]) -> None:
        self._spout, self._emitter = spout, emitter
        self.emits, self.kind = spout.emits, spout.kind
        self.commits, self.parallelism_max = emitter.commits, spout.parallelism_max

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        return PartitionsCoordinator(self._spout, store, path, context)

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return self._emitter(self._spout, store, path, context)
