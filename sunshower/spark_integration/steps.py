"""The user API: `spark(transform, out=Record)`, its static tables, and its writers."""

from __future__ import annotations

import inspect
import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePath
from types import NoneType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from sunshower.arguments import FUNCTION, SECONDS, Instance, checked
from sunshower.arrow.record_columns import RecordColumns, normalise
from sunshower.clock import Clock
from sunshower.errors import (
    SparkError,
    SparkLost,
    SunshowerError,
    TopologyError,
    Unavailable,
    Unserialisable,
)
from sunshower.records import Schema
from sunshower.spark_integration.job import is_remote
from sunshower.spark_integration.sessions.spark_on_ray import DefaultSpark
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    JobReport,
    Publication,
    Readers,
    Reads,
    SparkPlace,
    SparkStep,
    Static,
    StepState,
    Ticket,
    Transform,
    Writer,
)
from sunshower.spark_integration.tables.lake_table import LakeTable
from sunshower.spark_integration.tables.tables import Table, TableFolder, tables_in
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt, Emit, Rows
from sunshower.trident.declaration.streams import BatchStream
from sunshower.trident.stages.plan import Publishing
from sunshower.trident.states.stored_map import LastWrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRANSFORM = Instance((Callable,), "a function of (df, batch)")
_TABLES = Instance((Mapping, NoneType), 'a table for each name, as in {"pages": "pages.parquet"}')
_OPTION = Instance((str, int, float), "a text, a number, True or False")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # hdfs://…, s3a://…, file:/…


INPUT = "batch"  # the view of a single input


# ---- submissions ---------------------------------------------------------------------------------

_LOST_MAX = 3  # how often a batch is submitted again because Spark died
_REPORTS_MAX = 100
_OPEN_SHOWN_MAX = 20  # batches in the figures; more wait rarely


class Submissions:
    """A task's gateway to Spark, and sums over its finished batches. The session starts in the
    background."""

    def __init__(self, step: SparkStep, place: SparkPlace, context: Context) -> None:
        self._step = step
        self._topology, self._task = context.topology, f"{context.component}-{context.index}"
        self._reports: deque[JobReport] = deque(maxlen=_REPORTS_MAX)
        self._sums = dict.fromkeys(("batches", "rows in", "rows out", "bytes in", "spilled"), 0.0)
        self._job_s = 0.0
        self._clock = context.clock
        self._open: dict[Submission, float] = {}  # unfinished ones → when they were added
        self._failed = self.lost = 0  # batches that failed; deaths of Spark during one
        self._gateway = place.open()
        self._gateway.start()

    def add(self, tables: Sequence[pa.Table], batch: BatchInfo) -> Submission:
        """A batch with one table for each input; its first `poll` submits it."""
        batch = replace(batch, topology=self._topology, task=self._task)
        submission = Submission(self, tables, batch)
        self._open[submission] = self._clock.now()
        return submission

    def submit(self, tables: Sequence[pa.Table], batch: BatchInfo) -> Ticket:
        """Submit a batch once. Raises what the gateway raises."""
        return self._gateway.submit(self._step, tables, batch)

    def ended(self, submission: Submission, *, failed: bool = False) -> None:
        """The batch is no longer open: it is finished, cancelled or has failed."""
        self._open.pop(submission, None)
        self._failed += failed

    def finished(self, report: JobReport | None) -> None:
        """Add the report of a finished batch; None if there is none."""
        if report is None:
            return
        self._reports.append(report)
        self._job_s += report.job_s
        amounts = (1, report.rows_in, report.rows_out, report.bytes_in, report.spilled_bytes)
        for name, amount in zip(self._sums, amounts, strict=True):
            self._sums[name] += amount

    def figures(self) -> dict[str, float]:
        """Sums over all batches that have ended, the seconds of the last one, and of each open
        batch ID `spark batch ID/phase` (0: waits to be submitted, 1: at Spark, 2: publishes),
        `/attempt`, `/rows` and `/age seconds`."""
        figures = {f"spark {name}": amount for name, amount in self._sums.items()}
        figures |= {"spark failed": self._failed, "spark lost": self.lost}
        now = self._clock.now()
        for submission, since_s in islice(self._open.items(), _OPEN_SHOWN_MAX):
            batch = submission.batch
            name = f"spark batch {batch.id}"
            figures[f"{name}/phase"] = submission.phase
            figures[f"{name}/attempt"] = max(batch.attempt, 1) + batch.run
            figures[f"{name}/rows"] = batch.rows
            figures[f"{name}/age seconds"] = now - since_s
        if self._reports:
            last = self._reports[-1]
            figures["spark wait seconds"] = last.wait_s
            figures["spark hand-over seconds"] = last.hand_over_s
            figures["spark job seconds"] = last.job_s
            figures["spark mean job seconds"] = self._job_s / self._sums["batches"]
        return figures

    def reports(self) -> list[JobReport]:
        """The reports of the last batches, oldest first."""
        return list(self._reports)

    def close(self) -> None:
        self._gateway.close()


class Submission:
    """One batch, until Spark has finished it.

    new ──poll──▶ at Spark ──poll──▶ finished: `result`
                    ├─ SparkLost ──▶ submitted again, up to three times
                    └─ Unavailable ▶ raised; the next poll submits it again
    """

    def __init__(self, owner: Submissions, tables: Sequence[pa.Table], batch: BatchInfo) -> None:
        self.batch = batch
        self.result: pa.Table | None = None
        self._owner, self._tables = owner, tables
        self._ticket: Ticket | None = None

    @property
    def phase(self) -> int:
        """0: waits to be submitted, 1: at Spark, 2: publishes at Spark."""
        if self._ticket is None:
            return 0
        return 1 if self.batch.publish is None else 2

    def poll(self) -> bool:
        """Submit the batch, or return whether it is finished. Raises SparkError if it has failed,
        Unavailable during an outage, and what else the gateway raises."""
        try:
            return self._advance()
        except Unavailable:
            raise
        except SparkError:
            self._owner.ended(self, failed=True)
            raise

    def _advance(self) -> bool:
        if self._ticket is None:
            self._ticket = self._owner.submit(self._tables, self.batch)
            return False
        if not self._ticket.done():
            return False
        try:
            self.result = self._ticket.result()
        except Unavailable:
            self._ticket = None
            raise
        except SparkLost:
            self._owner.lost += 1
            if self.batch.run == _LOST_MAX:
                raise
            self._ticket.cancel()  # on a cluster the job may still run
            self._ticket = None
            self.batch = replace(self.batch, run=self.batch.run + 1)
            return self._advance()
        self._owner.ended(self)
        if self.batch.publish is None:
            self._owner.finished(self._ticket.report())
        return True

    def cancel(self) -> None:
        self._owner.ended(self)
        if self._ticket is not None and not self._ticket.done():
            self._ticket.cancel()


# ---- publisher -----------------------------------------------------------------------------------

_LOG = logging.getLogger("sunshower.spark")
_DRAIN_S, _LOOK_S = 25.0, 0.05  # at the end; workers have 29 s to close their tasks
_BEHIND_MAX = 1  # committed batches that are not published; others wait


class Publisher:
    """Publishes all batches before `current`, at first those of former lives of the task. At most
    one job runs; the next one covers all batches that were committed meanwhile."""

    def __init__(self, submissions: Submissions, batches: str, current: int, clock: Clock) -> None:
        self._submissions, self._batches, self._clock = submissions, batches, clock
        self._current, self._done = current, 0  # batches before it: committed, published
        self._job: Submission | None = None
        self._submit()

    def publish(self, txid: int) -> None:
        """Publish the batches up to `txid`, soon; `poll` raises what goes wrong."""
        self._current = max(self._current, txid + 1)
        try:
            self.poll()
        except SparkError as error:  # a later call tries again
            _LOG.warning("batch %d is shown later: %s", txid, error)

    def poll(self) -> bool:
        """Continue. Returns whether another batch may begin: a job has ended, so that the tables
        are known to be ours, and at most one committed batch is not published. Raises SparkError,
        also SparkUnavailable; a later call tries again."""
        if self._job is None and self._done < self._current:
            self._submit()
        if self._job is not None and self._has_ended(self._job):
            publication = self._job.batch.publish
            assert publication is not None
            self._done, self._job = publication.current, None
            if self._done < self._current:
                self._submit()
        return self._done > 0 and self._current - self._done <= _BEHIND_MAX

    def drain(self) -> None:
        """Wait until everything is published, at most 25 s. Raises SparkError."""
        end_s = self._clock.now() + _DRAIN_S
        while self._done < self._current and self._clock.now() < end_s:
            with suppress(Unavailable):
                self.poll()
            self._clock.sleep(_LOOK_S)

    def _submit(self) -> None:
        publication = Publication(self._batches, self._current)
        batch = BatchInfo(f"up to {self._current - 1}", 0, publish=publication)
        self._job = self._submissions.add([], batch)

    def _has_ended(self, job: Submission) -> bool:
        try:
            return job.poll()
        except Unavailable:
            raise
        except BaseException:
            self._job = None
            raise


# ---- operator ------------------------------------------------------------------------------------


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
        self._tables = [writer for writer in tables if isinstance(writer, Table)]
        self._by_spark = len(self._tables) < len(tables)
        self.publishes = bool(tables) or step.state is not None
        self.writes_outside = bool(step.writers) or self.publishes
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
                version = self._state.version_before(attempt.txid)
                info = replace(info, state=None if version is None else str(version))
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
        if batch.submission is not None:
            batch.submission.cancel()

    def figures(self) -> dict[str, float]:
        return self._submissions.figures()

    def result(self) -> list[JobReport]:
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


# ---- sql -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SqlQuery:
    """A transform that registers its inputs and static tables as views and queries them."""

    text: str
    inputs: tuple[str, ...] = (INPUT,)

    def __call__(self, *arguments: Any) -> DataFrame:
        """Return the result. Spark resolves names here, so the views can be dropped."""
        *frames, batch = arguments
        named = [*zip(self.inputs, frames, strict=True), *batch.tables.items()]
        if is_remote(frames[0]):
            return _remote_query(self.text, named)
        with _views(frames[0].sparkSession, named) as session:
            return session.sql(self.text)


def _remote_query(text: str, named: Sequence[tuple[str, Any]]) -> DataFrame:
    """The result of a query at a server of Spark Connect, which resolves names when it computes.
    So the tables are sent as parts of the query; the server has them as views only meanwhile."""
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import SQL, SubqueryAlias

    aliases = [SubqueryAlias(frame._plan, name) for name, frame in named]
    result: Any = DataFrame(SQL(text, [], {}, aliases), named[0][1].sparkSession)
    return result


def check_views(inputs: Sequence[str], tables: Sequence[str]) -> None:
    """Raise TopologyError for a name that cannot be a view, or that is used twice (Spark ignores
    case)."""
    used: dict[str, str] = {}
    for kind, name in (
        *(("input", name) for name in inputs),
        *(("table", name) for name in tables),
    ):
        if not (name.isidentifier() and name.isascii()):
            raise TopologyError(
                f"spark_sql: the {kind} {name!r} is to be a view, and that is not a valid name for "
                "one: take letters, digits and _"
            )
        if other := used.get(name.casefold()):
            raise TopologyError(
                f"spark_sql: the {kind} {name!r} has the name of the {other}: give one of them "
                "another (the inputs are the names of their record types, a single one is "
                f"{INPUT!r})"
            )
        used[name.casefold()] = f"{kind} {name!r}"


@contextmanager
def _views(session: SparkSession, named: Sequence[tuple[str, Any]]) -> Iterator[SparkSession]:
    """Register views and drop them at the end, because other steps share this session."""
    catalog = session._jsparkSession.sessionState().catalog()  # the public one would uncache them
    try:
        for name, frame in named:
            frame.createOrReplaceTempView(name)
        yield session
    finally:
        for name, _ in named:
            catalog.dropTempView(name)


# ---- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spark:
    """A transform, where it runs, its output record type, and its writers. `transform(df, batch)`
    gets one DataFrame per input, then a BatchInfo, and returns a DataFrame. Its rows come back as
    records of `out`, go to the writers of `.write(…)`, or both. With a state it is
    `transform(df, state, batch)`, and returns (result, new state)."""

    step: SparkStep
    where: SparkPlace = field(default_factory=DefaultSpark)

    @property
    def out(self) -> Any:
        """The record type of the rows that come back; None if none do."""
        return self.step.out

    @checked(TopologyError, "spark(…).write", writer=FUNCTION)
    def write(self, writer: Writer) -> Spark:
        """Add a writer, called as `writer(result, batch)` for each batch. It may be `table(…)` (in
        `tables.py`), `parquet(…)`, `saved_as(…)`, or any function. Raises ConfigError for keys that
        its table cannot have, TopologyError for a table that cannot be written from there."""
        if isinstance(writer, LakeTable):
            if getattr(self.where, "remote", False):
                raise TopologyError(
                    f"{writer} commits through Java, which SparkConnect has at its server only: "
                    "take table(…) with SparkConnect, or SparkCluster(…) with this writer"
                )
            writer.check_settings(getattr(self.where, "settings", {}))
        return replace(self, step=replace(self.step, writers=(*self.step.writers, writer)))

    def __call__(self, stream: BatchStream[Any], *others: BatchStream[Any]) -> BatchStream[Any]:
        """Implements `stream.apply(spark(…))`: one job per batch, in one task. The streams of
        `others`, from the same batch group, are further inputs. Raises TopologyError and
        RecordMismatch."""
        step = replace(self.step, readers=_readers_of(stream, self.step.reads))
        operator = replace(self, step=step).operator(
            [source.schema for source in (stream, *others)]
        )
        stage = stream.stage
        for writer in tables_in(self.step):
            stream.program.keep_place(writer.place, stage.where(f"spark({self.step})"))
        if (state := self.step.state) is not None:
            stream.program.keep_place(str(state.folder), stage.where(f"spark({self.step})"))
        whole = stream if others else stream.global_()
        return whole.operate(operator, *others, fields=() if self.out is None else self.out)

    @property
    def _more(self) -> tuple[str, ...]:
        """What the transform gets after its inputs."""
        return ("batch",) if self.step.state is None else ("state", "batch")

    def operator(self, inputs: Sequence[Schema]) -> SparkOperator:
        """The operator for batches of these inputs. Raises RecordMismatch and TopologyError."""
        columns = [RecordColumns.of(schema.type, f"spark({self.step})") for schema in inputs]
        return SparkOperator(self.bind(*columns), self.where, columns)

    def check_inputs(self, inputs: Sequence[RecordColumns]) -> None:
        """Raise TopologyError for too many inputs for the transform, or colliding names."""
        count = len(inputs)
        if isinstance(self.step.transform, SqlQuery):
            check_views(_names(inputs), [*self.step.tables])
        try:
            inspect.signature(self.step.transform).bind_partial(*range(count + len(self._more)))
        except TypeError:
            raise TopologyError(
                f"spark({self.step}) is called with a DataFrame for each of its {count} inputs, "
                f"and then {' and '.join(self._more)}, as in "
                f"`def {self.step}({', '.join(('df', *self._more))})`; it does not take so many"
            ) from None

    def bind(self, *inputs: RecordColumns) -> SparkStep:
        """The step, bound to its inputs. Raises TopologyError if the transform does not accept
        them."""
        self.check_inputs(inputs)
        if self.step.reads is not None:
            self.step.reads.check(inputs[0].arrow)
        try:
            inspect.signature(self.step.transform).bind(*inputs, *self._more)
        except TypeError as error:
            raise TopologyError(
                f"spark({self.step}) has {len(inputs)} inputs, and takes others: {error}"
            ) from None
        if not isinstance(self.step.transform, SqlQuery):
            return self.step
        query = replace(self.step.transform, inputs=_names(inputs))
        return replace(self.step, transform=query)


# Of a stage: what steps read of its rows, and how many do.
_READERS = WeakKeyDictionary[Any, list[tuple[Reads, Readers]]]()


def _readers_of(stream: BatchStream[Any], reads: Reads | None) -> Readers | None:
    """Count one more step that reads this of the rows of a stage."""
    if reads is None:
        return None
    of_stage = _READERS.setdefault(stream.stage, [])
    readers = next((count for other, count in of_stage if other == reads), None)
    if readers is None:
        readers = Readers()
        of_stage.append((reads, readers))
    readers.count += 1
    return readers


def _names(inputs: Sequence[RecordColumns]) -> tuple[str, ...]:
    """View names of a query's inputs: their record types, or `batch` for a single one."""
    return tuple(columns.kind.path for columns in inputs) if len(inputs) > 1 else (INPUT,)


@checked(TopologyError, transform=_TRANSFORM, tables=_TABLES, timeout_s=SECONDS, state=None)
def spark(
    transform: Transform,
    *,
    out: Any = None,
    tables: Mapping[str, Static] | None = None,
    where: SparkPlace | None = None,
    timeout_s: float = 600.0,
    reads: Reads | None = None,
    state: StepState | None = None,
) -> Spark:
    """Declare a step for Spark; see Spark, and spark_sql for a query.

    `tables` are static tables to join with (`batch.tables["pages"]`): each is an Arrow table, the
    path of Parquet files, or a function of the session. `where` is RayDPSpark(…), LocalSpark(…),
    SparkCluster(…) or SparkConnect(…).
    Without it the step runs on RayDP if the topology has joined a Ray cluster, else in its worker.
    `timeout_s` limits the run time of one batch. With `reads`, as KafkaRows(…), the rows of the
    first input only say what Spark reads. With `state`, as spark_state(…), the transform keeps a
    state from batch to batch.

    Raises RecordMismatch for a field of `out` that Spark cannot represent, TopologyError for any
    other error in the declaration.
    """
    if state is not None and not callable(getattr(state, "before", None)):
        raise TopologyError(f"spark(…, state={state!r}): give spark_state(folder, Record)")
    static = {name: _static_table(table, name) for name, table in (tables or {}).items()}
    step = SparkStep(transform, out, static, timeout_s=timeout_s, reads=reads, state=state)
    if out is not None:
        RecordColumns.of(out, f"spark({step}), out")
    return Spark(step, DefaultSpark() if where is None else where)


@checked(TopologyError, more=None)
def spark_sql(query: str, **more: Any) -> Spark:
    """Declare a step that runs an SQL query over the views `batch` and `tables`. Several inputs are
    named after their record types. It has no state. Raises like `spark`."""
    if more.get("state") is not None:
        raise TopologyError("spark_sql: a query has no state; take spark(…, state=…)")
    step = spark(SqlQuery(query), **more)
    check_views((INPUT,), [*step.step.tables])
    return step


def _static_table(table: Static, name: str) -> Static:
    """A static table, normalised. Raises TopologyError for one that Spark cannot represent."""
    if isinstance(table, (str, PurePath)):
        return _absolute(table)
    try:
        if isinstance(table, pa.Table):
            return normalise(table)
    except Unserialisable as error:
        raise TopologyError(f"spark, the table {name!r}: {error}") from error
    if callable(table):
        return table
    raise TopologyError(
        f"spark, the table {name!r} is {type(table).__name__}: give an Arrow table, such as "
        "pa.Table.from_pandas(…), the path of Parquet files, or a function of the session"
    )


def _absolute(path: str | PurePath) -> str:
    """The absolute path: workers and the JVM have other working directories."""
    text = str(path)
    return text if _SCHEME.match(text) else str(Path(text).absolute())


@checked(TopologyError)
def parquet(folder: str | PurePath) -> Writer:
    """Write each batch as Parquet files to `folder`/batch=`id`; the same id replaces its files."""
    return FormatWriter("parquet", {}, _absolute(folder))


@checked(TopologyError, options=_OPTION)
def saved_as(format: str, **options: str) -> Writer:  # noqa: A002
    """Append each batch in Spark's `format` ("jdbc", "kafka", …) with its options."""
    return FormatWriter(format, options)


@dataclass(frozen=True)
class FormatWriter:
    """A writer for one of Spark's formats."""

    format: str
    options: Mapping[str, str]
    folder: str | None = None

    def __str__(self) -> str:
        if self.folder is None:
            return f"saved_as({self.format!r}, …)"
        return f"{self.format}({self.folder!r})"

    def __call__(self, result: DataFrame, batch: BatchInfo) -> None:
        writer = result.write.format(self.format).options(**self.options)
        if self.folder is None:
            writer.mode("append").save()
        else:
            writer.mode("overwrite").save(f"{self.folder}/batch={batch.id}")
