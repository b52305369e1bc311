"""Kinds of nested values: lists, dictionaries, and records within records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import pyarrow as pa

from sunshower.records import Schema
from sunshower.spark_integration.tables.field_kinds import Kind


@dataclass(frozen=True, kw_only=True)
class Lists(Kind):
    """Lists, or tuples of any length, with elements of one kind."""

    element: Kind

    def encode(self, values: Sequence[Any]) -> pa.Array:
        elements = self.element.array(list(chain.from_iterable(filter(None, values))))
        offsets, missing = _offsets(values)
        return pa.ListArray.from_arrays(offsets, elements, self.type, mask=missing)

    def decode(self, array: pa.Array) -> list[Any]:
        first, count, places = _places(array)
        elements, make = self.element.values(array.values.slice(first, count)), self.takes[0]
        return [None if place is None else make(elements[place]) for place in places]


@dataclass(frozen=True, kw_only=True)
class Dictionaries(Kind):
    """Dictionaries with keys of one kind and values of one kind."""

    key: Kind
    value: Kind

    def encode(self, values: Sequence[Any]) -> pa.Array:
        full = [value for value in values if value]
        keys = self.key.array(list(chain.from_iterable(full)))
        items = self.value.array([item for value in full for item in value.values()])
        offsets, missing = _offsets(values)
        return pa.MapArray.from_arrays(offsets, keys, items, self.type, mask=missing)

    def decode(self, array: pa.Array) -> list[Any]:
        first, count, places = _places(array)
        keys = self.key.values(array.keys.slice(first, count))
        items = self.value.values(array.items.slice(first, count))
        pairs = list(zip(keys, items, strict=True))
        return [None if place is None else dict(pairs[place]) for place in places]


@dataclass(frozen=True, kw_only=True)
class Records(Kind):
    """Records within a record."""

    schema: Schema
    fields: tuple[Kind, ...]

    def encode(self, values: Sequence[Any]) -> pa.Array:
        there = [value for value in values if value is not None]
        columns = list(zip(*map(self._row, there), strict=True)) or [()] * len(self.fields)
        arrays = [kind.array(column) for kind, column in zip(self.fields, columns, strict=True)]
        whole = pa.StructArray.from_arrays(arrays, fields=list(self.type))
        if len(there) == len(values):
            return whole
        places = iter(range(len(there)))
        rows = [None if value is None else next(places) for value in values]
        return whole.take(pa.array(rows, pa.int64()))

    def _row(self, value: Any) -> Sequence[Any]:
        """The fields of a record; one from another worker is a list without names."""
        return value if isinstance(value, list | tuple) else self.schema.rows([value])[0]

    def decode(self, array: pa.Array) -> list[Any]:
        there = array.drop_null() if array.null_count else array
        columns = zip(self.fields, there.flatten(), strict=True)
        found = self.schema.build(zip(*(kind.values(one) for kind, one in columns), strict=True))
        if not array.null_count:
            return found
        records = iter(found)
        return [next(records) if valid else None for valid in array.is_valid().to_pylist()]


def _offsets(values: Sequence[Any]) -> tuple[pa.Array, pa.Array]:
    """Offsets of n lists, shape (n + 1,), and which of them are missing, shape (n,)."""
    lengths = [0 if value is None else len(value) for value in values]
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.array(list(accumulate(lengths, initial=0)), pa.int32()), missing


def _places(array: pa.Array) -> tuple[int, int, list[slice | None]]:
    """Offset of the first element, number of elements, and the slice of each list among them. A
    null list has no slice, though Arrow may store elements for it."""
    if not len(array):
        return 0, 0, []
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    places = [
        slice(start - first, end - first) if valid else None
        for (start, end), valid in zip(pairwise(offsets), array.is_valid().to_pylist(), strict=True)
    ]
    return first, offsets[-1] - first, places
