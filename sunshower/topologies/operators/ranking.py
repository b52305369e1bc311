"""The records with the least or greatest values of a field: lists of them, and rows of a batch.

Storm: org.apache.storm.trident.operation.builtin.MinWithComparator, MaxWithComparator, FirstN;
org.apache.storm.starter.tools.Rankings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from operator import itemgetter
from typing import Any, Self

from sunshower.arguments import COUNT, checked
from sunshower.errors import TopologyError
from sunshower.records import Schema, key_of
from sunshower.topologies.operators.aggregators import CombinerAggregator, Table
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.schemas import KEYS
from sunshower.topologies.operators.values import ranked


class top(CombinerAggregator[Any, list[Any]]):  # noqa: N801
    """The `n` records with the greatest values of the field `by`, greatest first: a list of tuples.
    Records with equal values are in the order of their fields (values/ordering.py); 1, 1.0 and True
    are equal. Records whose value is NaN or None are passed over; if all are, they are listed:
    those with NaN, or else those with None.

    `each`: fields of which every value has only one place in the list, with its greatest record. So
    `totals.aggregate(top(3, by="count", each="word"))` is a list of three different words, and
    exact as long as the totals only grow.
    """

    _schema: Schema
    _by: Callable[[Any], Any]
    _places: list[int]
    _where: str

    @checked(TopologyError, n=COUNT, each=KEYS)
    def __init__(
        self, n: int, by: str, each: str | Sequence[str] = (), *, name: str = "top"
    ) -> None:
        self.n, self.by, self.each, self.name = n, by, each, name

    def bind(self, schema: Schema, where: str) -> Self:
        each = (self.each,) if isinstance(self.each, str) else tuple(self.each)
        for field in (self.by, *each):
            schema.check_field(field, where)
        bound = copy(self)
        bound._schema, bound._by = schema, itemgetter(schema.fields.index(self.by))
        bound._places = [schema.fields.index(field) for field in each]
        bound._where = f"{where}: top(by={self.by!r})"
        return bound

    def init(self, record: Any) -> list[Any]:
        return [tuple(row) for row in self._schema.rows([record])]

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        return self._best([*first, *second])

    def zero(self) -> list[Any]:
        return []

    def result(self, value: list[Any]) -> list[Any]:
        return list(map(tuple, value))

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        groups: dict[Any, list[Any]] = {}
        for key, row in zip(keys, self._schema.rows(rows), strict=False):
            groups.setdefault(key, []).append(tuple(row))
        for key, several in groups.items():
            table[key] = self._best([*table.get(key, ()), *several])

    def _best(self, rows: list[Any]) -> list[Any]:
        if self._places:
            groups: dict[Any, list[Any]] = {}
            for row in rows:
                key = key_of(tuple(row[place] for place in self._places))
                groups.setdefault(key, []).append(row)
            rows = [row for several in groups.values() for row in self._ranked(several, 1)]
        return self._ranked(rows, self.n)

    def _ranked(self, rows: list[Any], count: int) -> list[Any]:
        return ranked(rows, self._by, count, greatest=True, where=self._where)


class ExtremeRow(Operator):
    """Emits the row with the greatest (or least) value of a field, chosen as `top` does. It runs
    twice: on the rows of each task, and on the results of these."""

    blocks_lineage = "min_by or max_by"

    def __init__(self, schema: Schema, field: str, *, greatest: bool) -> None:
        self.get, self.greatest = schema.key([field]), greatest
        self.where = f"{'max' if greatest else 'min'}_by({field!r})"

    def start(self, attempt: Attempt) -> list[Any]:
        return []

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        if rows:
            both = [*batch, *rows]
            batch[:] = ranked(both, self.get, 1, greatest=self.greatest, where=self.where)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        if batch:
            emit(batch)
