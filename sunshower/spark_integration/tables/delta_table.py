"""Delta Lake tables of committed batches: `spark(…).write(delta("s3a://bucket/totals"))`.

    PATH/_delta_log/…, PATH/part-….parquet            the table, as Delta Lake keeps it
    PATH/_sunshower/TOPOLOGY/batches/6fe1…            who numbers the batches
                            /staged/8/2.0-4f1c…/…     attempt 2 of batch 8, complete
                            /published/7              batch 7 and all before it are in the table

    staged ──batch 8 is committed──▶ appended, or merged ──▶ published/8 ──▶ staged/8 is removed

A batch is one commit of Delta's, with `txnVersion` 8: a second one changes nothing. The committed
attempt is the highest staged one, as in `table_folder.py`. All names are created and listed, none
is renamed, so any file system that Spark knows will do.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sunshower.errors import (
    ConfigError,
    ResultMismatch,
    SparkMissing,
    SparkUnavailable,
    WriteFailed,
)
from sunshower.spark_integration.error_report import error_text
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Publication
from sunshower.spark_integration.tables.hadoop_folder import HadoopFolder
from sunshower.spark_integration.tables.put_if_absent import REFUSED, put_if_absent
from sunshower.spark_integration.tables.table_folder import attempt_and_run
from sunshower.spark_integration.tables.tables import NO_MARK, check_complete, files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PATTERN = re.compile(r"[*?{}\[\]]")
_PRIVATE, _COMPLETE = "_sunshower", "_complete"
_TXN = "spark.databricks.delta.write"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_CONFLICT = re.compile(rf"io\.delta\.exceptions\.(?:Concurrent|MetadataCh|ProtocolCh)\w+|{REFUSED}")


def delta(path: str | PurePath, *, keys: Sequence[str] = ()) -> Delta:
    """Append each batch to the Delta Lake table at `path` once it is committed, as one commit.

    With `keys` (columns) each row replaces the row with the same values in them, or is inserted: a
    MERGE. A table that does not exist is created. `path` is a folder, or the address of one on an
    object store (`s3a://bucket/totals`). For Trident programs with transactional and opaque spouts;
    Spark needs `jars=spark_delta()`. Raises ConfigError.
    """
    found = str(path)
    if _PATTERN.search(found):
        raise ConfigError(f"delta({found!r}): Spark takes * ? {{ }} [ ] in a path for a pattern")
    if isinstance(keys, str) or len({key.casefold() for key in keys}) != len(keys):
        raise ConfigError(f"delta({found!r}, keys={keys!r}): give a tuple of different columns")
    if not _SCHEME.match(found):
        found = f"file:{Path(found).absolute()}"  # workers have another working directory
    return Delta(found.rstrip("/"), tuple(keys))


@dataclass(frozen=True)
class Delta:
    """A writer that stages attempts as Parquet files; `publish` adds the committed ones to the
    table."""

    path: str
    keys: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """What identifies the table."""
        return self.path

    def __str__(self) -> str:
        return f"delta({self.path!r})"

    def __call__(self, result: DataFrame, batch: BatchInfo) -> None:
        """Stage an attempt. Raises ResultMismatch, WriteFailed."""
        assert batch.txid is not None, "bolts outside of a program of batches refuse tables"
        session = result.sparkSession
        self._check_columns(session, result)
        folder = self._folder(session, batch)
        staged = f"staged/{batch.txid}/{batch.attempt}.{batch.run}-{uuid.uuid4().hex[:8]}"
        where = f"{folder.path}/{staged}"
        saved = files_of(session, lambda: result.write.options(**NO_MARK).parquet(where))
        there = [name for name in folder.names(staged) if name.endswith(".parquet")]
        check_complete(str(self), batch.txid, len(there), saved.files)
        self._check_keys(session.read.parquet(where), batch)
        folder.create(f"{staged}/{_COMPLETE}")

    def publish(self, session: SparkSession, batch: BatchInfo) -> None:
        """Add the committed batches to the table, in order, each once. Raises SparkMissing without
        the jars, SparkUnavailable if another writer of the table came first, WriteFailed."""
        assert batch.publish is not None
        _check_jars(session, self)
        folder, last = self._folder(session, batch), batch.publish.current - 1
        published = self._claim(folder, batch.topology, batch.publish)
        if published < last:
            with put_if_absent(session, self.path):
                for txid in range(published + 1, last + 1):
                    self._publish_one(session, folder, txid, batch)
                    folder.create(f"published/{txid}")
        for name in folder.names("published"):
            if int(name) < last:
                folder.remove(f"published/{name}")
        for name in folder.names("staged"):
            if int(name) <= last:  # also late files of a task that was thought dead
                folder.remove(f"staged/{name}")

    def _exists(self, session: SparkSession) -> bool:
        """Whether the log has an entry. Its folder is there before the first one."""
        log = HadoopFolder(session, self.path).names("_delta_log")
        return any(name[0].isdigit() for name in log)

    def _folder(self, session: SparkSession, batch: BatchInfo) -> HadoopFolder:
        return HadoopFolder(session, f"{self.path}/{_PRIVATE}/{quote(batch.topology, safe='')}")

    def _claim(self, folder: HadoopFolder, topology: str, publish: Publication) -> int:
        """Check the owner, or become it. Returns the last published batch."""
        owners, ours = folder.names("batches"), quote(publish.batches, safe="")
        if not owners:
            folder.create(f"published/{publish.current - 1}")
            folder.create(f"batches/{ours}")
        elif owners != [ours]:
            raise WriteFailed(
                f"{self}: topology {topology} has written this table with batches {owners[0]}, and "
                f"these are {ours}: give the spout its former id and store, give the table another "
                f"path, or, if no row comes again, remove {folder.path}"
            )
        published = max(map(int, folder.names("published")))
        if published >= publish.current:
            raise WriteFailed(
                f"{self} has batch {published}, and by the store of the batches {publish.current} "
                "is still to be committed: an older copy of the store? Give the right one back, or "
                "give the table another path"
            )
        return published

    def _publish_one(
        self, session: SparkSession, folder: HadoopFolder, txid: int, batch: BatchInfo
    ) -> None:
        """Commit a batch to Delta's log, unless it is there."""
        staged = f"staged/{txid}"
        complete = [
            name for name in folder.names(staged) if _COMPLETE in folder.names(f"{staged}/{name}")
        ]
        if not complete:
            raise WriteFailed(
                f"{self}: batch {txid} is committed, and not here: the program has run without "
                f"this table, or files below {folder.path} were removed. Give the table another "
                "path; or remove that folder, to go on with the next batch"
            )
        chosen = max(complete, key=attempt_and_run)
        rows = session.read.parquet(f"{folder.path}/{staged}/{chosen}")
        is_new = not self._exists(session)
        if not is_new and rows.isEmpty():
            return
        app = f"{batch.topology}/{batch.publish.batches if batch.publish else ''}"
        about = {"topology": batch.topology, "txid": txid, "attempt": attempt_and_run(chosen)[0]}
        settings = {
            f"{_TXN}.txnAppId": app,
            f"{_TXN}.txnVersion": str(txid),
            _METADATA: json.dumps(about),
        }
        try:
            with _set(session, settings):
                if is_new or not self.keys:
                    rows.write.format("delta").mode("append").save(self.path)
                else:
                    self._merge(session, rows)
        except Exception as error:
            if found := _CONFLICT.search(error_text(error)):
                raise SparkUnavailable(
                    f"{self}: batch {txid} waits, another writer came first ({found[0]})"
                ) from error
            raise

    def _merge(self, session: SparkSession, rows: DataFrame) -> None:
        view = f"sunshower_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(view)
        same = " and ".join(f"t.{_quoted(key)} <=> s.{_quoted(key)}" for key in self.keys)
        try:
            session.sql(
                f"merge into delta.{_quoted(self.path)} t using {view} s on {same} "
                "when matched then update set * when not matched then insert *"
            )
        finally:
            session.catalog.dropTempView(view)

    def _check_columns(self, session: SparkSession, result: DataFrame) -> None:
        """Raise ResultMismatch for a result that cannot be added to the table later."""
        names = [name.casefold() for name in result.columns]
        if missing := [key for key in self.keys if key.casefold() not in names]:
            raise ResultMismatch(
                f"{self}: {missing[0]!r} is one of the keys and no column of the result; its "
                f"columns are: {', '.join(result.columns)}"
            )
        if not self._exists(session):
            return
        _check_jars(session, self)
        there = {one.name.casefold(): one for one in _load(session, self.path).schema}
        ours = {one.name.casefold(): one for one in result.schema}
        for name in sorted(there.keys() ^ ours.keys()):
            where = "of the table and not of the result" if name in there else "not of the table"
            raise ResultMismatch(f"{self}: the column {name!r} is {where}")
        for name, one in ours.items():
            if one.dataType.simpleString() != there[name].dataType.simpleString():
                raise ResultMismatch(
                    f"{self}: the column {one.name!r} is {one.dataType.simpleString()}, and in the "
                    f"table {there[name].dataType.simpleString()}: cast it"
                )

    def _check_keys(self, rows: DataFrame, batch: BatchInfo) -> None:
        """Raise ResultMismatch if two rows of a batch have the same keys."""
        if not self.keys:
            return
        twice = rows.groupBy(*map(_quoted, self.keys)).count().where("count > 1").head()
        if twice is not None:
            found = {key: twice[place] for place, key in enumerate(self.keys)}
            raise ResultMismatch(
                f"{self}: {twice['count']} rows of batch {batch.txid} have the keys {found}: which "
                "of them is to stay? Aggregate them, or give more keys"
            )


def _load(session: SparkSession, path: str) -> DataFrame:
    return session.read.format("delta").load(path)


def _check_jars(session: SparkSession, writer: Any) -> None:
    if "DeltaSparkSessionExtension" not in str(session.conf.get("spark.sql.extensions", "")):
        raise SparkMissing(
            f"{writer}: Spark has no Delta Lake: give its place jars=spark_delta(), from "
            "sunshower.dev"
        )


@contextmanager
def _set(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session, which one thread uses."""
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name in settings:
            session.conf.unset(name)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
