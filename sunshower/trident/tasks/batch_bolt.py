"""One task of a stage: processes the parts of batches, counts them, and finishes each batch once.

    parts, an order ──▶ operators                        … and the early ones finish
    Counts of all senders, and as many parts ────────────┘    when nothing early is missing
    $commit, late Counts and parts ──▶ nothing is missing ──▶ the late operators finish
    $success, or a batch so late that it must be committed ──▶ the attempt is forgotten

Tuples of outdated attempts are failed at once, not dropped until a timeout (Storm: A-10). An
exception ends the attempt in this task; its later tuples are failed as they arrive. At least one
Count is not acked before the phase is over in this task, so no batch counts as processed too early.
Storm: org.apache.storm.trident.topology.TridentBoltExecutor, planner.SubtopologyBolt
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sunshower.topologies.components import Bolt, Collector, Context, Tuple
from sunshower.trident.coordination.attempts import (
    COMMIT,
    SUCCESS,
    Attempt,
    BatchOrder,
    Count,
    Part,
    counts_stream,
)
from sunshower.trident.coordination.phases import Phases
from sunshower.trident.coordination.running_batches import Operators
from sunshower.trident.stages.plan import Stage
from sunshower.trident.tasks.counting import Counting
from sunshower.trident.tasks.emitting import Emitting
from sunshower.trident.tasks.outgoing import Outgoing


@dataclass
class Batch:
    """An attempt of a batch in this task."""

    attempt: Attempt
    counting: Counting
    sent: dict[str, list[int]]
    states: list[Any] = field(default_factory=list)
    held: list[Tuple[Any]] = field(default_factory=list)  # acked when the phase is over here
    awaits_order: bool = False
    is_emitted: bool = False  # by this task's emitter
    awaits_commit: bool = False
    early_done: bool = False
    late_done: bool = False
    nodes_done: int = 0  # of the current phase; the next node is not ready
    waits: bool = False  # for that node
    ended: str = ""  # why the attempt is over; empty while it is not


class BatchBolt(Bolt[Any, Any]):
    """A task of a stage of `group`, with the emitter if the stage has a spout."""

    def __init__(
        self,
        group: str,
        stage: Stage,
        phases: Phases,
        max_batches: int,
        emitting: Emitting | None = None,
    ) -> None:
        self._group, self._stage, self._phases = group, stage, phases
        self._max_batches, self._emitting = max_batches, emitting
        self._is_late = phases.is_late(stage)
        nodes = range(len(stage.nodes))
        self._late_nodes = sorted(phases.late_nodes)
        self._early_nodes = [node for node in nodes if node not in phases.late_nodes]

    def prepare(self, context: Context) -> None:
        """Open operators and emitter. Raises Unavailable while a store or source is unavailable."""
        stage, late = self._stage, self._phases.late_inputs
        self._outgoing = Outgoing(self._group, stage, context)
        self._operators = Operators(stage.nodes, self._outgoing)
        self._takers = {
            (one.stage, one.stream): (one.schema, self._operators.takers(one.feeds))
            for one in stage.inputs
        }
        feeders = {one.stage for one in stage.inputs}
        self._senders = {task: id in late for id in feeders for task in context.tasks[id]}
        mixed = self._phases.mixed_inputs
        self._mixed = [task for id in feeders & mixed for task in context.tasks[id]]
        self._counts = counts_stream(self._group)
        self._batches: dict[int, Batch] = {}
        self._epoch = self._succeeded = 0  # txids up to `_succeeded` are done
        if self._emitting is not None:
            feeds = self._stage.source.feeds if self._stage.source else ()
            self._from_spout = [*self._operators.takers(feeds), *self._outgoing.takers(None)]
        self._context = context
        self._operators.prepare(context)
        try:
            if self._emitting is not None:
                self._emitting.prepare(context)
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
        if batch is None or batch.ended:
            why = batch.ended if batch is not None else "a later attempt has begun"
            out.fail(tuple, f"attempt {attempt.attempt} of batch {attempt.txid} is over: {why}")
            return
        try:
            self._work(batch, tuple, out)
        except BaseException as error:
            self._outgoing.discard()
            self._end(batch, f"it has failed in this task ({type(error).__name__}: {error})")
            raise

    def snapshot(self) -> None:
        """Return nothing: after a rebalance, batches in progress are begun again."""

    def restore(self, state: Any) -> None:
        """Do nothing: there is no state."""

    def cleanup(self) -> None:
        for batch in self._batches.values():
            self._operators.give_up(batch.states)
        self._operators.cleanup()
        if self._emitting is not None:
            self._emitting.close()

    def figures(self) -> Mapping[str, float]:
        held = sum(not batch.ended for batch in self._batches.values())
        emitted = self._emitting.figures() if self._emitting is not None else {}
        return {"batches held": held, **emitted, **self._operators.figures()}

    # ---- attempts --------------------------------------------------------------------------------

    def _find(self, attempt: Attempt, out: Collector[Any]) -> Batch | None:
        """The Batch of an attempt, a new one for its first tuple; None if it is outdated."""
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
        counting, is_spout = Counting(self._senders, self._mixed), self._emitting is not None
        batch = self._batches[attempt.txid] = Batch(
            attempt,
            counting,
            self._outgoing.nothing_sent(),
            awaits_order=is_spout,
            awaits_commit=self._stage.commits,
            early_done=not (counting.missing_early or is_spout),
        )
        return batch

    def _forget(self, attempt: Attempt, out: Collector[Any]) -> None:
        """Handle `$success`: a batch is committed."""
        if attempt.epoch > self._epoch:
            self._forget_all(attempt.epoch, out)
        if attempt.epoch == self._epoch and attempt.txid > self._succeeded:
            self._done_up_to(attempt.txid, out)
            if self._emitting is not None:
                self._emitting.succeeded(attempt)
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

    def _give_up(self, batch: Batch, out: Collector[Any]) -> None:
        for tuple in batch.held:
            out.fail(tuple, f"a later attempt of batch {batch.attempt.txid} has begun")
        self._end(batch, "a later attempt has begun")

    def _end(self, batch: Batch, why: str) -> None:
        self._operators.give_up(batch.states)
        batch.ended, batch.states, batch.held, batch.waits = why, [], [], False

    # ---- processing ------------------------------------------------------------------------------

    def _work(self, batch: Batch, tuple: Tuple[Any], out: Collector[Any]) -> None:
        if not batch.states and self._stage.nodes:
            batch.states = self._operators.start(batch.attempt)
        self._operators.use(batch.states)
        if isinstance(tuple.record, BatchOrder) and not self._follows(tuple.record):
            out.fail(tuple, "this task has not emitted the batch before")
            self._end(batch, "this task has not emitted the batch before")
            return
        holds = self._take_in(batch, tuple, out)
        if not batch.early_done and self._is_of_commit(tuple):
            out.fail(tuple, "this task has not seen all of the batch, so it cannot be committed")
            self._end(batch, "it was to be committed, and this task has not seen all of it")
            return
        self._outgoing.flush(batch.attempt, batch.sent, tuple, out)
        over = self._finish_phases(batch, tuple, out)
        if holds:
            batch.held.append(tuple)
        else:
            out.ack(tuple)
        if over:
            self._let_go(batch, out)

    def _let_go(self, batch: Batch, out: Collector[Any]) -> None:
        """Ack the held tuples: a phase is over in this task."""
        for one in batch.held:
            out.ack(one)
        batch.held.clear()
        if batch.late_done or not self._is_late:
            self._end(batch, "it is done in this task")

    def _take_in(self, batch: Batch, tuple: Tuple[Any], out: Collector[Any]) -> bool:
        """Process a tuple. Returns whether it is acked only when its phase is over."""
        if tuple.stream == self._counts:
            count: Count = tuple.record
            batch.counting.count(tuple.task, count.parts, late=count.late)
            return True
        if tuple.stream == COMMIT:
            batch.awaits_commit = False
            return True
        if (reads := self._takers.get((tuple.component, tuple.stream))) is None:
            self._emit_batch(batch, tuple, out)
            return True
        schema, takers = reads
        part: Part = tuple.record
        rows = part.rows
        if rows and type(rows[0]) is not schema.type:
            rows = schema.build(rows)
        batch.counting.part(tuple.task)
        for take in takers:
            take(rows)
        return False

    def _emit_batch(self, batch: Batch, tuple: Tuple[Any], out: Collector[Any]) -> None:
        order: BatchOrder = tuple.record
        assert self._emitting is not None, f"{tuple!r} is no input of this stage"
        self._emitting.emit(order, self._from_spout, tuple, out)
        batch.awaits_order, batch.is_emitted = False, True

    def _follows(self, order: BatchOrder) -> bool:
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

    def _finish_phases(self, batch: Batch, tuple: Tuple[Any], out: Collector[Any]) -> bool:
        """Finish the phases that are complete. Returns whether one is over in this task."""
        counting, over = batch.counting, False
        if not (batch.early_done or counting.missing_early or batch.awaits_order):
            batch.early_done = over = self._finish(batch, tuple, out, late=False)
        waits = counting.missing_late or batch.awaits_commit
        if self._is_late and batch.early_done and not waits:
            batch.late_done = over = self._finish(batch, tuple, out, late=True)
        return over

    def _finish(self, batch: Batch, tuple: Tuple[Any], out: Collector[Any], *, late: bool) -> bool:
        """Finish the nodes of a phase that are ready. Returns whether the phase is over."""
        attempt, nodes = batch.attempt, self._late_nodes if late else self._early_nodes
        batch.nodes_done += self._operators.finish(nodes[batch.nodes_done :], attempt)
        batch.waits = batch.nodes_done < len(nodes)
        if batch.waits:
            self._outgoing.flush(attempt, batch.sent, tuple, out)
            return False
        batch.nodes_done = 0
        if late and self._emitting is not None:
            self._emitting.commit(attempt)
        self._outgoing.flush(attempt, batch.sent, tuple, out)
        late_targets = self._phases.late_targets
        early = set(self._outgoing.targets) - late_targets | self._phases.mixed_targets
        for target in self._outgoing.targets:
            if target in (late_targets if late else early):
                self._outgoing.count(attempt, target, batch.sent, tuple, out, late=late)
        return True
