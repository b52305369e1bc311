"""Operators that emit input records unchanged, declared once for every kind of stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, overload

from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.operators import steps
from sunshower.topologies.operators.columns import (
    ArrowExpression,
    FilterColumns,
    check_expression,
    is_expression,
)
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.schemas import check_predicate, check_reader

R_co = TypeVar("R_co", covariant=True)
PAIRS = Schema(("branch", "record"))


class RecordOperators(Generic[R_co]):
    """What ordinary streams and streams of batches have in common."""

    @property
    def schema(self) -> Schema:
        """The fields and the type of its records."""
        raise NotImplementedError

    @property
    def has_columns(self) -> bool:
        """Whether its records travel as Arrow tables."""
        return False

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
        """What an operator, made once for each stage, makes of these records."""
        raise NotImplementedError

    def _where(self, word: str, code: Any = None) -> str:
        """The place of a declaration, for errors."""
        raise NotImplementedError
