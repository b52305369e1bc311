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

What is late is decided in `phases`. The end of PROCESSING and of COMMITTING sends Counts to
later stages and acks the tuples that are held back, at least one Count among them. So no batch
counts as processed too early. Tuples of a batch that is OVER, and of outdated attempts, are failed
at once; Storm drops them, and their trees time out.
Storm: org.apache.storm.trident.topology.TridentBoltExecutor, planner.SubtopologyBolt
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sunshower.codec import RowList
from sunshower.errors import (
    BatchError,
    TopologyError,
    Unavailable,
    user_errors,
    user_errors_suppressed,
)
from sunshower.records import Schema
from sunshower.runtime.events.metrics import EventTime
from sunshower.texts import describe_error
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple
from sunshower.topologies.operators.generated_stages import Feed, code_of_rows, generated_steps
from sunshower.topologies.operators.port import Attempt, Operator
from sunshower.topologies.operators.states import entries_of
from sunshower.topologies.operators.windows.watermarks import LateRecords, sum_of
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
from sunshower.trident.stages.persisting import PersistPartition
from sunshower.trident.stages.plan import Stage, StageOutput, Timed, Waiting, publishing
from sunshower.trident.tasks.emitter_runner import EmitterRunner

# ---- phases --------------------------------------------------------------------------------------
# Decides which work of a batch group must wait for the commit phase.
#
# An operator that commits is late, and so is everything that reads what it emits, in its stage and
# in later ones. What a stage sends to another is late if any of it comes from a late operator,
# because its amount is known only then. If some of it is early, the early amount is sent before,
# so that the receiver knows at the start of the commit whether it has all of that. Everything else
# is early: it is done in the process phase, in any order.


@dataclass(frozen=True)
class Phases:
    """The late nodes, inputs and targets of one stage."""

    late_nodes: frozenset[int]
    late_inputs: frozenset[str]  # ids of stages
    late_targets: frozenset[str]
    mixed_inputs: frozenset[str] = frozenset()  # late inputs that also send early rows
    mixed_targets: frozenset[str] = frozenset()

    def is_late(self, stage: Stage) -> bool:
        """Whether the stage works in the commit phase."""
        return bool(stage.commits or self.late_nodes or self.late_inputs)


def phases(stages: Sequence[Stage]) -> dict[str, Phases]:
    """The phases of each stage, by id. Raises TopologyError for stages that form a cycle."""
    by_id = {stage.id: stage for stage in stages}
    feeders = {stage.id: {arriving.stage for arriving in stage.inputs} for stage in stages}
    try:
        order = list(TopologicalSorter(feeders).static_order())
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise TopologyError(f"the stages of a batch group feed each other: {circle}") from None
    phases_of: dict[str, Phases] = {}
    for id in order:
        stage = by_id[id]
        late_inputs = frozenset(of for of in feeders[id] if id in phases_of[of].late_targets)
        late = _late_nodes(stage, late_inputs)
        targets = frozenset(output.target for output in stage.outputs if output.node in late)
        early = frozenset(output.target for output in stage.outputs if output.node not in late)
        mixed = frozenset(of for of in late_inputs if id in phases_of[of].mixed_targets)
        phases_of[id] = Phases(late, late_inputs, targets, mixed, targets & early)
    return phases_of


def _late_nodes(stage: Stage, late_inputs: frozenset[str]) -> frozenset[int]:
    late = {
        feed.node
        for arriving in stage.inputs
        if arriving.stage in late_inputs
        for feed in arriving.feeds
    }
    for index, node in enumerate(stage.nodes):  # nodes come after those they read
        if node.operator.commits:
            late.add(index)
        if index in late:
            late.update(feed.node for feed in node.feeds)
    return frozenset(late)


# ---- part sender ---------------------------------------------------------------------------------

_ROWS_MAX = 4096  # in one part


class PartSender:
    """Rows are buffered until `flush`; `targets` are the stages that get the number of parts."""

    def __init__(self, group: str, stage: Stage, context: Context) -> None:
        self._counts = counts_stream(group)
        self._tasks = {output.target: context.tasks[output.target] for output in stage.outputs}
        self._outputs: list[tuple[StageOutput, list[Any]]] = [
            (output, []) for output in stage.outputs
        ]
        self.targets = [*dict.fromkeys(output.target for output in stage.outputs if output.counted)]
        for output in stage.outputs:
            targets = len(self._tasks[output.target])
            output.sharing.prepare(targets, context.index, context.parallelism)

    def takers(self, node: int | None) -> list[Callable[[Sequence[Any]], None]]:
        """The buffers for the rows of a node; None: the stage's spout."""
        return [rows.extend for output, rows in self._outputs if output.node == node]

    def nothing_sent(self) -> dict[str, list[int]]:
        """The counts of a new attempt: target → parts sent to each of its tasks."""
        return {target: [0] * len(tasks) for target, tasks in self._tasks.items()}

    def flush(
        self,
        attempt: Attempt,
        sent: Mapping[str, list[int]],
        anchor: Tuple[Any],
        out: Collector[Any],
    ) -> None:
        """Send all buffered rows, and count the parts in `sent`."""
        for output, waiting in self._outputs:
            if not waiting:
                continue
            records = waiting.copy()
            waiting.clear()
            tasks, counted = self._tasks[output.target], sent[output.target]
            for index, share in output.sharing.split(attempt.txid, records):
                mine = output.schema.rows(share)
                for start in range(0, len(mine), _ROWS_MAX):
                    part = Part(*attempt, RowList(mine[start : start + _ROWS_MAX]))
                    out.emit_direct(tasks[index], part, anchor, stream=output.stream)
                    counted[index] += 1

    def discard(self) -> None:
        for _, waiting in self._outputs:
            waiting.clear()

    def count(
        self,
        attempt: Attempt,
        target: str,
        sent: Mapping[str, list[int]],
        anchor: Tuple[Any],
        out: Collector[Any],
        *,
        late: bool,
        times: Mapping[str, SourceTime],
    ) -> None:
        """Send each task of a stage the number of its parts, and how far this one is."""
        plain = {source: [*time] for source, time in times.items()} or None
        for task, parts in zip(self._tasks[target], sent[target], strict=True):
            count = Count(*attempt, parts, late, plain)
            out.emit_direct(task, count, anchor, stream=self._counts)


# ---- operators -----------------------------------------------------------------------------------


class Operators:
    """The nodes of one stage in one task. `use` selects the batch of the calls that follow."""

    def __init__(self, stage: Stage, outgoing: PartSender) -> None:
        nodes = stage.nodes
        self._chains = stage.row_chains
        self._batches: list[Any] = []
        self._emits: list[Take] = [_nowhere] * len(nodes)
        for index in reversed(range(len(nodes))):  # readers come after what they read
            takers = [*outgoing.takers(index), *self.takers(nodes[index].feeds)]
            self._emits[index] = _to_all(takers)
        # what processes the rows that a node gets, and where the rows that it makes go
        self._runs = [(node.operator, self._emits[index]) for index, node in enumerate(nodes)]
        self._operators = [node.operator for node in nodes]
        self._cleanups = ExitStack()  # of the prepared operators; each is called
        self._waiting: dict[int, Waiting] = {
            index: operator
            for index, operator in enumerate(self._operators)
            if isinstance(operator, Waiting)
        }

    def prepare(self, context: Context) -> None:
        """Prepare the operators. If one raises, all that were prepared are cleaned up."""
        try:
            for operator in self._operators:
                operator.prepare(context)
                self._cleanups.callback(operator.cleanup)
            for chain in self._chains:
                steps = generated_steps([self._operators[node] for node in chain], context)
                if steps is not None:
                    self._runs[chain[0]] = steps, self._emits[chain[-1]]
        except BaseException:
            with user_errors_suppressed():  # what has failed first says whether there is an outage
                self.cleanup()
            raise

    def takers(self, feeds: Sequence[Feed]) -> list[Take]:
        """The callbacks that accept the rows of an input, or of the stage's spout."""
        return [partial(self._process, *feed) for feed in feeds]

    def start(self, attempt: Attempt) -> list[Any]:
        """The operators' objects for a new attempt, node by node."""
        return [operator.start(attempt) for operator in self._operators]

    def use(self, batches: list[Any]) -> None:
        """Select the attempt for which `start` returned `batches`."""
        self._batches = batches

    def finish(self, which: Sequence[int], attempt: Attempt, times: dict[str, SourceTime]) -> int:
        """Finish nodes in order, up to one that is not ready. Returns how many were finished.
        `times`: how far what is upstream is in event time; those of the nodes are added."""
        for done, index in enumerate(which):
            operator, batch = self._operators[index], self._batches[index]
            if index in self._waiting and not self._waiting[index].ready(batch, attempt):
                return done
            if isinstance(operator, Timed):
                operator.note_times(batch, times)
            operator.finish(batch, attempt, self._emits[index])
            if isinstance(operator, Timed) and operator.sends is not None:
                times[operator.sends] = operator.sent_time(batch)
        return len(which)

    def give_up(self, batches: Sequence[Any]) -> None:
        """Tell the operators that an attempt is over."""
        for index, waiting in self._waiting.items() if batches else ():
            waiting.give_up(batches[index])

    def figures(self) -> dict[str, float]:
        values: dict[str, float] = {}
        for operator in self._operators:
            for part in (getattr(operator, "reader", None), operator):
                for name, value in getattr(part, "figures", dict)().items():
                    values[name] = values.get(name, 0.0) + value
        return values

    def state_entries(self) -> int | None:
        return entries_of(self._operators)

    def late_records(self) -> LateRecords | None:
        """The late records of its windows; None: it has none."""
        late_records = [getattr(operator, "late_records", None) for operator in self._operators]
        windows = [records for records in late_records if records is not None]
        return sum_of(windows) if windows else None

    def results(self) -> list[Any]:
        readers = (getattr(operator, "result", None) for operator in self._operators)
        return [result() for result in readers if callable(result)]

    def succeeded(self, txid: int) -> None:
        """Tell publishing operators that the batches up to `txid` are committed."""
        for operator in filter(None, map(publishing, self._operators)):
            operator.succeeded(txid)

    def cleanup(self) -> None:
        self._cleanups.close()

    def _process(self, node: int, source: int, rows: Sequence[Any]) -> None:
        operator, emit = self._runs[node]
        operator.process(self._batches[node], source, rows, emit)


def _nowhere(rows: Sequence[Any]) -> None:
    """Drop rows that no operator reads."""


def _to_all(takers: Sequence[Take]) -> Take:
    if not takers:
        return _nowhere

    def emit(rows: Sequence[Any]) -> None:
        if rows:
            for take in takers:
                take(rows)

    return emit


# ---- part counter --------------------------------------------------------------------------------
# Counts the parts of a batch in a task, to detect that all have arrived.
#
# Each sending task sends the number of its parts, once per attempt, after them: a part that has
# not come before its Count is lost. The process phase needs the early senders, the commit phase
# the late ones as well (see `phases`). A sender of both sends a number in each: first that of the
# early parts, then that of all. Storm: org.apache.storm.trident.topology.TridentBoltExecutor
# (checkFinish), which compares the sums when all tasks have reported. Here each sender is counted
# separately, so that a surplus part cannot hide a missing one.


class PartCounter:
    """The counts of one attempt in one task. `senders`: task → whether it is late; `mixed`: late
    senders that also send early parts."""

    __slots__ = ("_counted", "_early", "_received", "_senders", "missing_early", "missing_late")

    def __init__(self, senders: Mapping[int, bool], mixed: Iterable[int] = ()) -> None:
        self._senders = senders
        self._received = Counter[int]()
        self._counted: set[int] = set()  # senders whose parts are all here
        self._early = set(mixed)  # mixed senders whose early parts are not counted yet
        self.missing_late = sum(senders.values())  # late senders that have not counted
        self.missing_early = len(senders) - self.missing_late + len(self._early)

    def part(self, sender: int) -> None:
        """Count a part. Raises BatchError if it is one too many."""
        self._received[sender] += 1
        if sender in self._counted:
            self._compare(sender, self._received[sender] - 1)

    def count(self, sender: int, parts: int, *, late: bool = False) -> None:
        """Compare the number of parts that a sender has sent with those that have come. Raises
        BatchError if it differs, or was compared before."""
        is_late = self._senders[sender]
        if is_late and not late:
            self._check_first(sender, is_first=sender in self._early)
            self._early.discard(sender)
        else:
            self._check_first(sender, is_first=sender not in self._counted)
            self._counted.add(sender)
        self._compare(sender, parts)
        if is_late and late:
            self.missing_late -= 1
        else:
            self.missing_early -= 1

    def _check_first(self, sender: int, *, is_first: bool) -> None:
        if not is_first:
            raise BatchError(f"task {sender} has counted its parts of one attempt twice")

    def _compare(self, sender: int, parts: int) -> None:
        if self._received[sender] != parts:
            raise BatchError(
                f"task {sender} has sent {parts} parts of one attempt, and "
                f"{self._received[sender]} have come"
            )


# ---- running batches -----------------------------------------------------------------------------

# Runs the operators of a stage in one task: passes rows between them and finishes batches.
#
# The receivers of an operator's rows are resolved once, so a part costs a few calls whatever its
# length.

Take = Callable[[Sequence[Any]], None]


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
    times: dict[str, SourceTime] = field(default_factory=dict)  # of what is upstream, for windows
    finished: int = 0  # operators that have finished in the current status; the next is not ready
    reason: str = ""  # why it is OVER

    def note_time(self, source: str, time: SourceTime) -> None:
        """Note how far some of the tasks of a source, or of a window, are in event time."""
        known = self.times.get(source)
        self.times[source] = time if known is None else known.merged(time)

    @property
    def waits(self) -> bool:
        """Whether an operator waits for work outside the task."""
        return self.status in {BatchStatus.PROCESSING, BatchStatus.COMMITTING}


class StageBolt(Stateless, Bolt[Any, Any]):
    """A task of a stage of `group`, with the emitter if the stage has a spout."""

    __sunshower_batches__ = True  # the tasks of its group change together

    def __init__(
        self,
        group: str,
        stage: Stage,
        phases: Phases,
        max_batches: int,
        emitter: EmitterRunner | None = None,
        is_single: bool = False,
    ) -> None:
        """`is_single`: whether all rows go to the first task."""
        self._is_single = is_single
        self._group, self._stage, self._phases = group, stage, phases
        self._max_batches, self._emitter = max_batches, emitter
        self._is_late = phases.is_late(stage)
        nodes = range(len(stage.nodes))
        self._late_nodes = sorted(phases.late_nodes)
        self._early_nodes = [node for node in nodes if node not in phases.late_nodes]

    @property
    def operators(self) -> list[Operator]:
        return [node.operator for node in self._stage.nodes]

    @property
    def can_rescale(self) -> bool:
        """Whether another run may have other tasks: its states move when they are opened."""
        return not any(isinstance(operator, PersistPartition) for operator in self.operators)

    def refuses(self, tasks: int) -> str | None:
        """Why it cannot have so many tasks while it runs; None: it can."""
        if self._emitter is not None:
            return (
                f"its tasks are those of the source {self._stage.id!r}, which have the partitions. "
                "Kill the topology and submit it with another parallelism"
            )
        for operator in self.operators:
            if isinstance(operator, PersistPartition):
                return (
                    f"the function of its state {operator.slot.name!r} chooses the keys itself, so "
                    "no task is known to have one. Use aggregate, or process, of groups"
                )
            if publishing(operator) is not None:
                return "one task publishes its batches"
        return "one task has all of its rows" if self._is_single and tasks > 1 else None

    def prepare(self, context: Context) -> None:
        """Open operators and emitter. Raises Unavailable while a store or source is unavailable."""
        stage, late = self._stage, self._phases.late_inputs
        self._sender = PartSender(self._group, stage, context)
        self._operators = Operators(stage, self._sender)
        self._takers = {
            (stage_input.stage, stage_input.stream): (
                stage_input.schema,
                self._operators.takers(stage_input.feeds),
            )
            for stage_input in stage.inputs
        }
        feeders = {stage_input.stage for stage_input in stage.inputs}
        self._senders = {task: id in late for id in feeders for task in context.tasks[id]}
        mixed = self._phases.mixed_inputs
        self._mixed = [task for id in feeders & mixed for task in context.tasks[id]]
        self._counts = counts_stream(self._group)
        self._late_targets = self._phases.late_targets
        early = set(self._sender.targets) - self._late_targets
        self._early_targets = early | self._phases.mixed_targets
        self._batches: dict[int, TaskBatch] = {}
        self._epoch = self._succeeded = 0  # txids up to `_succeeded` are done
        self._rows = 0  # of other stages, since the task was opened
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

    def __sunshower_code__(self) -> list[str]:
        """The source of the functions that its operators become."""
        nodes = self._stage.nodes
        return [
            code_of_rows([nodes[node].operator for node in chain])
            for chain in self._stage.row_chains
        ]

    def cleanup(self) -> None:
        for batch in self._batches.values():
            self._operators.give_up(batch.operators)
        self._operators.cleanup()
        if self._emitter is not None:
            self._emitter.close()

    def figures(self) -> Mapping[str, float]:
        held = sum(batch.status is not BatchStatus.OVER for batch in self._batches.values())
        taken = {"rows taken": float(self._rows)} if self._emitter is None else {}
        emitted = self._emitter.figures() if self._emitter is not None else {}
        return {"batches held": held, **taken, **emitted, **self._operators.figures()}

    def __sunshower_polled_s__(self) -> float:
        """How long it has asked sources that had nothing: that is not work."""
        return 0.0 if self._emitter is None else self._emitter.polled_s

    def __sunshower_state_entries__(self) -> int | None:
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
        self._rows += len(part.rows)
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


# ---- waiting stage bolt --------------------------------------------------------------------------
# A stage whose operators wait for outside work, such as Spark's, without blocking their task.
#
#     all rows arrived ──▶ ready? ──no──▶ polled by each tick; meanwhile: other batches
#                            └───yes──▶ finish, the next operator, …, the end of the phase
#
# So several batches are in progress at a time, and no call is long enough for the watchdog to end
# the process. The timeouts of waiting batches are reset.

_RENEW_S = 0.3  # interval between resets of the timeouts


class WaitingStageBolt(StageBolt):
    """A StageBolt that polls its waiting operators in `tick`."""

    tick_s = 0.05

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._out: Collector[Any]  # `execute` gets the same collector in each call
        self._renew_at_s = context.clock.now() + _RENEW_S

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        self._out = out
        super().execute(tuple, out)

    def tick(self) -> None:
        """Continue the batches that are ready. Raises Unavailable if one of them has failed with
        it, since nothing else reports the outage while the batch is retried."""
        waiting = [batch for batch in self._batches.values() if batch.waits]
        for batch in waiting:
            self._go_on(batch, self._out)
        now = self._context.clock.now()
        if now >= self._renew_at_s:
            for batch in waiting:
                if batch.waits:
                    self._out.reset_timeout(batch.held[0])
            self._renew_at_s = now + _RENEW_S

    def result(self) -> list[Any]:
        return self._operators.results()

    def _go_on(self, batch: TaskBatch, out: Collector[Any]) -> None:
        try:
            self._operators.use(batch.operators)
            self._advance(batch, batch.held[0], out)
        except user_errors() as error:
            self._sender.discard()
            for tuple in batch.held:
                out.fail(tuple, error)
            self._end(batch, f"it has failed in this task ({describe_error(error)})")
            if isinstance(error, Unavailable):
                raise


# ---- records bolt --------------------------------------------------------------------------------
# Takes rows out of their batches: an ordinary bolt whose stream any bolt may read.
#
#     stage ──parts──▶ RecordsBolt ──a tuple for each row──▶ ordinary bolts
#
# Each row is anchored to its part, so the batch waits until all rows are acked. There are no
# Counts, because nothing finishes batches there. Storm:
# org.apache.storm.trident.topology.TridentBoltExecutor, streams outside of batch groups.


class RecordsBolt(Stateless, Bolt[Part, Any]):
    """Emits the rows of parts."""

    __sunshower_batches__ = True  # the tasks of its group change together

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def process(self, record: Part) -> Iterable[Any]:
        return self._schema.records(record.rows)
