"""The common part of the writers of Delta Lake and Iceberg: stages attempts, publishes commits.

    TABLE/_sunshower/TOPOLOGY/batches/6fe1…            who numbers the batches
                             /staged/8/2.0-4f1c…/…     attempt 2 of batch 8, complete
                             /published/7              batch 7 and all before it are in the table

A batch is one commit of the table, which carries the txid: a second one changes nothing. The
committed attempt is the highest staged one, as in `tables.py`. All names are created and
listed, none is renamed, so any file system that Spark knows will do.
"""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from sunshower.arguments import NAME, Each, checked
from sunshower.errors import (
    ConfigError,
    ResultMismatch,
    SparkMissing,
    SparkUnavailable,
    WriteFailed,
)
from sunshower.spark_integration.job import error_text
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Publication
from sunshower.spark_integration.tables.tables import (
    NO_MARK,
    attempt_and_run,
    check_complete,
    staged_by,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

PATTERN = re.compile(r"[*?{}\[\]]")  # in a path Spark takes it for one of several files
_PRIVATE, _COMPLETE = "_sunshower", "_complete"


_NAMES = Each(NAME, "a tuple of different columns")


# ---- hadoop folder -------------------------------------------------------------------------------


class HadoopFolder:
    """A folder, which need not exist. Names are relative to it. Raises what Java raises, and
    SparkMissing for an address on S3 without the jars for it."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.path = path
        self._of = session._jvm.org.apache.hadoop.fs.Path
        settings = session.sparkContext._jsc.hadoopConfiguration()
        try:
            self._files = self._of(path).getFileSystem(settings)
        except Exception as error:
            if "S3AFileSystem not found" not in error_text(error):
                raise
            raise SparkMissing(
                f"{path}: Spark has no way to S3: give its place jars=(…, *spark_s3()), from "
                "sunshower.dev"
            ) from error

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""
        path = self._of(f"{self.path}/{folder}" if folder else self.path)
        if not self._files.exists(path):
            return []
        return sorted(str(entry.getPath().getName()) for entry in self._files.listStatus(path))

    def create(self, name: str) -> None:
        """Create an empty file, in place of one of that name."""
        self._files.create(self._of(f"{self.path}/{name}"), True).close()

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it, if it exists."""
        self._files.delete(self._of(f"{self.path}/{name}"), True)


# ---- lake table ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LakeTable(ABC):
    """A writer that stages attempts as Parquet files; `publish` adds the committed ones to the
    table. `place` is the table's path or name; `keys` are the columns of a MERGE."""

    place: str
    keys: Sequence[str] = ()

    _kind: ClassVar[str]
    _passing: ClassVar[re.Pattern[str]]  # in the text of exceptions after which a retry helps
    _waits: ClassVar[str] = "another writer came first"

    def __post_init__(self) -> None:
        if not _NAMES.allows(self.keys) or len({*map(str.casefold, self.keys)}) != len(self.keys):
            raise ConfigError(f"{self}, keys={self.keys!r}: give a tuple of different columns")
        object.__setattr__(self, "keys", tuple(self.keys))

    def __str__(self) -> str:
        return f"{self._kind}({self.place!r})"

    @abstractmethod
    def _prepare(self, session: SparkSession) -> None:
        """Before a publication: check the session. Raises SparkMissing, WriteFailed."""

    @abstractmethod
    def _folder(self, session: SparkSession) -> str:
        """The address of the folder of the table."""

    @abstractmethod
    def _schema(self, session: SparkSession) -> StructType | None:
        """The columns of the table; None if it has none yet."""

    @abstractmethod
    def _commit_alone(self, session: SparkSession) -> AbstractContextManager[None]:
        """Keep what drivers commit at the same time from being overwritten."""

    @abstractmethod
    def _commit(
        self, session: SparkSession, rows: DataFrame, app: str, about: Mapping[str, Any]
    ) -> None:
        """Add the rows of batch `about["txid"]` as one commit, unless this or a later batch of
        `app` is in the table."""

    def _check_extension(self, session: SparkSession, name: str, *, product: str) -> None:
        """Raise SparkMissing for a session without an extension, which a jar brings."""
        if name not in str(session.conf.get("spark.sql.extensions", "")):
            raise SparkMissing(
                f"{self}: Spark has no {product}: give its place jars=spark_{self._kind}(), from "
                "sunshower.dev"
            )

    def check_settings(self, settings: Mapping[str, str]) -> None:  # noqa: B027
        """Check the declaration, with the settings of its sessions. Raises ConfigError."""

    def _check_new(  # noqa: B027
        self, session: SparkSession, result: StructType
    ) -> None:
        """Raise ResultMismatch for columns that a new table cannot have. It would be refused only
        when it is created, after the batch was committed."""

    def _kept(self, session: SparkSession, schema: StructType) -> StructType:
        """The columns as the table would keep them."""
        return schema

    def __call__(self, result: DataFrame, batch: BatchInfo) -> None:
        """Stage an attempt. Raises ResultMismatch, SparkUnavailable, WriteFailed."""
        assert batch.txid is not None, "bolts outside of a program of batches refuse tables"
        session = result.sparkSession
        with self._convert_errors(batch.txid):
            self._check_columns(session, result.schema)
            folder = self._private(session, batch)
        staged = f"staged/{batch.txid}/{batch.attempt}.{batch.run}-{uuid.uuid4().hex[:8]}"
        where = f"{folder.path}/{staged}"
        saved = staged_by(result, lambda rows: rows.write.options(**NO_MARK).parquet(where))
        files = [name for name in folder.names(staged) if name.endswith(".parquet")]
        check_complete(str(self), batch.txid, len(files), saved.files)
        self._check_keys(session.read.parquet(where), batch)
        folder.create(f"{staged}/{_COMPLETE}")

    def publish(self, session: SparkSession, batch: BatchInfo) -> None:
        """Add the committed batches to the table, in order, each once. Raises SparkMissing without
        the jars, SparkUnavailable if another writer of the table came first, WriteFailed."""
        assert batch.publish is not None
        last = batch.publish.current - 1
        with self._convert_errors(last):
            self._prepare(session)
            folder = self._private(session, batch)
            published = self._claim(folder, batch.topology, batch.publish)
            if published < last:
                with self._commit_alone(session):
                    for txid in range(published + 1, last + 1):
                        self._publish_one(session, folder, txid, batch)
                        folder.create(f"published/{txid}")
        for name in folder.names("published"):
            if int(name) < last:
                folder.remove(f"published/{name}")
        for name in folder.names("staged"):
            if int(name) <= last:  # also late files of a task that was thought dead
                folder.remove(f"staged/{name}")

    def _private(self, session: SparkSession, batch: BatchInfo) -> HadoopFolder:
        topology = quote(batch.topology, safe="")
        return HadoopFolder(session, f"{self._folder(session)}/{_PRIVATE}/{topology}")

    def _claim(self, folder: HadoopFolder, topology: str, publish: Publication) -> int:
        """Check the owner, or become it. Returns the last published batch."""
        owners, ours = folder.names("batches"), quote(publish.batches, safe="")
        if not owners:
            folder.create(f"published/{publish.current - 1}")
            folder.create(f"batches/{ours}")
        elif owners != [ours]:
            raise WriteFailed(
                f"{self}: topology {topology} has written this table with batches {owners[0]}, and "
                f"these are {ours}: give the spout its former id and store, write another table, "
                f"or, if no row comes again, remove {folder.path}"
            )
        published = max(map(int, folder.names("published")))
        if published >= publish.current:
            raise WriteFailed(
                f"{self} has batch {published}, and by the store of the batches {publish.current} "
                "is still to be committed: an older copy of the store? Give the right one back, or "
                "write another table"
            )
        return published

    def _publish_one(
        self, session: SparkSession, folder: HadoopFolder, txid: int, batch: BatchInfo
    ) -> None:
        """Commit a batch to the table, unless it is there."""
        staged = f"staged/{txid}"
        complete = [
            name for name in folder.names(staged) if _COMPLETE in folder.names(f"{staged}/{name}")
        ]
        if not complete:
            raise WriteFailed(
                f"{self}: batch {txid} is committed, and not here: the program has run without "
                f"this table, or files below {folder.path} were removed. Write another table; or "
                "remove that folder, to go on with the next batch"
            )
        chosen = max(complete, key=attempt_and_run)
        rows = session.read.parquet(f"{folder.path}/{staged}/{chosen}")
        if self._schema(session) is not None and rows.isEmpty():
            return
        app = f"{batch.topology}/{batch.publish.batches if batch.publish else ''}"
        attempt = attempt_and_run(chosen)[0]
        self._commit(
            session, rows, app, {"topology": batch.topology, "txid": txid, "attempt": attempt}
        )

    def _merge(self, session: SparkSession, rows: DataFrame, target: str) -> None:
        view = f"sunshower_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(view)
        same = " and ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in self.keys)
        try:
            session.sql(
                f"merge into {target} t using {view} s on {same} "
                "when matched then update set * when not matched then insert *"
            )
        finally:
            session.catalog.dropTempView(view)

    def _check_columns(self, session: SparkSession, result: StructType) -> None:
        """Raise ResultMismatch for a result that cannot be added to the table later."""
        ours = {column.name.casefold(): column for column in self._kept(session, result)}
        if missing := [key for key in self.keys if key.casefold() not in ours]:
            raise ResultMismatch(
                f"{self}: {missing[0]!r} is one of the keys and not a column of the result; its "
                f"columns are: {', '.join(result.names)}"
            )
        schema = self._schema(session)
        if schema is None:
            self._check_new(session, result)
            return
        existing = {column.name.casefold(): column for column in schema}
        for name in sorted(existing.keys() ^ ours.keys()):
            where = "of the table and not of the result" if name in existing else "not of the table"
            raise ResultMismatch(f"{self}: the column {name!r} is {where}")
        for name, column in ours.items():
            if column.dataType.simpleString() != existing[name].dataType.simpleString():
                raise ResultMismatch(
                    f"{self}: the column {column.name!r} is {column.dataType.simpleString()}, and "
                    f"in the table {existing[name].dataType.simpleString()}: cast it"
                )

    def _check_keys(self, rows: DataFrame, batch: BatchInfo) -> None:
        """Raise ResultMismatch if two rows of a batch have the same keys."""
        if not self.keys:
            return
        twice = rows.groupBy(*map(quoted, self.keys)).count().where("count > 1").head()
        if twice is not None:
            values = {key: twice[place] for place, key in enumerate(self.keys)}
            raise ResultMismatch(
                f"{self}: {twice['count']} rows of batch {batch.txid} have the keys {values}, and "
                "a MERGE needs one: aggregate them first, or give more key columns"
            )

    @contextmanager
    def _convert_errors(self, txid: int) -> Iterator[None]:
        """Convert errors after which a retry helps to SparkUnavailable."""
        try:
            yield
        except Exception as error:
            if match := self._passing.search(error_text(error)):
                raise SparkUnavailable(
                    f"{self}: batch {txid} waits, {self._waits} ({match[0]})"
                ) from error
            raise


@contextmanager
def settings_of(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session, which one thread uses."""
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name in settings:
            session.conf.unset(name)


def quoted(name: str) -> str:
    """A name, for SQL."""
    return f"`{name.replace('`', '``')}`"


# ---- put if absent -------------------------------------------------------------------------------
# Prevents drivers from overwriting existing entries of a Delta Lake log.
#
# Delta asks whether an entry exists, and then creates it. On S3 and on local disks another driver
# may have created it in between, and that entry would be overwritten.
#
# - S3 refuses that if the request has `If-None-Match: *`. S3A of Hadoop 3.3.4 cannot send that, so
#   a request handler in the driver's S3 client adds the header.
# - On local disks (`file:`) a driver locks a file as long as it commits. The lock belongs to the
#   driver's Java and ends with it. Iceberg's hadoop catalog needs it too.
#
# HDFS refuses to rename to a name that exists, and needs neither.

REFUSED = "Status Code: 412"  # in the text of the exception
_ENTRY = re.compile(r"/_delta_log/\d{20}\.json$")
_PROBE = "_sunshower/_delta_log/00000000000000000000.json"


class _Handler:
    """A `com.amazonaws.handlers.RequestHandler`, which Java calls for each request of a client."""

    class Java:
        implements = ("com.amazonaws.handlers.RequestHandler",)

    def beforeRequest(self, request: Any) -> None:  # noqa: N802
        if _ENTRY.search(str(request.getResourcePath())):
            method = str(request.getHttpMethod())
            in_parts = "uploadId" in request.getParameters()  # then the last request creates it
            if method == ("POST" if in_parts else "PUT"):
                request.addHeader("If-None-Match", "*")

    def afterResponse(self, request: Any, response: Any, timing: Any) -> None:  # noqa: N802
        pass

    def afterError(self, request: Any, error: Any) -> None:  # noqa: N802
        pass


@contextmanager
def put_if_absent(session: SparkSession, path: str) -> Iterator[None]:
    """Commit inside to the table at `path`. Raises SparkUnavailable while another driver of this
    machine commits, WriteFailed if the object store ignores the condition."""
    if path.startswith(("s3:", "s3a:", "s3n:")):
        _check_s3(session, path)
        yield
    elif path.startswith("file:"):
        with table_lock(session, path):
            yield
    else:
        yield


@contextmanager
def table_lock(session: SparkSession, path: str) -> Iterator[None]:
    """Commit inside to the table at `path` on a disk. Raises SparkUnavailable while another driver
    of this machine commits."""
    java = session._jvm
    folder = java.org.apache.hadoop.fs.Path(path).toUri().getPath()
    file = java.java.io.RandomAccessFile(f"{folder}/_sunshower/lock", "rw")
    try:
        try:
            lock = file.getChannel().tryLock()
        except Exception as error:
            if "OverlappingFileLockException" not in error_text(error):
                raise
            lock = None  # another job of this driver has it
        if lock is None:
            raise SparkUnavailable(f"{path}: another driver commits to this table now")
        yield
    finally:
        with suppress(Exception):  # Java may be gone
            file.close()


def _check_s3(session: SparkSession, path: str) -> None:
    """Have S3 refuse to overwrite entries. Raises WriteFailed if it does not."""
    if not _overwrites(session, path):
        return
    _add_handler(session, _client(session, path))
    if _overwrites(session, path):
        raise WriteFailed(
            f"{path}: this object store ignores the condition of a write (If-None-Match: *), so "
            "two drivers could overwrite each other's commits. Use one that knows conditional "
            "writes, as Amazon S3 does"
        )


def _overwrites(session: SparkSession, path: str) -> bool:
    """Whether a second PUT of an entry succeeds, in the way that Delta takes."""
    uri = session._jvm.org.apache.hadoop.fs.Path(f"{path}/{_PROBE}").toUri()
    client = _client(session, path)
    try:
        for _ in range(2):
            client.putObject(uri.getAuthority(), uri.getPath().lstrip("/"), "")
    except Exception as error:
        if REFUSED not in error_text(error):
            raise
        return False
    return True


def _client(session: SparkSession, path: str) -> Any:
    settings = session.sparkContext._jsc.hadoopConfiguration()
    files = session._jvm.org.apache.hadoop.fs.Path(path).getFileSystem(settings)
    return files.getAmazonS3ClientForTesting("sunshower")


def _add_handler(session: SparkSession, client: Any) -> None:
    """Replace the list of handlers, which others may be reading."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(session.sparkContext._gateway)
    java = session._jvm
    loader = client.getClass().getClassLoader()
    base = java.java.lang.Class.forName("com.amazonaws.AmazonWebServiceClient", True, loader)
    field = base.getDeclaredField("requestHandler2s")  # a client of S3A takes no more handlers
    field.setAccessible(True)
    handlers = java.java.util.ArrayList(field.get(client))
    handlers.add(java.com.amazonaws.handlers.RequestHandler2.adapt(_Handler()))
    field.set(client, handlers)


# ---- delta table ---------------------------------------------------------------------------------
# A batch is one commit of Delta's, with the txid as its `txnVersion`: Delta ignores a second one.

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TXN = "spark.databricks.delta.write"
# Names with these need column mapping, a feature of a table.
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
_MAPPING = "spark.databricks.delta.properties.defaults.columnMapping.mode"
_MAPPED = ("name", "id")
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@checked(keys=None)
def delta(path: str | PurePath, *, keys: Sequence[str] = ()) -> Delta:
    """Append each batch to the Delta Lake table at `path` once it is committed, as one commit.

    With `keys` (columns) each row replaces the row with the same values in them, or is inserted: a
    MERGE. A table that does not exist is created. `path` is a folder, or the address of one on an
    object store (`s3a://bucket/totals`). For Trident programs with transactional and opaque spouts;
    Spark needs `jars=spark_delta()`. Raises ConfigError.
    """
    text = str(path)
    if PATTERN.search(text):
        raise ConfigError(f"delta({text!r}): Spark takes * ? {{ }} [ ] in a path for a pattern")
    if not _SCHEME.match(text):
        text = f"file:{Path(text).absolute()}"  # workers have another working directory
    return Delta(text.rstrip("/"), keys)


@dataclass(frozen=True)
class Delta(LakeTable):
    """A writer of a Delta Lake table."""

    _kind: ClassVar[str] = "delta"
    _passing: ClassVar[re.Pattern[str]] = re.compile(
        rf"io\.delta\.exceptions\.(?:Concurrent|MetadataCh|ProtocolCh)\w+|{REFUSED}"
    )

    def _prepare(self, session: SparkSession) -> None:
        self._check_extension(session, "DeltaSparkSessionExtension", product="Delta Lake")

    def _folder(self, session: SparkSession) -> str:
        return self.place

    def _schema(self, session: SparkSession) -> StructType | None:
        """The folder of the log is there before its first entry."""
        log = HadoopFolder(session, self.place).names("_delta_log")
        if not any(name[0].isdigit() for name in log):
            return None
        self._prepare(session)
        return session.read.format("delta").load(self.place).schema

    def check_settings(self, settings: Mapping[str, str]) -> None:
        if settings.get(_MAPPING) not in _MAPPED:
            for key in self.keys:
                if _NOT_IN_NAMES.search(key):
                    raise ConfigError(f"{self}, keys={self.keys!r}: {_name_refusal(key)}")

    def _check_new(self, session: SparkSession, result: StructType) -> None:
        is_mapped = session.conf.get(_MAPPING, None) in _MAPPED
        for name, path, kind in _columns(result, ""):
            if not is_mapped and _NOT_IN_NAMES.search(name):
                raise ResultMismatch(f"{self}: {_name_refusal(path)}")
            if kind.simpleString().startswith("interval"):
                raise ResultMismatch(
                    f"{self}: the column {path!r} is {kind.simpleString()}, which Delta Lake does "
                    "not have: convert it, for example to seconds"
                )

    def _commit_alone(self, session: SparkSession) -> AbstractContextManager[None]:
        return put_if_absent(session, self.place)

    def _commit(
        self, session: SparkSession, rows: DataFrame, app: str, about: Mapping[str, Any]
    ) -> None:
        settings = {
            f"{_TXN}.txnAppId": app,
            f"{_TXN}.txnVersion": str(about["txid"]),
            _METADATA: json.dumps(about),
        }
        with settings_of(session, settings):
            if self.keys and self._schema(session) is not None:
                self._merge(session, rows, f"delta.{quoted(self.place)}")
            else:
                rows.write.format("delta").mode("append").save(self.place)


def _name_refusal(name: str) -> str:
    return (
        f"Delta Lake has no column {name!r}: rename it, without blanks and any of ,;{{}}()= (as in "
        f"df.withColumnRenamed({name!r}, {_NOT_IN_NAMES.sub('_', name)!r})), or let the table have "
        f"column mapping: settings={{{_MAPPING!r}: 'name'}}"
    )


def _columns(kind: DataType, path: str) -> Iterator[tuple[str, str, DataType]]:
    """The name, path and type of each column, and of all fields within."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for field in kind:
            inner = f"{path}.{field.name}".lstrip(".")
            yield field.name, inner, field.dataType
            yield from _columns(field.dataType, inner)
    elif isinstance(kind, MapType):
        for part, name in ((kind.keyType, "key"), (kind.valueType, "value")):
            yield name, f"{path}.{name}", part
            yield from _columns(part, f"{path}.{name}")
    elif isinstance(kind, ArrayType):
        yield "element", f"{path}.element", kind.elementType
        yield from _columns(kind.elementType, f"{path}.element")


# ---- iceberg table -------------------------------------------------------------------------------
# A batch becomes a snapshot of which readers do not know (`spark.wap.id`), appended or merged by
# Spark. Then one commit makes it the current one and notes the txid in the table's properties:
#
#     current: s7, noted: 7 ──Spark──▶ s8 after s7 ──commit, if still so──▶ current: s8, noted: 8
#
# An Iceberg commit replaces the version of the table that it was made from, or fails. So a driver
# that was stopped, however long, commits nothing that its successor has committed.

_STAGING = "write.wap.enabled"  # a property of the table
_STAGED = "wap.id"  # in the summary of a snapshot
_HADOOP = {"hadoop", "org.apache.iceberg.hadoop.HadoopCatalog"}


@checked(keys=None)
def iceberg(table: str, *, keys: Sequence[str] = ()) -> Iceberg:
    """Append each batch to an Iceberg table once it is committed, as one commit.

    `table` is `catalog.namespace.table`; the catalog is one of the session: give its settings
    (`spark.sql.catalog.…`) to the place where Spark runs, and `jars=spark_iceberg()`. With `keys`
    (columns) each row replaces the row with the same values in them, or is inserted: a MERGE. A
    table that does not exist is created. For Trident programs with transactional and opaque spouts.
    Raises ConfigError.
    """
    if len(parts := table.split(".")) < 3 or not all(parts):
        raise ConfigError(
            f"iceberg({table!r}): give catalog.namespace.table, without quotes; a catalog is set "
            "up by settings of the session (spark.sql.catalog.…)"
        )
    return Iceberg(table, keys)


@dataclass(frozen=True)
class Iceberg(LakeTable):
    """A writer of an Iceberg table."""

    _kind: ClassVar[str] = "iceberg"
    _passing: ClassVar[re.Pattern[str]] = re.compile(
        r"org\.apache\.iceberg\.(?:exceptions\.(?:Commit|Service|REST)|jdbc\.UncheckedSQL)[^\n]*"
        r"|Found conflicting files"
    )
    _waits: ClassVar[str] = "another writer came first, or its catalog does not answer"

    @property
    def _name(self) -> str:
        return ".".join(map(quoted, self.place.split(".")))

    def _prepare(self, session: SparkSession) -> None:
        self._check_extension(session, "IcebergSparkSessionExtensions", product="Iceberg")
        self._renames(session)
        namespace = self._name.rpartition(".")[0]
        session.sql(f"create namespace if not exists {namespace}")
        session.sql(f"create table if not exists {self._name} using iceberg")
        if self._table(session).properties().get(_STAGING) != "true":
            session.sql(f"alter table {self._name} set tblproperties ('{_STAGING}' = 'true')")

    def _renames(self, session: SparkSession) -> bool:
        """Whether commits rename files of a local disk. Raises SparkMissing without the catalog,
        WriteFailed for one that renames where a rename may overwrite."""
        prefix = f"spark.sql.catalog.{self.place.partition('.')[0]}"
        if session.conf.get(prefix, None) is None:
            raise SparkMissing(
                f"{self}: the session has no such catalog: give its place settings={{{prefix!r}: "
                "'org.apache.iceberg.spark.SparkCatalog', …}"
            )
        kinds = (session.conf.get(f"{prefix}.{name}", None) for name in ("type", "catalog-impl"))
        if _HADOOP.isdisjoint(kinds):
            return False
        warehouse = session.conf.get(f"{prefix}.warehouse", None) or "."
        files = session._jvm.org.apache.hadoop.fs
        default = files.FileSystem.getDefaultUri(session.sparkContext._jsc.hadoopConfiguration())
        scheme = files.Path(warehouse).toUri().getScheme() or default.getScheme()
        if scheme not in ("file", "hdfs"):
            raise WriteFailed(
                f"{self}: a hadoop catalog commits by renaming, and in {warehouse} a rename may "
                "overwrite the commit of another driver: use a catalog that compares before it "
                "sets, of the type jdbc, rest, glue or hive"
            )
        return bool(scheme == "file")

    def _table(self, session: SparkSession) -> Any:
        """The table as it is now: an `org.apache.iceberg.Table`."""
        session.catalog.refreshTable(self._name)
        spark = session._jvm.org.apache.iceberg.spark
        return spark.Spark3Util.loadIcebergTable(session._jsparkSession, self._name)

    def _folder(self, session: SparkSession) -> str:
        location = str(self._table(session).location())
        if PATTERN.search(location):
            raise WriteFailed(f"{self} is in {location}: Spark takes * ? {{ }} [ ] for a pattern")
        return location

    def _schema(self, session: SparkSession) -> StructType | None:
        session.catalog.refreshTable(self._name)
        return session.table(self._name).schema or None

    def _kept(self, session: SparkSession, schema: StructType) -> StructType:
        """Iceberg has fewer types: a smallint is kept as an int."""
        types = session._jvm.org.apache.iceberg.spark.SparkSchemaUtil
        java = types.convert(types.convert(session._jsparkSession.parseDataType(schema.json())))
        return type(schema).fromJson(json.loads(java.json()))

    def _commit_alone(self, session: SparkSession) -> AbstractContextManager[None]:
        if not self._renames(session):
            return nullcontext()
        return table_lock(session, self._folder(session))

    def _commit(
        self, session: SparkSession, rows: DataFrame, app: str, about: Mapping[str, Any]
    ) -> None:
        iceberg, table = session._jvm.org.apache.iceberg, self._table(session)
        if self._schema(session) is None:
            columns = iceberg.spark.SparkSchemaUtil.convert(rows._jdf.schema())
            table.updateSchema().unionByNameWith(columns).commit()
        noted, txid = f"sunshower.{app}", int(about["txid"])
        versions = table.operations()
        if rows.isEmpty() or int(versions.current().properties().get(noted) or 0) >= txid:
            return
        staged = json.dumps({**about, "id": uuid.uuid4().hex})
        session.catalog.refreshTable(self._name)
        with settings_of(session, {"spark.wap.id": staged}):
            if self.keys:
                self._merge(session, rows, self._name)
            else:
                rows.writeTo(self._name).append()
        base = versions.refresh()
        if int(base.properties().get(noted) or 0) >= txid:
            return
        newest_first = reversed(base.snapshots())
        ours = next(
            (snapshot for snapshot in newest_first if snapshot.summary().get(_STAGED) == staged),
            None,
        )
        if ours is None:
            raise WriteFailed(
                f"{self}: Spark has not staged batch {txid}: is {_STAGING} of the table no longer "
                "true? Then its rows are in the table already, and come again: remove them there"
            )
        before = base.currentSnapshot()
        if ours.parentId() != (None if before is None else before.snapshotId()):
            raise SparkUnavailable(f"{self}: batch {txid} waits, another writer came first")
        new = iceberg.TableMetadata.buildFrom(base).setBranchSnapshot(ours.snapshotId(), "main")
        versions.commit(base, new.setProperties({noted: str(txid)}).build())
