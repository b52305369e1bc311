"""Aggregators: base classes, and the built-in count, sum, min, max, average, collect, reduce.

CombinerAggregator     combines values in any order, so rows are combined before they are sent
ReducerAggregator      folds one row after the other into one value
Aggregator             folds rows into a state, then emits any number of rows

Storm: org.apache.storm.trident.operation.CombinerAggregator, ReducerAggregator, Aggregator.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, ClassVar, Generic, Self, TypeVar

from sunshower.arguments import checked
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.records import Schema, copied
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.signatures import annotations_of, fits, name_of

In = TypeVar("In")
V = TypeVar("V")
Table = dict[Any, Any]  # group → its value so far
Rows = Sequence[Any]


class AnyAggregator(ABC):
    """The interface of the three kinds for operators."""

    fields: ClassVar[tuple[str, ...]] = ("value",)  # the names of the emitted fields
    name: str | None = None  # another name for a single field

    @property
    def emits(self) -> tuple[str, ...]:
        """The fields of the emitted rows."""
        return self.fields if self.name is None else (self.name,)

    def bind(self, schema: Schema, where: str) -> Self:
        """A copy for records of `schema`. Raises UnknownField for a field that it does not have."""
        return self

    def table(self) -> Table:
        """A table without groups."""
        return {}

    @abstractmethod
    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        """Add rows; `keys` are their groups."""

    @abstractmethod
    def fresh(self, attempt: Attempt) -> Any:
        """The value of no rows."""

    @abstractmethod
    def rows(self, value: Any) -> Iterable[tuple[Any, ...]]:
        """The rows of `emits` for a value."""


class CombinerAggregator(AnyAggregator, Generic[In, V]):
    """Combines values in any order, so each task combines its rows before they are sent. Values
    must be plain (as MessagePack and the state represent them); tuples may become lists."""

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
    """The number of rows. Storm: org.apache.storm.trident.operation.builtin.Count."""

    @checked(TopologyError)
    def __init__(self, name: str = "count") -> None:
        self.name = name

    def init(self, record: Any) -> int:
        return 1

    combine = staticmethod(operator.add)  # type: ignore[assignment]  # runs in C

    def zero(self) -> int:
        return 0

    def table(self) -> Table:
        return Counter()

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        table.update(keys)  # Counter.update: 40 ns per row


class reduce(ReducerAggregator[Any, Any]):  # noqa: N801
    """Folds the records with `function(value, record)`, which returns the next value and must not
    change `value`; the first value is `initial`. `name`: of the field (default: the function's).
    The order of the records is that in which they arrive. Storm: Stream.reduce, PairStream."""

    @checked(TopologyError, function=None)
    def __init__(
        self, function: Callable[[Any, Any], Any], initial: Any, name: str | None = None
    ) -> None:
        self.function, self.initial = function, initial
        own = str(getattr(function, "__name__", type(function).__name__))
        self.name = name or ("value" if own == "<lambda>" else own)

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

    _get: Callable[[Any], Any]

    @checked(TopologyError)
    def __init__(self, field: str, name: str | None = None) -> None:
        self.field = field
        self.name = name or f"{field}_{type(self).__name__.rstrip('_')}"

    def bind(self, schema: Schema, where: str) -> Self:
        schema.check_field(self.field, where)
        bound = copy(self)
        bound._get = schema.key([self.field])
        return bound

    def init(self, record: Any) -> Any:
        return self._get(record)


class sum_(_OfField):  # noqa: N801
    """The sum of a field. Storm: org.apache.storm.trident.operation.builtin.Sum."""

    combine = staticmethod(operator.add)  # type: ignore[assignment]  # runs in C

    def zero(self) -> Any:
        return 0

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        get = table.get
        for key, value in zip(keys, map(self._get, rows), strict=False):
            table[key] = get(key, 0) + value


class _Extreme(_OfField):
    _choose: Callable[[Any, Any], Any]

    def combine(self, first: Any, second: Any) -> Any:
        if first is None or second is None:
            return first if second is None else second
        return self._choose(first, second)

    def zero(self) -> Any:
        return None


class min_(_Extreme):  # noqa: N801
    """The least value of a field; None of no rows."""

    _choose = staticmethod(min)


class max_(_Extreme):  # noqa: N801
    """The greatest value of a field; None of no rows."""

    _choose = staticmethod(max)


class average(_OfField):  # noqa: N801
    """The mean of a field; None of no rows. A state keeps [sum, number of rows]."""

    def init(self, record: Any) -> list[Any]:
        return [self._get(record), 1]

    def combine(self, first: Any, second: Any) -> list[Any]:
        return [first[0] + second[0], first[1] + second[1]]

    def zero(self) -> list[Any]:
        return [0, 0]

    def result(self, value: Any) -> Any:
        return value[0] / value[1] if value[1] else None


class collect(_OfField):  # noqa: N801
    """All values of a field in a list, in no defined order; of several fields: tuples of their
    values. Its size grows with the rows."""

    @checked(TopologyError)
    def __init__(self, field: str, *more: str, name: str | None = None) -> None:
        super().__init__(field, name)
        self._fields = (field, *more)

    def bind(self, schema: Schema, where: str) -> Self:
        for field in self._fields:
            schema.check_field(field, where)
        bound = copy(self)
        bound._get = schema.key(self._fields)
        return bound

    def init(self, record: Any) -> list[Any]:
        return [self._get(record)]

    def combine(self, first: Any, second: Any) -> list[Any]:
        return [*first, *second]

    def zero(self) -> list[Any]:
        return []

    def gather(self, table: Table, keys: Iterable[Any], rows: Rows, attempt: Attempt) -> None:
        for key, value in zip(keys, map(self._get, rows), strict=False):
            table.setdefault(key, []).append(value)
