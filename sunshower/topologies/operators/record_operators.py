"""Operators that are declared once for ordinary streams and for streams of batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, overload

from sunshower.arguments import COUNT, FUNCTION, SECONDS, checked
from sunshower.errors import TopologyError, UnknownOperator
from sunshower.records import Schema
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.notebooks import Sample, schema_html
from sunshower.topologies.operators import steps
from sunshower.topologies.operators.columns import (
    ArrowExpression,
    FilterColumns,
    check_expression,
    is_expression,
    projection,
)
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.schemas import (
    check_equal,
    check_fields,
    check_predicate,
    check_reader,
    columns_schema,
    each_schema,
    map_schema,
)
from sunshower.topologies.operators.updates import Lineage, TagUpdates
from sunshower.topologies.outputs import Columns
from sunshower.topologies.previews import preview

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
PAIRS = Schema(("branch", "record"))


IN_ORDER = "before group_by and in_order, or behind what process(…) or match(…) makes of them"
CONNECTED = "before group_by and connect, or behind what process(…) makes of them"


class GroupedStream:
    """A stream with a grouping: it has few of the stream's operators, or only those that follow."""

    # Where an operator of the stream is called instead.
    call_it = "before the grouping, or begin new tasks: .shuffle().stage(id, parallelism).{name}(…)"

    if not TYPE_CHECKING:  # hidden from mypy

        def __getattr__(self, name: str) -> Never:
            """Raise UnknownOperator for an operator of the stream: it says where to call it."""
            stream = self.__dict__.get("stream")
            if name.startswith("_") or not hasattr(type(stream), name):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            if not callable(getattr(type(stream), name)):
                raise UnknownOperator(
                    f"{stream._where('')}: .{name} is an attribute of the stream, and its grouping "
                    f"does not have it: read stream.{name}, in front of the grouping"
                )
            raise UnknownOperator(
                f"{stream._where(name)}: .{name}(…) is called on a stream, not behind its "
                f"grouping. Call it {self.call_it.format(name=name)}"
            )


class RecordOperators(Generic[R_co]):
    """What ordinary streams and streams of batches have in common. The class of each kind declares
    the types of what these methods return."""

    _each_table: type[steps.EachTable] = steps.EachTable  # calls the functions marked with @batch

    @property
    def schema(self) -> Schema:
        """The fields and the type of its records."""
        raise NotImplementedError

    @property
    def lineage(self) -> Lineage | None:
        """If its records follow from running totals: how."""
        raise NotImplementedError

    @property
    def has_columns(self) -> bool:
        """Whether its records travel as Arrow tables."""
        return False

    @checked(TopologyError, "show", count=COUNT, within_s=SECONDS)
    def show(self, count: int = 10, *, within_s: float = 10.0) -> Sample:
        """The first `count` records, at most those that arrive within `within_s` seconds: a table
        in a notebook, and with `print`. Something need not read the stream.

        Only what the stream depends on runs, in this process: its sources are read from their start
        and store no position, and states begin empty, in memory. A spout with `next_tuple` is used
        as in a run. Functions, hand-written bolts and Spark jobs that the stream depends on run
        too, and what they write is not known here. Raises TopologyError for what a sink returns,
        such as that of KafkaMessages, and for a source that cannot be read beside a run, and
        TopologyFailed for the first error of a function.
        """
        return preview(self, count, within_s, self._where("show"))

    @property
    def program(self) -> Any:
        """The topology."""
        raise NotImplementedError

    def leave(self, id: str) -> Any:
        """It as an ordinary stream; `id`: of the bolt that this may need."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The fields, in a notebook."""
        return schema_html(self._where(""), self.schema)

    def flat_map(self, function: Any, *, fields: Columns | None = None) -> Any:
        """What `function` yields, or returns in a list, for each record, as a bolt function does.

        An `async def` function is called for many records at the same time; see `asynchronous`. A
        function marked with `@batch` gets many as an Arrow table, and returns Derived, a table or
        None. `fields` gives the record type or field names, where annotations do not. A callable
        may have `prepare(context)` and `cleanup()`. Storm: each with a Function, flatMap.
        """
        where = self._where("flat_map", function)
        schema = each_schema(function, self.schema, fields, where)

        def operator() -> Operator:
            if getattr(function, "__sunshower_batch__", False):
                return self._each_table(function, self.schema, schema)
            return steps.EachRow(function, schema)

        return self._made("flat_map", operator, schema, function)

    def map(self, function: Any, *, fields: Columns | None = None) -> Any:
        """What `function` returns for each record."""
        schema = map_schema(function, self.schema, fields, self._where("map", function))
        return self._made("map", lambda: steps.Map(function, schema), schema, function)

    def project(self, *fields: str) -> Any:
        """Some fields of each record, as plain tuples."""
        where = self._where("project")
        check_fields(self.schema, fields, where)
        schema = columns_schema(fields, where)
        return self._made("project", lambda: projection(self, fields), schema)

    def merge(self, *others: Any) -> Self:
        """The records of all streams; in batches, batch by batch. Their record types must be
        equal."""
        where, streams = self._where("merge"), [self, *others]
        self._check_streams(streams, where)
        for other in others:
            check_equal(self.schema, other.schema, where)
        if all(stream.lineage is not None for stream in streams):
            streams = [
                stream._with("merge", partial(TagUpdates, number), stream.schema)
                for number, stream in enumerate(streams)
            ]
        return self._merged(streams)

    def filter(self, predicate: Callable[[R_co], bool | Awaitable[bool]] | ArrowExpression) -> Self:
        """The records for which `predicate` is true. On a stream of Arrow tables it may be an
        expression: `filter(pc.field("amount") > 100)`."""
        if is_expression(predicate):
            check_expression(self, predicate, self._where("filter"))
            return self._with("filter", lambda: FilterColumns(self.schema, predicate), self.schema)
        function: Any = predicate
        check_predicate(function, self.schema, self._where("filter", function))
        return self._with("filter", lambda: steps.Filter(function), self.schema, function)

    def peek(self, function: Callable[[R_co], object]) -> Self:
        """All records, after a call of `function` for each. A replay calls it again."""
        check_reader(function, self.schema, self._where("peek", function))
        return self._with("peek", lambda: steps.Peek(function), self.schema, function)

    @overload
    def branch(self, predicate: Callable[[R_co], bool], /) -> tuple[Self, Self]: ...
    @overload
    def branch(
        self, first: Callable[[R_co], bool], second: Callable[[R_co], bool], /
    ) -> tuple[Self, Self, Self]: ...
    @overload
    def branch(self, *predicates: Callable[[R_co], bool]) -> tuple[Self, ...]: ...
    def branch(self, *predicates: Callable[[R_co], bool]) -> tuple[Self, ...]:
        """A stream for each predicate, and a last one for the rest: each record goes to the stream
        of the first predicate that is true for it. Storm: org.apache.storm.streams.Stream.branch,
        which drops the rest."""
        if not predicates:
            raise TopologyError(f"{self._where('branch')} needs a predicate, -> bool")
        for predicate in predicates:
            check_predicate(predicate, self.schema, where := self._where("branch", predicate))
            if limits_of(predicate):
                raise TopologyError(f"{where}: it is asynchronous; put it into a .map before")
        pairs = self._with("branch", lambda: steps.NumberBranch(predicates), PAIRS)
        return tuple(
            pairs._with("branch", partial(steps.TakeBranch, number), self.schema)
            for number in range(len(predicates) + 1)
        )

    if not TYPE_CHECKING:  # hidden from mypy

        def process(self, *_: object, **__: object) -> Never:
            """Raise TopologyError, which asks for a group first."""
            raise TopologyError(
                f"{self._where('process')}: it has a state for each key; say which fields are the "
                'key, as in .group_by("user").process(…)'
            )

    def _with(
        self, word: str, operator: Callable[[], Operator], schema: Schema, code: Any = None
    ) -> Self:
        """What an operator, made once for each stage, passes on of these records."""
        raise NotImplementedError

    def _made(
        self, word: str, operator: Callable[[], Operator], schema: Schema, code: Any = None
    ) -> Any:
        """What an operator, made once for each stage, makes of these records."""
        raise NotImplementedError

    def _check_streams(self, streams: Sequence[Any], where: str) -> None:
        """Raise TopologyError for values that are no streams to merge."""
        raise NotImplementedError

    def _merged(self, streams: Sequence[Self]) -> Self:
        """The records of all these streams."""
        raise NotImplementedError

    def apply(self, assembly: Callable[[Self], T]) -> T:
        """Return `assembly(self)`: for a part of a program that has its own name."""
        FUNCTION.check(self._where("apply"), assembly, TopologyError)
        return assembly(self)

    def _where(self, word: str, code: Any = None) -> str:
        """The place of a declaration, for errors."""
        raise NotImplementedError
