"""Aggregators: base classes, and the built-in ones but those of `ranking`.

CombinerAggregator     combines values in any order, so rows are combined before they are sent
ReducerAggregator      folds one row after the other into one value
Aggregator             folds rows into a state, then emits any number of rows

Storm: org.apache.storm.trident.operation.CombinerAggregator, ReducerAggregator, Aggregator.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from datetime import timedelta
from decimal import Decimal
from itertools import compress, islice, repeat
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, get_args

from sunshower.arguments import checked
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.installed import check_packages, check_python
from sunshower.json_values import texts_of_keys
from sunshower.records import Schema, copied, key_of
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.values import (
    Sum,
    add,
    are_finite,
    chosen,
    mean,
    number,
    plain,
    total,
)
from sunshower.topologies.signatures import annotations_of, fits, name_of
from sunshower.value_types import KEYS_THEMSELVES

In = TypeVar("In")
V = TypeVar("V")
Table = dict[Any, Any]  # group → its value so far
Rows = Sequence[Any]
Predicate: TypeAlias = Callable[[Any], bool]
_FIRST = 64
_NOTHING = (None, 0)


class AnyAggregator(ABC):
    """The interface of the three kinds for operators."""

    fields: ClassVar[tuple[str, ...]] = ("value",)  # the names of the emitted fields
    name: str | None = None  # another name for a single field
    _chosen_by: Predicate | None = None  # what chooses the records; None: all are aggregated
    _values_by: ClassVar[tuple[str, ...]] = ()  # the attributes that say what its values are

    @property
    def emits(self) -> tuple[str, ...]:
        """The fields of the emitted rows."""
        return self.fields if self.name is None else (self.name,)

    @property
    def described_values(self) -> str:
        """What the values are that a state has of it, as in `sum_(field=amount)`. States store this
        text, and refuse another one."""
        parts = {name.strip("_"): getattr(self, name) for name in self._values_by}
        texts = [f"{name}={described(part)}" for name, part in parts.items() if part]
        name = type(self).__name__
        return f"{name}({', '.join(texts)})" if texts else name

    def bind(self, schema: Schema, where: str) -> Self:
        """A copy for records of `schema`. Raises UnknownField for a field that it does not have."""
        return self

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        """The types of the emitted fields for records of `schema`; Any: unknown."""
        return (Any,) * len(self.emits)

    def table(self) -> Table:
        """A table without groups."""
        return {}

    def _choose_by(self, where: Predicate | None) -> None:
        """Aggregate only the records for which `where` is true."""
        if where is not None:  # stored states are compared with the attributes of aggregators
            self._chosen_by = where

    @abstractmethod
    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        """Add rows; `keys` are their groups."""

    def gather_group(self, table: Table, key: Any, rows: Rows, attempt: Attempt) -> None:
        """Add rows of one group."""
        self.gather(table, repeat(key, len(rows)), rows, attempt)

    @abstractmethod
    def fresh(self, attempt: Attempt) -> Any:
        """The value of no rows."""

    @abstractmethod
    def rows(self, value: Any) -> Iterable[tuple[Any, ...]]:
        """The rows of `emits` for a value."""


def described(part: Any) -> str:
    """A part of what values are, as text."""
    if not isinstance(part, tuple | list):
        return str(part)
    return str(part[0]) if len(part) == 1 else f"({'+'.join(map(str, part))})"


class CombinerAggregator(AnyAggregator, Generic[In, V]):
    """Combines values in any order, so each task combines its rows before they are sent. Values
    must be plain (as MessagePack and the state represent them); tuples may become lists."""

    grows = False  # whether a value grows with its rows; then windows store it in parts

    @abstractmethod
    def init(self, record: In) -> V:
        """The value of one row."""

    @abstractmethod
    def combine(self, first: V, second: V) -> V:
        """The combined value; must not change its arguments."""

    @abstractmethod
    def zero(self) -> V:
        """The value of no rows."""

    def result(self, value: V) -> Any:
        """The emitted value; the state stores `value` itself."""
        return value

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        for key, record in zip(keys, rows, strict=False):
            value = self.init(record)
            table[key] = self.combine(table[key], value) if key in table else value

    def combine_into(self, table: Table, keys: Iterable[Any], values: Iterable[V]) -> None:
        """Combine values into those of their groups in `table`."""
        combine = self.combine
        for key, value in zip(keys, values, strict=True):
            table[key] = combine(table[key], value) if key in table else value

    def fresh(self, attempt: Attempt) -> V:
        return self.zero()

    def rows(self, value: V) -> Iterable[tuple[Any, ...]]:
        return ((self.result(value),),)


class ReducerAggregator(AnyAggregator, Generic[In, V]):
    """Folds one row after the other into one value; all rows of a group are sent."""

    @abstractmethod
    def init(self) -> V:
        """The value of no rows."""

    @abstractmethod
    def reduce(self, value: V, record: In) -> V:
        """The value with one more row; must not change `value`."""

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        for key, record in zip(keys, rows, strict=False):
            table[key] = self.reduce(table[key] if key in table else self.init(), record)

    def fresh(self, attempt: Attempt) -> V:
        return self.init()

    def rows(self, value: V) -> Iterable[tuple[Any, ...]]:
        return ((value,),)


class Aggregator(AnyAggregator, Generic[In, V]):
    """Folds one row after the other into a state, which then emits rows of `fields`."""

    @abstractmethod
    def init(self, attempt: Attempt) -> V:
        """The state of a batch, or of a group in it, before its first row."""

    @abstractmethod
    def aggregate(self, state: V, record: In) -> None:
        """Add one row to `state` in place."""

    @abstractmethod
    def complete(self, state: V) -> Iterable[tuple[Any, ...]]:
        """The rows of a state, each a tuple of `fields`."""

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        for key, record in zip(keys, rows, strict=False):
            if key not in table:
                table[key] = self.init(attempt)
            self.aggregate(table[key], record)

    def fresh(self, attempt: Attempt) -> V:
        return self.init(attempt)

    def rows(self, value: V) -> Iterable[tuple[Any, ...]]:
        return list(self.complete(value))


class count(CombinerAggregator[Any, int]):  # noqa: N801
    """The number of rows; of a field: the number of its values that are not None. Storm:
    org.apache.storm.trident.operation.builtin.Count."""

    _values_by = ("field",)
    _get: Callable[[Any], Any]

    @checked(TopologyError)
    def __init__(
        self, field: str | None = None, name: str | None = None, *, where: Predicate | None = None
    ) -> None:
        self.field, self.name = field, name or ("count" if field is None else f"{field}_count")
        self._choose_by(where)

    def bind(self, schema: Schema, where: str) -> Self:
        """Raises UnknownField for a field that the records do not have."""
        if self.field is None:
            return self
        if self.field not in schema.fields:
            where = f"{where}: count({self.field!r}) counts the values of a field, and name= names "
            schema.check_field(self.field, f"{where}what it emits")
        bound = copy(self)
        bound._get = schema.key([self.field])
        return bound

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        return (int,)

    def init(self, record: Any) -> int:
        return 1 if self.field is None else int(self._get(record) is not None)

    combine = staticmethod(operator.add)  # type: ignore[assignment]  # runs in C

    def zero(self) -> int:
        return 0

    def table(self) -> Table:
        return Counter()

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        if self.field is None:
            table.update(keys)  # Counter.update: 40 ns per row
        else:
            super().gather(table, keys, rows, attempt)

    def gather_group(self, table: Table, key: Any, rows: Rows, attempt: Attempt) -> None:
        if self.field is None:
            table[key] = table.get(key, 0) + len(rows)
        else:
            super().gather_group(table, key, rows, attempt)


class reduce(ReducerAggregator[Any, Any]):  # noqa: N801
    """Folds the records with `function(value, record)`, which returns the next value and must not
    change `value`; the first value is `initial`. `name`: of the field (default: the function's).
    The order of the records is that in which they arrive. Storm: Stream.reduce, PairStream."""

    @checked(TopologyError, function=None)
    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        initial: Any,
        name: str | None = None,
        *,
        where: Predicate | None = None,
    ) -> None:
        self.function, self.initial = function, initial
        function_name = str(getattr(function, "__name__", type(function).__name__))
        self.name = name or ("value" if function_name == "<lambda>" else function_name)
        self._choose_by(where)

    def bind(self, schema: Schema, where: str) -> Self:
        """Raises TopologyError for anything but a function of a value and a record, RecordMismatch
        for annotations that do not fit."""
        where = f"{where}: reduce({self.name})"
        if not callable(self.function) or isinstance(self.function, type):
            raise TopologyError(f"{where} needs a function of a value and a record")
        if limits_of(self.function):
            raise TopologyError(f"{where}: the function is asynchronous; put it into a .map before")
        try:
            parameters, _ = annotations_of(self.function, where)
        except (TypeError, ValueError):  # a builtin without a readable signature
            return self
        if len(parameters) < 2:
            raise TopologyError(f"{where}: the function must take a value and a record")
        if not fits(reads := parameters[1], schema):
            raise RecordMismatch(
                f"{where}: its function reads {name_of(reads)}, but the stream carries "
                f"{schema.name}"
            )
        return self

    def init(self) -> Any:
        return copied(self.initial)

    def reduce(self, value: Any, record: Any) -> Any:
        return self.function(value, record)


class _OfField(CombinerAggregator[Any, Any]):
    """Aggregates the values of one field."""

    _values_by = ("field",)
    _get: Callable[[Any], Any]
    _where = ""

    @checked(TopologyError)
    def __init__(
        self, field: str, name: str | None = None, *, where: Predicate | None = None
    ) -> None:
        self.field = field
        self.name = name or f"{field}_{type(self).__name__.rstrip('_')}"
        self._choose_by(where)

    def bind(self, schema: Schema, where: str) -> Self:
        schema.check_field(self.field, where)
        bound = copy(self)
        bound._get = schema.key([self.field])
        bound._where = f"{where}: {type(self).__name__}({self.field!r})"
        return bound

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        return (schema.kind(self.field),)

    def init(self, record: Any) -> Any:
        return self._get(record)


def _is_duration(kind: Any) -> bool:
    """Whether this is timedelta, or timedelta | None."""
    return kind is timedelta or {*get_args(kind)} == {timedelta, type(None)}


def _by_group(keys: Iterable[Any], values: Iterable[Any]) -> dict[Any, list[Any]]:
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, value in zip(keys, values, strict=False):
        groups[key].append(value)
    return groups


def _are_few(keys: Sequence[Any]) -> bool:
    """Whether groups have many rows, as those of the first rows do: then one sum of all values of a
    group costs less than one for each row."""
    return len({*keys[:_FIRST]}) * 4 <= len(keys[:_FIRST])


class sum_(_OfField):  # noqa: N801
    """The sum of a field. Storm: org.apache.storm.trident.operation.builtin.Sum.

    It is the exact sum, rounded once, so it depends neither on the order of the rows nor on the
    tasks that they were in. None is passed over; of nothing but None it is None, of no rows 0. With
    NaN it is NaN, and so is inf - inf. Ints and bools make an int, with floats a float; Decimals
    and ints a Decimal, with floats a float; timedeltas a timedelta, of no rows of a field that is
    annotated as one timedelta(0). A sum of floats that has more digits than a float is kept in a
    state as a list of floats, whose sum it is. Raises BadEmit for other values, and for timedeltas
    among numbers.
    """

    _zero: Sum = 0

    def bind(self, schema: Schema, where: str) -> Self:
        bound = super().bind(schema, where)
        if _is_duration(schema.kind(self.field)):
            bound._zero = timedelta()  # in others it would change the shape of their stored states
        return bound

    def init(self, record: Any) -> Sum:
        return total([self._get(record)], self._where)

    def combine(self, first: Sum, second: Sum) -> Sum:
        if type(first) is int and type(second) is int:
            return first + second
        return add(first, second, self._where)

    def zero(self) -> Sum:
        return self._zero

    def result(self, value: Sum) -> Any:
        return number(value)

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        values, keys, where = [*map(self._get, rows)], [*islice(keys, len(rows))], self._where
        if _are_few(keys):
            for key, several in _by_group(keys, values).items():
                part = total(several, where)
                table[key] = add(table[key], part, where) if key in table else part
            return
        get = table.get
        for key, value in zip(keys, values, strict=True):
            old, kind = get(key), type(value)
            if kind is int and (old is None or type(old) is int):
                table[key] = value if old is None else old + value
            elif kind is float:
                table[key] = value + 0.0 if old is None else add(old, value, where)  # no -0.0
            else:
                table[key] = add(old, total([value], where), where)

    def combine_into(self, table: Table, keys: Iterable[Any], values: Iterable[Any]) -> None:
        get, where = table.get, self._where
        for key, value in zip(keys, values, strict=True):
            old = get(key)
            if type(old) is int and type(value) is int:  # a call costs as much as all the rest
                table[key] = old + value
            else:
                table[key] = value if old is None else add(old, value, where)


class _Extreme(_OfField):
    _greatest: bool

    def init(self, record: Any) -> Any:
        value = plain(self._get(record))
        return value or 0.0 if type(value) is float else value  # -0.0 is 0.0

    def combine(self, first: Any, second: Any) -> Any:
        return chosen(first, second, greatest=self._greatest, where=self._where)

    def zero(self) -> Any:
        return None

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        values = [*map(self._get, rows)]
        kinds = {*map(type, values)}
        if kinds == {float} and are_finite(values):
            values = [value or 0.0 for value in values] if 0.0 in values else values
        elif not kinds <= {int} and not kinds <= {str}:
            super().gather(table, keys, rows, attempt)
            return
        get, kind = table.get, next(iter(kinds), None)
        stays: Callable[[Any, Any], bool] = operator.ge if self._greatest else operator.le
        for key, value in zip(keys, values, strict=False):
            old = get(key)
            if type(old) is not kind:
                table[key] = value if old is None else self.combine(old, value)
            elif not stays(old, value):  # NaN does not
                table[key] = value


class min_(_Extreme):  # noqa: N801
    """The least value of a field; None of no rows. NaN and None are passed over; if there is
    nothing else, it is NaN, or else None. Of equal values the first in the order of
    `values.ordering.tie_of` is chosen: of 1, 1.0, Decimal(1) and True the int, then the float, and
    so on; of one moment in several zones the one whose text comes first; -0.0 is 0.0. Raises
    BadEmit for values that cannot be compared, such as texts with numbers."""

    _greatest = False


class max_(_Extreme):  # noqa: N801
    """The greatest value of a field; None of no rows. As `min_`, also in NaN, None and the choice
    of one of several equal values."""

    _greatest = True


class average(_OfField):  # noqa: N801
    """The mean of a field: `sum_` divided by how many values are not None; None of no values. A
    state keeps [the sum as `sum_` does, number of values]."""

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        if _is_duration(schema.kind(self.field)):
            return (timedelta | None,)
        return (float | Decimal | None,)

    def init(self, record: Any) -> list[Any]:
        value = self._get(record)
        return [total([value], self._where), int(value is not None)]

    def combine(self, first: Any, second: Any) -> list[Any]:
        (value, times), (other, more) = first, second
        if type(value) is int and type(other) is int:
            return [value + other, times + more]
        return [add(value, other, self._where), times + more]

    def zero(self) -> list[Any]:
        return [0, 0]

    def result(self, value: Any) -> Any:
        return mean(*value)

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        values, keys, where = [*map(self._get, rows)], [*islice(keys, len(rows))], self._where
        if _are_few(keys):
            for key, several in _by_group(keys, values).items():
                part = [total(several, where), len(several) - several.count(None)]
                table[key] = self.combine(table[key], part) if key in table else part
            return
        get = table.get
        for key, value in zip(keys, values, strict=True):
            old, times = get(key, _NOTHING)
            if type(value) is int and (old is None or type(old) is int):
                table[key] = [value if old is None else old + value, times + 1]
            elif type(value) is float:
                table[key] = [value + 0.0 if old is None else add(old, value, where), times + 1]
            else:
                added = add(old, total([value], where), where)
                table[key] = [added, times + (value is not None)]


class collect(_OfField):  # noqa: N801
    """All values of a field in a list, in no defined order, NaN and None too; of several fields:
    tuples of their values. Its size grows with the rows."""

    grows = True
    _values_by = ("_fields",)

    @checked(TopologyError)
    def __init__(
        self, field: str, *more: str, name: str | None = None, where: Predicate | None = None
    ) -> None:
        super().__init__(field, name, where=where)
        self._fields = (field, *more)

    def bind(self, schema: Schema, where: str) -> Self:
        for field in self._fields:
            schema.check_field(field, where)
        bound = copy(self)
        bound._get = schema.key(self._fields)
        return bound

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        return (list,)

    def init(self, record: Any) -> list[Any]:
        return [self._get(record)]

    def combine(self, first: Any, second: Any) -> list[Any]:
        return [*first, *second]

    def zero(self) -> list[Any]:
        return []

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        for key, value in zip(keys, map(self._get, rows), strict=False):
            table.setdefault(key, []).append(value)


# ---- distinct values -----------------------------------------------------------------------------


class count_distinct(CombinerAggregator[Any, Any]):  # noqa: N801
    """The number of different values of a field, as `group_by` tells them apart: 1, 1.0 and True
    are one. None is passed over. Of several fields: the number of different combinations; records
    in which one of them is None are passed over.

    A state keeps the values in a list, whose size grows with them. With `approx` it keeps a sketch
    of at most 33 kB instead: exact up to 4,096 values, then with a standard error of 1.6 %, and as
    independent of the order of the rows. This needs the extra `sketches`.
    """

    approx = False  # not of each instance: stored states are compared with what is declared
    _values_by = ("_fields", "approx")
    _get: Callable[[Any], Any]

    @checked(TopologyError)
    def __init__(
        self,
        field: str,
        *more: str,
        approx: bool = False,
        name: str | None = None,
        where: Predicate | None = None,
    ) -> None:
        self._fields, self.name = (field, *more), name or f"{field}_count_distinct"
        self.grows = not approx
        if approx:
            self.approx = True
        self._choose_by(where)

    def bind(self, schema: Schema, where: str) -> Self:
        if self.approx:
            _check_sketches(f"count_distinct({self._fields[0]!r}, approx=True)")
        for field in self._fields:
            schema.check_field(field, where)
        bound = copy(self)
        bound._get = schema.key(self._fields)
        return bound

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        return (int,)

    def init(self, record: Any) -> Any:
        return self._of([self._get(record)])

    def combine(self, first: Any, second: Any) -> Any:
        return _united([first, second]) if self.approx else _distinct([*first, *second])

    def zero(self) -> Any:
        return _NO_SKETCH if self.approx else []

    def result(self, value: Any) -> int:
        return _estimate(value) if self.approx else len(value)

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        for key, values in _by_group(keys, map(self._get, rows)).items():
            value = self._of(values)
            table[key] = self.combine(table[key], value) if key in table else value

    def _of(self, values: Sequence[Any]) -> Any:
        """The value of the rows with these values."""
        if len(self._fields) > 1:
            values = [value for value in values if not any(map(_is_none, value))]
        else:
            values = [value for value in values if value is not None]
        return _sketch_of(_distinct(values)) if self.approx else _distinct(values)


def _is_none(value: Any) -> bool:
    return value is None


def _distinct(values: Sequence[Any]) -> list[Any]:
    """The different ones of values, each as its key; also of keys that were stored, and are not
    hashable any more."""
    if not KEYS_THEMSELVES.issuperset(map(type, values)):
        values = [*map(key_of, values)]
    return [*dict.fromkeys(values)]


# ---- records that count --------------------------------------------------------------------------


class _CombinedIf(CombinerAggregator[Any, list[Any]]):
    """A combiner of the records for which its predicate is true. Its value is a list of the
    combiner's value; an empty one as long as there is no such record, so that a group has a value
    from its first record on."""

    def __init__(self, combiner: CombinerAggregator[Any, Any], predicate: Predicate) -> None:
        self.combiner, self.predicate = combiner, predicate
        self.grows = combiner.grows
        self.fields = combiner.emits  # type: ignore[misc]

    @property
    def described_values(self) -> str:
        return f"{self.combiner.described_values} where"

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        return self.combiner.kinds(schema)

    def init(self, record: Any) -> list[Any]:
        return [self.combiner.init(record)] if self.predicate(record) else []

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        if first and second:
            return [self.combiner.combine(first[0], second[0])]
        return first or second

    def zero(self) -> list[Any]:
        return []

    def result(self, value: list[Any]) -> Any:
        return self.combiner.result(value[0] if value else self.combiner.zero())

    def rows(self, value: list[Any]) -> Iterable[tuple[Any, ...]]:
        return self.combiner.rows(value[0] if value else self.combiner.zero())

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        keys, chosen = [*islice(keys, len(rows))], [*map(self.predicate, rows)]
        values, nothing = self.combiner.table(), list[Any]()
        self.combiner.gather(values, [*compress(keys, chosen)], [*compress(rows, chosen)], attempt)
        for key in dict.fromkeys(keys):
            table.setdefault(key, nothing)
        self.combine_into(table, values, ([value] for value in values.values()))


class _ReducedIf(ReducerAggregator[Any, Any]):
    """A reducer of the records for which its predicate is true."""

    def __init__(self, reducer: ReducerAggregator[Any, Any], predicate: Predicate) -> None:
        self.reducer, self.predicate = reducer, predicate
        self.fields = reducer.emits  # type: ignore[misc]

    @property
    def described_values(self) -> str:
        return self.reducer.described_values

    def kinds(self, schema: Schema) -> tuple[Any, ...]:
        return self.reducer.kinds(schema)

    def init(self) -> Any:
        return self.reducer.init()

    def reduce(self, value: Any, record: Any) -> Any:
        return self.reducer.reduce(value, record) if self.predicate(record) else value


def predicate_of(aggregator: AnyAggregator) -> Predicate | None:
    """What chooses the records of an aggregator; None: it aggregates all."""
    return aggregator._chosen_by


def of_chosen(aggregator: AnyAggregator) -> AnyAggregator:
    """A bound aggregator of the records that its predicate chooses; without one itself."""
    predicate = predicate_of(aggregator)
    if predicate is None:
        return aggregator
    if isinstance(aggregator, CombinerAggregator):
        return _CombinedIf(aggregator, predicate)
    assert isinstance(aggregator, ReducerAggregator), "no other built-in aggregator has `where`"
    return _ReducedIf(aggregator, predicate)


# ---- Theta sketches of Apache DataSketches: the extra `sketches` ---------------------------------

# They estimate how many different values there are, in at most 33 kB. The estimate depends on the
# values alone, not on their order, repetitions and division into parts. It is exact up to 4,096
# values; then its relative standard error is 1.6 %. What is stored is the compact form that
# DataSketches has specified for all its languages.

_NO_SKETCH = b""
_LOG_SIZE = 12


def _check_sketches(where: str) -> None:
    """Raise TopologyError, with the install command, without the extra `sketches`."""
    check_python("sketches", where, error=TopologyError)
    purpose = f"which estimates the number of different values for {where}"
    check_packages("sketches", purpose, "datasketches", error=TopologyError)


def _sketch_of(keys: Sequence[Any]) -> bytes:
    """The sketch of values, which are like those of `key_of`."""
    if not keys:
        return _NO_SKETCH
    from datasketches import update_theta_sketch

    sketch = update_theta_sketch(_LOG_SIZE)
    for text in texts_of_keys(keys):
        sketch.update(text)
    return _united_sketches([sketch])


def _united(sketches: Iterable[bytes]) -> bytes:
    """The sketch of the values of all sketches."""
    from datasketches import compact_theta_sketch

    parts = [sketch for sketch in sketches if sketch]
    if len(parts) < 2:
        return parts[0] if parts else _NO_SKETCH
    return _united_sketches(map(compact_theta_sketch.deserialize, parts))


def _estimate(sketch: bytes) -> int:
    """How many different values a sketch has."""
    if not sketch:
        return 0
    from datasketches import compact_theta_sketch

    number: float = compact_theta_sketch.deserialize(sketch).get_estimate()
    return round(number)


def _united_sketches(sketches: Iterable[Any]) -> bytes:
    from datasketches import theta_union

    union = theta_union(_LOG_SIZE)
    for sketch in sketches:
        union.update(sketch)
    compact: bytes = union.get_result().serialize()
    return compact
