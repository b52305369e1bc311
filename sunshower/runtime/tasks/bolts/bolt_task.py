"""The common part of all bolt tasks, from prepare() to the ack or fail report of each input.

A report needs only the XOR of the edges that an input made; see ids.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sunshower.clock import Clock, SystemClock
from sunshower.errors import SunshowerError, TopologyFailed, user_errors, user_errors_suppressed
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.health import Standing, TaskError, WaitKind
from sunshower.runtime.events.injected_faults import NO_FAULTS, TaskFaults
from sunshower.runtime.events.metrics import (
    Counts,
    EventTime,
    InputStream,
    Latencies,
    LatencyKind,
    TaskStats,
)
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tasks.supervision import Supervised, Supervision
from sunshower.runtime.tasks.task_transfer import TaskTransfer
from sunshower.runtime.tasks.user_code import Raised, check_returned, failure_of, guard, no_way
from sunshower.runtime.tasks.user_errors import is_of_code
from sunshower.runtime.tracking.batch import Anchors, Batch, can_join, join
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.runtime.tracking.reports import Reports
from sunshower.runtime.transport.channels import Entry, Inbox, ServiceTime
from sunshower.runtime.transport.output_streams import NotSent, OutputStreams
from sunshower.topologies.async_calls import AsyncCalls, BegunCall, Outcome
from sunshower.topologies.components import DEFAULT, Bolt, Context, OnStream
from sunshower.topologies.operators.windows.watermarks import WATERMARKS, LateRecords, sum_of

if TYPE_CHECKING:
    from sunshower.runtime.events.instrument import Instrument

Note = Callable[[U64], None]


# ---- calls in progress ---------------------------------------------------------------------------
# The calls of an unordered async function, which continue between the slices of a task.
#
#     begin(call, batch, records) ──▶ an event loop that runs a little in each slice
#                                        └──▶ ended(wait_s): the inputs whose calls have ended
#
# A shared batch succeeds or fails as a whole, so it ends with the last of its calls.


@dataclass(slots=True, eq=False)
class _Input:
    """A record, or a shared batch, and its calls."""

    batch: Batch
    tasks: list[BegunCall]

    @property
    def has_ended(self) -> bool:
        return all(task.done() for task in self.tasks)


class CallsInProgress:
    """Those of one task."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls
        self._inputs: list[_Input] = []
        self._since_s = 0.0  # since when calls are in progress without one that has ended

    def __len__(self) -> int:
        """How many records are in progress."""
        return sum(len(waiting.batch) for waiting in self._inputs)

    @property
    def roots(self) -> U64:
        """Those of the records in progress."""
        return np.concatenate([NO_IDS, *(waiting.batch.roots for waiting in self._inputs)])

    def begin(
        self,
        call: Callable[[Any], Awaitable[Any]],
        batch: Batch,
        records: Sequence[Any],
        clock: Clock,
    ) -> None:
        """Begin the calls for the records of a batch."""
        if not self._inputs:
            self._since_s = clock.now()
        batch = replace(batch, records=list(records))
        for part in batch.inputs():
            tasks = [self._calls.begin(call, record) for record in part.records]
            self._inputs.append(_Input(part, tasks))

    def ended(self, wait_s: float) -> Iterator[tuple[Batch, list[Outcome]]]:
        """Let the calls go on until one of them has ended, at most for `wait_s`. Yields inputs
        whose calls have ended, joined if they can be, and the outcomes of their records."""
        waited = [task for waiting in self._inputs for task in waiting.tasks if not task.done()]
        self._calls.wait_for_one(waited, wait_s)
        ended = [waiting for waiting in self._inputs if waiting.has_ended]
        if not ended:
            return
        self._inputs = [waiting for waiting in self._inputs if not waiting.has_ended]
        while ended:
            first = ended[0].batch
            joinable = [
                ended[0],
                *(waiting for waiting in ended[1:] if can_join(first, waiting.batch)),
            ]
            ended = [waiting for waiting in ended if waiting not in joinable]
            outcomes = [task.result() for waiting in joinable for task in waiting.tasks]
            yield join([waiting.batch for waiting in joinable]), outcomes

    def seconds(self, now: float) -> float:
        """For how long calls have been in progress since this was asked before."""
        since_s, self._since_s = self._since_s, now
        return max(0.0, now - since_s)

    def cancel(self) -> None:
        """Give all calls up: their records are emitted again."""
        inputs, self._inputs = self._inputs, []
        self._calls.cancel([task for waiting in inputs for task in waiting.tasks])


# ---- rare ----------------------------------------------------------------------------------------


class Trial(Enum):
    """Which object of the bolt has the next input; see `SlowPath.begin_trial`."""

    NEW = "the new object has the next input: if it succeeds, the input is replayed"
    OLD = "the new object has succeeded; the old one has the next input"


_WAIT_MAX_S = 1.0  # of each wait for credit, that counts as time of an input


@dataclass(slots=True)
class Unfinished:
    """An input whose generator continues when there is credit."""

    input: Batch
    rest: Iterator[Any]
    made: U64 | None  # XOR of the edges made so far, shape (1,); None: untracked
    sent_s: float  # when its last outputs were made
    outputs: int  # made so far
    for_s: float = 0.0  # how long it has gone on; longer waits for credit, as in an outage, are not

    def goes_on(self, outputs: int, now: float) -> None:
        """Note further outputs."""
        self.outputs += outputs
        self.for_s += min(now - self.sent_s, _WAIT_MAX_S)
        self.sent_s = now


class Rare(NamedTuple):
    """What is rare about one task, besides its waits (supervision.py) and injected faults."""

    unfinished: Unfinished | None = None
    in_progress: CallsInProgress | None = None  # calls without order; None: it has none
    trial: Trial | None = None
    note: Note | None = None  # called with the roots of each record before its execution
    note_until_s: float = inf
    checks_mutation: bool = False
    input_s: float = inf  # an input whose generator has not ended after so long fails


ORDINARY = Rare()


_WHOLE = 250  # slices: five seconds
_JUDGED_MAX = 16  # inputs judged one by one if a whole batch fails


# ---- state count ---------------------------------------------------------------------------------

# In memory the number is there; SQLite counts keys, 0.15 s for a million.
_REST = 10_000  # how many times longer than the last count the time until the next is at least


class StateCount:
    """The entries of the state of one task."""

    def __init__(self) -> None:
        self._due_s = -inf
        self._last: int | None = None

    def of(self, bolt: Any, clock: Clock) -> int | None:
        """How many there are now, or were at the last count; None: no state, or not known."""
        if (count := getattr(bolt, "__sunshower_state_entries__", None)) is None:
            return None
        begun = clock.now()
        if begun >= self._due_s:
            # The store may be away, which the task reports when it writes.
            with user_errors_suppressed():
                self._last = count()
            ended = clock.now()
            self._due_s = ended + _REST * (ended - begun)
        return self._last


# ---- input errors --------------------------------------------------------------------------------

# Classifies an exception that user code raises for an input: outage, bug, poison or doubt.
#
#   outage   outages.py classifies it so: no attempt is charged; two in a row pause the task
#   bug      the component has never succeeded, in any task and any life: an attempt is charged, so
#            that the topology fails fast or writes dead letters
#   poison   other inputs of the component succeed: an attempt is charged; likewise for an error
#            that sunshower itself raises for an input, because waiting does not help
#   doubt    the component has succeeded before, and ten different inputs in a row have failed: the
#            task pauses, charging nothing; after ten minutes the topology ends (supervision.py).
#            One failed input is enough while another task of the component is in doubt, because
#            that pause may keep further inputs from this one; and for two minutes after an outage,
#            because a server that starts again may first refuse with other errors
#
# A paused task tries one input at a time. The first success ends the pause.

_OUTAGE_INPUTS = 2  # a single input may have its own dependency: a URL, a file
_DOUBT_INPUTS = 10  # fewer may be poison
_AFTER_OUTAGE_S = 120.0  # a server that starts again may first refuse with other errors


class InputErrors:
    """Counts the failed inputs of one bolt task since its last success."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._in_a_row = 0  # outage failures since the last success
        self._different: list[Any] = []  # distinct records that failed with other errors
        self._follows_outage = False  # other errors have followed an outage, and no success
        self.is_clear = False  # an input has succeeded, and none has failed since then
        self.stops = False  # stop the batch: its remaining inputs wait until the pause ends

    def judge(self, failure: Failure, record: Any, error: BaseException) -> Failure:
        """Classify an input that failed with `error`. Returns what to report; may set `stops`.

        Raises TopologyFailed if user code raised it.
        """
        if isinstance(error, TopologyFailed):
            raise error
        self.is_clear = False
        care = self._supervision
        if failure.cause is Cause.UNAVAILABLE:
            self._in_a_row += 1
            if care.wait is not None or self._in_a_row >= _OUTAGE_INPUTS:
                self._pause(WaitKind.UNAVAILABLE, failure)
            return failure
        if isinstance(error, SunshowerError) or not care.proven or care.others_succeed:
            return failure
        self._note_different(record)
        sure = len(self._different) >= _DOUBT_INPUTS and not is_of_code(error)
        if sure or care.others_doubt or self._is_after_outage():
            self._pause(WaitKind.DOUBT, failure, sure=sure)
            return replace(failure, in_doubt=True)
        self._follows_outage = False
        if care.wait is WaitKind.DOUBT:  # nothing else is in doubt: it was this input
            care.end_wait()
        return failure

    def _is_after_outage(self) -> bool:
        """Whether the task waits since an outage, and has not been in doubt for long since then."""
        care = self._supervision
        if care.wait is WaitKind.UNAVAILABLE:
            self._follows_outage = True
        return self._follows_outage and care.doubted_s < _AFTER_OUTAGE_S

    def succeed(self) -> None:
        """Reset the counts: an input succeeded."""
        self._supervision.succeed()
        self._in_a_row, self._follows_outage = 0, False
        self._different.clear()
        self.is_clear = True

    def _pause(self, kind: WaitKind, failure: Failure, *, sure: bool = True) -> None:
        self.stops = True
        task = self._supervision.task
        text = f"{task.name} raised {failure.reason}"
        trace = failure.traceback.rstrip()
        place = (task.component, task.index, task.worker)
        error = TaskError(*place, text, failure.exception, trace)
        self._supervision.pause(kind, error, sure=sure)

    def _note_different(self, record: Any) -> None:
        if len(self._different) < _DOUBT_INPUTS and not any(
            _are_equal(record, other) for other in self._different
        ):
            self._different.append(record)


def _are_equal(record: Any, other: Any) -> bool:
    """Whether two records are equal, as two emits of one message are."""
    try:
        return record is other or bool(record == other)
    except user_errors():  # __eq__ of a user's class may raise anything
        return False


# ---- executed inputs -----------------------------------------------------------------------------


class ExecutedInputs:
    """The counters of one task. Watermarks are not counted: users count records."""

    def __init__(self, streams: Sequence[PlannedStream]) -> None:
        """`streams`: of the plan."""
        self.total = 0
        self._streams = streams
        self._watermarks = {stream.index for stream in streams if stream.spec.id == WATERMARKS}
        self._counts: dict[int, int] = {}  # by the stream's index in the plan

    def add(self, stream: int, inputs: int) -> None:
        """Count inputs of a stream, given by its index in the plan."""
        if stream not in self._watermarks:
            self.total += inputs
            self._counts[stream] = self._counts.get(stream, 0) + inputs

    def by_stream(self) -> Mapping[InputStream, int]:
        """The inputs of each stream that had any."""
        counts = ((self._streams[index], count) for index, count in self._counts.items())
        return {InputStream(stream.component, stream.spec.id): count for stream, count in counts}


# ---- bolt task -----------------------------------------------------------------------------------


def _record_at(records: Any, index: int) -> Any:
    """The record at `index`, used to compare records; for a table, the whole table."""
    return records[index] if isinstance(records, Sequence) else records


@dataclass(frozen=True, slots=True)
class Intake:
    """How a bolt takes its inputs, as it is declared."""

    joins: bool = False  # whether batches of several senders may be processed as one
    joins_shared: bool = False  # whether shared ones may, which then succeed or fail together
    one_source: bool = False  # whether the bolt's code can read which task has sent an input
    tables: bool = False  # whether a table of inputs stays one
    at_once: int = 0  # how many calls of an async function run at a time; 0: it has none


class BoltTask(Supervised):
    """The base of all bolt tasks; subclasses differ in how they process a batch."""

    intake = Intake()  # how its inputs are joined
    rare = ORDINARY  # what it does besides, or is tried with
    postponed: Sequence[int] = ()  # roots whose timeout is to be reset

    def __init__(
        self,
        supervision: Supervision,
        instrument: Instrument,
        make: Callable[[], Any],
        output_streams: OutputStreams,
        reports: Reports,
        service: ServiceTime,
        streams: Sequence[PlannedStream],
    ) -> None:
        super().__init__(supervision, instrument)
        self.bolt: Any = None  # None until it is prepared
        self.call: Callable[..., Any] = self._not_prepared  # user code, for one input
        self._make = make
        self.output_streams = output_streams
        self.service = service
        self.execute_latencies, self.queue_latencies = Latencies(), Latencies()
        self._reports = reports
        self._streams = streams  # of the plan; a batch's stream index refers to them
        self._flushes = False
        self._executed = ExecutedInputs(streams)
        self._acked = self._failed = 0
        self.expired = 0  # inputs dropped because their trees had failed already
        self.errors = InputErrors(supervision)
        self.clock: Clock = SystemClock()  # the worker's clock, once its tasks are wired
        self._polled_s = 0.0  # of the bolt, when it was measured last
        self.flush_s = 0.0  # duration of flush() in this slice
        self._state_count = StateCount()
        self._late_earlier = LateRecords()  # of former objects of the bolt
        self._next_failure = 0  # index after the last failed input of this batch
        self._first = 0  # index in this batch of the first record that is processed now

    def prepare(self, context: Context) -> None:
        """Create the bolt and prepare it, before the first batch. Raises Raised if user code does;
        a further call creates a new bolt."""
        bolt = guard(self.task, "the constructor", self._new)
        guard(self.task, "prepare of a custom grouping", self.output_streams.prepare)
        if hasattr(bolt, "prepare"):
            guard(self.task, "prepare", partial(bolt.prepare, context))
        self.adopt(bolt)

    def _new(self) -> Any:
        """A new object of the bolt."""
        return self._make()

    def adopt(self, bolt: Any) -> None:
        """Continue with `bolt`, which is prepared already."""
        if bolt is not self.bolt:
            self._late_earlier = self._late_records
        self.bolt = bolt
        self.call = getattr(bolt, "process", bolt)
        self._flushes = getattr(type(bolt), "flush", Bolt.flush) is not Bolt.flush

    @property
    def last_failed(self) -> bool:
        """Whether an input of the last batch failed."""
        return self._next_failure > 0

    def resume(self, context: Context) -> None:
        self.prepare(context)

    def pack(self, *, stays: bool, now: float) -> TaskTransfer:
        """The state to move in a rebalance; `stays`: the task remains in this process."""
        self._cancel_calls()
        if stays:
            return TaskTransfer(instance=self.bolt)
        return TaskTransfer(state=self.bolt.snapshot() if hasattr(self.bolt, "snapshot") else None)

    def unpack(self, transfer: TaskTransfer, context: Context) -> None:
        """Continue from `transfer`, instead of `prepare`."""
        if transfer.instance is not None:
            guard(self.task, "prepare of a custom grouping", self.output_streams.prepare)
            self.adopt(transfer.instance)
            return
        self.prepare(context)
        if hasattr(self.bolt, "restore"):
            guard(self.task, "restore", partial(self.bolt.restore, transfer.state))

    def _cancel_calls(self) -> None:
        if self.rare.in_progress:
            self.rare.in_progress.cancel()

    def shared_max(self, limit: int) -> int:
        """How many inputs of a shared batch to process at once, if others are cut to `limit`. What
        a bolt with a state has processed of it counts again if the rest fails, so its parts are
        as long as is safe."""
        return _WHOLE * limit if getattr(self.bolt, "keeps_state", False) else limit

    def next_inputs(self, inbox: Inbox, limit: int) -> list[Entry]:
        """Take the inputs that are processed as one, up to `limit`."""
        if self.intake.joins:
            return inbox.take_several(limit)
        return inbox.take_small(limit, one_source=self.intake.one_source)

    def divide(self, batch: Batch, limit: int) -> list[Batch]:
        """Split a batch that is longer than `limit`, as only shared ones are, if it is longer than
        `shared_max`; in the event log, it is passed on to this task in two parts."""
        count = self.shared_max(limit)
        if len(batch) <= count:
            return [batch]
        self.instrument.settled(batch, {})
        first, rest = batch.split(count)
        for part in (first, rest):
            self.instrument.sent(part, self.task.id)
            self.instrument.delivered(replace(part, is_recorded=False))
        return [first, rest]

    def join(self, batches: Sequence[Batch]) -> Batch:
        """Join batches, and note in the event log what `Instrument.joined` says."""
        joined = join(batches)
        if len(batches) > 1:
            self.instrument.joined(batches, joined)
        return joined

    def process(self, batch: Batch) -> Batch | None:
        """Process a batch of at least one record. Returns the inputs not started, or None."""
        raise NotImplementedError

    @property
    def is_ordinary(self) -> bool:
        """Whether the next slice needs nothing of slow_path.py."""
        care = self.supervision
        return (
            self.rare == ORDINARY
            and care.wait is None
            and care.standing is Standing.RUNNING
            and self.instrument.faults is NO_FAULTS
        )

    @property
    def is_busy(self) -> bool:
        """Whether it has taken inputs that it has not settled yet, and continues with them."""
        return self.rare.unfinished is not None or bool(self.rare.in_progress)

    def disturbed(self, faults: TaskFaults, batch: Batch) -> Callable[..., Any]:
        """`call` for the inputs of a batch, with injected faults."""
        return faults.around(self.call, batch, self._streams[batch.stream].spec.schema)

    def end_calls(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        """Settle inputs whose calls, which were in progress, have ended."""

    def go_on(self) -> None:
        """Continue with the unfinished input."""

    @property
    def inputs_max(self) -> int:
        """How many inputs to take at once: one slice of work, at least as many as may be called at
        the same time; or one input during a pause."""
        paused = self.supervision.wait is not None
        limit = self.intake.at_once or self.service.slice_records
        return 1 if paused else limit - len(self.rare.in_progress or ())

    def may_take(self, inbox: Inbox) -> bool:
        """Whether it may process the next batch of its inbox although receivers have no credit."""
        return False

    def tick(self) -> None:
        """Call the bolt's tick and its `flush`, and send the outputs of the tick."""
        raise NotImplementedError

    def refuse(self, batch: Batch, failure: Failure) -> None:
        """Fail a batch without calling the bolt."""
        self._executed.add(batch.stream, len(batch))
        self._failed += len(batch)
        if not len(batch.roots):
            self.note_untracked(failure)
        self.instrument.refused(batch, failure.cause)
        self._reports.fail(batch.roots, batch.blamed(failure))

    def fail_all(self, batch: Batch, raised: Raised) -> None:
        """Fail a batch because user code has raised, and no single input caused it."""
        self.supervision.note(raised)
        self.refuse(batch, self.failure(raised.__cause__ or raised))

    def close(self) -> TaskError | None:
        self._cancel_calls()
        return self.notify("cleanup", self.bolt.cleanup) if hasattr(self.bolt, "cleanup") else None

    def stats(self) -> TaskStats:
        """The task's current statistics."""
        figures = self.figures_of(self.bolt)  # first: an error that they raise is part of `health`
        late = self._late_records
        execute, queue = self.execute_latencies.copy(), self.queue_latencies.copy()
        counts = Counts(
            **self.output_streams.counts_at(self.supervision.now_s),
            executed=self._executed.total,
            executed_from=self._executed.by_stream(),
            acked=self._acked,
            failed=self._failed,
            expired=self.expired,
            busy_s=self.service.busy_s,
            ahead=late.ahead,
            late=late.count,
            late_by=late.by,
        )
        return TaskStats(
            self.task.id,
            self.task.component,
            counts,
            {LatencyKind.EXECUTE: execute, LatencyKind.QUEUE: queue},
            health=self.supervision.health,
            figures=figures,
            event_time=self._event_time,
            entries=self._state_count.of(self.bolt, self.clock) if self.supervision.runs else None,
            had_ended=late.had_ended,
            in_time=late.in_time,
        )

    def measure(self, inputs: int, seconds: float, waited_s: float = 0.0) -> None:
        """Note the cost of inputs, as `ServiceTime.measure`."""
        self.service.measure(max(inputs, 1), seconds, waited_s, self.flush_s)
        if (polled := getattr(self.bolt, "__sunshower_polled_s__", None)) is not None:
            polled_s = polled()
            self.service.busy_s -= min(max(polled_s - self._polled_s, 0.0), seconds)
            self._polled_s = polled_s
        self.execute_latencies.add_one(seconds / max(inputs, 1), inputs)

    @property
    def _late_records(self) -> LateRecords:
        """The late records of the windows in the bolt."""
        find = getattr(self.bolt, "__sunshower_late__", None)
        of_bolt = None if find is None else find()
        return self._late_earlier if of_bolt is None else sum_of([self._late_earlier, of_bolt])

    @property
    def _event_time(self) -> EventTime | None:
        """How far the bolt is in event time; None if it follows no watermarks."""
        find = getattr(self.bolt, "__sunshower_event_time__", None)
        return None if find is None else find()

    def pulse(self) -> tuple[object, ...]:
        sent = (self.output_streams.emitted, self.output_streams.transferred)
        return (*sent, self._executed.total, self._acked, self._failed, *self.supervision.pulse)

    def failure(self, error: BaseException, record: Any = None) -> Failure:
        """The failure for an exception of user code, with component, task and worker. `record`: the
        input; None: it is not known."""
        return failure_of(self.task, error, self.supervision.unavailable, record)

    @property
    def _tried(self) -> Failure:
        """The failure of an input that a trial object has processed; see slow_path.py."""
        reason = "a new object of the bolt has tried it after an outage"
        place = (self.task.component, self.task.index, reason)
        return Failure(Cause.UNAVAILABLE, *place, worker=self.task.worker)

    def _call_flush(self) -> None:
        """Call the bolt's `flush` and measure it: it keeps the task busy, but says nothing about
        the time of a record. Raises what user code raises."""
        before = self.clock.now()
        try:
            self.bolt.flush()
        finally:
            seconds = self.clock.now() - before
            self.flush_s += seconds
            self.service.busy_s += seconds

    def _begin_batch(self, batch: Batch) -> None:
        self._first = self._next_failure = 0
        self.errors.stops = False
        self.output_streams.alone = batch.alone

    def _end_batch(self, inputs: int) -> None:
        """End a batch with `inputs` started inputs; if the last one did not fail, it succeeded."""
        is_known = self.errors.is_clear and self.supervision.wait is None
        if inputs > self._next_failure and not is_known:
            self.errors.succeed()

    def _judge(self, index: int, error: BaseException, records: Any) -> Failure:
        """The failure of the input at `index`; the inputs since the last failure succeeded."""
        if self._first + index > self._next_failure:
            self.errors.succeed()
        self._next_failure = self._first + index + 1
        record = _record_at(records, index)
        return self.errors.judge(self.failure(error, record), record, error)

    def _judge_all(self, error: BaseException, batch: Batch) -> dict[int, Failure]:
        """The failure of each input of a batch that failed as a whole, by index."""
        count = min(len(batch), _JUDGED_MAX)
        judged = self._judge_records(error, [_record_at(batch.records, i) for i in range(count)])
        self._next_failure = len(batch)
        return dict.fromkeys(range(len(batch)), judged)

    def _judge_records(self, error: BaseException, records: Sequence[Any]) -> Failure:
        """The failure of inputs that failed together; the first few are judged."""
        judged = failure = self.failure(error, records[0] if len(records) == 1 else None)
        for record in records[:_JUDGED_MAX]:
            judged = self.errors.judge(failure, record, error)
        return judged

    def _not_prepared(self, _: Any) -> Any:
        raise RuntimeError(f"{self.task.name} is not prepared")

    def _made_by_tick(self) -> list[Any]:
        """The outputs of the bolt's tick. Raises BadEmit if one does not fit."""
        result = self.bolt.tick()
        if result is None:
            return []
        check_returned(result, self.output_streams.default_schema)
        outputs = list(result)
        for output in outputs:
            self._check_one(output)
        return outputs

    def _check_one(self, output: Any) -> None:
        stream, record = DEFAULT, output
        if type(output) is OnStream:
            stream, record = output.stream, output.record
        if self.output_streams.check(stream, [record]) is not None:
            raise self.output_streams.misfit_error(stream, record)

    def _send_by_stream(self, outputs: list[Any], anchors: Anchors | None) -> U64 | None:
        xors = None if anchors is None else np.zeros(len(anchors), np.uint64)
        errors: dict[int, BaseException] = {}
        named = [o if type(o) is OnStream else OnStream(DEFAULT, o) for o in outputs]
        for stream in dict.fromkeys(output.stream for output in named):
            which = np.array([i for i, output in enumerate(named) if output.stream == stream])
            records = [named[index].record for index in which.tolist()]
            try:
                part = self.output_streams.send(stream, records, anchors and anchors.select(which))
            except NotSent as refused:
                part = refused.made
                errors |= {int(which[at]): error for at, error in refused.errors.items()}
            if anchors is not None and xors is not None and part is not None:
                anchors.add(xors, which, part)
        if errors:
            raise NotSent(xors, errors)
        return xors

    def _send_of_tick(self, send: Callable[[], Any]) -> None:
        """Send outputs of a tick, which are untracked: routing errors are reported at the end."""
        try:
            send()
        except NotSent as refused:
            for error in refused.errors.values():
                self.note_untracked(no_way(self.task, error))

    def settle(self, batch: Batch, xors_made: U64 | None, failures: dict[int, Failure]) -> None:
        """Report a batch to the ackers; `made`: per input, the XOR of the edges made from it; of a
        shared batch, whose inputs succeed or fail together, that of all of them."""
        inputs = len(batch)
        self._end_batch(inputs)
        if self.rare.trial is Trial.NEW:
            failures = dict.fromkeys(range(inputs), self._tried) | failures
        if failures:
            failures = batch.as_they_fail(failures)
        self._executed.add(batch.stream, inputs)
        self._acked += inputs - len(failures)
        self._failed += len(failures)
        if xors_made is None or not len(batch.roots):
            for failure in failures.values():
                self.note_untracked(failure)
            return
        if self.instrument.records:
            self.instrument.settled(batch, failures)
        for roots, failure in batch.failed(failures) if failures else ():
            if len(roots):
                self._reports.fail(roots, failure)
            else:
                self.note_untracked(failure)
        self._reports.ack(*batch.acked(xors_made, failures))
