"""Runs bolts on Arrow columns: one table per call, with tracking per row."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import BadEmit, user_errors
from sunshower.failures import Failure
from sunshower.records import prepare_tables
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.user_code import no_way
from sunshower.runtime.tracking.edges import segment_xor
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.transport.batch import Anchors, Batch
from sunshower.runtime.transport.output_streams import NotSent
from sunshower.topologies.components import DEFAULT, Context, Derived

if TYPE_CHECKING:
    import pyarrow as pa


class BatchBoltTask(BoltTask):
    """Calls `process(table)`; `parents` gives the input row of each output row."""

    joins = True

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
            self.instrument.faults.strike(batch, schema)
            derived = self._call(batch.table(schema))
            parents = self._check(derived, len(batch))
            if self._flushes:
                self._call_flush()
        except user_errors() as error:  # a table succeeds or fails as a whole
            failures = self._judge_all(error, batch)
            self.settle(batch, np.zeros(len(batch), np.uint64), failures)
            return
        self._end_batch(len(batch))
        self._rows_in += len(batch)
        self._rows_out += 0 if derived is None else len(derived.rows)
        failures = {}
        self.settle(batch, self._send(derived, parents, batch, failures), failures)

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
            return np.zeros(len(batch.roots) if batch.shared else len(batch), np.uint64)
        anchors = batch.anchors
        if batch.shared:
            try:
                return self.output_streams.send_shared(DEFAULT, derived.rows, anchors)
            except NotSent as refused:
                failures[0] = no_way(self.task, refused.errors[0])
                return np.zeros(len(batch.roots), np.uint64)
        if anchors is not None:
            anchors = (
                Anchors(anchors.roots.take(parents))
                if anchors.offsets is None
                else anchors.select(parents)
            )
        rows: pa.Table = derived.rows
        try:
            made = self.output_streams.send(DEFAULT, rows, anchors)
        except NotSent as refused:
            made = refused.made
            for index, error in refused.errors.items():
                failures[int(parents[index])] = no_way(self.task, error)
        if made is None:
            return None
        if (parents[1:] >= parents[:-1]).all():
            return segment_xor(made, np.cumsum(np.bincount(parents, minlength=len(batch))))
        xors = np.zeros(len(batch), np.uint64)
        np.bitwise_xor.at(xors, parents, made)
        return xors
