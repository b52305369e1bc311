"""The user API: `spark(transform, out=Record)`, its static tables, and its writers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from types import NoneType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sunshower.arguments import FUNCTION, SECONDS, Instance, checked
from sunshower.arrow.arrow_types import normalise
from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import TopologyError, Unserialisable
from sunshower.records import Schema
from sunshower.spark_integration.operator import SparkOperator
from sunshower.spark_integration.query import INPUT, SqlQuery, check_views
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Reads,
    SparkPlace,
    SparkStep,
    Static,
    StepState,
    Transform,
    Writer,
)
from sunshower.spark_integration.tables.lake_table import LakeTable
from sunshower.spark_integration.tables.tables import tables_in
from sunshower.trident.declaration.streams import BatchStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRANSFORM = Instance((Callable,), "a function of (df, batch)")
_TABLES = Instance((Mapping, NoneType), 'a table for each name, as in {"pages": "pages.parquet"}')
_OPTION = Instance((str, int, float), "a text, a number, True or False")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # hdfs://…, s3a://…, file:/…


@dataclass(frozen=True)
class Spark:
    """A transform, where it runs, its output record type, and its writers. `transform(df, batch)`
    gets one DataFrame per input, then a BatchInfo, and returns a DataFrame. Its rows come back as
    records of `out`, go to the writers of `.write(…)`, or both. With a state it is
    `transform(df, state, batch)`, and returns (result, new state)."""

    step: SparkStep
    where: SparkPlace = field(default_factory=LocalSpark)

    @property
    def out(self) -> Any:
        """The record type of the rows that come back; None if none do."""
        return self.step.out

    @checked(TopologyError, "spark(…).write", writer=FUNCTION)
    def write(self, writer: Writer) -> Spark:
        """Add a writer, called as `writer(result, batch)` for each batch. It may be `table(…)` (in
        `tables.py`), `parquet(…)`, `saved_as(…)`, or any function. Raises ConfigError for keys that
        its table cannot have."""
        if isinstance(writer, LakeTable):
            writer.check_settings(getattr(self.where, "settings", {}))
        return replace(self, step=replace(self.step, writers=(*self.step.writers, writer)))

    def __call__(self, stream: BatchStream[Any], *others: BatchStream[Any]) -> BatchStream[Any]:
        """Implements `stream.apply(spark(…))`: one job per batch, in one task. The streams of
        `others`, from the same batch group, are further inputs. Raises TopologyError and
        RecordMismatch."""
        operator = self.operator([one.schema for one in (stream, *others)])
        stage = stream.stage
        for one in tables_in(self.step):
            stage.group.program.keep_folder(one.place, stage.where(f"spark({self.step})"))
        if (state := self.step.state) is not None:
            stage.group.program.keep_folder(str(state.folder), stage.where(f"spark({self.step})"))
        whole = stream if others else stream.global_()
        return whole.operate(operator, *others, fields=() if self.out is None else self.out)

    @property
    def _more(self) -> tuple[str, ...]:
        """What the transform gets after its inputs."""
        return ("batch",) if self.step.state is None else ("state", "batch")

    def operator(self, inputs: Sequence[Schema]) -> SparkOperator:
        """The operator for batches of these inputs. Raises RecordMismatch and TopologyError."""
        columns = [RecordColumns.of(schema.type, f"spark({self.step})") for schema in inputs]
        return SparkOperator(self.bind(*columns), self.where, columns)

    def check_inputs(self, inputs: Sequence[RecordColumns]) -> None:
        """Raise TopologyError for too many inputs for the transform, or colliding names."""
        count = len(inputs)
        if isinstance(self.step.transform, SqlQuery):
            check_views(_names(inputs), [*self.step.tables])
        try:
            inspect.signature(self.step.transform).bind_partial(*range(count + len(self._more)))
        except TypeError:
            raise TopologyError(
                f"spark({self.step}) is called with a DataFrame for each of its {count} inputs, "
                f"and then {' and '.join(self._more)}, as in "
                f"`def {self.step}({', '.join(('df', *self._more))})`; it does not take so many"
            ) from None

    def bind(self, *inputs: RecordColumns) -> SparkStep:
        """The step, bound to its inputs. Raises TopologyError if the transform does not accept
        them."""
        self.check_inputs(inputs)
        if self.step.reads is not None:
            self.step.reads.check(inputs[0].arrow)
        try:
            inspect.signature(self.step.transform).bind(*inputs, *self._more)
        except TypeError as error:
            raise TopologyError(
                f"spark({self.step}) has {len(inputs)} inputs, and takes others: {error}"
            ) from None
        if not isinstance(self.step.transform, SqlQuery):
            return self.step
        query = replace(self.step.transform, inputs=_names(inputs))
        return replace(self.step, transform=query)


def _names(inputs: Sequence[RecordColumns]) -> tuple[str, ...]:
    """View names of a query's inputs: their record types, or `batch` for a single one."""
    return tuple(one.kind.path for one in inputs) if len(inputs) > 1 else (INPUT,)


@checked(TopologyError, transform=_TRANSFORM, tables=_TABLES, timeout_s=SECONDS, state=None)
def spark(
    transform: Transform,
    *,
    out: Any = None,
    tables: Mapping[str, Static] | None = None,
    where: SparkPlace | None = None,
    timeout_s: float = 600.0,
    reads: Reads | None = None,
    state: StepState | None = None,
) -> Spark:
    """Declare a step for Spark; see Spark, and spark_sql for a query.

    `tables` are static tables to join with (`batch.tables["pages"]`): each is an Arrow table, the
    path of Parquet files, or a function of the session. `where` is LocalSpark(…) (default) or
    RayDPSpark(…). `timeout_s` limits the run time of one batch. With `reads`, as KafkaRows(…), the
    rows of the first input only say what Spark reads. With `state`, as spark_state(…), the
    transform keeps a state from batch to batch.

    Raises RecordMismatch for a field of `out` that Spark cannot represent, TopologyError for any
    other error in the declaration.
    """
    if state is not None and not callable(getattr(state, "before", None)):
        raise TopologyError(f"spark(…, state={state!r}): give spark_state(folder, Record)")
    static = {name: _static_table(one, name) for name, one in (tables or {}).items()}
    step = SparkStep(transform, out, static, timeout_s=timeout_s, reads=reads, state=state)
    if out is not None:
        RecordColumns.of(out, f"spark({step}), out")
    return Spark(step, LocalSpark() if where is None else where)


@checked(TopologyError, more=None)
def spark_sql(query: str, **more: Any) -> Spark:
    """Declare a step that runs an SQL query over the views `batch` and `tables`. Several inputs are
    named after their record types. It has no state. Raises like `spark`."""
    if more.get("state") is not None:
        raise TopologyError("spark_sql: a query has no state; take spark(…, state=…)")
    found = spark(SqlQuery(query), **more)
    check_views((INPUT,), [*found.step.tables])
    return found


def _static_table(table: Static, name: str) -> Static:
    """A static table, normalised. Raises TopologyError for one that Spark cannot represent."""
    if isinstance(table, (str, PurePath)):
        return _absolute(table)
    try:
        if isinstance(table, pa.Table):
            return normalise(table)
    except Unserialisable as error:
        raise TopologyError(f"spark, the table {name!r}: {error}") from error
    if callable(table):
        return table
    raise TopologyError(
        f"spark, the table {name!r} is {type(table).__name__}: give an Arrow table, such as "
        "pa.Table.from_pandas(…), the path of Parquet files, or a function of the session"
    )


def _absolute(path: str | PurePath) -> str:
    """The absolute path: workers and the JVM have other working directories."""
    found = str(path)
    return found if _SCHEME.match(found) else str(Path(found).absolute())


@checked(TopologyError)
def parquet(folder: str | PurePath) -> Writer:
    """Write each batch as Parquet files to `folder`/batch=`id`; the same id replaces its files."""
    return FormatWriter("parquet", {}, _absolute(folder))


@checked(TopologyError, options=_OPTION)
def saved_as(format: str, **options: str) -> Writer:  # noqa: A002
    """Append each batch in Spark's `format` ("jdbc", "kafka", …) with its options."""
    return FormatWriter(format, options)


@dataclass(frozen=True)
class FormatWriter:
    """A writer for one of Spark's formats."""

    format: str
    options: Mapping[str, str]
    folder: str | None = None

    def __str__(self) -> str:
        if self.folder is None:
            return f"saved_as({self.format!r}, …)"
        return f"{self.format}({self.folder!r})"

    def __call__(self, result: DataFrame, batch: BatchInfo) -> None:
        writer = result.write.format(self.format).options(**self.options)
        if self.folder is None:
            writer.mode("append").save()
        else:
            writer.mode("overwrite").save(f"{self.folder}/batch={batch.id}")
