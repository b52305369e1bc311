"""A state that Spark keeps from batch to batch: `spark(…, state=spark_state("totals", Total))`.

Each attempt of batch 7 begins with the version that batch 6 has left; the versions are a
`TableFolder`, and docs/SPARK.md says why that is exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from sunshower.arguments import checked
from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import ConfigError, ResultMismatch
from sunshower.spark_integration.job import arrow_schema, spark_schema
from sunshower.spark_integration.sessions.spark_port import BatchInfo
from sunshower.spark_integration.tables.tables import Table, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
