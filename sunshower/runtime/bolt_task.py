"""One bolt task: what the levels have in common, from prepare() to the report of each input.

The bookkeeping only needs the XOR of the edges that each input made; see edges.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from sunshower.clock import Clock, SystemClock
from sunshower.failures import Cause, Failure
from sunshower.runtime import chronicle
from sunshower.runtime.batch import Anchors, Batch
from sunshower.runtime.credits import ServiceTime
from sunshower.runtime.history import What
from sunshower.runtime.ids import U64
from sunshower.runtime.input_errors import InputErrors
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.metrics import Counts, TaskStats
from sunshower.runtime.outlets import NotSent, Outlets
from sunshower.runtime.plan import Stream
from sunshower.runtime.reports import Reports
from sunshower.runtime.returned import check_returned
from sunshower.runtime.supervision import Supervised, Supervision
from sunshower.runtime.usercode import TaskError, failure_of, guard, no_way
from sunshower.topologies.components import DEFAULT, Bolt, Context, OnStream

Note = Callable[[U64], None]
_JUDGED_MAX = 16  # inputs of a batch that failed as a whole, looked at one by one


def untracked(failure: Failure) -> str:
    """What to say when nobody can replay what has failed."""
    tail = f"\n{failure.traceback.rstrip()}" if failure.traceback else ""
    return (
        f"a record that nobody follows failed: {failure}. It cannot be replayed (ackers=0, or an "
        f"emit without anchors or message id): catch what may go wrong, or track it.{tail}"
    )


def noting(note: Note, call: Callable[[Any], Any], batch: Batch) -> Callable[[Any], Any]:
    """`call`, for the records of `batch` one after the other, with a note before each."""
    anchors = Anchors(batch.roots, batch.offsets)
    indices = count()

    def noted(record: Any) -> Any:
        at = next(indices)
        note(anchors.select(slice(at, at + 1)).roots)
        return call(record)

    return noted


def _record_at(records: Any, index: int) -> Any:
    """A record to compare others with: of a table, the table."""
    return records[index] if isinstance(records, Sequence) else records


class BoltTask(Supervised):
    """What all bolts share; the levels below differ in how they process a batch."""

    joins = False  # whether batches of several senders may be processed as one

    def __init__(
        self,
        supervision: Supervision,
        make: Callable[[], Any],
        outlets: Outlets,
        reports: Reports,
        service: ServiceTime,
        streams: Sequence[Stream],
    ) -> None:
        super().__init__(supervision)
        self.bolt: Any = None  # until it is prepared
        self._call: Callable[[Any], Any] = self._not_prepared
        self._make = make
        self.outlets = outlets
        self.service = service
        self._reports = reports
        self._streams = streams  # of the plan: what the stream index of a batch stands for
        self._flushes = False
        self._executed = self._acked = self._failed = 0
        self.expired = 0  # inputs dropped, as their trees had failed already
        self.errors = InputErrors(supervision)
        self.clock: Clock = SystemClock()  # that of the worker, once it has wired its tasks
        self.flush_s = 0.0  # that flush() took in this slice of work
        self.on_trial = False  # this object may be thrown away: what it succeeds with is replayed
        self._next_failure = 0  # inputs of this batch up to the last one that failed
        self.note: Note | None = None  # told the roots of each record before it is executed

    def prepare(self, context: Context) -> None:
        """Make the bolt and get it ready, before the first batch. Raises Raised; then it may be
        called again, and a new bolt is made."""
        bolt = guard(self.task, "the constructor", self._make)
        guard(self.task, "prepare of a custom grouping", self.outlets.prepare)
        if hasattr(bolt, "prepare"):
            guard(self.task, "prepare", partial(bolt.prepare, context))
        self._adopt(bolt)

    def _adopt(self, bolt: Any) -> None:
        self.bolt = bolt
        self._call = getattr(bolt, "process", bolt)
        self._flushes = getattr(type(bolt), "flush", Bolt.flush) is not Bolt.flush

    def adopt(self, bolt: Any) -> None:
        """Go on with this object, which is prepared."""
        self._adopt(bolt)

    @property
    def last_failed(self) -> bool:
        """Whether an input of the last batch has failed."""
        return self._next_failure > 0

    def resume(self, context: Context) -> None:
        self.prepare(context)

    def pack(self, *, stays: bool, now: float) -> Luggage:
        """What goes along into the next life."""
        if stays:
            return Luggage(instance=self.bolt)
        return Luggage(state=self.bolt.snapshot() if hasattr(self.bolt, "snapshot") else None)

    def unpack(self, luggage: Luggage, context: Context) -> None:
        """Go on with `luggage`, instead of `prepare`."""
        if luggage.instance is not None:
            guard(self.task, "prepare of a custom grouping", self.outlets.prepare)
            self._adopt(luggage.instance)
            return
        self.prepare(context)
        if hasattr(self.bolt, "restore"):
            guard(self.task, "restore", partial(self.bolt.restore, luggage.state))

    def process(self, batch: Batch) -> Batch | None:
        """Take in a batch of at least one record. Returns what of it was not begun."""
        raise NotImplementedError

    @property
    def unfinished(self) -> Batch | None:
        """The input that goes on yielding when there is room; see `go_on`."""
        return None

    def go_on(self) -> None:
        """Continue with the unfinished input."""

    def drop_unfinished(self) -> None:
        """Forget the unfinished input: its tree has failed."""

    @property
    def inputs_max(self) -> int:
        """How many inputs to take at once: a slice of work, and one input while it is paused."""
        return 1 if self.supervision.wait is not None else self.service.slice_records

    def tick(self) -> None:
        """Call the bolt's tick, make durable what it did, and send what it made."""
        raise NotImplementedError

    def refuse(self, batch: Batch, failure: Failure) -> None:
        """Fail a batch without calling the bolt."""
        self._executed += len(batch)
        self._failed += len(batch)
        if not len(batch.roots):
            self.note_untracked(failure)
        if self.scribe is not None:
            refused = (self.task.id, batch.roots, batch.edges, failure.cause)
            self.scribe.note_edges(What.REFUSED, *refused)
        self._reports.fail(batch.roots, failure)

    def close(self) -> TaskError | None:
        return self.hear("cleanup", self.bolt.cleanup) if hasattr(self.bolt, "cleanup") else None

    def stats(self) -> TaskStats:
        """The task at this moment."""
        counts = Counts(
            emitted=self.outlets.emitted,
            transferred=self.outlets.transferred,
            executed=self._executed,
            acked=self._acked,
            failed=self._failed,
            expired=self.expired,
        )
        figures, health = self.figures_of(self.bolt), self.supervision.health
        return TaskStats(self.task.id, self.task.component, counts, health=health, figures=figures)

    def pulse(self) -> tuple[object, ...]:
        sent = (self.outlets.emitted, self.outlets.transferred)
        return (*sent, self._executed, self._acked, self._failed, *self.supervision.pulse)

    def note_untracked(self, failure: Failure) -> None:
        """An input failed that nobody follows: the first one is told at the end of the run."""
        self.untracked = self.untracked or untracked(failure)

    def failure(self, error: BaseException) -> Failure:
        """An exception of user code, with its place."""
        return failure_of(self.task, error, self.supervision.unavailable)

    @property
    def _tried(self) -> Failure:
        """Of an input that a new object has processed on trial; see renewal.py."""
        reason = "a new object of the bolt has tried it after an outage"
        place = (self.task.component, self.task.index, reason)
        return Failure(Cause.UNAVAILABLE, *place, worker=self.task.worker)

    def _call_flush(self) -> None:
        """Make what the batch did durable. Raises what user code raises."""
        before = self.clock.now()
        try:
            self.bolt.flush()
        finally:
            self.flush_s += self.clock.now() - before

    def _begin_batch(self) -> None:
        self._next_failure, self.errors.stops = 0, False

    def _end_batch(self, inputs: int) -> None:
        """So many were begun; the last of them succeeded unless they failed."""
        if inputs > self._next_failure:
            self.errors.succeed()

    def _judge(self, index: int, error: BaseException, records: Any) -> Failure:
        """The failure of the input at `index` of this batch; those since the last one succeeded."""
        if index > self._next_failure:
            self.errors.succeed()
        self._next_failure = index + 1
        return self.errors.judge(self.failure(error), _record_at(records, index), error)

    def _judge_all(self, error: BaseException, batch: Batch) -> dict[int, Failure]:
        """The failure of each input of a batch that has failed as a whole."""
        failure = self.failure(error)
        judged = failure
        for index in range(min(len(batch), _JUDGED_MAX)):
            judged = self.errors.judge(failure, _record_at(batch.records, index), error)
        self._next_failure = len(batch)
        return dict.fromkeys(range(len(batch)), judged)

    def _not_prepared(self, _: Any) -> Any:
        raise RuntimeError(f"{self.task.component}[{self.task.index}] is not prepared")

    def _made_by_tick(self) -> list[Any]:
        """All that the bolt's tick yields. Raises BadEmit if some of it does not fit."""
        made = self.bolt.tick()
        if made is None:
            return []
        check_returned(made, self.outlets.default_schema)
        outputs = list(made)
        for output in outputs:
            self._check_one(output)
        return outputs

    def _check_one(self, output: Any) -> None:
        stream, record = DEFAULT, output
        if type(output) is OnStream:
            stream, record = output.stream, output.record
        if self.outlets.check(stream, [record]) is not None:
            raise self.outlets.misfit_error(stream, record)

    def _send_by_stream(self, outputs: list[Any], anchors: Anchors | None) -> U64 | None:
        made = np.zeros(len(outputs), np.uint64)
        errors: dict[int, BaseException] = {}
        named = [o if type(o) is OnStream else OnStream(DEFAULT, o) for o in outputs]
        for stream in dict.fromkeys(output.stream for output in named):
            which = np.array([i for i, output in enumerate(named) if output.stream == stream])
            records = [named[index].record for index in which.tolist()]
            try:
                part = self.outlets.send(stream, records, anchors and anchors.select(which))
            except NotSent as refused:
                part = refused.made
                errors |= {int(which[at]): error for at, error in refused.errors.items()}
            if part is not None:
                made[which] = part
        found = None if anchors is None else made
        if errors:
            raise NotSent(found, errors)
        return found

    def _send_of_tick(self, send: Callable[[], Any]) -> None:
        """What a tick makes is in nobody's tree: without a way it is told at the end."""
        try:
            send()
        except NotSent as refused:
            for error in refused.errors.values():
                self.note_untracked(no_way(self.task, error))

    def settle(self, batch: Batch, made: U64 | None, failures: dict[int, Failure]) -> None:
        """Report a batch: `made` is, per input, the XOR of the edges made from it."""
        if self.on_trial:
            failures = dict.fromkeys(range(len(batch)), self._tried) | failures
        self._executed += len(batch)
        self._acked += len(batch) - len(failures)
        self._failed += len(failures)
        anchors = batch.anchors
        if anchors is None or made is None:
            for failure in failures.values():
                self.note_untracked(failure)
            return
        if self.scribe is not None:
            chronicle.settled(self.scribe, self.task.id, batch, failures)
        for index, failure in failures.items():
            roots = anchors.select(np.array([index])).roots
            if len(roots):
                self._reports.fail(roots, failure)
            else:
                self.note_untracked(failure)
        if not failures:
            roots, mades, _ = anchors.with_edges(made)
            self._reports.ack(roots, batch.edges ^ mades)
            return
        good = np.delete(np.arange(len(batch)), list(failures))
        roots, mades, _ = anchors.select(good).with_edges(made[good])
        self._reports.ack(roots, Anchors(batch.edges, batch.offsets).select(good).roots ^ mades)
