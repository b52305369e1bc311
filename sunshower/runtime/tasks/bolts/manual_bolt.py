"""Runs bolts at the manual level: Storm's execute(tuple, out), with misuse detected at the call.

In Storm a second ack, an ack after a fail, or an emit on an acked anchor silently unbalances the
tree until the timeout; here the collector raises AlreadySettled in the offending line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from sunshower.errors import AlreadySettled, BadEmit
from sunshower.failures import Cause, Failure
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.tasks.bolts.anchoring import Anchor, AnchoredSender, Unsent
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.bolts.keyed_bolt import KeyedBolt
from sunshower.runtime.tasks.user_code import RAISED, no_way
from sunshower.runtime.transport.batch import Batch
from sunshower.secret import without_secrets
from sunshower.texts import describe
from sunshower.topologies.components import DEFAULT, Context, Tuple


class InputState(Enum):
    """Whether an input is open, acked or failed."""

    OPEN = "open"
    ACKED = "acked"
    FAILED = "failed"


class InputTuple(Anchor):
    """One input: its record, its source, and its edges in the tuple trees."""

    __slots__ = ("component", "edges", "given_up", "record", "shared", "state", "stream", "task")

    def __init__(
        self,
        record: Any,
        component: str,
        task: int,
        stream: str,
        roots: Sequence[int],
        edges: Sequence[int],
    ) -> None:
        super().__init__(roots)
        self.record = record
        self.component = component
        self.task = task
        self.stream = stream
        self.edges = edges
        self.state = InputState.OPEN
        self.given_up = False  # its trees failed while it was open: its ack is not reported
        self.shared = False  # whether its trees are those of a shared batch

    def __repr__(self) -> str:
        return f"Tuple({self.record!r} from {self.component}.{self.stream}, task {self.task})"


class CollectorHandle:
    """The Collector passed to a bolt: one object for as long as the bolt object lives."""

    def __init__(self, task: ManualBoltTask) -> None:
        self.task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)


class ManualBoltTask(BoltTask):
    """Calls `execute` for each input; its emits, acks and fails take effect after the batch."""

    tells_source = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sender = AnchoredSender(self.output_streams)
        self._emits_left = self._emits_max = self.service.records_max
        self._collector = CollectorHandle(self)
        self._settled: list[InputTuple] = []
        self._failures: list[tuple[InputTuple, Failure]] = []
        self.postponed: list[int] = []  # roots whose timeout is to be reset

    def process(self, batch: Batch) -> Batch | None:
        origin = self._streams[batch.stream]
        if batch.shared:  # in the event log: passed on to this task with other edges
            self.instrument.settled(batch, {})
            batch = batch.spread()
            self.instrument.sent(batch, self.task.id)
            self.instrument.delivered(replace(batch, is_recorded=False))
        offsets = range(len(batch) + 1) if batch.offsets is None else batch.offsets.tolist()
        roots, edges = batch.roots.tolist(), batch.edges.tolist()
        execute = self.instrument.faults.around(self.bolt.execute, batch, origin.spec.schema)
        most = self.output_streams.allowance
        begun, rest = len(batch), None
        records = batch.rows(origin.spec.schema)
        if isinstance(self.bolt, KeyedBolt):
            self.bolt.announce(origin, records)
        self._begin_batch(batch)
        for index, record in enumerate(records):
            at = slice(offsets[index], offsets[index + 1])
            place = (origin.component, batch.source, origin.spec.id)
            tuple = InputTuple(record, *place, roots[at], edges[at])
            tuple.shared = batch.in_common
            if self.note is not None:
                self.note(batch.roots[at])
            self._emits_left = self._emits_max
            try:
                execute(tuple, self._collector)
            except RAISED as error:
                self._fail_unfinished(tuple, self._judge(index, error, batch.records))
            if self.errors.stops or len(self._sender) >= most:
                begun = index + 1
                break
        if begun < len(batch):
            batch, rest = batch.split(begun)
        self._executed.add(batch.stream, begun)
        self._carry_out(batch)
        self._end_batch(begun)
        return rest

    def tick(self) -> None:
        """Call the bolt's tick; what it requested before it raised is still carried out."""
        self._emits_left = self._emits_max
        try:
            outputs = self._made_by_tick()
        finally:
            self._carry_out(None)
        self._send_of_tick(partial(self._send_by_stream, outputs, None))

    def _fail_unfinished(self, tuple: InputTuple, failure: Failure) -> None:
        """Fail an input whose `execute` raised, even if it acked the input before."""
        if tuple.state is InputState.ACKED:
            self._settled.remove(tuple)
            self._acked -= 1
        if tuple.state is not InputState.FAILED:
            self._fail(tuple, failure)

    def _carry_out(self, batch: Batch | None) -> None:
        """Carry out the requested emits, acks and fails; `batch`: the inputs processed, if any."""
        if self._flushes:
            try:
                self._call_flush()
            except RAISED as error:
                judged = None if batch is None else self._judge_all(error, batch)[0]
                self._fail_batch(judged or self.failure(error))
        if self.on_trial:
            self._failures += [(tuple, self._tried) for tuple in self._settled]
            self._settled = []
        if unsent := self._sender.flush():
            self._fail_unsent(unsent)
        settled = [tuple for tuple in self._settled if not tuple.given_up]
        acks = [
            (root, edge ^ t.made)
            for t in settled
            for root, edge in zip(t.roots, t.edges, strict=True)
        ]
        self.instrument.inputs(settled)
        if acks:
            roots, xors = zip(*acks, strict=True)
            self._reports.ack(np.array(roots, np.uint64), np.array(xors, np.uint64))
        for tuple, failure in self._failures:
            self._report_failure(tuple, failure)
        self._settled, self._failures = [], []

    def _fail_batch(self, failure: Failure) -> None:
        """Send nothing: fail the inputs acked in this batch, and the open inputs that discarded
        outputs were anchored to."""
        self._failures += [(t, failure) for t in self._settled]
        self._acked -= len(self._settled)
        self._failed += len(self._settled)
        self._settled = []
        for anchors in self._sender.discard():
            if not anchors:
                self.note_untracked(failure)
            for tuple in (one for one in anchors if isinstance(one, InputTuple)):
                if tuple.state is InputState.OPEN:
                    self._give_up(tuple, failure)

    def _give_up(self, tuple: InputTuple, failure: Failure) -> None:
        """Fail the trees of an input that stays open for the bolt."""
        if not tuple.given_up:
            tuple.given_up = True
            self._report_failure(tuple, failure)

    def _report_failure(self, tuple: InputTuple, failure: Failure) -> None:
        if not tuple.roots:
            self.note_untracked(failure)
        self.instrument.inputs([tuple], failure.cause)
        if tuple.shared:
            failure = failure.in_common
        self._reports.fail(np.array(tuple.roots, np.uint64), failure)

    def _fail_unsent(self, unsent: list[Unsent]) -> None:
        """Fail all inputs that these records were anchored to, open or just acked: a grouping
        raised."""
        for one in unsent:
            failure = no_way(self.task, one.error)
            if not one.anchors:
                self.note_untracked(failure)
            for tuple in (anchor for anchor in one.anchors if isinstance(anchor, InputTuple)):
                if tuple.state is InputState.OPEN:
                    self._give_up(tuple, failure)
                else:
                    self._fail_unfinished(tuple, failure)

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        transfer = super().pack(stays=stays, now=now)
        if stays:
            transfer.collector = self._collector
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        super().unpack(transfer, context)
        if transfer.collector is not None:  # the bolt may have kept its collector
            self._collector = transfer.collector
            self._collector.task = self

    # The Collector interface of topologies/components.py, called by user code.

    def emit(
        self, record: Any, anchors: Tuple[Any] | Sequence[Tuple[Any]] = (), *, stream: str = DEFAULT
    ) -> None:
        self._sender.check(stream, record)
        self._count_emit()
        self._sender.add(stream, record, self._open_anchors(anchors))

    def emit_direct(
        self,
        task: int,
        record: Any,
        anchors: Tuple[Any] | Sequence[Tuple[Any]] = (),
        *,
        stream: str = DEFAULT,
    ) -> None:
        self._sender.check(stream, record, task)
        self._count_emit()
        self._sender.add(stream, record, self._open_anchors(anchors), task)

    def ack(self, tuple: InputTuple) -> None:
        self._must_be_open(tuple, "acked")
        tuple.state = InputState.ACKED
        self._acked += 1
        self._settled.append(tuple)

    def fail(self, tuple: InputTuple, reason: str | BaseException = "") -> None:
        self._must_be_open(tuple, "failed")
        if isinstance(reason, BaseException):
            self._fail(tuple, self.failure(reason))
            return
        text = without_secrets(reason if isinstance(reason, str) else describe(reason))
        place = (self.task.component, self.task.index, text)
        self._fail(tuple, Failure(Cause.FAILED, *place, worker=self.task.worker))

    def reset_timeout(self, tuple: InputTuple) -> None:
        self._must_be_open(tuple, "given more time")
        self.postponed += tuple.roots

    def _fail(self, tuple: InputTuple, failure: Failure) -> None:
        tuple.state = InputState.FAILED
        self._failed += 1
        self._failures.append((tuple, failure))

    def _count_emit(self) -> None:
        """Bound the emits of one call, which stay in memory until the call returns."""
        self._emits_left -= 1
        if self._emits_left < 0:
            raise BadEmit(
                f"one call of {self.task.name} emitted more than "
                f"{self._emits_max:,} records (window_records_max), which are kept until it "
                "returns. Emit fewer in a call, or yield them in process(), which sends as it goes"
            )

    def _open_anchors(self, anchors: Any) -> list[InputTuple]:
        found = [anchors] if isinstance(anchors, InputTuple) else list(anchors)
        for anchor in found:
            self._must_be_open(anchor, "an anchor")
        return found

    def _must_be_open(self, tuple: InputTuple, what: str) -> None:
        if tuple.state is not InputState.OPEN:
            raise AlreadySettled(
                f"{tuple!r} cannot be {what} in {self.task.name}: it was "
                f"{tuple.state.value} before. Ack or fail each input once, after its last emit"
            )
