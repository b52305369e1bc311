"""Runs one job in a Spark session: input tables, the user's transform, output rows."""

from __future__ import annotations

import re
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from sunshower.arrow.record_columns import RecordColumns, normalise
from sunshower.errors import (
    RangeGone,
    ResultMismatch,
    SparkError,
    SparkLost,
    SparkUnavailable,
    TransformFailed,
    WriteFailed,
)
from sunshower.outages import is_unavailable
from sunshower.secret import without_secrets
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    PublishingWriter,
    SparkStep,
    Static,
    Writer,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CHUNK_ROWS = 65_536  # rows of a table per Spark task
_STEPS_MAX = 16  # number of steps whose static tables are kept


# ---- error report --------------------------------------------------------------------------------

_OUR_FOLDER = str(Path(__file__).parent)
_LIBRARIES = re.compile(r"[/\\](pyspark|py4j|raydp)[/\\]")
_PYTHON = re.compile(
    r"Traceback \(most recent call last\):\n.*?"
    r"(?=\n\s*at [\w$.]+\(|\n\s*(?:JVM|Driver) stacktrace:|\Z)",
    re.DOTALL,
)
_STACK = re.compile(
    r"\n\s*(at [\w$./]+\(|JVM stacktrace:|Driver stacktrace:|== SQL|\.\.\. \d+ more)"
)
# What follows a message, which may have several lines, also blank ones; its remedy is often in the
# last one.
_END = r"(?=\n\s*(?:at [\w$./]+\(|\.\.\. \d+ more|Driver stacktrace:)|\nCaused by: |\Z)"
_CAUSE = re.compile(
    r"(?:Caused by: [\w.$]+: (.*?)|\(executor [^)]*\): ([\w.$]+: .*?))"
    rf"{_END}",
    re.DOTALL,
)
# Spark's Kafka source reports this when offsets of its range have been removed; with Spark 4,
# Kafka's client does.
_GONE = re.compile(r"Cannot fetch (?:offset|records in)[^\n]*(?=\n[^\n]*data may have been lost)")
_OUT_OF_RANGE = re.compile(
    r"FetchPosition\{offset=(\d+),[^\n]* is out of range for partition (\S+)"
)
_NO_MODULE = (
    " in Spark's Python worker. Install it on the machines of the executors, or send a module of "
    "yours with py_files=… of SparkCluster or SparkConnect"
)
_TRACE = "Traceback (most recent call last):\n"
_FULL_DISK = re.compile("No space left on device|Disk quota exceeded")
# Errors of files, file systems and disks; not of Spark or of what it computes. At a server of Spark
# Connect the class of an error is in brackets.
_FILE_ERROR = re.compile(
    r"(?:java\.io|java\.nio\.file|org\.apache\.hadoop\.(?:fs|security))\.([\w.$]+)[:)] (.*?)"
    + _END,
    re.DOTALL,
)


def error_text(error: BaseException) -> str:
    """The text of an exception. Java exceptions fetch it from the JVM, which may have ended."""
    try:
        return without_secrets(str(error))
    except Exception:
        return "its Java is gone"


def write_failure(error: BaseException) -> str:
    """Why a writer could not write a file; empty if its exception has another cause."""
    text = error_text(error)
    if isinstance(error, SparkError) or _PYTHON.search(text):
        return ""
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"{type(error).__name__}: {text}"
    causes = _FILE_ERROR.findall(text)
    return ": ".join(causes[-1]).strip() if causes else ""


def is_outage(error: BaseException) -> bool:
    """Whether waiting helps: `outages.py` classifies the error, or its text reports a full disk."""
    return is_unavailable(error) or _FULL_DISK.search(error_text(error)) is not None


def spark_error(error: BaseException, what: str, alive: bool) -> SparkError:
    """Convert the `error` of the job `what` to a SparkError. `alive` says whether the JVM still
    runs."""
    if isinstance(error, SparkError) and (alive or not isinstance(error, WriteFailed)):
        return error
    if not alive:
        return SparkLost(
            f"Spark died while it ran {what} ({_first_line(error)}); a new one is started"
        )
    if is_outage(error):
        why = without_java(error_text(error))
        return SparkUnavailable(f"{what} waits: {type(error).__name__}: {why}")
    text = error_text(error)
    if gone := _gone(text):
        return RangeGone(
            f"{what} was to read what Kafka has removed: {gone}. Retention was "
            "faster than Spark, or the topic was created again: keep records until their batches "
            "are committed"
        )
    if match := _PYTHON.search(text):  # of a UDF, in one of Spark's Python workers
        trace, _, raised = match[0].strip().rpartition("\n")
        if raised.startswith(ModuleNotFoundError.__name__):
            raised += _NO_MODULE
        return TransformFailed(f"{what} failed in a function of its own: {raised}\n{trace}")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not _LIBRARIES.search(frame.filename) and not frame.filename.startswith(_OUR_FOLDER)
    ]
    raised = f"{type(error).__name__}: {without_java(text)}"
    trace = "".join([_TRACE, *traceback.format_list(frames)] if frames else []).rstrip()
    return TransformFailed(f"{what} failed: {raised}\n{trace}".rstrip())


def _gone(text: str) -> str:
    """What Kafka no longer has, if the text of an error says so; otherwise empty."""
    if match := _GONE.search(text):
        return match[0].rstrip(". ")
    match = _OUT_OF_RANGE.search(text)
    return f"Cannot fetch offset {match[1]} of {match[2]}" if match else ""


def without_java(text: str) -> str:
    """The message of a Java error without its Java stack."""
    if "\n\tat " not in text:
        return text.strip()
    causes = [cause or other for cause, other in _CAUSE.findall(text)]
    return (causes[-1] if causes else _STACK.split(text, maxsplit=1)[0]).strip()


def _first_line(error: BaseException) -> str:
    lines = error_text(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


# ---- schema --------------------------------------------------------------------------------------


def spark_schema(arrow: pa.Schema) -> StructType:
    """The Spark schema of a normalised table; a timestamp without a zone stays one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow, prefer_timestamp_ntz=True)


def arrow_schema(spark: StructType) -> pa.Schema:
    """The Arrow schema of a Spark result. Raises ResultMismatch for types that Arrow lacks."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(spark)
    except PySparkTypeError as error:
        raise ResultMismatch(f"the result has a type that cannot be handed back: {error}") from None


# ---- job -----------------------------------------------------------------------------------------


def hand_over(session: SparkSession, table: pa.Table) -> DataFrame:
    """Convert a normalised table to a DataFrame the way pyspark converts pandas data. Spark's own
    code reads the Arrow columns in tasks, nested ones included, and keeps NaN and null."""
    from pyspark.sql import DataFrame

    with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=_CHUNK_ROWS)
        file.flush()
        arrow = session._jvm.PythonSQLUtils.readArrowStreamFromFile(file.name)  # in memory now
    frame = session._jvm.PythonSQLUtils.toDataFrame(
        arrow, spark_schema(table.schema).json(), session._jsparkSession
    )
    return DataFrame(frame, session)


def is_remote(what: Any) -> bool:
    """Whether a DataFrame or a SparkSession is one of Spark Connect, and has no JVM here."""
    return type(what).__module__.startswith("pyspark.sql.connect.")


def collect_rows(result: DataFrame) -> pa.Table:
    """All rows of a DataFrame. Raises ResultMismatch for types that Arrow does not have."""
    schema = arrow_schema(result.schema)
    if is_remote(result):
        return result.toArrow()
    batches = result._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else schema.empty_table()


def to_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def from_bytes(packed: bytes) -> pa.Table:
    """The table in an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(packed)) as stream:
        return stream.read_all()


class OpenSession(Protocol):
    """An open session: `DriverSession` of session_host.py, which describes its methods."""

    def hand_over(self, session: Any, table: pa.Table) -> Any: ...
    def new(self) -> Any: ...
    def read(self, session: Any, step: SparkStep, table: pa.Table) -> Any: ...
    def has_read(self, step: SparkStep, table: pa.Table) -> None: ...
    def begin(self, session: Any, group: str, job: Any) -> None: ...
    def cancel(self, session: Any, group: str) -> None: ...
    def metrics(self, group: str) -> dict[str, Any]: ...
    def alive(self) -> bool: ...


class Runner:
    """Runs jobs in its own session, so that view names of different runners do not collide."""

    def __init__(self, session: OpenSession) -> None:
        self.session, self.spark = session, session.new()
        # By id of the step; the last used is at the end.
        self._static: dict[int, tuple[SparkStep, dict[str, Any]]] = {}
        self.hand_over_s = 0.0  # of the last job

    def run(
        self,
        step: SparkStep,
        tables: Sequence[pa.Table],
        batch: BatchInfo,
        is_over: Callable[[], bool] = lambda: False,
    ) -> pa.Table | None:
        """Return the result of a step. `is_over` is checked before Spark starts and before each
        writer, because Spark can cancel only its own tasks; then this raises SparkError. Raises
        ResultMismatch, and what the transform raises."""
        self._is_over = is_over
        if batch.publish is not None:
            for writer in step.writers:
                if isinstance(writer, PublishingWriter):
                    self._write(step, writer, batch, writer.publish, self.spark)
            return None
        began_s = time.perf_counter()
        frames = [self._frame(step, place, table) for place, table in enumerate(tables)]
        self.hand_over_s = time.perf_counter() - began_s
        batch = replace(batch, tables=self._tables(step))
        self._check_not_over(step, batch)
        rows = self._transformed(step, frames, batch)
        if step.reads is not None:
            self.session.has_read(step, tables[0])
        return rows

    def _transformed(self, step: SparkStep, frames: Sequence[Any], batch: BatchInfo) -> Any:
        if step.state is None:
            return self._finish(step, step.transform(*frames, batch), batch)
        returned = step.transform(*frames, step.state.before(self.spark, batch), batch)
        if not (isinstance(returned, tuple) and len(returned) == 2):
            raise ResultMismatch(
                f"{step} has a state and returned {type(returned).__name__}; it must return "
                "(result, state)"
            )
        result, state = returned
        self._write(step, step.state, batch, step.state, state)
        return self._finish(step, result, batch)

    def _check_not_over(self, step: SparkStep, batch: BatchInfo) -> None:
        if self._is_over():
            raise SparkError(f"{step}: batch {batch.id} was given up")

    def _frame(self, step: SparkStep, place: int, table: pa.Table) -> Any:
        if step.reads is not None and not place:
            return self.session.read(self.spark, step, table)
        return self.session.hand_over(self.spark, table)

    def _finish(self, step: SparkStep, result: Any, batch: BatchInfo) -> pa.Table | None:
        wanted = (step.out is not None) + len(step.writers)
        if not wanted:
            return None
        from pyspark.sql import DataFrame

        if not isinstance(result, DataFrame):
            raise ResultMismatch(
                f"{step} returned {type(result).__name__}; it must return a DataFrame, which "
                "Spark computes when its rows are asked for"
            )
        columns = RecordColumns.of(step.out) if step.out is not None else None
        if columns is not None:
            columns.check(arrow_schema(result.schema))
        if wanted > 1:
            result.persist()
        try:
            for writer in step.writers:
                self._write(step, writer, batch, writer, result)
            if columns is None:
                return None
            self._check_not_over(step, batch)
            return columns.conform(collect_rows(result))
        finally:
            if wanted > 1:
                result.unpersist()

    def _write(
        self, step: SparkStep, writer: Any, batch: BatchInfo, write: Writer, what: Any
    ) -> None:
        """Call `write(what, batch)` of a writer, and convert the errors of files."""
        self._check_not_over(step, batch)
        try:
            write(what, batch)
        except Exception as error:
            why = write_failure(error)
            if not why:
                raise
            name = getattr(writer, "__name__", None) or str(writer)
            if is_outage(error):
                raise SparkUnavailable(
                    f"{step}: batch {batch.id} waits until {name} can write it: {why}"
                ) from None
            raise WriteFailed(
                f"{step}: batch {batch.id} could not be written by {name}: {why}. See whether the "
                "place is there, may be written, and has room; or whether what Spark reads for it "
                "has gone: it computes when it writes"
            ) from None

    def _tables(self, step: SparkStep) -> dict[str, Any]:
        """The static tables of a step, created once per session and kept for the 16 last steps."""
        if not step.tables:
            return {}
        cached = self._static.pop(id(step), None)
        if cached is None:
            cached = step, {name: self._static_frame(table) for name, table in step.tables.items()}
        self._static[id(step)] = cached
        if len(self._static) > _STEPS_MAX:
            del self._static[next(iter(self._static))]
        return {**cached[1]}

    def _static_frame(self, table: Static) -> Any:
        if isinstance(table, (str, PurePath)):
            return self.spark.read.parquet(str(table))
        if isinstance(table, pa.Table):
            return self.session.hand_over(self.spark, normalise(table))
        return table(self.spark)


# ---- shared reads --------------------------------------------------------------------------------

_READS_MAX = 4  # cached ones; more batches are rarely at Spark at the same time


@dataclass(eq=False)
class _Read:
    """A cached read, and how many steps have not used it yet."""

    reads: Any
    table: pa.Table
    frame: DataFrame
    left: int


class SharedReads:
    """Reads of the same rows by several steps of a program: the first job caches what it reads, for
    the jobs of the other steps, which may run at the same time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Read] = []  # oldest first

    def frame(self, session: SparkSession, step: SparkStep, table: pa.Table) -> DataFrame:
        """What the rows of `table` refer to, as a DataFrame of this session."""
        assert step.reads is not None
        if step.readers is None or step.readers.count < 2 or is_remote(session):
            return step.reads(session, table)
        with self._lock:
            read = self._find(step, table)
            if read is None:
                frame = step.reads(session, table).persist()
                read = _Read(step.reads, table, frame, step.readers.count)
                self._kept.append(read)
            while len(self._kept) > _READS_MAX:  # of batches that were given up
                self._kept.pop(0).frame.unpersist()  # a job that still needs it reads again
        return _in_session(read.frame, session)

    def used(self, step: SparkStep, table: pa.Table) -> None:
        """A job of this step has succeeded. The last one frees the memory."""
        with self._lock:
            read = self._find(step, table)
            if read is not None:
                read.left -= 1
                if not read.left:
                    self._kept.remove(read)
                    read.frame.unpersist()

    def _find(self, step: SparkStep, table: pa.Table) -> _Read | None:
        same = (read for read in self._kept if read.reads == step.reads)
        return next((read for read in same if read.table.equals(table)), None)


def _in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The rows of a DataFrame for another session of the same SparkContext. It has the same plan,
    by which Spark finds what is cached."""
    from pyspark.sql import DataFrame

    if frame.sparkSession is session:
        return frame
    sql = session._jvm.org.apache.spark.sql
    kind = sql.Dataset if session.version.startswith("3.") else sql.classic.Dataset
    plan = frame._jdf.queryExecution().analyzed()
    return DataFrame(kind.ofRows(session._jsparkSession, plan), session)


# ---- job reports ---------------------------------------------------------------------------------

_LOOKED_AT = 64  # recent executions that are searched; fewer run concurrently in a session
_BUS_MS = 1000  # Spark's listeners count asynchronously; they are up to date within this time


def job_metrics(context: Any, group: str) -> dict[str, Any]:
    """Job ids, spilled bytes and UI address of a finished job group. They come from Spark's status
    store, which exists without the UI too. What cannot be read is left out: it does not fail the
    batch."""
    metrics: dict[str, Any] = {}
    with suppress(Exception):
        metrics["ui"] = context.uiWebUrl
        metrics["jobs"] = tuple(sorted(context.statusTracker().getJobIdsForGroup(group)))
        spark = context._jsc.sc()
        spark.listenerBus().waitUntilEmpty(_BUS_MS)
        store = spark.statusStore()
        metrics["spilled_bytes"] = sum(_spilled(store, job) for job in metrics["jobs"])
    return metrics


def files_written(session: Any, jobs: Collection[int]) -> int | None:
    """How many files the tasks of these jobs have written, or None if that cannot be read. Spark's
    metric counts only the successful attempt of each task."""
    with suppress(Exception):
        session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_BUS_MS)
        store = session._jsparkSession.sharedState().statusStore()
        first = max(store.executionsCount() - _LOOKED_AT, 0)
        done = list(_items(store.executionsList(first, _LOOKED_AT)))
        for execution in reversed(done):
            if any(execution.jobs().contains(job) for job in jobs):
                values = store.executionMetrics(execution.executionId())
                known = [
                    values.get(id) for id in {*_counters(execution)}
                ]  # adaptive plans repeat them
                counts = [int(value.get().replace(",", "")) for value in known if value.isDefined()]
                return sum(counts) if counts else None
    return None


def _counters(execution: Any) -> Iterator[int]:
    for metric in _items(execution.metrics()):
        if metric.name() == "number of written files":
            yield metric.accumulatorId()


def _spilled(store: Any, job: int) -> int:
    stages = list(_items(store.job(job).stageIds()))
    return sum(int(store.lastStageAttempt(stage).diskBytesSpilled()) for stage in stages)


def _items(sequence: Any) -> Iterator[Any]:
    """Iterate over a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)
