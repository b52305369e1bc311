"""Delta Lake tables of committed batches: `spark(…).write(delta("s3a://bucket/totals"))`.

    PATH/_delta_log/…, PATH/part-….parquet            the table, as Delta Lake keeps it
    PATH/_sunshower/…                                 see `lake_table.py`

A batch is one commit of Delta's, with the txid as its `txnVersion`: Delta ignores a second one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from sunshower.arguments import checked
from sunshower.errors import ConfigError
from sunshower.spark_integration.tables.hadoop_folder import HadoopFolder
from sunshower.spark_integration.tables.lake_table import (
    PATTERN,
    LakeTable,
    quoted,
    settings_of,
)
from sunshower.spark_integration.tables.put_if_absent import REFUSED, put_if_absent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TXN = "spark.databricks.delta.write"
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
