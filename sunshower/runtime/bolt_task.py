"""One bolt task at the automatic levels: functions and process(), a batch of inputs at a time.

Yield = emit anchored to the input; return = ack; raise = fail, and what that input had yielded is
not sent. The bookkeeping only needs how many outputs each input made; see edges.py.
Storm: org.apache.storm.topology.BasicBoltExecutor (there any other exception kills the worker).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import length_hint
from typing import Any

import numpy as np

from sunshower.errors import BadEmit
from sunshower.failures import Cause, Failure
from sunshower.runtime.batch import Anchors, Batch
from sunshower.runtime.credits import ServiceTime
from sunshower.runtime.edges import segment_xor
from sunshower.runtime.ids import I64, U64
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.metrics import Counts, TaskStats
from sunshower.runtime.outlets import Outlets
from sunshower.runtime.plan import Stream, Task
from sunshower.runtime.reports import Reports
from sunshower.topologies.components import DEFAULT, Bolt, Context, OnStream

_STOPPED = "StopIteration left the bolt: a next() without a default found nothing"


def untracked(failure: Failure) -> str:
    """What to say when nobody can replay what has failed."""
    tail = f"\n{failure.traceback.rstrip()}" if failure.traceback else ""
    return (
        f"a record that nobody follows failed: {failure}. It cannot be replayed (ackers=0, or an "
        f"emit without anchors or message id): catch what may go wrong, or track it.{tail}"
    )


class BoltTask:
    """What all bolts share; the levels below differ in how they process a batch."""

    joins = False  # whether batches of several senders may be processed as one

    def __init__(
        self,
        task: Task,
        bolt: Any,
        outlets: Outlets,
        reports: Reports,
        service: ServiceTime,
        streams: Sequence[Stream],
    ) -> None:
        self.task = task
        self.bolt = bolt
        self.outlets = outlets
        self.service = service
        self._reports = reports
        self._streams = streams  # of the plan: what the stream index of a batch stands for
        self._flushes = getattr(type(bolt), "flush", Bolt.flush) is not Bolt.flush
        self._executed = self._acked = self._failed = 0
        self.untracked: str | None = None

    def prepare(self, context: Context) -> None:
        """Get ready; called once, before the first batch."""
        if hasattr(self.bolt, "prepare"):
            self.bolt.prepare(context)

    def pack(self, *, stays: bool) -> Luggage:
        """What goes along into the next life."""
        if stays:
            return Luggage(instance=self.bolt)
        return Luggage(state=self.bolt.snapshot() if hasattr(self.bolt, "snapshot") else None)

    def unpack(self, luggage: Luggage, context: Context) -> None:
        """Go on with `luggage`, instead of `prepare`."""
        if luggage.instance is None:
            self.prepare(context)
            if hasattr(self.bolt, "restore"):
                self.bolt.restore(luggage.state)

    def process(self, batch: Batch) -> None:
        """Take in a batch of at least one record."""
        raise NotImplementedError

    def close(self) -> None:
        """The topology stops."""
        if hasattr(self.bolt, "cleanup"):
            self.bolt.cleanup()

    def stats(self) -> TaskStats:
        """The task at this moment."""
        counts = Counts(
            emitted=self.outlets.emitted,
            transferred=self.outlets.transferred,
            executed=self._executed,
            acked=self._acked,
            failed=self._failed,
        )
        return TaskStats(self.task.id, self.task.component, counts)

    def note_untracked(self, failure: Failure) -> None:
        """An input failed that nobody follows: the first one is told at the end of the run."""
        self.untracked = self.untracked or untracked(failure)

    def failure(self, error: BaseException) -> Failure:
        """An exception of user code, with its place."""
        return Failure(
            Cause.EXCEPTION,
            self.task.component,
            self.task.index,
            "".join(traceback.format_exception_only(error)).strip(),
            type(error).__qualname__,
            "".join(traceback.format_exception(error)),
            self.task.worker,
        )

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
        good = np.setdiff1d(np.arange(len(batch)), list(failures))
        roots, mades, _ = anchors.select(good).with_edges(made[good])
        self._reports.ack(roots, Anchors(batch.edges, batch.offsets).select(good).roots ^ mades)


class AutomaticBoltTask(BoltTask):
    """Functions of a record, and Bolt.process."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._call: Callable[[Any], Any] = getattr(self.bolt, "process", self.bolt)

    def process(self, batch: Batch) -> None:
        records = batch.rows(self._streams[batch.stream].spec.schema)
        if self.outlets.none:
            failures = self._run_sink(records)
            self.settle(batch, np.zeros(len(batch), np.uint64), self._flush(batch, failures))
            return
        outputs, stops, failures = self._run(records)
        kinds = set(map(type, outputs))
        if outputs and not self.outlets.fits(DEFAULT, outputs, kinds):
            stops = self._refuse_misfits(outputs, stops, failures)
        failures = self._flush(batch, failures)
        if len(failures) == len(batch):
            outputs, stops = [], [0] * len(batch)
        ends: I64 = np.array(stops, np.int64)
        self.settle(batch, self._send(outputs, ends, batch, OnStream in kinds), failures)

    def _flush(self, batch: Batch, failures: dict[int, Failure]) -> dict[int, Failure]:
        """Make what the batch did durable; if that cannot be done, all of it has failed."""
        if self._flushes:
            try:
                self.bolt.flush()
            except Exception as error:
                return dict.fromkeys(range(len(batch)), self.failure(error))
        return failures

    def _run(self, records: Sequence[Any]) -> tuple[list[Any], list[int], dict[int, Failure]]:
        """Call the bolt for each record: all outputs in a row, and where each input's end."""
        outputs: list[Any] = []
        ends: list[int] = []
        failures: dict[int, Failure] = {}
        extend, end = outputs.extend, ends.append
        results = map(self._call, records)
        while len(ends) < len(records):  # once, and once more for each record that raises
            try:
                for produced in results:
                    if produced is not None:
                        extend(produced)
                    end(len(outputs))
                if len(ends) < len(records):
                    raise RuntimeError(_STOPPED)
            except Exception as error:
                failures[len(ends)] = self.failure(error)
                del outputs[ends[-1] if ends else 0 :]
                end(len(outputs))
        return outputs, ends, failures

    def _run_sink(self, records: Sequence[Any]) -> dict[int, Failure]:
        """The same for a bolt without output streams: no list of ends (a fifth of the time)."""
        failures: dict[int, Failure] = {}
        waiting = iter(records)
        ended: list[None] = []  # filled when the record after the last one is asked for
        asked = chain(waiting, iter(partial(ended.append, None), None))
        results = filter(None, map(self._call, asked))
        while not ended:
            try:
                for produced in results:
                    for output in produced:
                        self._check_one(output)
                if not ended:
                    raise RuntimeError(_STOPPED)
            except Exception as error:
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

    def _check_one(self, output: Any) -> None:
        stream, record = DEFAULT, output
        if type(output) is OnStream:
            stream, record = output.stream, output.record
        if self.outlets.check(stream, [record]) is not None:
            raise self.outlets.misfit_error(stream, record)

    def _send(self, outputs: list[Any], ends: I64, batch: Batch, mixed: bool) -> U64 | None:
        """Send the outputs. Returns, per input, the XOR of the edges made from it."""
        if not outputs:
            return np.zeros(len(batch), np.uint64)
        anchors = batch.anchors
        if anchors is not None:
            counts = np.diff(ends, prepend=0)
            if anchors.offsets is None:
                anchors = Anchors(np.repeat(anchors.roots, counts))
            else:
                anchors = anchors.select(np.repeat(np.arange(len(batch)), counts))
        send = self._send_by_stream if mixed else partial(self.outlets.send, DEFAULT)
        made = send(outputs, anchors)
        return None if made is None else segment_xor(made, ends)

    def _send_by_stream(self, outputs: list[Any], anchors: Anchors | None) -> U64 | None:
        made = np.zeros(len(outputs), np.uint64)
        named = [o if type(o) is OnStream else OnStream(DEFAULT, o) for o in outputs]
        for stream in dict.fromkeys(output.stream for output in named):
            which = np.array([i for i, output in enumerate(named) if output.stream == stream])
            records = [named[index].record for index in which.tolist()]
            part = self.outlets.send(stream, records, anchors and anchors.select(which))
            if part is not None:
                made[which] = part
        return None if anchors is None else made
