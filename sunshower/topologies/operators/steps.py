"""Operators that process rows as they arrive: each, map, filter, peek, project, and by columns.

Storm: org.apache.storm.trident.planner.processor.EachProcessor, MapProcessor, ProjectedProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from pathlib import PurePath
from types import CodeType
from typing import TYPE_CHECKING, Any, Self

from sunshower.errors import BadEmit
from sunshower.records import Schema, prepare_tables
from sunshower.texts import describe
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.components import Context, OnStream
from sunshower.topologies.graph import own_copy
from sunshower.topologies.operators.port import Emit, Operator, Rows

if TYPE_CHECKING:
    from sunshower.topologies.async_calls import AsyncCalls, Limited


class FunctionOperator(Operator):
    """A step that calls a function, and its `prepare` and `cleanup` if it has them. A callable
    object that is declared in several places has a copy in each."""

    by_row = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = own_copy(function, "a step of a stream")
        self.limits = limits_of(self.function)  # None: it is no async function
        self.calls: AsyncCalls | None = None  # the event loop of its calls: its own, or given
        self.limited: Limited | None = None
        self._owns_calls = False

    @property
    def concurrency(self) -> int:
        """How many calls of an async function run at a time; 0 for another one."""
        return 0 if self.limits is None else self.limits.concurrency

    @property
    def ordered(self) -> bool:
        """Whether the results of calls keep the order of the inputs."""
        return self.limits is None or self.limits.ordered

    def prepare(self, context: Context) -> None:
        if self.limits is None:
            prepare_code(self.function, context)
            return
        from sunshower.topologies.async_calls import AsyncCalls, Limited

        if self.calls is None:
            self.calls, self._owns_calls = AsyncCalls(context.clock), True
        self.limited = Limited(self.function, self.concurrency, self.limits.timeout_s)
        try:
            self.calls.wait(prepare_code(self.function, context))
        except BaseException:
            self._close()
            raise

    def figures(self) -> Mapping[str, float]:
        """Those of a callable object that has them, as a bolt may."""
        figures = getattr(self.function, "figures", None)
        return figures() if callable(figures) else {}

    def cleanup(self) -> None:
        cleanup = getattr(self.function, "cleanup", None)
        try:
            awaitable = cleanup() if callable(cleanup) else None
            if self.calls is not None:
                self.calls.wait(awaitable)
        finally:
            self._close()

    def _close(self) -> None:
        if self.calls is not None and self._owns_calls:
            self.calls.close()

    def __deepcopy__(self, memo: Any) -> Self:
        copied_step = copy(self)
        copied_step.function = own_copy(self.function, "a step of a stream")
        return copied_step


class RowOperator(Operator):
    """An operator that can process a row by itself."""

    by_row = True
    ends_lineage = False
    makes: Schema | None = None  # what its rows are; None: no user code has made them
    renames = False  # whether its rows are within others, so that they have no fields

    def expand(self, row: Any) -> Iterable[Any]:
        """What it makes of a row."""
        raise NotImplementedError

    def source_of_one(self, row: str, name: Callable[[Any, str], str]) -> str | None:
        """The source of an expression for the one row that it makes of each `row`; None: its method
        is called. `name`: of an object, by which the source has it."""
        return None


class RowFunction(FunctionOperator, RowOperator):
    """Calls a function with each row."""

    def made(self, row: Any, result: Any) -> Iterable[Any]:
        """What it makes of a row for which the function has returned `result`."""
        raise NotImplementedError

    def expand(self, row: Any) -> Iterable[Any]:
        return self.made(row, self.function(row))

    async def expand_async(self, row: Any) -> Iterable[Any]:
        """The same with an async function."""
        assert self.limited is not None, "it is not prepared"
        return self.made(row, await self.limited(row))

    def expand_all(self, rows: Rows) -> list[Any]:
        """What it makes of several rows. Raises the first error of an async function."""
        if self.calls is None:
            return [made_row for row in rows for made_row in self.expand(row)]
        outputs: list[Any] = []
        for several, error in self.calls.run(self.expand_async, rows):
            if error is not None:
                raise error
            outputs += several
        return outputs


class EachRow(RowFunction):
    """Emits what a function yields, or returns in a list, for each row."""

    def __init__(self, function: Callable[..., Any], schema: Schema) -> None:
        super().__init__(function)
        self.schema = self.makes = schema

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        if self.calls is None:
            function = self.function
            # not map(), which hides a StopIteration
            outputs = [output for row in rows for output in function(row) or ()]
        else:
            outputs = self.expand_all(rows)
        check_rows(outputs, self.schema, self.function)
        if outputs:
            emit(outputs)

    def made(self, row: Any, result: Any) -> Iterable[Any]:
        several: Iterable[Any] = result or ()
        return several


class Map(RowFunction):
    """Emits what a function returns for each row."""

    def __init__(self, function: Callable[..., Any], schema: Schema) -> None:
        super().__init__(function)
        self.schema = self.makes = schema

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        outputs = (
            [self.function(row) for row in rows] if self.calls is None else self.expand_all(rows)
        )
        check_rows(outputs, self.schema, self.function)
        emit(outputs)

    def made(self, row: Any, result: Any) -> Iterable[Any]:
        return (result,)


class Filter(RowFunction):
    """Emits the rows for which a function returns a true value."""

    keeps_values = True

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        if self.calls is None:
            passing = [row for row in rows if self.function(row)]
        else:
            passing = self.expand_all(rows)
        if passing:
            emit(passing)

    def made(self, row: Any, result: Any) -> Iterable[Any]:
        return (row,) if result else ()


class Peek(RowFunction):
    """Emits all rows after a function was called with each."""

    keeps_values = True

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        emit(self.expand_all(rows))

    def made(self, row: Any, result: Any) -> Iterable[Any]:
        return (row,)


class NumberBranch(RowOperator):
    """Emits (number, row), with the number of the first predicate that is true for the row, or of
    the last one plus one."""

    keeps_values = renames = True

    def __init__(self, predicates: Sequence[Callable[..., Any]]) -> None:
        self.filters = [Filter(predicate) for predicate in predicates]

    def prepare(self, context: Context) -> None:
        with ExitStack() as prepared:
            for test in self.filters:
                test.prepare(context)
                prepared.callback(test.cleanup)
            self._prepared = prepared.pop_all()

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        emit([pair for row in rows for pair in self.expand(row)])

    def expand(self, row: Any) -> Iterable[Any]:
        for number, test in enumerate(self.filters):
            if test.function(row):
                return ((number, row),)
        return ((len(self.filters), row),)

    def cleanup(self) -> None:
        self._prepared.close()


class TakeBranch(RowOperator):
    """Emits the rows of (number, row) that have one number."""

    keeps_values = True

    def __init__(self, number: int) -> None:
        self.number = number

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        if passing := [row for number, row in rows if number == self.number]:
            emit(passing)

    def expand(self, row: Any) -> Iterable[Any]:
        return (row[1],) if row[0] == self.number else ()


class Project(RowOperator):
    """Emits some fields of each row, as plain tuples."""

    keeps_values = True

    def __init__(self, schema: Schema, fields: Sequence[str]) -> None:
        self.schema, self.fields = schema, tuple(fields)

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        emit(list(keys_of(self.schema, self.fields, rows)))

    def expand(self, row: Any) -> Iterable[Any]:
        return keys_of(self.schema, self.fields, [row])


class EachTable(FunctionOperator):
    """Calls a batch function with rows as an Arrow table; it returns a table, Derived, or None."""

    ends_lineage = False

    def __init__(self, function: Callable[..., Any], reads: Schema, schema: Schema) -> None:
        super().__init__(function)
        self.reads, self.schema = reads, schema

    def prepare(self, context: Context) -> None:
        prepare_tables()
        super().prepare(context)

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        if (table := self.table_of(rows)) is not None:
            emit(self.schema.rows_of_table(table))

    def table_of(self, rows: Rows) -> Any:
        """The table that the function makes; None if it has no rows."""
        import pyarrow as pa

        result = self.function(self.reads.table(rows))
        # The other field of Derived, the origin of its rows, matters only to tuple trees.
        table = getattr(result, "rows", result)
        if table is None:
            return None
        if not isinstance(table, pa.Table) or tuple(table.column_names) != self.schema.fields:
            what = table.column_names if isinstance(table, pa.Table) else type(table).__name__
            raise BadEmit(
                f"a batch function returns a table with the columns {list(self.schema.fields)}, "
                f"or Derived with one, or None; this one returned {what}"
            )
        return table if len(table) else None


def prepare_code(code: Any, context: Context) -> Any:
    """Call the `prepare` of user code that has one, and return its result. Storm:
    Operation.prepare."""
    return prepare(context) if callable(prepare := getattr(code, "prepare", None)) else None


def check_rows(rows: Sequence[Any], schema: Schema, code: Any) -> None:
    """Raise BadEmit for a row that is not a record of `schema`."""
    wrong = schema.misfit(rows)
    if wrong is None:
        return
    row, name = rows[wrong], getattr(code, "__name__", type(code).__name__)
    if isinstance(row, OnStream):
        raise BadEmit(f"{name} made {row!r}; a stream of batches has no other streams beside it")
    if row is None:
        raise BadEmit(
            f"{name} ({line_of(code)}) returned None; its stream carries {schema.name}. Is there a "
            "`return` missing? To leave records out, use .filter or .flat_map"
        )
    if why := schema.loss(row):
        raise BadEmit(f"{name} made {describe(row, 200)}: {why}")
    raise BadEmit(f"{name} made {row!r}; its stream carries {schema.name}: {schema.remedy(row)}")


def line_of(function: Any) -> str:
    """The file and the line of a function, such as "shop.py:3"; empty if it has none."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    return f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"


def keys_of(schema: Schema, fields: Sequence[str], rows: Iterable[Any]) -> Iterable[Any]:
    """The values of `fields` of each row, always as a tuple."""
    get = schema.key(fields)
    return zip(map(get, rows)) if len(fields) == 1 else map(get, rows)
