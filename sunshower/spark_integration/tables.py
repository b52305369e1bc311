"""Tables that show whole batches, once committed: `spark(…).write(table("out/totals"))`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pyarrow import parquet

from sunshower.errors import ConfigError, ResultMismatch, Unavailable, WriteFailed
from sunshower.spark_integration.port import BatchInfo, Writer
from sunshower.spark_integration.reports import files_written
from sunshower.spark_integration.table_folder import TableFolder, Written, stage, staging
from sunshower.trident.states.counted import CountedIn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Without it Spark leaves a file `_SUCCESS` in each batch.
_NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def table(folder: str | PurePath) -> Table:
    """Each batch as Parquet files in `folder`/txid=N, which is there once batch N is committed.

    For programs of batches, from transactional and opaque spouts: an attempt that is not committed
    is never seen, and each committed one is, as a whole, once. `txid` is a column to readers. The
    folder is one that all processes see, and Spark's executors. Raises ConfigError.
    """
    if "://" in str(folder):
        raise ConfigError(
            f"table({str(folder)!r}): a batch is committed by renaming its folder, which must be "
            "one of this machine, or of a file system that all machines share; give its path"
        )
    return Table(Path(folder).absolute())  # workers have a working directory of their own


@dataclass(frozen=True)
class Staged:
    """What Spark says that it has written."""

    application: str
    jobs: tuple[int, ...]  # of the batch
    files: int | None  # None: it does not say


@dataclass(frozen=True)
class Table:
    """A writer that stages attempts; Tables shows those that are committed."""

    folder: Path

    def __str__(self) -> str:
        return f"table({str(self.folder)!r})"

    def __call__(self, result: DataFrame, batch: BatchInfo) -> None:
        """Write an attempt to where no reader looks."""
        assert batch.txid is not None, "bolts outside of a program of batches refuse tables"
        where = staging(self.folder, batch.txid, batch.attempt, batch.run)
        began = time.monotonic()
        saved = self.save(result, where)
        files = sorted(where.glob("*.parquet"))
        if len(files) < (saved.files or 1):  # Spark makes one of no rows, too
            raise WriteFailed(
                f"{self}: Spark has written {saved.files or 'the'} files of batch {batch.txid}, "
                f"and {len(files)} of them are here: its executors must write to the same folder, "
                "on a file system that all share"
            )
        stage(
            where,
            Written(
                batch.txid,
                batch.attempt,
                sum(parquet.read_metadata(file).num_rows for file in files),
                len(files),
                sum(file.stat().st_size for file in files),
                round(time.monotonic() - began, 3),
                saved.application,
                saved.jobs,
            ),
        )

    def save(self, result: DataFrame, where: Path) -> Staged:
        """Its rows as Parquet files in a new folder."""
        if taken := [name for name in result.columns if name.casefold() == "txid"]:
            raise ResultMismatch(
                f"{self}: there is a column {taken[0]!r}, and txid is the batch's number in this "
                "table: rename it"
            )
        context = result.sparkSession.sparkContext
        before = _jobs(context)
        result.write.options(**_NO_MARK).parquet(f"file:{where}")
        jobs = _jobs(context)
        files = files_written(result.sparkSession, jobs - before)
        return Staged(str(context.applicationId), tuple(sorted(jobs)), files)


def _jobs(context: Any) -> set[int]:
    """Those of the batch, up to now."""
    group = context.getLocalProperty("spark.jobGroup.id")
    return set(context.statusTracker().getJobIdsForGroup(group)) if group else set()


class Tables:
    """The tables of an operator, in its task."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        self.tables = [one for one in writers if isinstance(one, Table)]
        self._counted: CountedIn | None = None
        self._folders: list[TableFolder] = []

    def open(self, topology: str, counted: CountedIn | None) -> None:
        """Show what was committed while nobody was here. Raises as TableFolder."""
        if not self.tables:
            return
        assert counted is not None, "a table is part of a program of batches"
        self._counted, about = counted, (topology, counted.incarnation(), counted.current())
        self._folders = [TableFolder(one.folder, *about) for one in self.tables]

    def publish(self, txid: int) -> None:
        """The batches up to this one are committed. Raises as TableFolder.publish."""
        for folder in self._folders:
            folder.publish(txid)

    def close(self) -> None:
        """The topology stops: nobody may be left to tell of the last batch."""
        if self._counted is not None:
            with suppress(Unavailable):  # then the next start shows it
                self.publish(self._counted.current() - 1)
