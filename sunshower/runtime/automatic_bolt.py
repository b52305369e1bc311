"""Bolts at the automatic levels: functions of a record, and process(), a batch at a time.

Yield = emit anchored to the input; return = ack; raise = fail, and what that input had yielded in
the same piece is not sent. Outputs leave in pieces of at most what the receivers have room for:

    batch ──▶ inputs that are complete ──▶ sent, settled
         └──▶ an input that goes on yielding ──▶ sent so far; continued when there is room again
         └──▶ inputs that were not begun ──▶ back into the inbox

So an input that yields without end neither fills the memory nor holds up other tasks; its tree
fails at its deadline, and what it had yielded belongs to the failed tree.
Storm: org.apache.storm.topology.BasicBoltExecutor (there any other exception kills the worker).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from operator import itemgetter, length_hint
from typing import Any

import numpy as np

from sunshower.errors import BadEmit
from sunshower.failures import Failure
from sunshower.runtime.batch import Anchors, Batch
from sunshower.runtime.bolt_task import BoltTask, noting
from sunshower.runtime.edges import segment_xor
from sunshower.runtime.ids import I64, U64
from sunshower.runtime.outlets import NotSent
from sunshower.runtime.returned import check_returned, is_generator
from sunshower.runtime.usercode import RAISED, no_way
from sunshower.topologies.components import DEFAULT, OnStream

_STOPPED = "StopIteration left the bolt: a next() without a default found nothing"
_PIECE_MAX = 1 << 16  # records of one piece, whatever room there is
_SECOND = itemgetter(1)


@dataclass(slots=True)
class _Made:
    """What the inputs of a batch, or the first of them, have yielded."""

    outputs: list[Any] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # of each input that was begun, in `outputs`
    failures: dict[int, Failure] = field(default_factory=dict)
    rest: Iterator[Any] | None = None  # what the last input may go on to yield


@dataclass(slots=True)
class _Unfinished:
    """An input that goes on yielding when there is room."""

    input: Batch
    rest: Iterator[Any]
    made: U64 | None  # XOR of the edges made so far, shape (1,); None: nobody follows them


class AutomaticBoltTask(BoltTask):
    """Functions of a record, and Bolt.process."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._unfinished: _Unfinished | None = None

    def _adopt(self, bolt: Any) -> None:
        super()._adopt(bolt)
        self._yields = is_generator(self._call)
        self._schema = self.outlets.default_schema

    @property
    def unfinished(self) -> Batch | None:
        return None if self._unfinished is None else self._unfinished.input

    def process(self, batch: Batch) -> Batch | None:
        records = batch.rows(self._streams[batch.stream].spec.schema)
        call = self._call
        if self.injection is not None:
            call = self.injection.around(call, batch, self._streams[batch.stream].spec.schema)
        if self.note is not None:
            call = noting(self.note, call, batch)
        self._begin_batch()
        if self.outlets.none:
            begun, failures = self._run_sink(call, records)
            made = _Made(failures=failures)
        else:
            run = self._run_generators if self._yields else self._run
            made = run(call, records, min(self.outlets.allowance, _PIECE_MAX))
            begun = len(made.ends)
        rest = None
        if begun < len(batch):
            batch, rest = batch.split(begun)
        if self.outlets.none:
            made.ends = [0] * begun
        self._finish(batch, made, None)
        return rest

    def go_on(self) -> None:
        """Send the next piece of the input that goes on yielding."""
        assert self._unfinished is not None
        current, self._unfinished = self._unfinished, None
        self._begin_batch()
        made = _Made()
        most = min(self.outlets.allowance, _PIECE_MAX)
        try:
            made.outputs.extend(islice(current.rest, most))
        except RAISED as error:
            made.failures[0] = self._judge(0, error, current.input.records)
            made.outputs.clear()
        if len(made.outputs) >= most:
            made.rest = current.rest
        made.ends.append(len(made.outputs))
        self._finish(current.input, made, current.made)

    def drop_unfinished(self) -> None:
        """Its tree has failed."""
        self._unfinished = None

    def tick(self) -> None:
        outputs = self._made_by_tick()
        if self._flushes:
            self._call_flush()
        self._send_of_tick(partial(self._send_by_stream, outputs, None))

    def _finish(self, batch: Batch, made: _Made, before: U64 | None) -> None:
        """Send what was made of `batch`, and settle its inputs, but for one that goes on.

        `before`: the XOR of the edges made in former pieces, where the batch is one such input.
        """
        outputs, failures = made.outputs, made.failures
        kinds = set(map(type, outputs))
        if outputs and not self.outlets.fits(DEFAULT, outputs, kinds):
            made.ends = self._refuse_misfits(batch, outputs, made.ends, failures)
        flushed = self._flush(batch, failures)
        if len(flushed) == len(batch):
            outputs, made.ends = [], [0] * len(batch)
        mixed = OnStream in kinds
        xors = self._send(outputs, np.array(made.ends, np.int64), batch, mixed, flushed)
        if before is not None and xors is not None:
            xors ^= before
        last = len(batch) - 1
        if made.rest is not None and last not in flushed:
            self._unfinished = _Unfinished(batch.only(last), made.rest, _last(xors))
            batch, _ = batch.split(last)
            xors = None if xors is None else xors[:last]
        if len(batch):
            self._end_batch(len(batch))
            self.settle(batch, xors, flushed)

    def _flush(self, batch: Batch, failures: dict[int, Failure]) -> dict[int, Failure]:
        """Make what the batch did durable; if that cannot be done, all of it has failed."""
        if self._flushes:
            try:
                self._call_flush()
            except RAISED as error:
                return self._judge_all(error, batch)
        return failures

    def _run_generators(
        self, call: Callable[[Any], Any], records: Sequence[Any], most: int
    ) -> _Made:
        """Call a generator function for each record, until `most` outputs were made.

        All that happens for each record happens in C: 25 ns more than a loop that has no limit,
        where an islice() for each record takes 90.
        """
        made = _Made()
        outputs, starts = made.outputs, list[int]()
        waiting = iter(records)
        # list.extend() keeps the list's length as it goes, so the length is where a record begins.
        begin = map(starts.append, iter(outputs.__len__, -1))
        begun = zip(begin, map(call, waiting), strict=False)
        while True:
            produced = chain.from_iterable(map(_SECOND, begun))
            try:
                outputs.extend(islice(produced, most - len(outputs)))
            except RAISED as error:
                index = len(starts) - 1
                made.failures[index] = self._judge(index, error, records)
                del outputs[starts[index] :]
                if self.errors.stops:
                    break
                continue
            if len(outputs) >= most and len(starts) <= len(records):
                deque(waiting, maxlen=0)  # `produced` ends with the record that was begun last
                made.rest = produced
            break
        del starts[len(records) :]  # the end was looked for, too
        made.ends = [*starts[1:], len(outputs)] if starts else []
        return made

    def _run(self, call: Callable[[Any], Any], records: Sequence[Any], most: int) -> _Made:
        """Call a function that returns its outputs for each record, until `most` were made."""
        made = _Made()
        outputs, ends = made.outputs, made.ends
        extend, end = outputs.extend, ends.append
        results = map(call, records)
        while len(ends) < len(records):  # once, and once more for each record that raises
            try:
                for produced in results:
                    if produced is not None:
                        if type(produced) is not list:
                            check_returned(produced, self._schema)
                            rest = iter(produced)
                            produced = list(islice(rest, most - len(outputs)))  # noqa: PLW2901
                            made.rest = rest
                        extend(produced)
                    end(length := len(outputs))
                    if length >= most:
                        return made
                    made.rest = None
                if len(ends) < len(records):
                    raise RuntimeError(_STOPPED)
            except RAISED as error:
                made.rest = None
                made.failures[len(ends)] = self._judge(len(ends), error, records)
                del outputs[ends[-1] if ends else 0 :]
                end(len(outputs))
                if self.errors.stops:
                    break
        return made

    def _run_sink(
        self, call: Callable[[Any], Any], records: Sequence[Any]
    ) -> tuple[int, dict[int, Failure]]:
        """The same for a bolt without output streams: no list of ends (a fifth of the time).
        Returns how many records were taken, and which of them failed."""
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
                index = len(records) - length_hint(waiting) - 1
                failures[index] = self._judge(index, error, records)
                if self.errors.stops:
                    return index + 1, failures
        return len(records), failures

    def _refuse_misfits(
        self, batch: Batch, outputs: list[Any], ends: list[int], failures: dict[int, Failure]
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
                failures[index] = self._judge(index, error, batch.records)
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


def _last(xors: U64 | None) -> U64 | None:
    return None if xors is None else xors[-1:].copy()
