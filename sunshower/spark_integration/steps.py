"""What a user writes: `spark(transform, out=Record)`, what it joins with, and where it writes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sunshower.errors import TopologyError, Unserialisable
from sunshower.spark_integration.local import LocalSpark
from sunshower.spark_integration.normal import normalise
from sunshower.spark_integration.operator import SparkOperator
from sunshower.spark_integration.port import (
    BatchInfo,
    Place,
    Reads,
    Static,
    Step,
    Transform,
    Writer,
)
from sunshower.spark_integration.query import INPUT, Query, check_names
from sunshower.spark_integration.schema import Columns
from sunshower.spark_integration.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sunshower.trident.streams import BatchStream

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # hdfs://…, s3a://…, file:/…


@dataclass(frozen=True)
class Spark:
    """A transform as a value: where it runs, what it gives, and what is done with that.

    `transform(df, batch)` is handed a DataFrame for each input, and BatchInfo last; it returns a
    DataFrame. Its rows come back as records of `out`, or go where `.write(…)` says, or both.
    """

    step: Step
    where: Place = field(default_factory=LocalSpark)

    @property
    def out(self) -> Any:
        """The record type of what comes back; None: nothing does."""
        return self.step.out

    def write(self, writer: Writer) -> Spark:
        """Also call `writer(result, batch)`: `table(…)`, `parquet(…)`, `saved_as(…)`, any function.

        `table` is in `tables.py`.
        """
        return replace(self, step=replace(self.step, writers=(*self.step.writers, writer)))

    def __call__(self, stream: BatchStream[Any], *others: BatchStream[Any]) -> BatchStream[Any]:
        """What `stream.apply(spark(…))` comes to: each batch whole, in one task, one job.

        The rows of `others`, of the same group of batches, are further inputs. Raises TopologyError
        and RecordMismatch.
        """
        operator = SparkOperator(self, [one.schema for one in (stream, *others)])
        draft = stream.tip.stage
        for one in Tables(self.step.writers).tables:
            draft.group.program.keep_folder(str(one.folder), draft.where(f"spark({self.step})"))
        whole = stream if others else stream.global_()
        return whole.operate(operator, *others, fields=() if self.out is None else self.out)

    def check_inputs(self, inputs: Sequence[Columns]) -> None:
        """Raise TopologyError if the transform has no place for these inputs and the batch, or no
        names."""
        count = len(inputs)
        if isinstance(self.step.transform, Query):
            check_names(_names(inputs), [*self.step.tables])
        try:
            inspect.signature(self.step.transform).bind_partial(*range(count + 1))
        except TypeError:
            raise TopologyError(
                f"spark({self.step}) is called with a DataFrame for each of its {count} inputs, "
                f"and then the batch, as in `def {self.step}(df, batch)`; it does not take so many"
            ) from None

    def reading(self, *inputs: Columns) -> Spark:
        """The same for inputs like these. Raises TopologyError if it takes others."""
        self.check_inputs(inputs)
        if self.step.reads is not None:
            self.step.reads.check(inputs[0].arrow)
        try:
            inspect.signature(self.step.transform).bind(*inputs, None)
        except TypeError as error:
            raise TopologyError(
                f"spark({self.step}) has {len(inputs)} inputs, and takes others: {error}"
            ) from None
        if not isinstance(self.step.transform, Query):
            return self
        query = replace(self.step.transform, inputs=_names(inputs))
        return replace(self, step=replace(self.step, transform=query))


def _names(inputs: Sequence[Columns]) -> tuple[str, ...]:
    """What a query calls them: by their record types, a single one `batch`."""
    return tuple(one.kind.path for one in inputs) if len(inputs) > 1 else (INPUT,)


def spark(
    transform: Transform,
    *,
    out: Any = None,
    tables: Mapping[str, Static] | None = None,
    where: Place | None = None,
    timeout_s: float = 600.0,
    reads: Reads | None = None,
) -> Spark:
    """A step for Spark. See Spark, and spark_sql for one that is a query.

    `tables` are static ones to join with: `batch.tables["pages"]`. Each is an Arrow table, the path
    of Parquet files, or a function of the session. `where` is
    LocalSpark(…), the default, or RayDPSpark(…). `timeout_s` is for one batch, once it runs.
    `reads`: the rows of the (first) input only say what Spark is to read, as KafkaRows(…) has it.

    Raises RecordMismatch for a field of `out` that Spark cannot have, TopologyError for anything
    else that cannot work.
    """
    if not callable(transform):
        raise TopologyError(f"spark({transform!r}): give a function of (df, batch)")
    if not timeout_s > 0:
        raise TopologyError(f"spark({transform!r}): timeout_s is {timeout_s!r}; it must be above 0")
    static = {name: _checked(one, name) for name, one in (tables or {}).items()}
    step = Step(transform, out, static, timeout_s=timeout_s, reads=reads)
    if out is not None:
        Columns.of(out, f"spark({step}), out")
    return Spark(step, where or LocalSpark())


def spark_sql(query: str, **more: Any) -> Spark:
    """A step that is a query over views: its `tables`, and `batch`; several inputs have the names
    of their record types. Raises as `spark`."""
    found = spark(Query(query), **more)
    check_names((INPUT,), [*found.step.tables])
    return found


def _checked(table: Static, name: str) -> Static:
    """A table to join with, as it is to travel. Raises TopologyError for what Spark cannot have."""
    if isinstance(table, (str, PurePath)):
        return _located(table)
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


def _located(path: str | PurePath) -> str:
    """Where it is from here: workers, and Spark's Java, have working directories of their own."""
    found = str(path)
    return found if _SCHEME.match(found) else str(Path(found).absolute())


def parquet(folder: str | PurePath) -> Writer:
    """Each batch as Parquet files in `folder`/batch=`id`; the same id again replaces its files."""
    return Saved("parquet", {}, _located(folder))


def saved_as(format: str, **options: str) -> Writer:  # noqa: A002
    """Each batch appended as Spark's `format`: "jdbc", "kafka", …, with its options."""
    return Saved(format, options)


@dataclass(frozen=True)
class Saved:
    """A writer by one of Spark's formats."""

    format: str
    options: Mapping[str, str]
    folder: str | None = None

    def __str__(self) -> str:
        if self.folder is None:
            return f"saved_as({self.format!r}, …)"
        return f"{self.format}({self.folder!r})"

    def __call__(self, result: DataFrame, batch: BatchInfo) -> None:
        """Write a batch."""
        writer = result.write.format(self.format).options(**self.options)
        if self.folder is None:
            writer.mode("append").save()
        else:
            writer.mode("overwrite").save(f"{self.folder}/batch={batch.id}")
