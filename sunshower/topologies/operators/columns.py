"""Operators on Arrow tables, computed by kernels, with tables as output.

A stage gets the tables that its sender has sent, and its operators pass tables on. An operator that
does not take tables gets their rows. Where a kernel would compute something else than Python does,
or cannot, the rows are combined one by one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sunshower.errors import BadEmit, RecordMismatch, TopologyError
from sunshower.records import Schema, is_table
from sunshower.topologies.operators.aggregating import Combine
from sunshower.topologies.operators.aggregators import (
    CombinerAggregator,
    average,
    count,
    max_,
    min_,
    sum_,
)
from sunshower.topologies.operators.port import Emit, Operator, Rows
from sunshower.topologies.operators.steps import EachTable, Project
from sunshower.topologies.operators.values import pieces, total

if TYPE_CHECKING:
    import pyarrow as pa

# Of these classes themselves: one that inherits from them may combine in another way.
_KERNELS: dict[type[Any], tuple[str, ...]] = {
    count: ("count_all",),
    sum_: ("sum",),
    min_: ("min",),
    max_: ("max",),
    average: ("sum", "count"),
}
_ADDEND = "addend-"  # begins the names of the fields of a struct whose sum is the value
_INT64_MAX = (1 << 63) - 1
_NO_MATCH = re.compile(r"No match for FieldRef\.(?:Nested\(FieldRef\.)?(?:Name\((.*?)\) |(\S+))")


class ArrowExpression(Protocol):
    """pyarrow.compute.Expression for type checkers: pyarrow has no types, so its name means Any."""

    def is_valid(self) -> ArrowExpression: ...
    def isin(self, values: Any) -> ArrowExpression: ...


class EachColumns(EachTable):
    """Calls a batch function with a table, and emits the table that it returns."""

    takes_tables = makes_tables = True

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        if (table := self.table_of(rows)) is not None:
            emit(table)


class FilterColumns(Operator):
    """Emits the rows of tables for which an Arrow expression is true."""

    takes_tables = makes_tables = by_row = keeps_values = True
    ends_lineage = False

    def __init__(self, schema: Schema, expression: Any) -> None:
        self.schema, self.expression = schema, expression

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        import pyarrow as pa

        table = self.schema.table(rows)
        try:
            emit(table.filter(self.expression))
        except (pa.ArrowException, NotImplementedError) as error:
            kinds = ", ".join(f"{column.name}: {column.type}" for column in table.schema)
            raise BadEmit(
                f"filter({self.expression}) cannot be computed on columns of these types ({kinds}):"
                f" {error}"
            ) from error


class ProjectColumns(Operator):
    """Emits some columns of tables."""

    takes_tables = makes_tables = by_row = keeps_values = True
    ends_lineage = False

    def __init__(self, schema: Schema, fields: Sequence[str]) -> None:
        self.schema, self.fields = schema, list(fields)

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        emit(self.schema.table(rows).select(self.fields))


class CombineColumns(Combine):
    """Combines the rows of a table with kernels. The table that it emits has a row for each group:
    the fields of the group and `value-0`, a struct if there are several parts."""

    takes_tables = True

    def __init__(
        self,
        schema: Schema,
        by: Sequence[str],
        aggregator: CombinerAggregator[Any, Any],
        parts: Any,
    ) -> None:
        super().__init__(schema, by, [aggregator])
        self._parts: Sequence[CombinerAggregator[Any, Any]] = parts  # that `aggregator` consists of

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        if not is_table(rows):
            super().process(batch, source, rows, emit)
        elif (table := self._by_kernels(rows)) is not None:
            emit(table)
        else:
            super().process(batch, source, self.schema.rows_of_table(rows), emit)

    def _by_kernels(self, table: Any) -> pa.Table | None:
        """The groups of a table; None if kernels do not compute what Python does."""
        import pyarrow as pa

        if not all(type(part) in _KERNELS for part in self._parts):
            return None
        # `group_by` names its results after its columns, so they have names of their own here.
        columns = {"rows": table.column(0)}  # says how many rows there are, if no other does
        keys = [f"key-{number}" for number in range(len(self.by))]
        wanted: list[Any] = []
        shapes: list[list[int]] = []  # of each part: how many columns make each of its values
        try:
            for part in self._parts:
                shapes.append([])
                for kernel in _kernels(part):
                    if kernel == "count_all":
                        wanted.append(([], kernel))
                        shapes[-1].append(1)
                        continue
                    column = table[part.field]  # type: ignore[attr-defined]
                    if (addends := _exact(column, kernel)) is None:
                        return None
                    for addend in addends:
                        columns[name := f"value-{len(columns)}"] = addend
                        wanted.append((name, kernel))
                    shapes[-1].append(len(addends))
            for key, field in zip(keys, self.by, strict=True):
                columns[key] = _decoded(table[field])
            totals = pa.table(columns).group_by(keys, use_threads=False).aggregate(wanted)
        except pa.ArrowNotImplementedError:  # keys of a type that Arrow cannot group by
            return None
        results = iter(totals.columns[len(keys) :])
        values = [
            _packed([_packed([next(results) for _ in range(width)], _ADDEND) for width in shape])
            for shape in shapes
        ]
        groups = totals.columns[: len(keys)]
        return pa.table([*groups, _packed(values)], names=[*self.by, "value-0"])


def partial_rows(rows: Rows) -> Rows:
    """The rows of a table that CombineColumns has made; others as they are."""
    table: Any = rows
    return list(zip(*map(_values, table.columns), strict=True)) if is_table(rows) else rows


def check_expression(stream: Any, expression: Any, where: str) -> None:
    """Raise TopologyError for a stream of rows, UnknownField for a column that it does not have."""
    import pyarrow as pa

    schema: Schema = stream.schema
    if not stream.has_columns:
        raise TopologyError(
            f"{where}: an Arrow expression filters columns, but the records of this stream are "
            "rows; give a function of a record, or put a @batch function or tables() before it"
        )
    if not is_expression(expression):
        raise RecordMismatch(f"{where}: {expression!r:.200} is no Arrow expression")
    try:  # the types of the columns are not known, so that an error of types says nothing
        pa.table([pa.nulls(0)] * len(schema.fields), names=schema.fields).filter(expression)
    except pa.ArrowInvalid as error:
        # For a field of a struct, what is missing is the field of a column whose type is not known.
        if match := _NO_MATCH.search(str(error)):
            schema.check_field(match[match.lastindex or 0], where)
    except pa.ArrowException:
        pass


def is_expression(code: Any) -> bool:
    """Whether this is an expression of `pyarrow.compute`."""
    module = sys.modules.get("pyarrow.compute")  # without it there are no expressions
    return module is not None and isinstance(code, module.Expression)


def projection(stream: Any, fields: Sequence[str]) -> Operator:
    """What selects some fields of a stream."""
    return (ProjectColumns if stream.has_columns else Project)(stream.schema, fields)


def _kernels(part: Any) -> tuple[str, ...]:
    """The kernels whose results are the value of an aggregator."""
    return ("count",) if type(part) is count and part.field is not None else _KERNELS[type(part)]


def _exact(column: Any, kernel: str) -> Sequence[Any] | None:
    """The columns of which a kernel computes what Python does of the values of a column: the
    column itself, or of floats those that have its sum. None if there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kernel == "count":
        return [column]
    if pa.types.is_float32(column.type) or pa.types.is_float64(column.type):
        if kernel == "sum":
            return pieces(column)
        if pc.any(pc.is_nan(column)).as_py():
            return None
        return [pc.add(column, pa.scalar(0.0, column.type))]  # -0.0 is 0.0
    if not pa.types.is_integer(column.type):
        return None
    if kernel != "sum":
        return [column]
    ends = pc.min_max(column).as_py().values()
    greatest = max((abs(end) for end in ends if end is not None), default=0)
    return [column] if greatest * len(column) <= _INT64_MAX else None


def _decoded(column: Any) -> Any:
    """A column without a dictionary, which may be another one in each chunk."""
    import pyarrow as pa

    is_encoded = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_encoded else column


def _packed(columns: Sequence[Any], name: str = "") -> Any:
    """Several columns as one."""
    import pyarrow as pa

    if len(columns) == 1:
        return columns[0]
    arrays = [column.combine_chunks() for column in columns]
    names = [f"{name}{number}" for number in range(len(arrays))]
    return pa.chunked_array([pa.StructArray.from_arrays(arrays, names)])


def _values(column: Any) -> Sequence[Any]:
    """The values of a column; structs are lists, or sums of their fields."""
    import pyarrow as pa

    if not pa.types.is_struct(column.type):
        values: Sequence[Any] = column.to_pylist()
        return values
    rows = zip(*map(_values, column.flatten()), strict=True)
    if column.type.field(0).name.startswith(_ADDEND):
        return [total(row, "") for row in rows]
    return [*map(list, rows)]
