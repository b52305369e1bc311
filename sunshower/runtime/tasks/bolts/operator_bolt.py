"""Runs the operators of a stream; separate because it is one of the levels of bolts.

The rows of a batch are combined before they are sent:

    batch ──▶ functions of a record, input by input ──▶ rows ──▶ gather(rows) ──▶ shared batches

An exception of a function fails its input alone. What `gather` makes of several inputs belongs to
the trees of all of them: it is tracked by one edge for each tree, target and batch. If one of its
rows fails, all these trees fail, no attempt is charged, and each is emitted again in a batch of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sunshower.errors import user_errors
from sunshower.failures import Failure
from sunshower.records import is_table
from sunshower.runtime.events.metrics import EventTime
from sunshower.runtime.tasks.bolts.automatic_bolt import PIECE_MAX, AutomaticBoltTask
from sunshower.runtime.tasks.user_code import BatchOutputs, no_way
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import I64, U64
from sunshower.runtime.transport.channels import Entry, Inbox
from sunshower.runtime.transport.output_streams import NotSent
from sunshower.topologies.async_calls import AsyncCalls
from sunshower.topologies.operators.steps import check_rows
from sunshower.topologies.operators.windows.event_times import as_float
from sunshower.topologies.operators.windows.watermarks import WATERMARKS

# Rows that are combined at once. Rows of a whole slice do not fit the processor's cache.
_PART_ROWS = 1000
# A stage that combines takes so many slices at once, if one has many inputs: 80,000 words make 0.08
# rows a word, and 20,000 make 0.2.
_SLICES, _MANY_INPUTS = 4, 256


class OperatorBoltTask(AutomaticBoltTask):
    """Calls `expand` for each input, and `gather` for what the inputs of a batch have made."""

    _has_operators = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rows_out = self._rows_in = 0
        self._advances = False  # whether this batch is watermarks
        self._raised: BaseException | None = None  # by an operator, for a part of this batch

    def may_take(self, inbox: Inbox) -> bool:
        """Without credit, watermarks wait, and records pass them: they are added to windows.
        Otherwise, records would time out while the rows of many windows are read."""
        if self.bolt is not None and self.bolt.reads_watermarks:
            for _ in range(len(inbox.entries)):
                if not self._is_watermarks(inbox.entries[0][0]):
                    return True
                inbox.move_back(self.service.credit)
        return False

    def process(self, batch: Batch) -> Batch | None:
        self._advances = self._is_watermarks(batch)
        self._raised = None
        return super().process(batch)

    def _check_outputs(self, produced: BatchOutputs, records: Sequence[Any]) -> set[type]:
        return set() if is_table(produced.outputs) else super()._check_outputs(produced, records)

    def _is_watermarks(self, batch: Batch) -> bool:
        return self._streams[batch.stream].spec.id == WATERMARKS

    def settle(self, batch: Batch, xors_made: U64 | None, failures: dict[int, Failure]) -> None:
        counts = self._acked, self._failed
        super().settle(batch, xors_made, failures)
        if self._advances:  # users count records, and so does the master
            self._acked, self._failed = counts

    def refuse(self, batch: Batch, failure: Failure) -> None:
        failed = self._failed
        super().refuse(batch, failure)
        if self._is_watermarks(batch):
            self._failed = failed

    def adopt(self, bolt: Any) -> None:
        super().adopt(bolt)
        self._use_calls(bolt)
        self.call, self._schema = bolt.expand, bolt.schema
        self._yields = True  # as a generator function does, `expand` returns what can be iterated
        if bolt.stream is not None:
            self._stream = bolt.stream
        self.intake = replace(
            self.intake,
            # A table of one row costs as much as one of a thousand.
            joins=self.intake.joins or (bolt.takes_tables and not bolt.keeps_state),
            joins_shared=bolt.joins_shared,
            tables=bolt.takes_tables,
        )

    def next_inputs(self, inbox: Inbox, limit: int) -> list[Entry]:
        entries = list[Entry]()
        if self.intake.joins_shared and not self.intake.joins and self.rare.note is None:
            entries = inbox.take_shared(min(self.service.window, self.shared_max(limit)))
        return entries or super().next_inputs(inbox, limit)

    @property
    def inputs_max(self) -> int:
        """As for every bolt, and so few that the expected rows fit the receivers' credit, unless
        they are called at the same time: fewer would take as long; or stay in windows."""
        if self.bolt is None or self.intake.at_once or self.bolt.reads_watermarks:
            return super().inputs_max
        slice_records = super().inputs_max
        if self.bolt.makes_fewer and slice_records >= _MANY_INPUTS:
            slice_records *= _SLICES
        fan_out = (self._rows_out + 1) / (self._rows_in + 1)
        return max(1, min(slice_records, int(self.output_streams.allowance / fan_out)))

    @property
    def _event_time(self) -> EventTime | None:
        if self.bolt is None or (window := self.bolt.window) is None:
            return None
        reached = window.reached_time
        return EventTime(
            as_float(reached.time),
            as_float(reached.newest),
            reached.sources,
            reached.held_by,
            holds=reached.holds,
        )

    @property
    def _piece_max(self) -> int:
        if self.bolt.stream is not None:
            return super()._piece_max
        return PIECE_MAX  # the rows are combined before they need credit

    def _by_stream(self, outputs: list[Any]) -> Mapping[str, Sequence[Any]]:
        if self._raised is not None:
            raise self._raised
        gather = self.bolt.advance if self._advances else self.bolt.gather
        by_stream: Mapping[str, Sequence[Any]] = gather(outputs)
        return by_stream

    def _run_generators(
        self, call: Callable[[Any], Any], records: Sequence[Any], limit: int
    ) -> BatchOutputs:
        if self.bolt.passes or self._advances:
            return _as_they_are(records)
        self.bolt.announce(records)
        if not self.bolt.combines:
            return super()._run_generators(call, records, limit)
        batch_outputs, rows = BatchOutputs(), 0
        while (
            len(batch_outputs.ends) < len(records)
            and batch_outputs.rest is None
            and not self.errors.stops
        ):
            self._first = first = len(batch_outputs.ends)
            part = records[first : first + 1 + _PART_ROWS * first // max(1, rows)]
            part_outputs = super()._run_generators(call, part, limit)
            self._check_outputs(part_outputs, part)
            batch_outputs.failures |= {
                first + at: failure for at, failure in part_outputs.failures.items()
            }
            batch_outputs.ends += part_outputs.ends
            batch_outputs.rest = part_outputs.rest
            rows += len(part_outputs.outputs)
            try:
                if self._raised is None:
                    self.bolt.add(part_outputs.outputs)
            except user_errors() as error:
                self._raised = error
        return batch_outputs

    def _run_together(
        self, calls: AsyncCalls, call: Callable[[Any], Any], records: Sequence[Any]
    ) -> BatchOutputs:
        if self._advances:
            return _as_they_are(records)
        self.bolt.announce(records)
        return super()._run_together(calls, call, records)

    def _fit(self, outputs: list[Any], kinds: set[type], widths_fit: bool) -> bool:
        return self._advances or super()._fit(outputs, kinds, widths_fit)

    def _check_one(self, output: Any) -> None:
        check_rows([output], self.bolt.schema, self.bolt.maker)

    def _send(
        self,
        outputs: list[Any],
        ends_of_each: list[int],
        batch: Batch,
        mixed: bool,
        failures: dict[int, Failure],
    ) -> U64 | None:
        if not self._advances:
            self._rows_in += len(batch)
            self._rows_out += len(outputs)
        if self.bolt.stream is not None and not self._advances:  # each row has its input's trees
            return super()._send(outputs, ends_of_each, batch, False, failures)
        xors, of_batch = batch.nothing_made(), batch.anchors
        good: slice | I64 = slice(None)
        if failures:
            good = np.delete(np.arange(len(batch)), list(failures))
        anchors = of_batch and of_batch.together(good)
        try:
            if self.rare.note is not None and anchors is not None:
                self.rare.note(anchors.roots)
            for stream, records in self._by_stream(outputs).items():
                edges = self.output_streams.send(stream, records, anchors)
                if of_batch is not None and edges is not None:
                    of_batch.add(xors, good, edges)
        except user_errors() as error:
            if isinstance(error, NotSent):
                why = no_way(self.task, next(iter(error.errors.values())))
                judged = dict.fromkeys(np.arange(len(batch))[good].tolist(), why)
            else:
                judged = self._judge_all(error, batch)
            several = anchors is not None and len(np.unique(anchors.roots)) > 1
            for index in np.arange(len(batch))[good].tolist():
                failures[index] = judged[index].in_common if several else judged[index]
        return xors


def _as_they_are(records: Sequence[Any]) -> BatchOutputs:
    """The records are the rows."""
    rows: Any = records if is_table(records) else list(records)
    return BatchOutputs(rows, list(range(1, len(records) + 1)))
