"""Delta Lake tables of committed batches: `spark(…).write(delta("s3a://bucket/totals"))`.

    PATH/_delta_log/…, PATH/part-….parquet            the table, as Delta Lake keeps it
    PATH/_sunshower/…                                 see `lake_table.py`

A batch is one commit of Delta's, with the txid as its `txnVersion`: Delta ignores a second one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from sunshower.arguments import checked
from sunshower.errors import ConfigError, ResultMismatch
from sunshower.spark_integration.tables.lake_table import (
    PATTERN,
    REFUSED,
    HadoopFolder,
    LakeTable,
    put_if_absent,
    quoted,
    settings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

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
    found = str(path)
    if PATTERN.search(found):
        raise ConfigError(f"delta({found!r}): Spark takes * ? {{ }} [ ] in a path for a pattern")
    if not _SCHEME.match(found):
        found = f"file:{Path(found).absolute()}"  # workers have another working directory
    return Delta(found.rstrip("/"), keys)


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
