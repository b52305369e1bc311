"""A bolt that collects its inputs into batches for Spark and acks them when a job has finished."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pyarrow as pa

from sunshower.arguments import COUNT, SECONDS, checked
from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import (
    ConfigError,
    SparkError,
    SparkMissing,
    SparkUnavailable,
    SunshowerError,
    Unavailable,
    Unserialisable,
)
from sunshower.records import Schema
from sunshower.spark_integration.job import error_text
from sunshower.spark_integration.sessions.spark_port import BatchInfo, JobReport
from sunshower.spark_integration.steps import Spark, Submission, Submissions
from sunshower.spark_integration.tables.tables import tables_in
from sunshower.texts import describe_error
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple

_TIMEOUT_RESET_S = 2.0  # how often inputs of unfinished batches have their timeouts reset
_FULL_PAUSE_S = 0.05  # pause in `flush` while no batch slot is free; it slows the upstream down
_RETRY_S = 1.0  # delay before a batch is submitted again while Spark is unavailable
_REPORT_S = 6.0  # interval between reports of that outage
_ARGUMENTS = {
    **dict.fromkeys(("rows_max", "batches_max", "edges_max"), COUNT),
    "wait_s": replace(SECONDS, above=False).or_else("never", inf),
}


@dataclass
class SubmittedBatch:
    """Inputs, their batch at Spark, and until when it waits after an outage."""

    tuples: list[Tuple[Any]]
    submission: Submission
    retry_at_s: float = 0.0


class SparkBatchBolt(Stateless, Bolt[Any, Any]):
    """Submits batches of `rows_max` records, or of what arrived within `wait_s`, to a `spark(…)`
    step.

    Inputs are acked when the job has finished, and failed with its error. Each result is anchored
    to all inputs of its batch: that is one edge per (input, result) pair, and a batch with more
    than `edges_max` edges fails. The guarantee is at least once, and a replayed record may be in a
    different batch, so writes must tolerate duplicates. Each task has at most `batches_max` batches
    at Spark; a batch is submitted again if Spark dies, and kept while it is unavailable. Raises
    ConfigError, and RecordMismatch at declaration for records that Spark cannot represent.
    """

    tick_s = 0.05  # polls for results, also while no records arrive

    @checked(**_ARGUMENTS)
    def __init__(
        self,
        step: Spark,
        *,
        rows_max: int = 10_000,
        wait_s: float = 1.0,
        batches_max: int = 2,
        edges_max: int = 1_000_000,
    ) -> None:
        if tables := tables_in(step.step):
            raise ConfigError(
                f"SparkBatchBolt: {tables[0]} needs batches that have txids; use it in a program "
                "of batches, batches(…).apply(spark(…)), or take parquet(…)"
            )
        if step.step.state is not None:
            raise ConfigError(
                f"SparkBatchBolt: the state of spark({step.step}) needs batches that have txids; "
                "use it in a program of batches, batches(…).apply(spark(…))"
            )
        self.step, self.rows_max, self.wait_s = step, rows_max, wait_s
        self.batches_max, self.edges_max = batches_max, edges_max
        self.emits = () if step.out is None else step.out
        self.writes_outside = bool(step.step.writers)
        self._schemas: list[Schema] = []

    def check_input(self, schema: Schema) -> None:
        """Raise for records that Spark cannot represent, or that the transform has no parameter
        for."""
        RecordColumns.of(schema.type, f"SparkBatchBolt(spark({self.step.step}))")
        if schema not in self._schemas:
            self._schemas.append(schema)
        self.step.check_inputs([RecordColumns.of(schema.type) for schema in self._schemas])

    def prepare(self, context: Context) -> None:
        self._clock = context.clock
        self._columns = [RecordColumns.of(schema.type) for schema in self._schemas]
        self._index = {schema.type: at for at, schema in enumerate(self._schemas)}
        self._out = None if self.step.out is None else RecordColumns.of(self.step.out)
        self._collector: Collector[Any]  # `execute` gets the same one in each call
        self._waiting: list[Tuple[Any]] = []
        self._waiting_since_s = self._next_report_s = self._clock.now()
        self._next_reset_s = self._clock.now() + _TIMEOUT_RESET_S
        self._submitted: list[SubmittedBatch] = []
        self._error: SunshowerError | None = None  # the next `tick` raises it
        self._name = f"{context.component}-{context.index}-{uuid.uuid4().hex[:8]}"
        self._batches = self._rows = 0
        bound = self.step.bind(*self._columns)
        self._submissions = Submissions(bound, self.step.where, context)

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Add the tuple to the next batch; a later `tick` acks or fails it."""
        self._collector = out
        if not self._waiting:
            self._waiting_since_s = self._clock.now()
        self._waiting.append(tuple)
        if len(self._waiting) >= self.rows_max:
            self._submit()

    def tick(self) -> None:
        """Settle finished batches and submit those that have waited long enough. Raises
        SparkMissing, and while Spark is unavailable Unavailable at most every 6 s."""
        now = self._clock.now()
        for batch in [*self._submitted]:
            if now >= batch.retry_at_s:
                self._poll(batch)
        full = len(self._waiting) >= self.rows_max
        if self._waiting and (full or now - self._waiting_since_s >= self.wait_s):
            self._submit()
        if now >= self._next_reset_s:
            held = (tuple for batch in self._submitted for tuple in batch.tuples)
            for tuple in (*self._waiting, *held):
                self._collector.reset_timeout(tuple)
            self._next_reset_s = now + _TIMEOUT_RESET_S
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def flush(self) -> None:
        """Pause while no batch slot is free, so that less input arrives."""
        if len(self._waiting) >= self.rows_max:
            self._clock.sleep(_FULL_PAUSE_S)

    def figures(self) -> dict[str, float]:
        return {
            **self._submissions.figures(),
            "waiting": len(self._waiting),
            "at spark": sum(batch.submission.batch.rows for batch in self._submitted),
            "batches": self._batches,
            "rows": self._rows,
        }

    def result(self) -> list[JobReport]:
        return self._submissions.reports()

    def cleanup(self) -> None:
        for batch in self._submitted:
            batch.submission.cancel()
        self._submissions.close()

    def _submit(self) -> None:
        """Submit the oldest `rows_max` inputs, if a batch slot is free."""
        if len(self._submitted) >= self.batches_max:
            return
        tuples, self._waiting = self._waiting[: self.rows_max], self._waiting[self.rows_max :]
        self._waiting_since_s = self._clock.now()
        try:
            tables = self._tables(tuples)
        except Unserialisable:
            tuples = [tuple for tuple in tuples if self._check_serialisable(tuple)]
            if not tuples:
                return
            tables = self._tables(tuples)
        info = BatchInfo(f"{self._name}-{self._batches}", len(tuples))
        self._batches += 1
        self._submitted.append(SubmittedBatch(tuples, self._submissions.add(tables, info)))
        self._poll(self._submitted[-1])

    def _tables(self, tuples: list[Tuple[Any]]) -> list[pa.Table]:
        """One table per input stream. Raises Unserialisable."""
        records: list[list[Any]] = [[] for _ in self._columns]
        for tuple in tuples:
            records[self._index[type(tuple.record)]].append(tuple.record)
        return [columns.table(rows) for columns, rows in zip(self._columns, records, strict=True)]

    def _check_serialisable(self, tuple: Tuple[Any]) -> bool:
        """Fail a tuple whose record Spark cannot represent."""
        try:
            self._tables([tuple])
        except Unserialisable as error:
            self._collector.fail(tuple, f"Unserialisable: {error}")
            return False
        return True

    def _poll(self, batch: SubmittedBatch) -> None:
        """Ack or fail the inputs of a batch that is finished. During an outage the batch is kept:
        that is not an attempt of its tuples."""
        now = self._clock.now()
        try:
            if not _is_finished(batch.submission):
                return
            records = self._records(batch)
        except Unavailable as error:
            batch.retry_at_s = now + _RETRY_S
            if now >= self._next_report_s:
                self._error, self._next_report_s = error, now + _REPORT_S
        except SparkError as error:
            self._submitted.remove(batch)
            for tuple in batch.tuples:
                self._collector.fail(tuple, describe_error(error))
            if isinstance(error, SparkMissing):
                self._error = error
        else:
            self._submitted.remove(batch)
            for record in records:
                self._collector.emit(record, batch.tuples)
            for tuple in batch.tuples:
                self._collector.ack(tuple)
            self._rows += batch.submission.batch.rows

    def _records(self, batch: SubmittedBatch) -> list[Any]:
        """The results. Raises SparkError if they would need too many edges."""
        table, inputs = batch.submission.result, len(batch.tuples)
        records = [] if table is None or self._out is None else self._out.records(table)
        if len(records) * inputs > self.edges_max:
            raise SparkError(
                f"batch {batch.submission.batch.id} of {inputs} records came to {len(records)} "
                f"results, which is more than edges_max={self.edges_max} edges: let Spark write "
                "them, spark(…).write(…), take a smaller rows_max, or batches of Trident"
            )
        return records


def _is_finished(submission: Submission) -> bool:
    """As `poll`; whatever else the gateway raises is treated like an outage of Spark."""
    try:
        return submission.poll()
    except (Unavailable, SparkError):
        raise
    except Exception as error:
        raise SparkUnavailable(f"a batch cannot be handed over: {error_text(error)}") from error
