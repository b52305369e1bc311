"""Tables that show whole, committed batches: `spark(…).write(table("out/totals"))`."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pyarrow import parquet

from sunshower import versions
from sunshower.arguments import checked
from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import (
    ConfigError,
    ResultMismatch,
    StateMismatch,
    StoreUnreachable,
    WriteFailed,
)
from sunshower.spark_integration.job import (
    arrow_schema,
    files_written,
    is_remote,
    spark_schema,
)
from sunshower.spark_integration.sessions.spark_port import BatchInfo, PublishingWriter, SparkStep
from sunshower.state.sqlite import sync_path
from sunshower.topologies.operators.port import Attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Prevents a `_SUCCESS` file in each batch.
NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


# ---- table folder --------------------------------------------------------------------------------
# A folder of committed batches: each appears as a whole under its txid, or not at all.
#
#     FOLDER/txid=7/part-….parquet, _batch.json     batch 7, committed
#     FOLDER/_sunshower/table.json                  which topology owns the table
#     FOLDER/_sunshower/staged/8/2.0-4f1c…/         attempt 2 of batch 8, not yet decided
#
#     written ──add `_batch.json`──▶ staged ──batch 8 is committed──▶ renamed to txid=8
#
# `_batch.json` is written last, so a folder that has one is complete. The committed attempt of a
# batch is the highest staged one, and of its runs (2.1 after 2.0) the last. The rename is the
# commit (decision 13); after a crash the successor repeats it. A state's versions are such a
# folder too.

# Errors that waiting does not resolve.
_PERMANENT = {
    *(errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EROFS, errno.ENAMETOOLONG),
    errno.ELOOP,
}
_PRIVATE, _RECORD, _NAME = "_sunshower", "_batch.json", "txid="
_VERSIONS = 2  # of a state: what the next batch reads, and one more for readers


@dataclass(frozen=True)
class TableBatch:
    """The record of a batch in a table. `application` and `jobs` are Spark's ids."""

    txid: int
    attempt: int
    rows: int
    files: int
    bytes: int
    seconds: float  # how long Spark took
    application: str = ""
    jobs: tuple[int, ...] = ()


@checked()
def batches_in(folder: str | PurePath) -> list[TableBatch]:
    """The committed batches of a table, by txid. Raises StateMismatch, StoreUnreachable,
    WriteFailed."""
    with _convert_errors(Path(folder)):
        records = [_record(_published(Path(folder), txid)) for txid in _txids(Path(folder), _NAME)]
    return [record for record in records if record is not None]


def staging(folder: Path, txid: int, attempt: int, run: int = 0) -> Path:
    """A new folder to write a run of an attempt to."""
    return folder / _PRIVATE / "staged" / str(txid) / f"{attempt}.{run}-{uuid.uuid4().hex[:8]}"


def stage(where: Path, written: TableBatch) -> None:
    """Sync all files of an attempt and add its record. Raises OSError."""
    for file in where.iterdir():
        sync_path(file)
    _create(where / _RECORD, asdict(written))


class TableFolder:
    """A table, as the task that writes it opens it. `current` is the batch to be committed next.

    `topology` and `batches` (the incarnation of its txids) identify the owner. With `columns` it
    holds the versions of a state with these columns. Raises StateMismatch for a folder with another
    owner or other columns, StoreUnreachable for one that cannot be written now, and WriteFailed for
    one that never can be.
    """

    def __init__(
        self, folder: Path, topology: str, batches: str, current: int, columns: str | None = None
    ) -> None:
        self._folder, self._is_state = folder, columns is not None
        with _convert_errors(folder):
            owner = {"topology": topology, "batches": batches, "columns": columns}
            self._first = self._claim(owner, current)
            shown = _txids(folder, _NAME)
        if shown and shown[-1] >= current:
            raise StateMismatch(
                f"{folder} has batch {shown[-1]}, and by the store of the batches {current} is "
                "still to be committed: an older copy of the store? Give the right one back, or "
                "give the table another folder"
            )
        self._next = shown[-1] + 1 if shown else self._first
        self.publish(current - 1)

    def version_before(self, txid: int) -> Path | None:
        """What the batch before `txid` has left of a state; None if `txid` is the first. Call it
        when all batches before `txid` are committed. Raises like `publish`."""
        self.publish(txid - 1)
        if txid == self._first:
            return None
        version = _published(self._folder, txid - 1)
        if not (version / _RECORD).exists():
            raise self._missing(txid - 1)
        return version

    def last_attempt(self) -> Attempt | None:
        """The last attempt that is published or staged; of coordinator 0, since none is stored."""
        txids = _txids(self._folder / _PRIVATE / "staged")
        whole = [staged for txid in txids if (staged := self._staged(txid)) is not None]
        whole += [_published(self._folder, txid) for txid in _txids(self._folder, _NAME)[-1:]]
        attempts = [
            Attempt(record.txid, record.attempt, 0) for record in map(_record, whole) if record
        ]
        return max(attempts, default=None)

    def publish(self, last: int) -> None:
        """Publish the batches up to `last`, which are committed. Raises StateMismatch for one that
        is not here, StoreUnreachable, WriteFailed."""
        if last < self._next:
            return
        with _convert_errors(self._folder):
            while self._next <= last:
                self._publish_one(self._next)
                self._next += 1
            sync_path(self._folder)
            staged = self._folder / _PRIVATE / "staged"
            for txid in _txids(staged):
                if txid <= last:  # also late files of a task that was thought dead
                    shutil.rmtree(staged / str(txid), ignore_errors=True)
            for txid in _txids(self._folder, _NAME) if self._is_state else ():
                if txid <= last - _VERSIONS:
                    shutil.rmtree(_published(self._folder, txid), ignore_errors=True)

    def _publish_one(self, txid: int) -> None:
        target, staged = _published(self._folder, txid), self._staged(txid)
        if target.exists():
            return
        if staged is None:
            raise self._missing(txid)
        try:
            staged.rename(target)
        except OSError:  # a former or later life of this task has renamed it
            if not target.exists():
                raise

    def _missing(self, txid: int) -> StateMismatch:
        if self._is_state:
            return StateMismatch(
                f"{self._folder}: batch {txid} is committed, and the state that it has left is not "
                "here: the program has run without this state, or files of it were removed. Put "
                "back what was there, or give the state another folder, in which it begins empty "
                "with the next batch"
            )
        return StateMismatch(
            f"{self._folder}: batch {txid} is committed, and not here: the program has run "
            "without this table, or files of it were removed. Give the table another folder, "
            "or remove this one as a whole, to begin with the next batch"
        )

    def _staged(self, txid: int) -> Path | None:
        """The highest complete attempt at a batch, and of its runs the last."""
        above = self._folder / _PRIVATE / "staged" / str(txid)
        whole = [path.parent for path in above.glob(f"*/{_RECORD}")]
        return max(whole, key=lambda path: attempt_and_run(path.name), default=None)

    def _claim(self, owner: dict[str, Any], current: int) -> int:
        """Create the owner's record, or check it. Returns the table's first batch."""
        path = self._folder / _PRIVATE / "table.json"
        if not path.exists():
            self._check_empty()
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path, {**owner, "first": current, "version": versions.TABLE})
        table = _read(path)
        remedy = "use the release that wrote it, or give the table another folder"
        versions.check(str(self._folder), table.get("version", 1), versions.TABLE, remedy)
        for what, ours in owner.items():
            if table.get(what) != ours:
                raise StateMismatch(
                    f"{self._folder} is the table of {what} {table.get(what)!r}, and this is "
                    f"{ours!r}: set that back (batches: the spout's id, and its store), give the "
                    "table another folder, or remove this one as a whole to start over"
                )
        return int(table["first"])

    def _check_empty(self) -> None:
        entries = sorted(self._folder.iterdir()) if self._folder.exists() else []
        if foreign := [
            entry.name for entry in entries if not entry.name.startswith((".", _PRIVATE))
        ]:
            raise StateMismatch(
                f"{self._folder} has {foreign[0]!r} in it, and is not a table of batches: give the "
                "table a folder of its own"
            )


def attempt_and_run(staged: str) -> list[int]:
    """The numbers in the name of a staged folder."""
    return [int(number) for number in staged.partition("-")[0].split(".")]


def _published(folder: Path, txid: int) -> Path:
    return folder / f"{_NAME}{txid}"


def _txids(folder: Path, before: str = "") -> list[int]:
    """The txids in the names of the entries, lowest first."""
    names = [entry.name for entry in folder.iterdir()] if folder.exists() else []
    numbers = [name.removeprefix(before) for name in names if name.startswith(before)]
    return sorted(int(number) for number in numbers if number.isdecimal())


def _record(folder: Path) -> TableBatch | None:
    """The record of a batch; None if it was removed meanwhile."""
    try:
        record = _read(folder / _RECORD)
        return TableBatch(**{**record, "jobs": tuple(record["jobs"])})
    except FileNotFoundError:
        return None
    except (TypeError, KeyError) as error:
        raise StateMismatch(f"{folder / _RECORD} is not the record of a batch: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise StateMismatch(
            f"{path} is incomplete or damaged (no JSON object): restore it, or remove the whole "
            "table"
        )
    return content


def _create(path: Path, values: dict[str, Any]) -> None:
    """Create a file atomically; an existing one stays."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    draft.write_text(json.dumps(values))
    sync_path(draft)
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
    sync_path(path.parent)


@contextmanager
def _convert_errors(folder: Path) -> Iterator[None]:
    """Convert OSError to WriteFailed or StoreUnreachable."""
    try:
        yield
    except OSError as error:
        kind = WriteFailed if error.errno in _PERMANENT else StoreUnreachable
        raise kind(
            f"the table in {folder}: {error.strerror or error} ({error.filename}). All processes "
            "of the topology and of Spark must be able to write there"
        ) from error


# ---- tables --------------------------------------------------------------------------------------


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

    application: str = ""
    jobs: tuple[int, ...] = ()  # of the batch
    files: int | None = None  # None: unknown
    rows: int | None = None  # None: unknown


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
        assert batch.txid is not None, "bolts outside of a program of batches refuse tables"
        where = staging(self.folder, batch.txid, batch.attempt, batch.run)
        began = time.monotonic()
        saved = self.save(result, where)
        files = sorted(where.glob("*.parquet"))
        check_complete(str(self), batch.txid, len(files), saved.files)
        rows = sum(parquet.read_metadata(file).num_rows for file in files)
        if saved.rows not in {None, rows}:
            raise _elsewhere(str(self), batch.txid, f"{saved.rows} rows", rows)
        stage(
            where,
            TableBatch(
                batch.txid,
                batch.attempt,
                rows=rows,
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
        return staged_by(
            result, lambda rows: rows.write.options(**NO_MARK).parquet(f"file:{where}")
        )


def staged_by(result: DataFrame, write: Callable[[DataFrame], object]) -> Staged:
    """Write a result, and return what Spark reports of it: files; at a server of Spark Connect,
    whose client does not see them, rows."""
    session = result.sparkSession
    if is_remote(result):
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        observation = Observation()
        write(result.observe(observation, count(lit(1)).alias("rows")))
        return Staged(rows=observation.get.get("rows"))
    context = session.sparkContext
    before = _jobs(context)
    write(result)
    jobs = _jobs(context)
    return Staged(
        str(context.applicationId), tuple(sorted(jobs)), files_written(session, jobs - before)
    )


def check_complete(table: str, txid: int, present: int, written: int | None) -> None:
    """Raise WriteFailed if files of a batch are missing. `written`: how many Spark reports; None:
    unknown, but Spark writes one file even for no rows."""
    if present < (written or 1):
        raise _elsewhere(table, txid, f"{written or 'the'} files", present)


def _elsewhere(table: str, txid: int, written: str, present: int) -> WriteFailed:
    return WriteFailed(
        f"{table}: Spark has written {written} of batch {txid}, and {present} of them are here: "
        "its executors must write to the same folder, on a file system that all share"
    )


def _jobs(context: Any) -> set[int]:
    """The ids of the batch's jobs so far."""
    group = context.getLocalProperty("spark.jobGroup.id")
    return set(context.statusTracker().getJobIdsForGroup(group)) if group else set()


def tables_in(step: SparkStep) -> list[Table | PublishingWriter]:
    """The writers of a step that show committed batches alone."""
    return [writer for writer in step.writers if isinstance(writer, Table | PublishingWriter)]


# ---- spark state ---------------------------------------------------------------------------------
# Each attempt of batch 7 begins with the version that batch 6 has left: docs/SPARK.md says why that
# is exactly once.


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
        return ", ".join(
            f"{column.name} {column.type}" for column in RecordColumns.of(self.of).arrow
        )

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
