"""One task of a stage: processes the parts of batches, counts them, and finishes each batch once.

    status      ends when                                                     then
    ----------  ------------------------------------------------------------  --------------------
    EXPECTING   all early parts are here, as the Counts of their senders      PROCESSING
                say, and the order to this task's emitter
    PROCESSING  each early operator has finished; an operator may wait for    PROCESSED, or OVER if
                work outside the task (`WaitingStageBolt`)                    nothing here is late
    PROCESSED   `$commit` is here, and all late parts and Counts              COMMITTING
    COMMITTING  each late operator has finished                               OVER
    OVER        the txid is committed or has a later attempt: forgotten

    any status  ── an exception; a later attempt; `$success`; a lost order, or part ──▶ OVER
    EXPECTING, PROCESSING  ── a `$commit`, a late Count ──▶ OVER: part of the batch is lost

What is late is decided in `phases.py`. The end of PROCESSING and of COMMITTING sends Counts to
later stages and acks the tuples that are held back, at least one Count among them. So no batch
counts as processed too early. Tuples of a batch that is OVER, and of outdated attempts, are failed
at once; Storm drops them, and their trees time out.
Storm: org.apache.storm.trident.topology.TridentBoltExecutor, planner.SubtopologyBolt
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sunshower.runtime.events.metrics import EventTime
from sunshower.texts import describe_error
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.late_records import LateRecords, sum_of
from sunshower.trident.coordination.attempts import (
    BATCH,
    COMMIT,
    SUCCESS,
    BatchCommand,
    Count,
    Part,
    SourceTime,
    counts_stream,
)
from sunshower.trident.coordination.phases import Phases
from sunshower.trident.coordination.running_batches import Operators
from sunshower.trident.stages.plan import Stage
from sunshower.trident.tasks.emitter_runner import EmitterRunner
from sunshower.trident.tasks.part_counter import PartCounter
from sunshower.trident.tasks.part_sender import PartSender


class BatchStatus(Enum):
    """What a task has to do for an attempt of a batch; the table is above."""

    EXPECTING = "expecting"
    PROCESSING = "processing"
    PROCESSED = "processed"
    COMMITTING = "committing"
    OVER = "over"


@dataclass
class TaskBatch:
    """An attempt of a batch in this task."""

    attempt: Attempt
    counter: PartCounter
    sent: dict[str, list[int]]
    status: BatchStatus
    awaits_commit: bool
    is_emitted: bool = False  # by this task's emitter
    operators: list[Any] = field(default_factory=list)  # what each has for this attempt
    held: list[Tuple[Any]] = field(default_factory=list)  # acked when the phase is over here
    times: dict[str, SourceTime] = field(default_factory=dict)  # of sources, for windows
    finished: int = 0  # operators that have finished in the current status; the next is not ready
    reason: str = ""  # why it is OVER

    def note_time(self, source: str, time: SourceTime) -> None:
        """Note how far some of the tasks of a source are in event time."""
        known = self.times.get(source)
        self.times[source] = time if known is None else known.merged(time)

    @property
    def waits(self) -> bool:
        """Whether an operator waits for work outside the task."""
        return self.status in {BatchStatus.PROCESSING, BatchStatus.COMMITTING}


class StageBolt(Stateless, Bolt[Any, Any]):
    """A task of a stage of `group`, with the emitter if the stage has a spout."""

    __sunshower_batches__ = True  # its tasks cannot change while they run

    def __init__(
        self,
        group: str,
        stage: Stage,
        phases: Phases,
        max_batches: int,
        emitter: EmitterRunner | None = None,
    ) -> None:
        self._group, self._stage, self._phases = group, stage, phases
        self._max_batches, self._emitter = max_batches, emitter
        self._is_late = phases.is_late(stage)
        nodes = range(len(stage.nodes))
        self._late_nodes = sorted(phases.late_nodes)
        self._early_nodes = [node for node in nodes if node not in phases.late_nodes]

    def prepare(self, context: Context) -> None:
        """Open operators and emitter. Raises Unavailable while a store or source is unavailable."""
        stage, late = self._stage, self._phases.late_inputs
        self._sender = PartSender(self._group, stage, context)
        self._operators = Operators(stage.nodes, self._sender)
        self._takers = {
            (one.stage, one.stream): (one.schema, self._operators.takers(one.feeds))
            for one in stage.inputs
        }
        feeders = {one.stage for one in stage.inputs}
        self._senders = {task: id in late for id in feeders for task in context.tasks[id]}
        mixed = self._phases.mixed_inputs
        self._mixed = [task for id in feeders & mixed for task in context.tasks[id]]
        self._counts = counts_stream(self._group)
        self._late_targets = self._phases.late_targets
        early = set(self._sender.targets) - self._late_targets
        self._early_targets = early | self._phases.mixed_targets
        self._batches: dict[int, TaskBatch] = {}
        self._epoch = self._succeeded = 0  # txids up to `_succeeded` are done
        if self._emitter is not None:
            feeds = stage.source.feeds if stage.source else ()
            self._from_spout = [*self._operators.takers(feeds), *self._sender.takers(None)]
        self._context = context
        self._operators.prepare(context)
        try:
            if self._emitter is not None:
                self._emitter.prepare(context)
        except BaseException:
            self._operators.cleanup()
            raise

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        attempt = Attempt(*tuple.record[:3])
        if tuple.stream == SUCCESS:
            self._forget(attempt, out)
            out.ack(tuple)
            return
        batch = self._find(attempt, out)
        if batch is None or batch.status is BatchStatus.OVER:
            why = "a later attempt has begun" if batch is None else batch.reason
            out.fail(tuple, f"attempt {attempt.attempt} of batch {attempt.txid} is over: {why}")
            return
        try:
            self._work(batch, tuple, out)
        except BaseException as error:
            self._sender.discard()
            self._end(batch, f"it has failed in this task ({describe_error(error)})")
            raise

    def cleanup(self) -> None:
        for batch in self._batches.values():
            self._operators.give_up(batch.operators)
        self._operators.cleanup()
        if self._emitter is not None:
            self._emitter.close()

    def figures(self) -> Mapping[str, float]:
        held = sum(batch.status is not BatchStatus.OVER for batch in self._batches.values())
        emitted = self._emitter.figures() if self._emitter is not None else {}
        return {"batches held": held, **emitted, **self._operators.figures()}

    def __sunshower_state_entries__(self) -> int | None:
        """How many entries the states have; None: no state, or not known."""
        return self._operators.state_entries()

    def __sunshower_late__(self) -> LateRecords | None:
        """The late records of its windows, and rows ahead of the clock; None: neither."""
        windows = self._operators.late_records()
        if self._emitter is None or self._emitter.times is None:
            return windows
        return sum_of([windows or LateRecords(), LateRecords(ahead=self._emitter.times.ahead)])

    def __sunshower_event_time__(self) -> EventTime | None:
        """What is known of the event times of its rows; None: nothing."""
        times = None if self._emitter is None else self._emitter.times
        return None if times is None else times.event_time

    # ---- attempts --------------------------------------------------------------------------------

    def _find(self, attempt: Attempt, out: Collector[Any]) -> TaskBatch | None:
        """The batch of an attempt, a new one for its first tuple; None if it is outdated."""
        if attempt.epoch > self._epoch:
            self._forget_all(attempt.epoch, out)
        if attempt.epoch < self._epoch or attempt.txid <= self._succeeded:
            return None
        known = self._batches.get(attempt.txid)
        if known is not None and known.attempt.attempt >= attempt.attempt:
            return known if known.attempt == attempt else None
        if known is not None:
            self._give_up(known, out)
        self._done_up_to(attempt.txid - self._max_batches, out)  # else this had not begun
        counter = PartCounter(self._senders, self._mixed)
        is_expecting = counter.missing_early or self._emitter is not None
        status = BatchStatus.EXPECTING if is_expecting else BatchStatus.PROCESSED
        sent, commits = self._sender.nothing_sent(), self._stage.commits
        batch = self._batches[attempt.txid] = TaskBatch(attempt, counter, sent, status, commits)
        return batch

    def _forget(self, attempt: Attempt, out: Collector[Any]) -> None:
        """Handle `$success`: a batch is committed."""
        if attempt.epoch > self._epoch:
            self._forget_all(attempt.epoch, out)
        if attempt.epoch == self._epoch and attempt.txid > self._succeeded:
            self._done_up_to(attempt.txid, out)
            if self._emitter is not None:
                self._emitter.succeeded(attempt)
        self._operators.succeeded(attempt.txid)  # also true if a later `$success` came first

    def _done_up_to(self, last: int, out: Collector[Any]) -> None:
        """Drop the batches up to `last`: they are committed."""
        self._succeeded = max(self._succeeded, last)
        for txid in [txid for txid in self._batches if txid <= last]:
            self._give_up(self._batches.pop(txid), out)

    def _forget_all(self, epoch: int, out: Collector[Any]) -> None:
        """Drop the batches of former lives of the master."""
        for batch in self._batches.values():
            self._give_up(batch, out)
        self._batches.clear()
        self._epoch, self._succeeded = epoch, 0

    def _give_up(self, batch: TaskBatch, out: Collector[Any]) -> None:
        for tuple in batch.held:
            out.fail(tuple, f"a later attempt of batch {batch.attempt.txid} has begun")
        self._end(batch, "a later attempt has begun")

    def _end(self, batch: TaskBatch, reason: str) -> None:
        self._operators.give_up(batch.operators)
        batch.status, batch.reason = BatchStatus.OVER, reason
        batch.operators, batch.held = [], []

    # ---- processing ------------------------------------------------------------------------------

    def _work(self, batch: TaskBatch, tuple: Tuple[Any], out: Collector[Any]) -> None:
        if not batch.operators and self._stage.nodes:
            batch.operators = self._operators.start(batch.attempt)
        self._operators.use(batch.operators)
        if tuple.stream == BATCH and not self._follows(tuple.record):
            out.fail(tuple, "this task has not emitted the batch before")
            self._end(batch, "this task has not emitted the batch before")
            return
        holds = self._take_in(batch, tuple, out)
        is_unprocessed = batch.status in {BatchStatus.EXPECTING, BatchStatus.PROCESSING}
        if is_unprocessed and self._is_of_commit(tuple):
            out.fail(tuple, "this task has not seen all of the batch, so it cannot be committed")
            self._end(batch, "it was to be committed, and this task has not seen all of it")
            return
        self._sender.flush(batch.attempt, batch.sent, tuple, out)
        if holds:
            batch.held.append(tuple)
        self._advance(batch, tuple, out)
        if not holds:
            out.ack(tuple)

    def _take_in(self, batch: TaskBatch, tuple: Tuple[Any], out: Collector[Any]) -> bool:
        """Process a tuple. Returns whether it is acked only when its phase is over."""
        if tuple.stream == self._counts:
            count: Count = tuple.record
            batch.counter.count(tuple.task, count.parts, late=count.late)
            for source, time in (count.times or {}).items():
                batch.note_time(source, SourceTime(*time))
            return True
        if tuple.stream == COMMIT:
            batch.awaits_commit = False
            return True
        if (reads := self._takers.get((tuple.component, tuple.stream))) is None:
            assert self._emitter is not None, f"{tuple!r} is no input of this stage"
            time = self._emitter.emit(tuple.record, self._from_spout, tuple, out)
            batch.is_emitted = True
            if time is not None:
                batch.note_time(self._stage.id, time)
            return True
        schema, takers = reads
        part: Part = tuple.record
        rows = schema.records(part.rows)
        batch.counter.part(tuple.task)
        for take in takers:
            take(rows)
        return False

    def _follows(self, order: BatchCommand) -> bool:
        """Whether this task has emitted the batch before. If not, that order was lost with a former
        life of the task, and the emitter lacks its metadata."""
        before = self._batches.get(order.txid - 1)
        if order.txid <= max(order.current, self._succeeded + 1):
            return True
        return before is not None and before.is_emitted

    def _is_of_commit(self, tuple: Tuple[Any]) -> bool:
        """Whether a `$commit` or a Count belongs to the commit phase. If so, all early parts were
        in this task before, or are lost."""
        if tuple.stream == self._counts:
            count: Count = tuple.record
            return count.late
        return tuple.stream == COMMIT

    # ---- the status of a batch -------------------------------------------------------------------

    def _advance(self, batch: TaskBatch, anchor: Tuple[Any], out: Collector[Any]) -> None:
        """Begin the next phase if nothing is missing for it, and finish the operators that are
        ready. When a phase is over, ack the tuples that are held."""
        if batch.status is BatchStatus.EXPECTING and not self._lacks_early(batch):
            batch.status = BatchStatus.PROCESSING
        elif batch.status is BatchStatus.PROCESSED and not self._lacks_late(batch):
            batch.status = BatchStatus.COMMITTING
        if not (batch.waits and self._finish(batch, anchor, out)):
            return
        is_done = batch.status is BatchStatus.COMMITTING or not self._is_late
        batch.status = BatchStatus.PROCESSED
        for tuple in batch.held:
            out.ack(tuple)
        batch.held.clear()
        if is_done:
            self._end(batch, "it is done in this task")

    def _lacks_early(self, batch: TaskBatch) -> bool:
        awaits_order = self._emitter is not None and not batch.is_emitted
        return bool(batch.counter.missing_early) or awaits_order

    def _lacks_late(self, batch: TaskBatch) -> bool:
        return bool(batch.counter.missing_late) or batch.awaits_commit

    def _finish(self, batch: TaskBatch, anchor: Tuple[Any], out: Collector[Any]) -> bool:
        """Finish the operators of the phase that are ready. Returns whether the phase is over."""
        is_commit = batch.status is BatchStatus.COMMITTING
        attempt, nodes = batch.attempt, self._late_nodes if is_commit else self._early_nodes
        batch.finished += self._operators.finish(nodes[batch.finished :], attempt, batch.times)
        is_over = batch.finished == len(nodes)
        if is_over and is_commit and self._emitter is not None:
            self._emitter.commit(attempt)
        sent = batch.sent
        self._sender.flush(attempt, sent, anchor, out)
        if is_over:
            batch.finished = 0
            targets = self._late_targets if is_commit else self._early_targets
            about: Any = {"late": is_commit, "times": batch.times}
            for target in self._sender.targets:
                if target in targets:
                    self._sender.count(attempt, target, sent, anchor, out, **about)
        return is_over
