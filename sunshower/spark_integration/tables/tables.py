"""Tables that show whole, committed batches: `spark(…).write(table("out/totals"))`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pyarrow import parquet

from sunshower.arguments import checked
from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import ConfigError, ResultMismatch, WriteFailed
from sunshower.spark_integration.job import arrow_schema, files_written, spark_schema
from sunshower.spark_integration.sessions.spark_port import BatchInfo, PublishingWriter, SparkStep
from sunshower.spark_integration.tables.table_folder import TableBatch, stage, staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Prevents a `_SUCCESS` file in each batch.
NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@checked()
def table(folder: str | PurePath) -> Table:
    """Write each batch as Parquet files to `folder`/txid=N, which appears once batch N is
    committed.

    For Trident programs with transactional and opaque spouts: readers never see an uncommitted
    attempt and see each committed batch as a whole, once. Readers get `txid` as a column. All
    processes and Spark's executors must share the folder. Raises ConfigError.
    """
    if "://" in str(folder):
        raise ConfigError(
            f"table({str(folder)!r}): a batch is committed by renaming its folder, which must be "
            "one of this machine, or of a file system that all machines share; give its path"
        )
    return Table(Path(folder).absolute())  # workers have another working directory


@dataclass(frozen=True)
class Staged:
    """What Spark reports of a write."""

    application: str
    jobs: tuple[int, ...]  # of the batch
    files: int | None  # None: unknown


@dataclass(frozen=True)
class Table:
    """A writer that stages attempts; SparkOperator publishes the committed ones."""

    folder: Path

    @property
    def place(self) -> str:
        return str(self.folder)

    def __str__(self) -> str:
        return f"table({str(self.folder)!r})"

    def __call__(self, result: DataFrame, batch: BatchInfo) -> None:
        """Write an attempt to the staging folder."""
        assert batch.txid is not None, "bolts outside of a program of batches refuse tables"
        where = staging(self.folder, batch.txid, batch.attempt, batch.run)
        began = time.monotonic()
        saved = self.save(result, where)
        files = sorted(where.glob("*.parquet"))
        check_complete(str(self), batch.txid, len(files), saved.files)
        stage(
            where,
            TableBatch(
                batch.txid,
                batch.attempt,
                rows=sum(parquet.read_metadata(file).num_rows for file in files),
                files=len(files),
                bytes=sum(file.stat().st_size for file in files),
                seconds=round(time.monotonic() - began, 3),
                application=saved.application,
                jobs=saved.jobs,
            ),
        )

    def save(self, result: DataFrame, where: Path) -> Staged:
        """Write the rows as Parquet files to a new folder."""
        if taken := [name for name in result.columns if name.casefold() == "txid"]:
            raise ResultMismatch(
                f"{self}: there is a column {taken[0]!r}, and txid is the batch's number in this "
                "table: rename it"
            )
        return files_of(
            result.sparkSession, lambda: result.write.options(**NO_MARK).parquet(f"file:{where}")
        )


def files_of(session: SparkSession, write: Callable[[], object]) -> Staged:
    """Write, and return what Spark reports of it."""
    context = session.sparkContext
    before = _jobs(context)
    write()
    jobs = _jobs(context)
    return Staged(
        str(context.applicationId), tuple(sorted(jobs)), files_written(session, jobs - before)
    )


def check_complete(table: str, txid: int, found: int, written: int | None) -> None:
    """Raise WriteFailed if files of a batch are missing. `written`: how many Spark reports; None:
    unknown, but Spark writes one file even for no rows."""
    if found < (written or 1):
        raise WriteFailed(
            f"{table}: Spark has written {written or 'the'} files of batch {txid}, and {found} of "
            "them are here: its executors must write to the same folder, on a file system that all "
            "share"
        )


def _jobs(context: Any) -> set[int]:
    """The ids of the batch's jobs so far."""
    group = context.getLocalProperty("spark.jobGroup.id")
    return set(context.statusTracker().getJobIdsForGroup(group)) if group else set()


def tables_in(step: SparkStep) -> list[Table | PublishingWriter]:
    """The writers of a step that show committed batches alone."""
    return [one for one in step.writers if isinstance(one, Table | PublishingWriter)]


# ---- spark state ---------------------------------------------------------------------------------
# A state that Spark keeps from batch to batch: `spark(…, state=spark_state("totals", Total))`.
#
# Each attempt of batch 7 begins with the version that batch 6 has left; the versions are a
# `TableFolder`, and docs/SPARK.md says why that is exactly once.


@checked()
def spark_state(folder: str | PurePath, of: Any) -> SparkState:
    """A state of rows with the fields of the record type `of`, for `spark(…, state=…)`.

    The transform gets the state as a DataFrame, empty before the first batch, and returns the new
    one, which replaces it as a whole. Its versions are Parquet files below `folder`, which all
    processes and Spark's executors must share. For Trident programs with transactional and opaque
    spouts. Raises ConfigError, and RecordMismatch for a field that Spark cannot represent.
    """
    where = f"spark_state({str(folder)!r})"
    columns = RecordColumns.of(of, where)
    if taken := [name for name in columns.arrow.names if name.casefold() == "txid"]:
        raise ConfigError(
            f"{where}: {columns.kind.path} has a field {taken[0]!r}, and txid is the number of the "
            "batch in its folder: rename it"
        )
    return SparkState(table(folder), of)


@dataclass(frozen=True)
class SparkState:
    """The state of a step: a table of which only the last versions are kept."""

    table: Table
    of: Any

    @property
    def folder(self) -> Path:
        return self.table.folder

    @property
    def columns(self) -> str:
        return ", ".join(f"{one.name} {one.type}" for one in RecordColumns.of(self.of).arrow)

    def __str__(self) -> str:
        return f"spark_state({str(self.folder)!r})"

    def before(self, session: SparkSession, batch: BatchInfo) -> DataFrame:
        schema = spark_schema(RecordColumns.of(self.of).arrow)
        if batch.state is None:
            return session.createDataFrame([], schema)
        return session.read.schema(schema).parquet(f"file:{batch.state}")

    def __call__(self, state: DataFrame, batch: BatchInfo) -> None:
        from pyspark.sql import DataFrame

        if not isinstance(state, DataFrame):
            raise ResultMismatch(
                f"{self}: the new state is {type(state).__name__}; it must be a DataFrame"
            )
        columns = RecordColumns.of(self.of)
        columns.check(arrow_schema(state.schema))
        self.table(state.to(spark_schema(columns.arrow)), batch)
