"""A `spark(…)` step as an operator of a Trident stage: one Spark job for all rows of a batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sunshower.errors import SparkLost, SunshowerError, Unavailable
from sunshower.records import Schema
from sunshower.spark_integration.job_reports import Seen
from sunshower.spark_integration.sessions.spark_port import BatchInfo, JobReport, Ticket
from sunshower.spark_integration.tables.schema import Columns
from sunshower.spark_integration.tables.tables import Tables
from sunshower.topologies.components import Context
from sunshower.trident.coordination.attempts import Attempt
from sunshower.trident.stages.port import Emit, Rows
from sunshower.trident.states.counted import CountedIn

if TYPE_CHECKING:
    from sunshower.spark_integration.steps import Spark

_LOG = logging.getLogger("sunshower.spark")
_LOST_MAX = 3  # how often a batch is submitted again because Spark died


@dataclass
class Gathered:
    """The rows of an attempt by input, then its job and the rows that came back."""

    records: list[list[Any]]
    ticket: Ticket | None = None
    table: pa.Table | None = None
    lost: int = 0


class SparkOperator:
    """Collects the rows of a batch; `ready` submits them and polls for the result.

    The operator must get all rows of a batch: its stage has one task, or each task runs its own
    job. With writers it commits, so batches are written in txid order. Tables are an exception:
    they are staged in the process phase and published by `succeeded`. Raises RecordMismatch and
    TopologyError at declaration.
    """

    def __init__(self, step: Spark, inputs: Sequence[Schema]) -> None:
        self._columns = [Columns.of(schema.type, f"spark({step.step})") for schema in inputs]
        self._spark = step.reading(*self._columns)
        self._out = None if step.out is None else Columns.of(step.out)
        self._tables = Tables(step.step.writers)
        self.publishes = bool(self._tables.tables)
        self.commits = len(self._tables.tables) < len(step.step.writers)
        self.counted: CountedIn | None = None

    def prepare(self, context: Context) -> None:
        """Open a gateway to Spark; the session starts in the background."""
        self._topology = context.topology
        self._task = f"{context.component}-{context.index}"
        self._broken: SunshowerError | None = None
        self._seen = Seen()
        self._tables.open(context.topology, self.counted)
        self._gateway = self._spark.where.open()
        self._gateway.start()

    def start(self, attempt: Attempt) -> Gathered:
        """Return an empty batch. Raises the error that the last publication of a table raised."""
        if self._broken is not None:
            raise self._broken
        return Gathered([[] for _ in self._columns])

    def process(self, batch: Gathered, source: int, rows: Rows, emit: Emit) -> None:
        """Keep rows; rows that came from another worker are converted to records again."""
        schema = self._columns[source].schema
        built = not rows or type(rows[0]) is schema.type
        batch.records[source] += rows if built else schema.build(rows)

    def ready(self, batch: Gathered, attempt: Attempt) -> bool:
        """Submit the batch in the first call; then return whether Spark has finished. A batch that
        was lost with the JVM is submitted again. Raises SparkError if the batch has failed."""
        if batch.ticket is None:
            batch.ticket = self._submit(batch, attempt)
        if not batch.ticket.done():
            return False
        try:
            batch.table = batch.ticket.result()
        except SparkLost:
            if batch.lost == _LOST_MAX:
                raise
            batch.lost += 1
            batch.ticket.cancel()  # on a cluster the job may still run
            batch.ticket = self._submit(batch, attempt)
            return False
        self._seen.add(batch.ticket.report())
        return True

    def finish(self, batch: Gathered, attempt: Attempt, emit: Emit) -> None:
        """Emit the rows of the result, once `ready` has returned True."""
        if batch.table is not None and self._out is not None:
            emit(self._out.records(batch.table))

    def give_up(self, batch: Gathered) -> None:
        """Cancel the job of an attempt that has failed."""
        if batch.ticket is not None and not batch.ticket.done():
            batch.ticket.cancel()

    def figures(self) -> dict[str, float]:
        """Sums over the finished batches of this task."""
        return self._seen.figures()

    def result(self) -> list[JobReport]:
        """The reports of the last batches, oldest first."""
        return self._seen.last

    def succeeded(self, txid: int) -> None:
        """Publish the batches up to `txid`. After an outage a later call publishes them; any other
        error is raised by the next `start`."""
        try:
            self._tables.publish(txid)
        except Unavailable as error:  # the next call publishes this batch too
            _LOG.warning("batch %d is shown later: %s", txid, error)
        except SunshowerError as error:
            self._broken = error

    def cleanup(self) -> None:
        """Close the gateway and the tables."""
        self._gateway.close()
        self._tables.close()

    def _submit(self, batch: Gathered, attempt: Attempt) -> Ticket:
        tables = [
            columns.table(records)
            for columns, records in zip(self._columns, batch.records, strict=True)
        ]
        rows = sum(map(len, batch.records))
        info = BatchInfo(
            str(attempt.txid),
            rows,
            attempt.attempt,
            attempt.txid,
            topology=self._topology,
            task=self._task,
            run=batch.lost,
        )
        return self._gateway.submit(self._spark.step, tables, info)
