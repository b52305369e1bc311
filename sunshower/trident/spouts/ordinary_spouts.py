"""Adapts ordinary spouts to batch spouts: the records within the bounds are a batch.

records      PlainSpout     a repeated batch has the same records, except after a crash of its task
next_tuple   PolledSpout    message ids are acked when their batch is committed

Storm: org.apache.storm.trident.spout.RichSpoutBatchExecutor (it calls nextTuple)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from threading import get_ident
from typing import Any, NamedTuple

from sunshower.arguments import checked
from sunshower.clock import Clock, SystemClock
from sunshower.errors import (
    BadEmit,
    IncompleteBatch,
    StaleAttempt,
    TopologyError,
    WrongVersion,
    user_errors,
)
from sunshower.failures import Cause, Failure
from sunshower.runtime.tasks.shared_collector import SharedCollector
from sunshower.state.tree import Tree, parent
from sunshower.topologies.components import DEFAULT, Context, Spout
from sunshower.topologies.graph import Level
from sunshower.topologies.logs import Unreadable
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.signatures import spout_signature
from sunshower.trident.coordination.transactional_log import JsonNode
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import Coordinator, Emitter, PartitionedSpout, Rows, SpoutKind

_LOG = logging.getLogger("sunshower")
_RECORDS = "records"  # the one partition
_AT_ONCE = 256  # records between two checks of the clock
_AGAIN_S = 10.0  # limit for reading a batch again; less than the tuple timeout
_REST_S = 0.05  # pause before a source without new records is polled again


def _emits(spout: Spout[Any], level: Level, refusal: str) -> Any:
    """What a spout of this level emits; None: nothing says that. Raises TopologyError for another
    level."""
    name = type(spout).__name__
    signature = spout_signature(spout, name)
    if signature.level is not level:
        raise TopologyError(f"{name} {refusal}")
    if spout.emits is not None:
        return spout.emits
    return None if signature.emits is Any else signature.emits


# ---- records ------------------------------------------------------------------------------------


class PlainSpout(PartitionedSpout):
    """Batches of the `records` of a spout, in one task.

    A repeated batch has the same rows, except in another life of its task. That calls `records`
    again and skips as many records as were emitted before, as an ordinary topology does; batches
    are empty until that is done. So the spout is non-transactional and states behind it are not
    exact, unless `repeats` says that it always gives the same records in the same order, as files
    do and sockets do not. Raises TopologyError for a spout without `records`.
    """

    parallelism_max = 1

    @checked(TopologyError)
    def __init__(
        self, spout: Spout[Any], *, repeats: bool = False, bounds: Bounds | None = None
    ) -> None:
        refusal = (
            "has no records(), of which batches could be made: write it, or next_tuple (for a "
            "PolledSpout), a BatchSpout, a PartitionedSpout or an OpaquePartitionedSpout; for "
            "topics of Kafka there are KafkaTransactional and KafkaOpaque"
        )
        self.emits = _emits(spout, Level.RECORDS, refusal)
        self.kind = SpoutKind.TRANSACTIONAL if repeats else SpoutKind.NON_TRANSACTIONAL
        self.bounds = bounds or Bounds()
        self._spout, self.event_time = spout, spout.event_time
        self._reading: _Reading | None = None
        self._kept: dict[int, list[Any]] = {}  # rows of batches in progress, by their first record

    def open(self, context: Context) -> None:
        self._context = replace(context, index=0, parallelism=1)

    def partitions(self) -> Sequence[str]:
        return [_RECORDS]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        first = last["end"] if last else 0
        reading = self._from(first)
        records: list[Any] = []
        more = reading.skip(room)
        while more and room.records > len(records) and room.seconds:
            more = reading.take(records, min(room.records, len(records) + _AT_ONCE))
        self._kept[first] = records
        _emit(records, room)
        return {"first": first, "end": first + len(records), "ended": reading.ended}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        first, end = metadata["first"], metadata["end"]
        rows = self._kept.get(first, [])
        if len(rows) > end - first:
            rows = []
        if len(rows) < end - first:
            self._kept[first] = rows
            self._take_again(first, end, rows)
        _emit(rows, room)

    def _take_again(self, first: int, end: int, rows: list[Any]) -> None:
        """Read the records up to `end` that `rows` does not have yet. Raises IncompleteBatch."""
        reading, clock = self._from(first + len(rows)), self._context.clock
        time = Room(Bounds(seconds=_AGAIN_S), clock)
        while len(rows) < end - first and not reading.ended and time.seconds:
            if not (reading.skip(time) and reading.take(rows, end - first)):
                clock.sleep(_REST_S)
        if len(rows) < end - first:
            until = f"ends after {reading.at}" if reading.ended else f"gives but {reading.at} soon"
            raise IncompleteBatch(
                f"{type(self._spout).__name__} has given records {first} to {end - 1}, and now "
                f"{until}: what is emitted again must be there still"
            )

    def _from(self, first: int) -> _Reading:
        """The records from number `first` on."""
        if self._reading is None or self._reading.next != first:
            self.close()
            spout = deepcopy(self._spout)
            spout.open(self._context)
            self._reading, self.event_time = _Reading(spout, first), spout.event_time
        return self._reading

    def is_end(self, partition: str, metadata: Any) -> bool:
        return bool(metadata["ended"])

    def committed(self, metadata: Mapping[str, Any]) -> None:
        settled = metadata.get(_RECORDS)
        end = settled["end"] if isinstance(settled, dict) else 0
        self._kept = {first: rows for first, rows in self._kept.items() if first >= end}

    def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.spout.close()


def _emit(records: list[Any], room: Room) -> None:
    if Unreadable in {*map(type, records)}:
        for record in records:
            if type(record) is Unreadable:
                room.refuse(record.reason)
        records = [record for record in records if type(record) is not Unreadable]
    room.emit(records)


class _Reading:
    """Reads the records of a spout and counts them; None ("nothing now") does not count."""

    def __init__(self, spout: Spout[Any], first: int) -> None:
        self.spout = spout
        self.ended = False
        self.next = first  # the number of the next record
        self._behind = first  # records that must be skipped first
        self._records: Iterator[Any] = iter(spout.records())

    @property
    def at(self) -> int:
        """How many records it has read."""
        return self.next - self._behind

    def skip(self, room: Room) -> bool:
        """Skip records. Returns whether all have been skipped; if not, there are none now."""
        passed: list[Any] = []
        in_vain = 0
        while self._behind and not self.ended and room.seconds and in_vain < _AT_ONCE:
            self._draw(passed, min(self._behind, _AT_ONCE))
            in_vain = 0 if passed else in_vain + 1
            self._behind -= len(passed)
            passed.clear()
        return not self._behind

    def take(self, records: list[Any], limit: int) -> bool:
        """Append records until `found` has `limit`. Returns whether there may be more now."""
        had = len(records)
        more = self._draw(records, limit)
        self.next += len(records) - had
        return more

    def _draw(self, records: list[Any], limit: int) -> bool:
        at, self.next = self.next, -1  # an iterator that raises cannot be continued
        for record in self._records:
            if record is None:
                break
            records.append(record)
            if len(records) >= limit:
                break
        else:
            self.ended = True
        self.next = at
        return len(records) >= limit


# ---- next_tuple ---------------------------------------------------------------------------------


class PolledSpout:
    """Batches of the default stream of a spout with `next_tuple`, in one task (port
    `TridentSpout`).

    Message ids are acked when their batch is committed, and failed when it fails. Then a spout with
    `replay = False` is polled again; for others the same rows are emitted again. After a crash of
    the task the spout is polled from wherever `open` starts. So states behind it are not exact.
    `tick` is not called. Raises TopologyError for other spouts.
    """

    kind = SpoutKind.NON_TRANSACTIONAL
    commits = False
    parallelism_max = 1

    @checked(TopologyError)
    def __init__(self, spout: Spout[Any], *, bounds: Bounds | None = None) -> None:
        refusal = "has no next_tuple, which could be asked for batches"
        self.emits = _emits(spout, Level.NEXT_TUPLE, refusal)
        self._spout, self._bounds = spout, bounds or Bounds()
        self.event_time = spout.event_time

    def coordinator(self, store: Tree, path: str, context: Context) -> _Coordinator:
        return _Coordinator(JsonNode(store, f"{parent(path)}/user/ended"))

    def emitter(self, store: Tree, path: str, context: Context) -> _Emitter:
        ended = JsonNode(store, f"{path}/ended")
        return _Emitter(deepcopy(self._spout), self._bounds, ended, context)


class _Coordinator(Coordinator):
    def __init__(self, ended: JsonNode) -> None:
        self._ended = ended

    def is_last(self, metadata: Any) -> bool:
        return self._ended.read() and 0 < self._ended.value <= metadata["txid"]


class _Emitted(NamedTuple):
    record: Any
    message_id: Any


class _Collector(SharedCollector):
    """The SpoutCollector that `next_tuple` gets. What other threads emit goes into the next batch
    that has room."""

    def __init__(self, spout: str, records_max: int, clock: Clock) -> None:
        super().__init__(spout, records_max)
        if isinstance(clock, SystemClock):  # else time is virtual
            self.wake = _until_next_batch
        self.waiting: deque[_Emitted] = deque()
        self.finished = False
        self._spout = spout

    def emit(self, record: Any, message_id: Any = None, *, stream: str = DEFAULT) -> None:
        if stream != DEFAULT:
            raise BadEmit(
                f"{self._spout} emits {record!r} on stream {stream!r}; batches are made of its "
                "default stream alone"
            )
        emitted = _Emitted(record, message_id)
        if get_ident() == self.home:
            self.catch_up()
            self.waiting.append(emitted)
        else:
            self.hand_over(lambda: (self.waiting.append, (emitted,)), is_emit=True)

    def emit_direct(
        self, task: int, record: Any, message_id: Any = None, *, stream: str = DEFAULT
    ) -> None:
        raise BadEmit(f"{self._spout} emits {record!r} to task {task}; rows of batches have none")

    def finish(self) -> None:
        if get_ident() == self.home:
            self._finish()
        else:
            self.hand_over(lambda: (self._finish, ()))

    def catch_up(self) -> None:
        """Carry out the waiting calls of other threads."""
        for call, arguments in self.take():
            call(*arguments)

    def _finish(self) -> None:
        self.finished = True


def _until_next_batch() -> None:
    """Wake nobody: the next batch takes what waits."""


class _Emitter(Emitter):
    """`ended` holds the txid after which there are no more rows, because the spout has finished; 0:
    it has not. Each life of the task rewrites it."""

    def __init__(
        self, spout: Spout[Any], bounds: Bounds, ended: JsonNode, context: Context
    ) -> None:
        self._spout, self._bounds, self._clock = spout, bounds, context.clock
        self._kept: dict[int, list[_Emitted]] = {}  # the batches in progress
        self._out = _Collector(type(spout).__name__, self._bounds.records, self._clock)
        self._ended = ended
        ended.overwrite(0)  # writes of a former life are refused from now on
        spout.open(context)
        spout.activate()

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        txid = attempt.txid
        if txid in self._kept:
            self._fail(self._kept[txid])
            if not self._spout.replay:
                del self._kept[txid]
        if txid not in self._kept:
            self._kept[txid] = self._poll(rows.records_max)
        self._store_end(txid)
        rows.emit([emitted.record for emitted in self._kept[txid]])

    def event_time(self, row: Any) -> Any:
        return self._spout.event_time(row)

    def success(self, attempt: Attempt) -> None:
        for txid in sorted(txid for txid in self._kept if txid <= attempt.txid):
            for emitted in self._kept.pop(txid):
                if emitted.message_id is not None:
                    self._report(self._spout.ack, emitted.message_id)

    def close(self) -> None:
        try:
            self._spout.close()
        finally:
            self._out.close()

    def figures(self) -> Mapping[str, float]:
        return self._spout.figures()

    def _poll(self, records_max: int | None) -> list[_Emitted]:
        polled: list[_Emitted] = []
        room, waiting = Room(self._bounds, self._clock, records_max), self._out.waiting
        self._out.enter()
        try:
            while len(polled) < room.records and room.seconds:
                if not waiting and not self._out.finished:
                    self._spout.next_tuple(self._out)
                if not waiting:
                    self._out.catch_up()
                if not waiting:
                    break
                while waiting and len(polled) < room.records:
                    polled.append(waiting.popleft())
        except BaseException:
            waiting.extendleft(reversed(polled))  # for the next attempt
            raise
        finally:
            self._out.leave()
        return polled

    def _fail(self, batch: list[_Emitted]) -> None:
        why = Failure(Cause.FAILED, reason="its batch is emitted again")
        for emitted in batch:
            if emitted.message_id is not None:
                self._report(self._spout.fail, emitted.message_id, why)

    def _report(self, report: Callable[..., None], *about: Any) -> None:
        """Call `ack` or `fail` of the spout; log what it raises, since that concerns no batch."""
        try:
            report(*about)
        except user_errors():
            _LOG.exception("%s of %s", report.__name__, type(self._spout).__name__)

    def _store_end(self, txid: int) -> None:
        """Store after which batch there are no more rows, before any row of this one is sent."""
        later = any(rows for other, rows in self._kept.items() if other > txid)
        at_end = self._out.finished and not (self._out.waiting or self._out.calls or later)
        stored = ended = self._ended.value
        if not at_end and stored <= txid:
            ended = 0
        elif at_end and (not stored or stored > txid):
            ended = txid
        if ended != stored:
            try:
                self._ended.write(ended)
            except WrongVersion as error:
                raise StaleAttempt(
                    f"{self._ended.path}: another life of this task has begun"
                ) from error
