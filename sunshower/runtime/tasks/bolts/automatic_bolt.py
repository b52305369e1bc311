"""Runs bolts at the automatic levels (functions of a record, and process()), a batch at a time.

Yield = emit anchored to the input; return = ack; raise = fail, and the outputs that the input
yielded in the same piece are not sent. The receivers' credit limits the outputs of a piece:

    batch ──▶ completed inputs ──▶ outputs sent, inputs acked or failed
         └──▶ an input that yields more ──▶ first piece sent; continued when credit returns
         └──▶ inputs not started ──▶ back into the inbox

So an input that yields without end neither fills the memory nor blocks other tasks; its tree fails
at its deadline, together with the outputs it has yielded.
Storm: org.apache.storm.topology.BasicBoltExecutor (any other exception kills the worker there).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import BadEmit, is_user_error, user_errors
from sunshower.failures import Failure
from sunshower.record_loops import each, expand
from sunshower.records import prepare_tables
from sunshower.runtime.events.injected_faults import TaskFaults
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask, CallsInProgress, Intake, Unfinished
from sunshower.runtime.tasks.bolts.keyed_bolt import KeyedBolt
from sunshower.runtime.tasks.user_code import BatchOutputs, check_returned, is_generator, no_way
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.transport.output_streams import NotSent
from sunshower.topologies.async_calls import AsyncCalls, Outcome
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.components import DEFAULT, Context, Derived, OnStream
from sunshower.topologies.operators.steps import FunctionOperator

if TYPE_CHECKING:
    import pyarrow as pa

_STOPPED = "StopIteration left the bolt: a next() without a default found nothing"
PIECE_MAX = 1 << 16  # records of one piece, however much credit there is


# ---- async bolt ----------------------------------------------------------------------------------


class AsyncBolt:
    """Calls the function for a record; for the rest it is the object that is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._step = FunctionOperator(function)

    @property
    def calls(self) -> AsyncCalls | None:
        """The event loop; None before `prepare`."""
        return self._step.calls

    @property
    def concurrency(self) -> int:
        """How many calls run at a time."""
        return self._step.concurrency

    @property
    def ordered(self) -> bool:
        """Whether their results keep the order of the inputs."""
        return self._step.ordered

    def prepare(self, context: Context) -> None:
        """Begin, and call the object's `prepare`."""
        self._step.prepare(context)

    def __call__(self, record: Any) -> Awaitable[Any]:
        assert self._step.limited is not None, "it is not prepared"
        return self._step.limited(record)

    def cleanup(self) -> None:
        """Call the object's `cleanup`, and cancel what it has left running."""
        self._step.cleanup()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step.function, name)


# ---- automatic bolt ------------------------------------------------------------------------------


class AutomaticBoltTask(BoltTask):
    """Calls a function of a record, or `Bolt.process`, for each input."""

    _has_operators = False  # whether the bolt is an OperatorBolt

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._calls: AsyncCalls | None = None  # of an async function
        self._is_sink = self.output_streams.none and not self._has_operators
        self._keyed: KeyedBolt | None = None  # the bolt, if it is one

    def _new(self) -> Any:
        bolt = super()._new()
        return AsyncBolt(bolt) if limits_of(bolt) else bolt

    def adopt(self, bolt: Any) -> None:
        super().adopt(bolt)
        if isinstance(bolt, AsyncBolt):
            self._use_calls(bolt)
        self._yields = is_generator(self.call)
        self._schema = self.output_streams.default_schema
        self._stream = DEFAULT
        self._keyed = bolt if isinstance(bolt, KeyedBolt) else None
        if self._keyed is not None:
            self._keyed.schema, self._keyed.check = self._schema, self._check_one

    def _use_calls(self, bolt: Any) -> None:
        """Call the async functions of an AsyncBolt or OperatorBolt, if it has any."""
        if bolt.calls is not None:
            self._calls, self.service.at_once = bolt.calls, bolt.concurrency
            self.intake = replace(self.intake, joins=True, at_once=bolt.concurrency)
            in_progress = None if bolt.ordered else CallsInProgress(bolt.calls)
            self.rare = self.rare._replace(in_progress=in_progress)

    def process(self, batch: Batch) -> Batch | None:
        schema = self._streams[batch.stream].spec.schema
        records = batch.rows(schema, keep_table=self.intake.tables)
        if self._keyed is not None:
            self._keyed.announce(self._streams[batch.stream], records)
        call = self.call
        self._begin_batch(batch)
        if self.rare.in_progress is not None:
            self.rare.in_progress.begin(call, batch, records, self.clock)
            return None
        if self._calls is not None:
            produced = self._run_together(self._calls, call, records)
            begun = len(records)
        elif self._is_sink:
            begun, failures = self._run_sink(call, records)
            produced = BatchOutputs(failures=failures)
        else:
            run = self._run_generators if self._yields else self._run
            limit = self.service.records_max if batch.is_indivisible else self._piece_max
            produced = run(call, records, limit)
            begun = len(produced.ends)
        return self._finish(batch, produced, begun)

    def end_calls(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        self._begin_batch(batch)
        self._finish(batch, self._outputs_of(outcomes, batch.records), len(batch))

    @property
    def _piece_max(self) -> int:
        """How many outputs to make before they are sent."""
        return min(self.output_streams.allowance, PIECE_MAX)

    def go_on(self) -> None:
        """Send the next piece of the unfinished input."""
        current = self.rare.unfinished
        assert current is not None
        self.rare = self.rare._replace(unfinished=None)
        self._begin_batch(current.input)
        piece, limit = BatchOutputs(), self._piece_max
        try:
            piece.outputs.extend(islice(current.rest, limit))
        except user_errors() as error:
            piece.failures[0] = self._judge(0, error, current.input.records)
            piece.outputs.clear()
        if len(piece.outputs) >= limit:
            piece.rest = current.rest
        current.goes_on(len(piece.outputs), self.clock.now())
        if piece.rest is not None and current.for_s >= self.rare.input_s:
            piece.failures[0] = self._judge(0, self._endless(current), current.input.records)
            piece.outputs.clear()
        piece.ends.append(len(piece.outputs))
        self._finish(current.input, piece, 1, current)

    def _endless(self, current: Unfinished) -> BadEmit:
        """The error of an input whose generator does not end before its tree times out."""
        return BadEmit(
            f"it has yielded {current.outputs:,} records of one input in {self.rare.input_s:.0f} "
            "s, and does not end: does it yield for ever, as in `while True`? If not, raise "
            "message_timeout_s, or emit fewer records of an input"
        )

    def tick(self) -> None:
        outputs = self._made_by_tick()
        if self._flushes:
            self._call_flush()
        self._send_of_tick(partial(self._send_by_stream, outputs, None))

    def _finish(
        self, batch: Batch, produced: BatchOutputs, begun: int, current: Unfinished | None = None
    ) -> Batch | None:
        """Send the outputs of the first `begun` inputs of a batch, and settle these, except an
        unfinished one. Returns the other inputs.

        `current`: what was made before, if the batch is one continued input.
        """
        whole, not_begun = batch.is_indivisible, None
        outputs, failures = produced.outputs, produced.failures
        if not whole and begun < len(batch):
            batch, not_begun = batch.split(begun)
        if whole and (produced.rest is not None or (begun < len(batch) and not failures)):
            limit = self.service.records_max
            error = BadEmit(f"a batch made more than {limit:,} records (window_records_max)")
            failures[0] = self._judge(0, error, batch.records)
        kinds = self._check_outputs(produced, batch.records) if outputs else ()
        if whole and failures and (self._keyed is not None or self._has_operators):
            self.bolt.discard()
        elif self._flushes:
            failures = self._flush(batch, failures)
        if failures:
            failures = batch.as_they_fail(failures)
        xors: U64 | None = batch.nothing_made()
        if len(failures) < len(batch) and (produced.outputs or self._has_operators):
            xors = self._send(produced.outputs, produced.ends, batch, OnStream in kinds, failures)
        if current is not None and current.made is not None and xors is not None:
            xors ^= current.made
        last = begun - 1
        if produced.rest is not None and last not in failures:
            so_far = (self.clock.now(), len(outputs), 0.0)
            if current is not None:
                so_far = (current.sent_s, current.outputs, current.for_s)
            unfinished = Unfinished(batch.only(last), produced.rest, _last(xors), *so_far)
            self.rare = self.rare._replace(unfinished=unfinished)
            batch, _ = batch.split(last)
            xors = None if xors is None else xors[:last]
            begun = last
        if begun:
            self.settle(batch, xors, failures)
        return not_begun

    def _fit(self, outputs: list[Any], kinds: set[type], widths_fit: bool) -> bool:
        schema = self._schema
        return schema is not None and schema.fits(outputs, kinds, widths_fit=widths_fit)

    def _flush(self, batch: Batch, failures: dict[int, Failure]) -> dict[int, Failure]:
        """Call the bolt's `flush`; if it raises, every input of the batch fails."""
        try:
            self._call_flush()
        except user_errors() as error:
            return self._judge_all(error, batch)
        return failures

    def _run_generators(
        self, call: Callable[[Any], Any], records: Sequence[Any], limit: int
    ) -> BatchOutputs:
        """Call a function that returns an iterable for each record, as a generator function does,
        until `limit` outputs are made."""
        batch_outputs = BatchOutputs()
        rows_in = records if type(records) is list else list(records)
        outputs, ends, schema = batch_outputs.outputs, batch_outputs.ends, self._schema
        kind, width = (object, 0) if schema is None else (schema.instances, len(schema.fields))
        batch_outputs.fit = True
        while True:
            fit, batch_outputs.rest, error = expand(
                call, rows_in, limit, kind, width, outputs, ends
            )
            batch_outputs.fit &= fit
            if error is None:
                return batch_outputs
            index = len(ends)
            batch_outputs.failures[index] = self._judge_raised(index, error, records)
            ends.append(len(outputs))
            if self.errors.stops or index + 1 == len(records):
                return batch_outputs

    def _judge_raised(self, index: int, error: BaseException, records: Sequence[Any]) -> Failure:
        """The failure of the input at `index`, whose call has raised. Raises what no user code is
        judged for, such as an interrupt."""
        if not is_user_error(error):
            raise error
        return self._judge(index, _not_the_end(error), records)

    def _run(self, call: Callable[[Any], Any], records: Sequence[Any], limit: int) -> BatchOutputs:
        """Call a function that returns its outputs for each record, until `limit` are made."""
        batch_outputs = BatchOutputs()
        outputs, ends = batch_outputs.outputs, batch_outputs.ends
        extend, end = outputs.extend, ends.append
        results = map(call, records)
        while len(ends) < len(records):  # once, and once more for each record that raises
            try:
                for produced in results:
                    if produced is not None:
                        if type(produced) is not list:
                            check_returned(produced, self._schema)
                            rest = iter(produced)
                            produced = list(islice(rest, limit - len(outputs)))  # noqa: PLW2901
                            batch_outputs.rest = rest
                        extend(produced)
                    end(length := len(outputs))
                    if length >= limit:
                        return batch_outputs
                    batch_outputs.rest = None
                if len(ends) < len(records):
                    raise RuntimeError(_STOPPED)
            except user_errors() as error:
                batch_outputs.rest = None
                batch_outputs.failures[len(ends)] = self._judge(len(ends), error, records)
                del outputs[ends[-1] if ends else 0 :]
                end(len(outputs))
                if self.errors.stops:
                    break
        return batch_outputs

    def _run_together(
        self, calls: AsyncCalls, call: Callable[[Any], Any], records: Sequence[Any]
    ) -> BatchOutputs:
        """Call an async function for all records at the same time, until all calls have ended."""
        return self._outputs_of(calls.run(call, records), records)

    def _outputs_of(self, outcomes: Sequence[Outcome], records: Sequence[Any]) -> BatchOutputs:
        batch_outputs = BatchOutputs()
        for index, (produced, error) in enumerate(outcomes):
            try:
                if error is not None:
                    raise error
                if produced is not None:
                    check_returned(produced, self._schema)
                    records_out = list(produced)
                    for output in records_out if self._is_sink else ():
                        self._check_one(output)
                    batch_outputs.outputs += records_out
            except user_errors() as raised:
                batch_outputs.failures[index] = self._judge(index, raised, records)
            batch_outputs.ends.append(len(batch_outputs.outputs))
        return batch_outputs

    def _run_sink(
        self, call: Callable[[Any], Any], records: Sequence[Any]
    ) -> tuple[int, dict[int, Failure]]:
        """Call a bolt without output streams: no list of ends is kept, which saves a fifth of the
        time. Returns the number of records taken, and the failures by index."""
        failures, index = dict[int, Failure](), 0
        rows_in = records if type(records) is list else list(records)
        while True:
            index, produced, error = each(call, rows_in, index)
            if index == len(rows_in):
                return index, failures
            if error is None:
                error = self._refused_by_sink(produced)
            if error is not None:
                failures[index] = self._judge_raised(index, error, records)
                if self.errors.stops:
                    return index + 1, failures
            index += 1

    def _refused_by_sink(self, produced: Any) -> BaseException | None:
        """Why a bolt without output streams cannot return or yield this."""
        try:
            if produced:
                if not self._yields:
                    check_returned(produced, None)
                for output in produced:
                    self._check_one(output)
        except BaseException as error:
            return error
        return None

    def _check_outputs(self, produced: BatchOutputs, records: Sequence[Any]) -> set[type]:
        """Fail the inputs that yielded a record which does not fit, and drop all their outputs.
        Returns the types of the outputs."""
        outputs = produced.outputs
        if produced.fit and self._schema is not None:
            kinds = {self._schema.instances}
        else:
            kinds = set(map(type, outputs))
        if not outputs or self._fit(outputs, kinds, produced.fit):
            return kinds
        start, fitting, ends = 0, list[Any](), list[int]()
        for index, stop in enumerate(produced.ends):
            mine = outputs[start:stop]
            start = stop
            try:
                for output in mine:
                    self._check_one(output)
                fitting += mine
            except BadEmit as error:
                produced.failures[index] = self._judge(index, error, records)
            ends.append(len(fitting))
        outputs[:], produced.ends = fitting, ends
        return kinds

    def _send(
        self,
        outputs: list[Any],
        ends_of_each: list[int],
        batch: Batch,
        mixed: bool,
        failures: dict[int, Failure],
    ) -> U64 | None:
        """Send the outputs. Returns, per input, the XOR of the edges made from it.

        An input fails if a grouping raises for one of its outputs. Its other outputs are sent, and
        are sent again with its replay.
        """
        if not outputs:
            return batch.nothing_made()
        ends = np.array(ends_of_each, np.int64)
        anchors = batch.anchors and batch.anchors.of_outputs(ends)
        send = self._send_by_stream if mixed else partial(self.output_streams.send, self._stream)
        try:
            edges = send(outputs, anchors)
        except NotSent as refused:
            edges = refused.made
            for index, error in refused.errors.items():
                failures[int(np.searchsorted(ends, index, "right"))] = no_way(self.task, error)
        return None if edges is None or anchors is None else anchors.made_by(edges, ends)


def _not_the_end(error: BaseException) -> BaseException:
    """The error, or for a StopIteration what says that it ends nothing."""
    if not isinstance(error, StopIteration):
        return error
    stopped = RuntimeError(_STOPPED)
    stopped.__cause__ = error
    return stopped


def _last(xors: U64 | None) -> U64 | None:
    return None if xors is None else xors[-1:].copy()


# ---- batch bolt ----------------------------------------------------------------------------------


class BatchBoltTask(BoltTask):
    """Calls `process(table)`; `parents` gives the input row of each output row."""

    intake = Intake(joins=True)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rows_out = self._rows_in = 0

    def prepare(self, context: Context) -> None:
        prepare_tables()
        super().prepare(context)

    @property
    def inputs_max(self) -> int:
        """As for every bolt, and so few that the expected output rows fit the receivers' credit."""
        fan_out = max(1.0, self._rows_out / max(1, self._rows_in))
        return max(1, min(super().inputs_max, int(self.output_streams.allowance / fan_out)))

    def process(self, batch: Batch) -> None:
        self._begin_batch(batch)
        try:
            schema = self._streams[batch.stream].spec.schema
            derived = self.call(batch.table(schema))
            parents = self._check(derived, len(batch))
            if self._flushes:
                self._call_flush()
        except user_errors() as error:  # a table succeeds or fails as a whole
            failures = self._judge_all(error, batch)
            self.settle(batch, batch.nothing_made(), failures)
            return
        self._rows_in += len(batch)
        self._rows_out += 0 if derived is None else len(derived.rows)
        failures = {}
        self.settle(batch, self._send(derived, parents, batch, failures), failures)

    def disturbed(self, faults: TaskFaults, batch: Batch) -> Callable[..., Any]:
        def call(table: pa.Table) -> Any:
            faults.strike(batch, self._streams[batch.stream].spec.schema)
            return undisturbed(table)

        undisturbed = self.call
        return call

    def tick(self) -> None:
        rows: pa.Table | None = self.bolt.tick()
        if rows is not None:
            import pyarrow as pa

            if not isinstance(rows, pa.Table):
                kind = type(rows).__name__
                raise BadEmit(
                    f"the tick of a batch bolt returns an Arrow table or None, not {kind}"
                )
            self._check_columns(rows)
        if self._flushes:
            self._call_flush()
        if rows is not None and len(rows):
            self._send_of_tick(partial(self.output_streams.send, DEFAULT, rows, None))

    def _check_columns(self, rows: pa.Table) -> None:
        fields = self.output_streams.output_stream(DEFAULT).spec.schema.fields
        if tuple(rows.column_names) != fields:
            raise BadEmit(
                f"the rows have columns {rows.column_names}, but the stream's "
                f"fields are {list(fields)}"
            )

    def _check(self, derived: Any, inputs: int) -> Any:
        """The parents as a validated array. Raises BadEmit for an invalid result."""
        if derived is None:
            return None
        if not isinstance(derived, Derived):
            raise BadEmit(
                f"a batch bolt returns Derived(rows, parents) or None, not a "
                f"{type(derived).__name__}"
            )
        self._check_columns(derived.rows)
        parents = np.asarray(derived.parents, np.int64)
        if len(parents) != len(derived.rows):
            raise BadEmit(
                f"{len(derived.rows)} rows but {len(parents)} parents: give the input "
                "row of each output row"
            )
        if len(parents) and not 0 <= parents.min() <= parents.max() < inputs:
            raise BadEmit(
                f"parents must be in 0 … {inputs - 1}, the rows of the input; found "
                f"{parents.min()} … {parents.max()}"
            )
        return parents

    def _send(
        self, derived: Derived | None, parents: Any, batch: Batch, failures: dict[int, Failure]
    ) -> U64 | None:
        if derived is None or not len(parents):
            return batch.nothing_made()
        anchors = batch.anchors and batch.anchors.select(parents)
        try:
            edges = self.output_streams.send(DEFAULT, derived.rows, anchors)
        except NotSent as refused:
            edges = refused.made
            for index, error in refused.errors.items():
                failures[int(parents[index])] = no_way(self.task, error)
        if edges is None or anchors is None:
            return None
        return anchors.made_by_parents(edges, parents, len(batch))
