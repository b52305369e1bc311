"""A bolt that collects its inputs into batches for Spark and acks them when a job has finished."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sunshower.errors import (
    ConfigError,
    SparkError,
    SparkLost,
    SparkMissing,
    SparkUnavailable,
    SunshowerError,
    Unavailable,
    Unserialisable,
)
from sunshower.records import Schema
from sunshower.spark_integration.error_report import said
from sunshower.spark_integration.job_reports import Seen
from sunshower.spark_integration.sessions.spark_port import BatchInfo, JobReport, Ticket
from sunshower.spark_integration.steps import Spark
from sunshower.spark_integration.tables.schema import Columns
from sunshower.spark_integration.tables.tables import Tables
from sunshower.topologies.components import Bolt, Collector, Context, Tuple

_RENEW_S = 2.0  # inputs of a batch that is still unfinished have their timeout reset this often
_ROOM_S = 0.05  # pause in `flush` while no batch slot is free; it slows the upstream down
_LOST_MAX = 3  # how often a batch is submitted again because Spark died
_AGAIN_S = 1.0  # delay before a batch is submitted again while Spark is unavailable
_TOLD_AGAIN_S = 6.0  # interval between reports of that outage


@dataclass
class Given:
    """A batch that was submitted to Spark, or that waits (`ticket` is None) for the next try."""

    tuples: list[Tuple[Any]]
    tables: list[pa.Table]
    batch: BatchInfo
    ticket: Ticket | None = None
    again_s: float = 0.0  # when to submit it again, if `ticket` is None
    lost: int = 0


class SparkBatchBolt(Bolt[Any, Any]):
    """Submits batches of `rows_max` records, or of what arrived within `wait_s`, to a `spark(…)`
    step.

    Inputs are acked when the job has finished and failed with its error. Until then their timeouts
    are reset. If Spark dies, the batch is submitted again; while Spark is unavailable, the bolt
    keeps it. Each result is anchored to all inputs of its batch, so a failed result replays all of
    them. That is one edge per (input, result) pair; a batch with more than `edges_max` edges fails.
    Emit few results, or let Spark write them with `spark(…).write(…)`.

    The guarantee is at least once. A replayed record may be in a different batch, so writes must
    tolerate duplicates. With several input streams, the transform gets one DataFrame per record
    type, in declaration order. Each task has at most `batches_max` batches at Spark.

    Raises ConfigError, and RecordMismatch at declaration for records that Spark cannot represent.
    """

    tick_s = 0.05  # polls for results, also while no records arrive

    def __init__(
        self,
        step: Spark,
        *,
        rows_max: int = 10_000,
        wait_s: float = 1.0,
        batches_max: int = 2,
        edges_max: int = 1_000_000,
    ) -> None:
        if min(rows_max, batches_max, edges_max) < 1 or wait_s < 0:
            raise ConfigError(
                f"SparkBatchBolt: rows_max={rows_max}, batches_max={batches_max}, "
                f"edges_max={edges_max} and wait_s={wait_s:g} must be positive"
            )
        if tables := Tables(step.step.writers).tables:
            raise ConfigError(
                f"SparkBatchBolt: {tables[0]} needs batches that have txids; use it in a program "
                "of batches, batches(…).apply(spark(…)), or take parquet(…)"
            )
        self.step, self.rows_max, self.wait_s = step, rows_max, wait_s
        self.batches_max, self.edges_max = batches_max, edges_max
        self.emits = () if step.out is None else step.out
        self._schemas: list[Schema] = []

    def check_input(self, schema: Schema) -> None:
        """Raise for records that Spark cannot represent, or that the transform has no parameter
        for."""
        Columns.of(schema.type, f"SparkBatchBolt(spark({self.step.step}))")
        if schema not in self._schemas:
            self._schemas.append(schema)
        self.step.check_inputs([Columns.of(one.type) for one in self._schemas])

    def prepare(self, context: Context) -> None:
        """Open a gateway to Spark; the session starts in the background."""
        self._clock = context.clock
        self._columns = [Columns.of(schema.type) for schema in self._schemas]
        self._index = {schema.type: at for at, schema in enumerate(self._schemas)}
        self._reading = self.step.reading(*self._columns)
        self._out = None if self.step.out is None else Columns.of(self.step.out)
        self._hands: Collector[Any]  # `execute` gets the same collector in each call
        self._waiting: list[Tuple[Any]] = []
        self._since_s = self._clock.now()
        self._renew_at_s = self._since_s + _RENEW_S
        self._given: list[Given] = []
        self._told_again_s = self._since_s
        self._news: SunshowerError | None = None  # the next `tick` raises it
        self._task = f"{context.component}-{context.index}"
        self._name = f"{self._task}-{uuid.uuid4().hex[:8]}"
        self._batches = self._rows = 0
        self._topology, self._seen = context.topology, Seen()
        self._gateway = self.step.where.open()
        self._gateway.start()

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Add the tuple to the next batch; a later `tick` acks or fails it."""
        self._hands = out
        if not self._waiting:
            self._since_s = self._clock.now()
        self._waiting.append(tuple)
        if len(self._waiting) >= self.rows_max:
            self._hand_over()

    def tick(self) -> None:
        """Settle finished batches and submit those that have waited long enough. Raises
        SparkMissing, and while Spark is unavailable Unavailable at most every 6 s."""
        now = self._clock.now()
        for given in [*self._given]:
            if given.ticket is None:
                if now >= given.again_s:
                    self._submit(given)
            elif given.ticket.done():
                self._finish(given, given.ticket)
        if self._waiting and (
            len(self._waiting) >= self.rows_max or now - self._since_s >= self.wait_s
        ):
            self._hand_over()
        if now >= self._renew_at_s:
            for tuple in (*self._waiting, *(one for given in self._given for one in given.tuples)):
                self._hands.reset_timeout(tuple)
            self._renew_at_s = now + _RENEW_S
        if self._news is not None:
            news, self._news = self._news, None
            raise news

    def flush(self) -> None:
        """Pause while no batch slot is free, so that less input arrives."""
        if len(self._waiting) >= self.rows_max:
            self._clock.sleep(_ROOM_S)

    def figures(self) -> dict[str, float]:
        """Inputs that wait, rows at Spark, and sums over finished batches."""
        return {
            **self._seen.figures(),
            "waiting": len(self._waiting),
            "at spark": sum(given.batch.rows for given in self._given),
            "batches": self._batches,
            "rows": self._rows,
        }

    def result(self) -> list[JobReport]:
        """The reports of the last batches, oldest first."""
        return self._seen.last

    def snapshot(self) -> None:
        """Return nothing: the spout replays unfinished inputs."""

    def restore(self, state: Any) -> None:
        """Do nothing: there is no state."""

    def cleanup(self) -> None:
        """Cancel the unfinished jobs and close the gateway."""
        for given in self._given:
            if given.ticket is not None:
                given.ticket.cancel()
        self._gateway.close()

    def _hand_over(self) -> None:
        """Submit the oldest `rows_max` inputs, if a batch slot is free."""
        if len(self._given) >= self.batches_max:
            return
        tuples, self._waiting = self._waiting[: self.rows_max], self._waiting[self.rows_max :]
        self._since_s = self._clock.now()
        try:
            tables = self._tables(tuples)
        except Unserialisable:
            tuples = [tuple for tuple in tuples if self._fits(tuple)]
            if not tuples:
                return
            tables = self._tables(tuples)
        id = f"{self._name}-{self._batches}"
        batch = BatchInfo(id, len(tuples), topology=self._topology, task=self._task)
        self._batches += 1
        self._given.append(Given(tuples, tables, batch))
        self._submit(self._given[-1])

    def _submit(self, given: Given) -> None:
        """Submit a batch; an error is treated like an outage of Spark."""
        batch = replace(given.batch, run=given.lost)
        try:
            given.ticket = self._gateway.submit(self._reading.step, given.tables, batch)
        except Exception as error:
            self._keep(given, SparkUnavailable(f"a batch cannot be handed over: {said(error)}"))

    def _tables(self, tuples: list[Tuple[Any]]) -> list[pa.Table]:
        """One table per input stream. Raises Unserialisable."""
        records: list[list[Any]] = [[] for _ in self._columns]
        for tuple in tuples:
            records[self._index[type(tuple.record)]].append(tuple.record)
        return [one.table(found) for one, found in zip(self._columns, records, strict=True)]

    def _fits(self, tuple: Tuple[Any]) -> bool:
        """Whether Spark can represent the record; if not, its tuple fails and the others are
        submitted."""
        try:
            self._tables([tuple])
        except Unserialisable as error:
            self._hands.fail(tuple, f"Unserialisable: {error}")
            return False
        return True

    def _finish(self, given: Given, ticket: Ticket) -> None:
        """Ack or fail the inputs of a batch, or submit it again."""
        try:
            table = ticket.result()
            records = [] if table is None or self._out is None else self._out.records(table)
            self._check_edges(given, len(records))
        except Unavailable as error:
            self._keep(given, error)
        except SparkLost as error:
            given.lost += 1
            if given.lost > _LOST_MAX:
                self._fail(given, error)
            else:
                ticket.cancel()  # on a cluster the job may still run
                self._submit(given)
        except SparkError as error:
            self._fail(given, error)
            if isinstance(error, SparkMissing):
                self._news = error
        else:
            self._given.remove(given)
            for record in records:
                self._hands.emit(record, given.tuples)
            for tuple in given.tuples:
                self._hands.ack(tuple)
            self._rows += given.batch.rows
            self._seen.add(ticket.report())

    def _keep(self, given: Given, error: Unavailable) -> None:
        """Submit the batch again later; this does not count as an attempt of its tuples."""
        now = self._clock.now()
        given.ticket, given.again_s = None, now + _AGAIN_S
        if now >= self._told_again_s:
            self._news, self._told_again_s = error, now + _TOLD_AGAIN_S

    def _fail(self, given: Given, error: SparkError) -> None:
        self._given.remove(given)
        for tuple in given.tuples:
            self._hands.fail(tuple, f"{type(error).__name__}: {error}")

    def _check_edges(self, given: Given, count: int) -> None:
        if count * len(given.tuples) > self.edges_max:
            raise SparkError(
                f"batch {given.batch.id} of {len(given.tuples)} records came to {count} results, "
                f"which is more than edges_max={self.edges_max} edges: let Spark write them, "
                "spark(…).write(…), take a smaller rows_max, or batches of Trident"
            )
