"""One bolt task at the automatic levels: functions and process(), a batch of inputs at a time.

Yield = emit anchored to the input; return = ack; raise = fail, and what that input had yielded is
not sent. The bookkeeping only needs how many outputs each input made; see edges.py.
Storm: org.apache.storm.topology.BasicBoltExecutor (there any other exception kills the worker).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, count
from operator import length_hint
from typing import Any

import numpy as np

from sunshower.errors import BadEmit
from sunshower.failures import Failure
from sunshower.runtime import chronicle
from sunshower.runtime.batch import Anchors, Batch
from sunshower.runtime.credits import ServiceTime
from sunshower.runtime.edges import segment_xor
from sunshower.runtime.history import What
from sunshower.runtime.ids import I64, U64
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.metrics import Counts, TaskStats
from sunshower.runtime.outlets import NotSent, Outlets
from sunshower.runtime.plan import Stream
from sunshower.runtime.reports import Reports
from sunshower.runtime.returned import check_returned, is_generator
from sunshower.runtime.supervision import Supervised, Supervision
from sunshower.runtime.usercode import RAISED, TaskError, failure_of, guard, no_way
from sunshower.topologies.components import DEFAULT, Bolt, Context, OnStream

Note = Callable[[U64], None]
_STOPPED = "StopIteration left the bolt: a next() without a default found nothing"


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

    def process(self, batch: Batch) -> None:
        """Take in a batch of at least one record."""
        raise NotImplementedError

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
        return failure_of(self.task, error)

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


class AutomaticBoltTask(BoltTask):
    """Functions of a record, and Bolt.process."""

    def _adopt(self, bolt: Any) -> None:
        super()._adopt(bolt)
        self._yields = is_generator(self._call)
        self._schema = self.outlets.default_schema

    def process(self, batch: Batch) -> None:
        records = batch.rows(self._streams[batch.stream].spec.schema)
        call = self._call
        if self.injection is not None:
            call = self.injection.around(call, batch, self._streams[batch.stream].spec.schema)
        if self.note is not None:
            call = noting(self.note, call, batch)
        if self.outlets.none:
            failures = self._run_sink(call, records)
            self.settle(batch, np.zeros(len(batch), np.uint64), self._flush(batch, failures))
            return
        outputs, stops, failures = self._run(call, records)
        kinds = set(map(type, outputs))
        if outputs and not self.outlets.fits(DEFAULT, outputs, kinds):
            stops = self._refuse_misfits(outputs, stops, failures)
        failures = self._flush(batch, failures)
        if len(failures) == len(batch):
            outputs, stops = [], [0] * len(batch)
        made = self._send(outputs, np.array(stops, np.int64), batch, OnStream in kinds, failures)
        self.settle(batch, made, failures)

    def tick(self) -> None:
        outputs = self._made_by_tick()
        if self._flushes:
            self.bolt.flush()
        self._send_of_tick(partial(self._send_by_stream, outputs, None))

    def _flush(self, batch: Batch, failures: dict[int, Failure]) -> dict[int, Failure]:
        """Make what the batch did durable; if that cannot be done, all of it has failed."""
        if self._flushes:
            try:
                self.bolt.flush()
            except RAISED as error:
                return dict.fromkeys(range(len(batch)), self.failure(error))
        return failures

    def _run(
        self, call: Callable[[Any], Any], records: Sequence[Any]
    ) -> tuple[list[Any], list[int], dict[int, Failure]]:
        """Call the bolt for each record: all outputs in a row, and where each input's end."""
        outputs: list[Any] = []
        ends: list[int] = []
        failures: dict[int, Failure] = {}
        extend, end = outputs.extend, ends.append
        look = not self._yields
        results = map(call, records)
        while len(ends) < len(records):  # once, and once more for each record that raises
            try:
                for produced in results:
                    if produced is not None:
                        if look and type(produced) is not list:
                            check_returned(produced, self._schema)
                        extend(produced)
                    end(len(outputs))
                if len(ends) < len(records):
                    raise RuntimeError(_STOPPED)
            except RAISED as error:
                failures[len(ends)] = self.failure(error)
                del outputs[ends[-1] if ends else 0 :]
                end(len(outputs))
        return outputs, ends, failures

    def _run_sink(self, call: Callable[[Any], Any], records: Sequence[Any]) -> dict[int, Failure]:
        """The same for a bolt without output streams: no list of ends (a fifth of the time)."""
        failures: dict[int, Failure] = {}
        waiting = iter(records)
        ended: list[None] = []  # filled when the record after the last one is asked for
        asked = chain(waiting, iter(partial(ended.append, None), None))
        results = filter(None, map(call, asked))
        while not ended:
            try:
                for produced in results:
                    if not self._yields:
                        check_returned(produced, None)
                    for output in produced:
                        self._check_one(output)
                if not ended:
                    raise RuntimeError(_STOPPED)
            except RAISED as error:
                left = length_hint(waiting)
                failures[len(records) - left - 1] = self.failure(error)
        return failures

    def _refuse_misfits(
        self, outputs: list[Any], ends: list[int], failures: dict[int, Failure]
    ) -> list[int]:
        """Fail the inputs that made a record which does not fit; take all they made out."""
        start, kept, new_ends = 0, list[Any](), list[int]()
        for index, stop in enumerate(ends):
            mine = outputs[start:stop]
            start = stop
            try:
                for output in mine:
                    self._check_one(output)
                kept += mine
            except BadEmit as error:
                failures[index] = self.failure(error)
            new_ends.append(len(kept))
        outputs[:] = kept
        return new_ends

    def _send(
        self,
        outputs: list[Any],
        ends: I64,
        batch: Batch,
        mixed: bool,
        failures: dict[int, Failure],
    ) -> U64 | None:
        """Send the outputs. Returns, per input, the XOR of the edges made from it.

        An input fails if a grouping raises for one of its outputs; its others have been sent,
        and will be again with its replay.
        """
        if not outputs:
            return np.zeros(len(batch), np.uint64)
        anchors = batch.anchors
        if anchors is not None:
            counts = ends.copy()  # np.diff(…, prepend=0) takes 15 µs
            counts[1:] -= ends[:-1]
            if anchors.offsets is None:
                anchors = Anchors(anchors.roots.repeat(counts))
            else:
                anchors = anchors.select(np.arange(len(batch)).repeat(counts))
        send = self._send_by_stream if mixed else partial(self.outlets.send, DEFAULT)
        try:
            made = send(outputs, anchors)
        except NotSent as refused:
            made = refused.made
            for index, error in refused.errors.items():
                failures[int(np.searchsorted(ends, index, "right"))] = no_way(self.task, error)
        return None if made is None else segment_xor(made, ends)
