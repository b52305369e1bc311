"""The records with the least or greatest values or event times: lists, values, rows of a batch.

Storm: org.apache.storm.trident.operation.builtin.MinWithComparator, MaxWithComparator, FirstN;
org.apache.storm.starter.tools.Rankings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from operator import itemgetter
from typing import Any, Self

from sunshower.arguments import COUNT, checked
from sunshower.errors import TopologyError
from sunshower.records import Schema, key_of
from sunshower.topologies.operators.aggregators import CombinerAggregator, Predicate, Table
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.schemas import KEYS
from sunshower.topologies.operators.values import leading, place_of, plain, ranked, tie_of
from sunshower.topologies.operators.windows.event_times import OrderReader


class top(CombinerAggregator[Any, list[Any]]):  # noqa: N801
    """The `n` records with the greatest values of the field `by`, greatest first: a list of tuples.
    Records with equal values are in the order of their fields (`ranked` in values.py); 1, 1.0 and
    True are equal. Records whose value is NaN or None are passed over; if all are, they are listed:
    those with NaN, or else those with None.

    `by` may be a list of fields: each decides between records that are equal in those before it,
    the greatest first, NaN and None last. `ties`: also the records that are equal to the last one
    in all these fields, however many there are.

    `each`: fields of which every value has only one place in the list, with its greatest record. So
    `totals.aggregate(top(3, by="count", each="word"))` is a list of three different words, and
    exact as long as the totals only grow.
    """

    ties = False  # not of each instance: stored states are compared with what is declared
    _values_by = ("n", "by", "each", "ties", "_rows")
    _schema: Schema
    _by: Callable[[Any], Any]
    _then: Sequence[Callable[[Any], Any]] = ()
    _places: list[int]
    _where: str

    @checked(TopologyError, n=COUNT, by=KEYS, each=KEYS)
    def __init__(
        self,
        n: int,
        by: str | Sequence[str],
        each: str | Sequence[str] = (),
        *,
        ties: bool = False,
        name: str = "top",
        where: Predicate | None = None,
    ) -> None:
        self.n, self.by, self.each, self.name = n, by, each, name
        if ties:
            self.ties = True
        self._choose_by(where)

    def bind(self, schema: Schema, where: str) -> Self:
        by, each = (
            (fields,) if isinstance(fields, str) else tuple(fields)
            for fields in (self.by, self.each)
        )
        if not by:
            raise TopologyError(
                f'{where}: by is empty, so there is no field to rank by; give by="amount"'
            )
        for field in (*by, *each):
            schema.check_field(field, where)
        bound = copy(self)
        getters = [itemgetter(schema.fields.index(field)) for field in by]
        bound._schema, bound._by = schema, getters[0]
        if getters[1:]:
            bound._then = getters[1:]
        bound._places = [schema.fields.index(field) for field in each]
        bound._where = f"{where}: top(by={self.by!r})"
        return bound

    @property
    def _rows(self) -> tuple[str, ...]:
        return self._schema.fields

    def init(self, record: Any) -> list[Any]:
        return [tuple(row) for row in self._schema.rows([record])]

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        return self._best([*first, *second])

    def zero(self) -> list[Any]:
        return []

    def result(self, value: list[Any]) -> list[Any]:
        return list(map(tuple, value))

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        groups: defaultdict[Any, list[Any]] = defaultdict(list)
        for key, row in zip(keys, self._schema.rows(rows), strict=False):
            groups[key].append(row)
        for key, several in groups.items():
            self._add(table, key, several)

    def gather_group(self, table: Table, key: Any, rows: Rows, attempt: Attempt) -> None:
        self._add(table, key, self._schema.rows(rows))

    def _add(self, table: Table, key: Any, rows: Rows) -> None:
        first = rows if self._places else leading(rows, self._by, self.n)
        table[key] = self._best([*table.get(key, ()), *map(tuple, first)])

    def _best(self, rows: list[Any]) -> list[Any]:
        if self._places:
            groups: dict[Any, list[Any]] = {}
            for row in rows:
                key = key_of(tuple(row[place] for place in self._places))
                groups.setdefault(key, []).append(row)
            rows = [row for several in groups.values() for row in self._ranked(several, 1)]
        return self._ranked(rows, self.n, ties=self.ties)

    def _ranked(self, rows: list[Any], count: int, *, ties: bool = False) -> list[Any]:
        gets, where = (self._by, *self._then), self._where
        return ranked(rows, gets, count, greatest=True, where=where, ties=ties)


# ---- first and last ------------------------------------------------------------------------------


class _ByTime(CombinerAggregator[Any, Any]):
    """Keeps [event time, value] of one record; None: no record has a value."""

    _values_by = ("_fields", "by")
    _is_last: bool
    _get: Callable[[Any], Any]
    _reader: OrderReader
    _where: str

    @checked(TopologyError)
    def __init__(
        self,
        field: str,
        *more: str,
        by: str,
        name: str | None = None,
        where: Predicate | None = None,
    ) -> None:
        self.by, self._fields = by, (field, *more)
        self.name = name or f"{field}_{type(self).__name__}"
        self._choose_by(where)

    def bind(self, schema: Schema, where: str) -> Self:
        for field in (*self._fields, self.by):
            schema.check_field(field, where)
        bound = copy(self)
        bound._get = schema.key(self._fields)
        bound._where = f"{where}: {type(self).__name__}({self._fields[0]!r}, by={self.by!r})"
        what = f"{bound._where}: field {self.by!r}"
        bound._reader = OrderReader(what, schema.key([self.by]), None)
        return bound

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        return (schema.kind(self._fields[0]) if len(self._fields) == 1 else tuple,)

    def init(self, record: Any) -> Any:
        value, time = self._get(record), self._reader.time(record)
        is_absent = (
            value is None if len(self._fields) == 1 else not any(part is not None for part in value)
        )
        return None if is_absent else [time, plain(value)]

    def combine(self, first: Any, second: Any) -> Any:
        if first is None or second is None:
            return second if first is None else first
        (time, value), (other_time, other) = first, second
        if self._reader.is_before(time, other_time):
            return second if self._is_last else first
        if self._reader.is_before(other_time, time):
            return first if self._is_last else second
        is_second = (place_of(value), tie_of(value)) < (place_of(other), tie_of(other))
        return second if is_second is self._is_last else first

    def zero(self) -> Any:
        return None

    def result(self, value: Any) -> Any:
        if value is None:
            return None
        return value[1] if len(self._fields) == 1 else tuple(value[1])


class first(_ByTime):  # noqa: N801
    """The value of a field in the record with the least event time `by`; of several fields: a tuple
    of their values in that record. The same in every order of arrival. Records whose fields are all
    None are passed over; of no others it is None. Of records with equal times it is the least value
    in the order of `place_of` in values.py.

    Event times are those of windows; datetimes without a zone are compared as they are. Raises
    BadEmit for a value of `by` that is no event time, and for datetimes with and without a zone in
    one group.
    """

    _is_last = False


class last(_ByTime):  # noqa: N801
    """The value of a field in the record with the greatest event time `by`; of several fields: a
    tuple of their values in that record. As `first`; of records with equal times it is the greatest
    value."""

    _is_last = True


# ---- rows of a batch -----------------------------------------------------------------------------


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
            batch[:] = ranked(both, [self.get], 1, greatest=self.greatest, where=self.where)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        if batch:
            emit(batch)
