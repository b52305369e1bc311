"""Apache Iceberg tables of committed batches: `spark(…).write(iceberg("lake.shop.totals"))`.

    TABLE/metadata/…, TABLE/data/…                    the table, as Iceberg keeps it
    TABLE/_sunshower/…                                see `lake_table.py`

A batch becomes a snapshot of which readers do not know (`spark.wap.id`), appended or merged by
Spark. Then one commit makes it the current one and notes the txid in the table's properties:

    current: s7, noted: 7 ──Spark──▶ s8 after s7 ──commit, if still so──▶ current: s8, noted: 8

An Iceberg commit replaces the version of the table that it was made from, or fails. So a driver
that was stopped, however long, commits nothing that its successor has committed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sunshower.arguments import checked
from sunshower.errors import (
    ConfigError,
    SparkMissing,
    SparkUnavailable,
    WriteFailed,
)
from sunshower.spark_integration.tables.lake_table import (
    PATTERN,
    LakeTable,
    quoted,
    settings_of,
    table_lock,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
        found = str(self._table(session).location())
        if PATTERN.search(found):
            raise WriteFailed(f"{self} is in {found}: Spark takes * ? {{ }} [ ] for a pattern")
        return found

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
        ours = next((one for one in newest_first if one.summary().get(_STAGED) == staged), None)
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
