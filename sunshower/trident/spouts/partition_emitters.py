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

With windows downstream, how far a partition is in event time is stored beside its metadata. A
transactional batch sends the same times in each attempt. An opaque one sends those of its own rows,
beginning with the times of the batch before.

Storm: org.apache.storm.trident.spout.PartitionedTridentSpoutExecutor (there a row may be in two
batches), OpaquePartitionedTridentSpoutExecutor (there the new owner continues from the last
committed batch, and repeats the rows of those in progress)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from math import inf
from typing import Any, ClassVar, NamedTuple

from sunshower.errors import FailedBatch, IncompleteBatch, StaleAttempt
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.event_times import Time
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.partition_coordinator import (
    PartitionsCoordinator,
    at_end,
    begin_batch,
    own,
)
from sunshower.trident.spouts.partition_log import NOTHING, CommittedBatches, PartitionLog
from sunshower.trident.spouts.partitioned import Partitioned
from sunshower.trident.spouts.port import Coordinator, Emitter, Rows, SpoutKind
from sunshower.trident.spouts.reached_times import PartitionAt, ReachedTimes

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
        self._times: ReachedTimes | None = None  # if windows of event time are downstream

    def watch(self, times: ReachedTimes) -> None:
        """Note the event times of partitions from now on."""
        self._times = times

    def event_time(self, row: Any) -> Any:
        """As the method of the spout."""
        return self._spout.event_time(row)

    def _emit_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        """Emit what follows the metadata `last`."""
        times, spout = self._times, self._spout
        first = 0 if times is None else times.begin_fetch(room)
        found: dict[str, Any] = spout.emit_all_new(deepcopy(last), room) if last else {}
        if times is not None:
            ends = spout.partitions_at_end() if last else {}
            times.fetched(room, first, last, found, ends)
        return found

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
        if self._times is not None:
            self._times.keep(names)
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
        txid, times = attempt.txid, self._times
        again, last = {}, {}
        for name in names:
            log = self._logs.get(name) or self._look(name)
            if txid in log:
                again[name] = log[txid]
                if times is not None:
                    times.note(name, log.at(txid))
            elif not at_end(self._spout, name, log.before(txid)):
                last[name] = self._before(name, txid)
            elif times is not None:
                times.note_ended(log.at_before(txid).reached)
        again = {name: one for name, one in again.items() if one is not NOTHING}
        incomplete = None
        try:
            if again:
                self._spout.emit_all_again(deepcopy(again), room)
        except IncompleteBatch as error:  # others are stored first: it may be skipped
            incomplete = error
        certain = {name: one for name, one in last.items() if one is not NOTHING}
        found = self._emit_new(certain, room)
        if not is_skipped:
            _check_complete(room)  # before they are stored, so that the source can be corrected
        for name, before in last.items():
            metadata, log = found.get(name, NOTHING), self._logs[name]
            if name not in room.filled and log.is_same(metadata, before):
                metadata = NOTHING
            log.keep_first(attempt, metadata, self._advance(name, txid, is_known=name in certain))
        if incomplete is not None:
            raise incomplete
        _check_complete(room)

    def _advance(self, name: str, txid: int, *, is_known: bool) -> PartitionAt | None:
        """How far a partition is after the batch; None: nothing asks, or it is not known."""
        times, log = self._times, self._logs[name]
        if times is None:
            return None
        if is_known:
            reached, earlier = log.at_before(txid).reached, log.at_before(times.current).reached
            return times.advance(name, reached, earlier)
        times.note(name, None)
        return None

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
    reached: dict[str, Time]  # event times, with windows downstream


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
        names = own(metadata, self._context)
        last = {
            name: NOTHING if name in metadata["gone"] else self._before(name, attempt.txid)
            for name in names
        }
        certain = {name: one for name, one in last.items() if one is not NOTHING}
        ended = frozenset(n for n, one in certain.items() if at_end(self._spout, n, one))
        wanted = {name: one for name, one in certain.items() if name not in ended}
        room = Room(self._spout.bounds, self._context.clock, rows.records_max)
        found = self._emit_new(wanted, room)
        _check_complete(room)
        after = {name: found.get(name, one) for name, one in last.items()}
        same = {name for name, one in last.items() if after[name] == one and not attempt.attempt}
        unsure = last.keys() - certain.keys() - {*metadata["gone"]}
        reached = self._advance(attempt.txid, ended, wanted, unsure)
        self._held[attempt.txid] = _EmittedShare(attempt, after, ended | same, reached)
        rows.emit(room.rows)

    def _advance(
        self,
        txid: int,
        ended: Collection[str],
        asked: Collection[str],
        unsure: Collection[str],
    ) -> dict[str, Time]:
        """How far the partitions are in event time after the batch: those that were read to their
        end before, that were asked for rows, and whose metadata are not known."""
        times = self._times
        if times is None:
            return {}
        times.keep(asked)
        reached = dict[str, Time]()
        for name in [*ended, *asked]:
            before = self._reached(name, txid)
            if before is None:  # `_before` has read the log
                before = self._logs[name].at_before(txid).reached
            reached[name] = earlier = before
            if times.current < txid:
                known = self._reached(name, times.current)
                earlier = -inf if known is None else known
            if name in asked:
                reached[name] = times.advance(name, before, earlier).reached
            else:
                times.note_ended(before)
        for name in unsure:
            times.note(name, None)
        return reached

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

    def _reached(self, name: str, txid: int) -> Time | None:
        """The event time that a partition had reached before a batch, as far as this task has
        emitted the batches before."""
        at = txid - 1
        while at in self._held and self._held[at].metadata.get(name) is NOTHING:
            at -= 1
        return self._held[at].reached.get(name) if at in self._held else None

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
                log = self._look(name)
                held.metadata[name] = log.before(txid)
                held.reached[name] = log.at_before(txid).reached
            if name not in held.same:
                log = self._logs.get(name) or self._look(name)
                at = PartitionAt(held.reached.get(name, -inf))
                log.keep(attempt, held.metadata[name], None if self._times is None else at)

    def success(self, attempt: Attempt) -> None:
        self._held = {txid: one for txid, one in self._held.items() if txid >= attempt.txid}
        super().success(attempt)


class OnePartition(Emitter):
    """Notes the event times of an emitter without partitions: those of its task are one. They are
    stored at …/times/<task>/<txid>, for a transactional spout by the first attempt."""

    def __init__(
        self, emitter: Any, kind: SpoutKind, tree: Tree, path: str, context: Context
    ) -> None:
        self._emitter, self._kind = emitter, kind
        self._tree, self._path, self._context = tree, path, context
        self._name = str(context.index)
        self._log: PartitionLog | None = None

    def watch(self, times: ReachedTimes) -> None:
        """Note the event times of rows from now on."""
        self._times = times

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        room = Room(Bounds(), self._context.clock, rows.records_max)
        self._times.begin_fetch(room)
        try:
            self._emitter.emit_batch(attempt, metadata, _BothRows(rows, room))
            self._times.fetched(room, 0, [self._name], [self._name], None)
            self._note(attempt)
        except BaseException:
            self._log = None  # the store may hold more than is cached
            raise

    def _note(self, attempt: Attempt) -> None:
        txid, times, is_final = attempt.txid, self._times, self._kind is SpoutKind.TRANSACTIONAL
        if self._log is None:
            self._log = PartitionLog(self._tree, self._path, self._name)
        log = self._log
        if is_final and txid in log:
            times.note(self._name, log.at(txid))
            return
        reached, earlier = log.at_before(txid).reached, log.at_before(times.current).reached
        at = times.advance(self._name, reached, earlier)
        (log.keep_first if is_final else log.keep)(attempt, None, at)

    def commit(self, attempt: Attempt) -> None:
        self._emitter.commit(attempt)

    def success(self, attempt: Attempt) -> None:
        if self._log is not None:
            self._log.cleanup(attempt.txid)
        self._emitter.success(attempt)

    def close(self) -> None:
        self._emitter.close()

    def figures(self) -> Mapping[str, float]:
        found: Mapping[str, float] = self._emitter.figures()
        return found


class _BothRows:
    """Gives rows to two receivers (port `Rows`)."""

    def __init__(self, rows: Rows, room: Room) -> None:
        self._rows, self._room = rows, room

    @property
    def records_max(self) -> int | None:
        return self._rows.records_max

    @property
    def is_skipped(self) -> bool:
        return self._rows.is_skipped

    def emit(self, rows: Sequence[Any]) -> None:
        self._rows.emit(rows)
        self._room.emit(rows)


class AdaptedPartitionedSpout:
    """Adapts a partitioned spout to the port `TridentSpout`, with the emitter of its kind."""

    def __init__(self, spout: Partitioned, emitter: type[PartitionsEmitter]) -> None:
        self._spout, self._emitter = spout, emitter
        self.emits, self.kind = spout.emits, spout.kind
        self.commits, self.parallelism_max = emitter.commits, spout.parallelism_max
        self.event_time = spout.event_time

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        return PartitionsCoordinator(self._spout, store, path, context)

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return self._emitter(self._spout, store, path, context)
