"""Runs bolts at the manual level: Storm's execute(tuple, out), with misuse detected at the call.

In Storm a second ack, an ack after a fail, or an emit on an acked anchor silently unbalances the
tree until the timeout; here the collector raises AlreadySettled in the offending line. Any thread
may call it: see shared_collector.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from math import inf
from threading import get_ident
from typing import Any

import numpy as np

from sunshower.errors import AlreadySettled, BadEmit, user_errors
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.tasks.bolts.anchoring import Anchor, AnchoredSender, Unsent
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask, Intake, Trial
from sunshower.runtime.tasks.bolts.keyed_bolt import KeyedBolt
from sunshower.runtime.tasks.shared_collector import Call, SharedCollector
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import no_way
from sunshower.runtime.tracking.batch import Batch
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

    __slots__ = (
        "bolt",
        "claim",
        "component",
        "edges",
        "given_up",
        "in_common",
        "record",
        "state",
        "stream",
        "task",
    )

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
        self.state = InputState.OPEN  # only the task's thread changes it
        self.claim = InputState.OPEN  # what another thread has called, perhaps not carried out yet
        self.bolt: Any = None  # the object that has it
        self.given_up = False  # its trees failed while it was open: its ack is not reported
        self.in_common = False  # whether several trees share it with other inputs

    def __repr__(self) -> str:
        return f"Tuple({self.record!r} from {self.component}.{self.stream}, task {self.task})"


class CollectorHandle(SharedCollector):
    """The Collector passed to a bolt."""

    def __init__(self, task: ManualBoltTask) -> None:
        super().__init__(task.task.name, task.service.records_max)
        self.task = task

    def emit(
        self,
        record: Any,
        anchors: Tuple[Any] | Sequence[Tuple[Any]] = (),
        *,
        stream: str = DEFAULT,
        task: int | None = None,
    ) -> None:
        """`task`: of `emit_direct`."""
        if get_ident() != self.thread:
            self._hand_over_emit(stream, record, anchors, task)
            return
        if self.calls:
            self.task.catch_up()
        self.task.emit(stream, record, anchors, task)

    def emit_direct(
        self,
        task: int,
        record: Any,
        anchors: Tuple[Any] | Sequence[Tuple[Any]] = (),
        *,
        stream: str = DEFAULT,
    ) -> None:
        self.emit(record, anchors, stream=stream, task=task)

    def ack(self, tuple: InputTuple) -> None:
        if get_ident() != self.thread or self.calls:
            self._settle(tuple, "acked", InputState.ACKED, (ManualBoltTask.ack, (tuple,)))
            return
        self.task.must_be_open(tuple, "acked")
        self.task.ack(tuple)

    def fail(self, tuple: InputTuple, reason: str | BaseException = "") -> None:
        call = ManualBoltTask.fail, (tuple, self.task.failure_for(reason))
        self._settle(tuple, "failed", InputState.FAILED, call)

    def reset_timeout(self, tuple: InputTuple) -> None:
        call = ManualBoltTask.postpone, (tuple,)
        self._settle(tuple, "given more time", InputState.OPEN, call)

    def _hand_over_emit(
        self, stream: str, record: Any, anchors: Any, task: int | None = None
    ) -> None:
        self.task.check(stream, record, task)

        def claim() -> Call:
            checked = self.task.open_anchors(anchors)
            return ManualBoltTask.add, (stream, record, checked, task)

        self.hand_over(claim, is_emit=True)

    def _settle(self, tuple: InputTuple, what: str, claimed: InputState, call: Call) -> None:
        """Carry out a call for an open input; one of another thread later."""
        if get_ident() == self.thread:
            if self.calls:
                self.task.catch_up()
            self.task.must_be_open(tuple, what)
            method, arguments = call
            method(self.task, *arguments)
            return

        def claim() -> Call:
            self.task.must_be_open(tuple, what)
            tuple.claim = claimed
            return call

        self.hand_over(claim)


class ManualBoltTask(BoltTask):
    """Calls `execute` for each input; its emits, acks and fails take effect after the batch."""

    intake = Intake(one_source=True)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sender = AnchoredSender(self.output_streams)
        self._emits_left = self._emits_max = self.service.records_max
        self.collector = CollectorHandle(self)
        self._settled: list[InputTuple] = []
        self._failures: list[tuple[InputTuple, Failure]] = []
        self._was_replaced = False  # whether there are inputs of another object of the bolt
        self.postponed: list[int] = []

    def process(self, batch: Batch) -> Batch | None:
        self.collector.enter()
        try:
            return self._execute_all(batch)
        finally:
            self.collector.leave()

    def _execute_all(self, batch: Batch) -> Batch | None:
        origin = self._streams[batch.stream]
        received, batch = batch, batch.spread()
        if batch is not received:  # in the event log: passed on to this task with other edges
            self.instrument.settled(received, {})
            self.instrument.sent(batch, self.task.id)
            self.instrument.delivered(replace(batch, is_recorded=False))
        ids = batch.ids_of_each()
        allowance = self.output_streams.allowance
        begun, rest = len(batch), None
        records = batch.rows(origin.spec.schema)
        if isinstance(self.bolt, KeyedBolt):
            self.bolt.announce(origin, records)
        self._begin_batch(batch)
        for index, record in enumerate(records):
            place = (origin.component, batch.source, origin.spec.id)
            tuple = InputTuple(record, *place, *next(ids))
            tuple.in_common, tuple.bolt = batch.in_common, self.bolt
            self._emits_left = self._emits_max
            try:
                self.call(tuple, self.collector)
            except user_errors() as error:
                self.catch_up()
                self._fail_unfinished(tuple, self._judge(index, error, batch.records))
            if self.errors.stops or len(self._sender) >= allowance:
                begun = index + 1
                break
        if begun < len(batch):
            batch, rest = batch.split(begun)
        self._executed.add(batch.stream, begun)
        self.catch_up()
        self._carry_out(batch)
        self._end_batch(begun)
        return rest

    def adopt(self, bolt: Any) -> None:
        self._was_replaced |= self.bolt is not None and self.bolt is not bolt
        super().adopt(bolt)
        self.call = bolt.execute

    def tick(self) -> None:
        """Call the bolt's tick; what it requested before it raised is still carried out."""
        self._emits_left = self._emits_max
        self.collector.enter()
        try:
            outputs = self._made_by_tick()
        finally:
            self._carry_out(None)
            self.collector.leave()
        self._send_of_tick(partial(self._send_by_stream, outputs, None))

    @property
    def is_busy(self) -> bool:
        """Whether calls of other threads wait."""
        return bool(self.collector.calls)

    def catch_up(self) -> None:
        """Add the waiting calls of other threads to those of this thread; not while another object
        of the bolt is tried, because they are not of that object."""
        if self.rare.trial is Trial.NEW:
            return
        for call, arguments in self.collector.take():
            call(self, *arguments)

    def settle_calls(self) -> None:
        """Carry out the waiting calls of other threads."""
        self.collector.enter()
        try:
            self.catch_up()
            self._carry_out(None)
        finally:
            self.collector.leave()

    def settles_at_s(self) -> float:
        """When `settle_calls` may be called: not while receivers have no credit, nor between two
        tries of a paused bolt whose `flush` may raise; ∞ if that depends on credit."""
        if not self.collector.calls or self.output_streams.full:
            return inf
        return self.supervision.resumes_s if self._flushes else -inf

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
            except user_errors() as error:
                if batch is not None:
                    failure = self._judge_all(error, batch)[0]
                else:
                    failure = self._judge_records(error, [t.record for t in self._settled])
                self._fail_batch(failure)
        if self.rare.trial is Trial.NEW or self._was_replaced:
            self._fail_tried()
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
            for tuple in (anchor for anchor in anchors if isinstance(anchor, InputTuple)):
                if tuple.state is InputState.OPEN:
                    self._give_up(tuple, failure)

    def _fail_tried(self) -> None:
        """Fail inputs that another object of the bolt has acked, or this one on trial: what it
        holds in memory is lost."""
        is_new = self.rare.trial is Trial.NEW
        tried = [t for t in self._settled if is_new or t.bolt is not self.bolt]
        self._failures += [(tuple, self._tried) for tuple in tried]
        self._settled = [tuple for tuple in self._settled if tuple not in tried]

    def _give_up(self, tuple: InputTuple, failure: Failure) -> None:
        """Fail the trees of an input that stays open for the bolt."""
        if not tuple.given_up:
            tuple.given_up = True
            self._report_failure(tuple, failure)

    def _report_failure(self, tuple: InputTuple, failure: Failure) -> None:
        if not tuple.roots:
            self.note_untracked(failure)
        self.instrument.inputs([tuple], failure.cause)
        if tuple.in_common:
            failure = failure.in_common
        self._reports.fail(np.array(tuple.roots, np.uint64), failure)

    def _fail_unsent(self, unsent: list[Unsent]) -> None:
        """Fail all inputs that these records were anchored to, open or just acked: a grouping
        raised."""
        for record in unsent:
            failure = no_way(self.task, record.error)
            if not record.anchors:
                self.note_untracked(failure)
            for tuple in (anchor for anchor in record.anchors if isinstance(anchor, InputTuple)):
                if tuple.state is InputState.OPEN:
                    self._give_up(tuple, failure)
                else:
                    self._fail_unfinished(tuple, failure)

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        transfer = super().pack(stays=stays, now=now)
        if stays:
            transfer.collector = self.collector
        return transfer

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        super().unpack(transfer, context)
        if transfer.collector is not None:  # the bolt may have kept its collector
            transfer.collector.wake = self.collector.wake
            self.collector = transfer.collector
            self.collector.task = self

    def close(self) -> TaskError | None:
        try:
            return super().close()
        finally:
            self.collector.close()

    # Called by the collector; those that check, from any thread.

    def emit(self, stream: str, record: Any, anchors: Any, task: int | None = None) -> None:
        """Add a record of this call of the bolt."""
        self.check(stream, record, task)
        self._count_emit()
        self._sender.add(stream, record, self.open_anchors(anchors), task)

    def check(self, stream: str, record: Any, task: int | None) -> None:
        """Raise BadEmit for a record that cannot be sent."""
        self._sender.check(stream, record, task)

    def add(
        self, stream: str, record: Any, anchors: list[InputTuple], task: int | None = None
    ) -> None:
        """Add a record of another thread, checked when it called. An anchor that was acked at the
        same time is left out: its report cannot contain another edge."""
        still = [anchor for anchor in anchors if anchor.state is not InputState.ACKED]
        self._sender.add(stream, record, still, task)

    def ack(self, tuple: InputTuple) -> None:
        """Ack an open input; of another thread, unless it failed meanwhile."""
        if tuple.state is InputState.OPEN:
            tuple.state = InputState.ACKED
            self._acked += 1
            self._settled.append(tuple)

    def fail(self, tuple: InputTuple, failure: Failure) -> None:
        """Fail an open input; of another thread, unless it was settled meanwhile."""
        if tuple.state is InputState.OPEN:
            self._fail(tuple, failure)

    def postpone(self, tuple: InputTuple) -> None:
        """Give its trees more time."""
        self.postponed += tuple.roots

    def failure_for(self, reason: str | BaseException) -> Failure:
        """The failure of an input that the bolt fails for this reason."""
        if isinstance(reason, BaseException):
            return self.failure(reason)
        text = without_secrets(reason if isinstance(reason, str) else describe(reason))
        place = (self.task.component, self.task.index, text)
        return Failure(Cause.FAILED, *place, worker=self.task.worker)

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

    def open_anchors(self, anchors: Any) -> list[InputTuple]:
        """The anchors as a list. Raises AlreadySettled if one of them is not open."""
        tuples = [anchors] if isinstance(anchors, InputTuple) else list(anchors)
        for anchor in tuples:
            self.must_be_open(anchor, "an anchor")
        return tuples

    def must_be_open(self, tuple: InputTuple, what: str) -> None:
        """Raise AlreadySettled for an input that is acked or failed, or will be."""
        if tuple.state is not InputState.OPEN or tuple.claim is not InputState.OPEN:
            before = tuple.claim if tuple.state is InputState.OPEN else tuple.state
            raise AlreadySettled(
                f"{tuple!r} cannot be {what} in {self.task.name}: it was "
                f"{before.value} before. Ack or fail each input once, after its last emit"
            )
