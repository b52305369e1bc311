"""Operators whose records are those that come in: declared once for every kind of stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from sunshower.records import Schema
from sunshower.topologies.operators import steps
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.schemas import check_predicate, check_reader

R_co = TypeVar("R_co", covariant=True)


class RecordOperators(Generic[R_co]):
    """What ordinary streams and streams of batches have in common."""

    @property
    def schema(self) -> Schema:
        """The fields and the type of its records."""
        raise NotImplementedError

    def filter(self, predicate: Callable[[R_co], bool]) -> Self:
        """The records for which `predicate` is true."""
        check_predicate(predicate, self.schema, self._where("filter", predicate))
        return self._same("filter", lambda: steps.Filter(predicate), predicate)

    def peek(self, function: Callable[[R_co], object]) -> Self:
        """All records, after a call of `function` for each. A replay calls it again."""
        check_reader(function, self.schema, self._where("peek", function))
        return self._same("peek", lambda: steps.Peek(function), function)

    def _same(self, word: str, operator: Callable[[], Operator], code: Any = None) -> Self:
        """What an operator, made once for each stage, lets through of these records."""
        raise NotImplementedError

    def _where(self, word: str, code: Any = None) -> str:
        """The place of a declaration, for errors."""
        raise NotImplementedError
