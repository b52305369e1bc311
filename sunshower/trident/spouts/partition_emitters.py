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

import json
import math
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from math import inf
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import quote

from sunshower.errors import (
    FailedBatch,
    IncompleteBatch,
    NodeExists,
    NoNode,
    StaleAttempt,
    TopologyError,
    WrongVersion,
)
from sunshower.state.tree import Tree, parent
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.event_times import Time
from sunshower.trident.coordination.transactional_log import (
    JsonNode,
    TransactionalLog,
    current_batch,
    encode,
    mismatch,
)
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import Coordinator, Emitter, Partitioned, Rows, SpoutKind
from sunshower.trident.spouts.reached_times import UNKNOWN, PartitionAt, ReachedTimes

_REASONS_MAX = 3  # of records that cannot be emitted, in an error


# ---- partition log -------------------------------------------------------------------------------
# The transactional log of one partition, which refuses writes of older attempts.
#
#     …/user/<partition>/<txid>      {"epoch": 1, "attempt": 0, "metadata": …}, or without
#                                    metadata if the batch has no rows of the partition
#                                    … "at": [12.5, 11.0, false]     a PartitionAt, with windows
#
# Nodes that Storm itself has written (metadata alone) are read as attempt -1. Storm:
# RotatingTransactionalState, as the partitioned executors use it


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
        latest = self.latest(txid - 1)
        return self[latest] if latest else NOTHING

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
            entry = self.get(attempt.txid)
            epoch, number = (entry["epoch"], entry["attempt"]) if _is_stamped(entry) else (0, -1)
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


# ---- partition coordinator -----------------------------------------------------------------------
# The partitions of a batch and the task of each, as the coordinator assigns them per txid.
#
#     {"txid": 7, "partitions": ["a", null, "c"], "gone": []}    "c" is of task 2 modulo the tasks
#     … "run": "5f….1"    of a bounded spout: its declaration, and the number of the run
#     … "origin": "t-1", "added": ["c"]    partitions added since the first batch of that origin
#
# A partition keeps its index while it exists. When another one vanishes, its index stays empty
# until a new partition takes it. A partition that vanished between two attempts of a batch is
# `gone`: the batch has none of its rows now, and its task stores that over what an earlier attempt
# stored. Storm: PartitionedTridentSpoutExecutor.Coordinator, .getPartitionsForTask (a list without
# gaps)


def places(before: Sequence[str | None], present: Collection[str]) -> list[str | None]:
    """The partition list of a batch, derived from that of the batch before."""
    names = [name if name in present else None for name in before]
    new = sorted({*present}.difference(before))
    for at, name in enumerate(names):
        if name is None and new:
            names[at] = new.pop(0)
    return [*names, *new]


def _is_one(metadata: Any) -> bool:
    return isinstance(metadata, dict) and isinstance(metadata.get("partitions"), list)


def partitions_of_task(metadata: Any, context: Context) -> list[str]:
    """The partitions of a task. Each batch starts with another one, so that none is starved."""
    mine = metadata["partitions"][context.index :: context.parallelism]
    names = [name for name in mine if name is not None]
    first = metadata["txid"] % max(len(names), 1)
    return names[first:] + names[:first]


def at_end(spout: Partitioned, name: str, metadata: Any) -> bool:
    """Whether a partition will have no more rows after a batch with this metadata."""
    known = metadata is not NOTHING and metadata is not None
    return known and spout.is_end(name, metadata)


def begin_batch(spout: Partitioned, metadata: Any) -> None:
    """Call the spout's `begin_batch` for the batch with these metadata."""
    spout.begin_batch(metadata.get("run", ""), metadata.get("added", ()))


class PartitionsCoordinator(Coordinator):
    """Assigns partitions to batches (port `Coordinator`). Of a transactional spout every
    attempt has the partitions of the first."""

    def __init__(self, spout: Partitioned, tree: Tree, path: str, context: Context) -> None:
        self._spout = deepcopy(spout)
        self._spout.open(context)
        self._tree, self._emitters, self._metas = tree, f"{parent(path)}/user", f"{path}/meta"
        self._ended: set[tuple[str, str]] = set()  # runs and partitions
        self._is_new = True  # no batch has begun in this life
        self._ends = type(spout).is_end is not Partitioned.is_end

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        at, before = (txid - 1, previous) if current is None else (txid, current)
        if before is not None and not _is_one(before):
            raise mismatch(f"{self._metas}/{at}", before, 'like {"txid": 7, "partitions": ["a"]}')
        if current is not None and self._spout.kind is SpoutKind.TRANSACTIONAL:
            return current
        present = self._spout.partitions()
        if len({*present}) < len(present) or not all(present):
            raise TopologyError(
                f"{type(self._spout).__name__}.partitions() returns {[*present]!r:.200}; each "
                "partition needs a name, and no two the same one"
            )
        listed = before["partitions"] if before else []
        gone = [name for name in listed if name and name not in present] if current else []
        names = places(listed, {*present, *gone})
        assigned = {"txid": txid, "partitions": names, "gone": gone}
        if self._spout.declared:
            assigned["run"] = self._run(before or {}, begun=current is not None)
        if self._spout.origin is not None:
            assigned |= {"origin": self._spout.origin, "added": self._added(before, names)}
            if self._spout.origin and before and before.get("origin", "") != self._spout.origin:
                self._begin_anew(txid, names)
        self._is_new = self._is_new and current is not None
        return assigned

    def _begin_anew(self, txid: int, names: Sequence[str | None]) -> None:
        """Tell the spout what the store has of its partitions."""
        logs = {name: PartitionLog(self._tree, self._emitters, name) for name in names if name}
        stored = {name: log.before(txid) for name, log in logs.items()}
        self._spout.begins_anew(
            {
                name: metadata
                for name, metadata in stored.items()
                if metadata is not NOTHING and metadata is not None
            }
        )

    def _added(self, before: Any, names: Sequence[str | None]) -> list[str]:
        """Partitions that were added after the origin: all their records count."""
        if not before or before.get("origin", "") != self._spout.origin:
            return []
        old = {*before["partitions"]}.difference(before.get("added", ()))
        return [name for name in names if name is not None and name not in old]

    def _run(self, before: Mapping[str, Any], *, begun: bool) -> str:
        """The run of a batch. A restarted task continues the run of the batch before, unless that
        run has been read to its end: then the topology was started once more."""
        run, declared = before.get("run", ""), self._spout.declared
        if not self._is_of_ours(run):
            return f"{declared}.1"
        again = self._is_new and not begun and self.is_last(before)
        return f"{declared}.{int(run.partition('.')[2]) + 1}" if again else str(run)

    def _is_of_ours(self, run: str) -> bool:
        return run.startswith(f"{self._spout.declared}.")

    def is_last(self, metadata: Any) -> bool:
        return self.has_ended(metadata, metadata["txid"] + 1)

    def has_ended(self, metadata: Any, current: int) -> bool:
        names = [name for name in metadata["partitions"] if name is not None]
        begin_batch(self._spout, metadata)
        run = metadata.get("run", "")
        if not self._ends or not names or (self._spout.declared and not self._is_of_ours(run)):
            return False
        return all(self._at_end(name, run, current) for name in names)

    def _at_end(self, name: str, run: str, current: int) -> bool:
        if (run, name) not in self._ended:
            metadata = PartitionLog(self._tree, self._emitters, name).before(current)
            if at_end(self._spout, name, metadata):
                self._ended.add((run, name))
        return (run, name) in self._ended

    def close(self) -> None:
        self._spout.close()


# ---- partition emitters --------------------------------------------------------------------------


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
        self._times = times

    def event_time(self, row: Any) -> Any:
        return self._spout.event_time(row)

    def _emit_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        """Emit what follows the metadata `last`."""
        times, spout = self._times, self._spout
        first = 0 if times is None else times.begin_fetch(room)
        metadata: dict[str, Any] = spout.emit_all_new(deepcopy(last), room) if last else {}
        if times is not None:
            ends = spout.partitions_at_end() if last else {}
            times.fetched(room, first, last, metadata, ends)
        return metadata

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
        figures: Mapping[str, float] = self._spout.figures()
        return figures


class TransactionalEmitter(PartitionsEmitter):
    """Emits one task's share of transactional batches."""

    commits = False

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        names = partitions_of_task(metadata, self._context)
        begin_batch(self._spout, metadata)
        self._logs = {name: log for name, log in self._logs.items() if name in names}
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
        again = {name: stored for name, stored in again.items() if stored is not NOTHING}
        incomplete = None
        try:
            if again:
                self._spout.emit_all_again(deepcopy(again), room)
        except IncompleteBatch as error:  # others are stored first: it may be skipped
            incomplete = error
        certain = {name: stored for name, stored in last.items() if stored is not NOTHING}
        emitted = self._emit_new(certain, room)
        if not is_skipped:
            _check_complete(room)  # before they are stored, so that the source can be corrected
        for name, before in last.items():
            metadata, log = emitted.get(name, NOTHING), self._logs[name]
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
                metadata = self._logs[name].before(at + 1)
                return NOTHING if not committed else None if metadata is NOTHING else metadata
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
        self._held = {txid: share for txid, share in self._held.items() if txid < attempt.txid}
        begin_batch(self._spout, metadata)
        names = partitions_of_task(metadata, self._context)
        last = {
            name: NOTHING if name in metadata["gone"] else self._before(name, attempt.txid)
            for name in names
        }
        certain = {name: before for name, before in last.items() if before is not NOTHING}
        ended = frozenset(
            name for name, before in certain.items() if at_end(self._spout, name, before)
        )
        wanted = {name: before for name, before in certain.items() if name not in ended}
        room = Room(self._spout.bounds, self._context.clock, rows.records_max)
        emitted = self._emit_new(wanted, room)
        _check_complete(room)
        after = {name: emitted.get(name, before) for name, before in last.items()}
        same = {
            name for name, before in last.items() if after[name] == before and not attempt.attempt
        }
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
        metadata = self._look(name).before(at + 1)
        return None if metadata is NOTHING else metadata

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
        self._logs = {name: log for name, log in self._logs.items() if name in held.metadata}
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
        self._held = {txid: share for txid, share in self._held.items() if txid >= attempt.txid}
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
        figures: Mapping[str, float] = self._emitter.figures()
        return figures


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
