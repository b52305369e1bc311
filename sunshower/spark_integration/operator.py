"""A `spark(…)` step as an operator of a Trident stage: all rows of a batch, one job."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sunshower.errors import SparkLost, SunshowerError, Unavailable
from sunshower.records import Schema
from sunshower.spark_integration.port import BatchInfo, JobReport, Ticket
from sunshower.spark_integration.reports import Seen
from sunshower.spark_integration.schema import Columns
from sunshower.spark_integration.tables import Tables
from sunshower.topologies.components import Context
from sunshower.trident.attempts import Attempt
from sunshower.trident.stages.port import Emit, Rows
from sunshower.trident.states.counted import CountedIn

if TYPE_CHECKING:
    from sunshower.spark_integration.steps import Spark

_LOG = logging.getLogger("sunshower.spark")
_LOST_MAX = 3  # how often a batch is handed over again because Spark died


@dataclass
class Gathered:
    """What has come of an attempt, by input; then the job, and its rows."""

    records: list[list[Any]]
    ticket: Ticket | None = None
    table: pa.Table | None = None
    lost: int = 0


class SparkOperator:
    """Gathers a batch; `ready` hands it over, and hears what Spark has made of it.

    It must see all rows of a batch: its stage has one task, or each has a job of its own. With
    writers it commits: batches are then written in their order, each under its txid; but tables
    are staged in the process phase, and shown when told so. Raises at its declaration
    RecordMismatch and TopologyError.
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
        """Open a way to Spark; it starts beside the rest of the topology."""
        self._topology = context.topology
        self._task = f"{context.component}-{context.index}"
        self._broken: SunshowerError | None = None
        self._seen = Seen()
        self._tables.open(context.topology, self.counted)
        self._gateway = self._spark.where.open()
        self._gateway.start()

    def start(self, attempt: Attempt) -> Gathered:
        """Nothing has come of it yet. Raises what was wrong with a table when it was last shown."""
        if self._broken is not None:
            raise self._broken
        return Gathered([[] for _ in self._columns])

    def process(self, batch: Gathered, source: int, rows: Rows, emit: Emit) -> None:
        """Keep rows; those that have travelled are made records again."""
        schema = self._columns[source].schema
        built = not rows or type(rows[0]) is schema.type
        batch.records[source] += rows if built else schema.build(rows)

    def ready(self, batch: Gathered, attempt: Attempt) -> bool:
        """Hand the batch over, at the first call; then whether Spark has finished. One that was
        lost with its Java is handed over again. Raises a SparkError: the batch has failed."""
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
            batch.ticket.cancel()  # on a cluster it may live on
            batch.ticket = self._submit(batch, attempt)
            return False
        self._seen.add(batch.ticket.report())
        return True

    def finish(self, batch: Gathered, attempt: Attempt, emit: Emit) -> None:
        """Emit what Spark made of the batch, when it is `ready`."""
        if batch.table is not None and self._out is not None:
            emit(self._out.records(batch.table))

    def give_up(self, batch: Gathered) -> None:
        """Let Spark stop what nobody waits for."""
        if batch.ticket is not None and not batch.ticket.done():
            batch.ticket.cancel()

    def figures(self) -> dict[str, float]:
        """What Spark has done for this task."""
        return self._seen.figures()

    def result(self) -> list[JobReport]:
        """The last batches, oldest first."""
        return self._seen.last

    def succeeded(self, txid: int) -> None:
        """Show the batches up to this one. What is away is told later, what is wrong by `start`."""
        try:
            self._tables.publish(txid)
        except Unavailable as error:  # the next word stands for this one
            _LOG.warning("batch %d is shown later: %s", txid, error)
        except SunshowerError as error:
            self._broken = error

    def cleanup(self) -> None:
        """Spark is not needed any more."""
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
