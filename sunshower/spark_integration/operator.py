"""A `spark(…)` step as an operator of a Trident stage: one Spark job for all rows of a batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import SunshowerError, Unavailable
from sunshower.spark_integration.publisher import Publisher
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    JobReport,
    SparkPlace,
    SparkStep,
)
from sunshower.spark_integration.submissions import Submission, Submissions
from sunshower.spark_integration.tables.table_folder import TableFolder
from sunshower.spark_integration.tables.tables import Table, tables_in
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt, Emit, Rows
from sunshower.trident.stages.port import Publishing
from sunshower.trident.states.counted import LastWrite

_LOG = logging.getLogger("sunshower.spark")


@dataclass
class BatchRows:
    """The rows of an attempt by input, and then its batch at Spark."""

    records: list[list[Any]]
    submission: Submission | None = None


class SparkOperator(Publishing):
    """Collects the rows of a batch; `ready` submits them and polls for the result.

    The operator must get all rows of a batch: its stage has one task, or each task runs its own
    job. With writers it commits, so batches are written in txid order. Tables are an exception:
    they are staged in the process phase and published by `succeeded`; those of Delta Lake and
    Iceberg by a job of their own. With a state it commits, since the batch before must have left
    its version. `Spark.operator` makes one.
    """

    def __init__(self, step: SparkStep, place: SparkPlace, inputs: Sequence[RecordColumns]) -> None:
        self._step, self._place, self._columns = step, place, inputs
        self._out = None if step.out is None else RecordColumns.of(step.out)
        tables = tables_in(step)
        self._tables = [one for one in tables if isinstance(one, Table)]
        self._by_spark = len(self._tables) < len(tables)
        self.publishes = bool(tables) or step.state is not None
        self.commits = len(tables) < len(step.writers) or step.state is not None

    def prepare(self, context: Context) -> None:
        """Publish what was committed while no task ran, and open a gateway to Spark. Raises like
        TableFolder, and StateMismatch for a state that is behind the note of its last write."""
        self._publish_error: SunshowerError | None = None
        self._folders: list[TableFolder] = []
        self._publisher: Publisher | None = None
        self._state: TableFolder | None = None
        self._written: LastWrite | None = None
        batches, current = "", 0
        if self.publishes:
            assert self.counted is not None, "a table is part of a program of batches"
            batches, current = self.counted.incarnation(), self.counted.current()
        for table in self._tables:
            self._folders.append(TableFolder(table.folder, context.topology, batches, current))
        if self._step.state is not None and self.counted is not None:
            # Read before the folder, which was emptied or is another one if it is behind.
            self._written = self.counted.last_write(str(self._step.state.folder), 0)
            try:
                folder, columns = self._step.state.folder, self._step.state.columns
                self._state = TableFolder(folder, context.topology, batches, current, columns)
                self._written.check(self._state.last_attempt(), f"the state in {folder}")
            except BaseException:
                self._written.close()
                raise
            self._folders.append(self._state)
        self._submissions = Submissions(self._step, self._place, context)
        if self._by_spark:
            self._publisher = Publisher(self._submissions, batches, current, context.clock)

    def start(self, attempt: Attempt) -> BatchRows:
        """Return an empty batch. Raises the error that the last publication of a table raised."""
        if self._publish_error is not None:
            raise self._publish_error
        return BatchRows([[] for _ in self._columns])

    def process(self, batch: BatchRows, source: int, rows: Rows, emit: Emit) -> None:
        """Keep rows, as records."""
        batch.records[source] += self._columns[source].schema.records(rows)

    def ready(self, batch: BatchRows, attempt: Attempt) -> bool:
        """Submit the batch in the first call; then return whether Spark has finished. A batch that
        was lost with the JVM is submitted again. Raises SparkError if the batch has failed."""
        may_begin = self._publisher is None or self._publisher.poll()
        if batch.submission is None:
            if not may_begin:
                return False
            tables = [
                columns.table(records)
                for columns, records in zip(self._columns, batch.records, strict=True)
            ]
            rows = sum(map(len, batch.records))
            info = BatchInfo(str(attempt.txid), rows, attempt=attempt.attempt, txid=attempt.txid)
            if self._state is not None:
                found = self._state.version_before(attempt.txid)
                info = replace(info, state=None if found is None else str(found))
            batch.submission = self._submissions.add(tables, info)
        return batch.submission.poll()

    def finish(self, batch: BatchRows, attempt: Attempt, emit: Emit) -> None:
        """Emit the rows of the result, once `ready` has returned True. Raises StoreUnreachable."""
        assert batch.submission is not None
        if self._written is not None:
            self._written.note(attempt._replace(epoch=0))  # the folder does not store it
        if batch.submission.result is not None and self._out is not None:
            emit(self._out.records(batch.submission.result))

    def give_up(self, batch: BatchRows) -> None:
        """Cancel the job of an attempt that has failed."""
        if batch.submission is not None:
            batch.submission.cancel()

    def figures(self) -> dict[str, float]:
        """Sums over the finished batches of this task."""
        return self._submissions.figures()

    def result(self) -> list[JobReport]:
        """The reports of the last batches, oldest first."""
        return self._submissions.reports()

    def succeeded(self, txid: int) -> None:
        """Publish the batches up to `txid`. After an outage a later call publishes them; any other
        error is raised by the next `start`."""
        try:
            self._publish(txid)
        except Unavailable as error:  # the next call publishes this batch too
            _LOG.warning("batch %d is shown later: %s", txid, error)
        except SunshowerError as error:
            self._publish_error = error

    def cleanup(self) -> None:
        """Publish the last batch, and close the gateway."""
        try:
            if self.counted is not None and self.publishes:
                with suppress(Unavailable):  # the next start publishes the last batch
                    self._publish(self.counted.current() - 1)
                    if self._publisher is not None:
                        self._publisher.drain()
        finally:
            self._submissions.close()
            if self._written is not None:
                self._written.close()

    def _publish(self, txid: int) -> None:
        for folder in self._folders:
            folder.publish(txid)
        if self._publisher is not None:
            self._publisher.publish(txid)
