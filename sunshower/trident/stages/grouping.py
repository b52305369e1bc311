"""Groups of rows by the values of some fields: their keys, and rows of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product, repeat
from typing import Any

from sunshower.records import Schema
from sunshower.trident.declaration.aggregators import AnyAggregator, Table
from sunshower.trident.states.views import GLOBAL  # the key of the single group of ungrouped rows


def group_keys(schema: Schema, by: Sequence[str], rows: Sequence[Any]) -> Iterable[Any]:
    """The group of each row: the value of a single field, a tuple of several, GLOBAL for none."""
    return map(schema.key(by), rows) if by else repeat(GLOBAL, len(rows))


def key_of_row(width: int) -> Callable[[Any], Any]:
    """A function that gets the group of a row whose first `width` values are those of its group."""
    if width == 0:
        return lambda _: GLOBAL
    return (lambda row: row[0]) if width == 1 else (lambda row: tuple(row[:width]))


def values_of_key(key: Any, width: int) -> tuple[Any, ...]:
    """The values of the grouping fields of a group."""
    if width == 0:
        return ()
    return (key,) if width == 1 else key


def result_rows(
    aggregators: Sequence[AnyAggregator], tables: Sequence[Table], width: int, schema: Schema
) -> list[Any]:
    """The records of groups: (fields of the group, what each aggregator emits). If aggregators emit
    several rows, every combination of them is a record. Storm:
    org.apache.storm.trident.operation.impl.ChainedAggregatorImpl."""
    made = []
    for key in tables[0]:
        parts = [a.rows(table[key]) for a, table in zip(aggregators, tables, strict=True)]
        first = values_of_key(key, width)
        made += [sum(several, first) for several in product(*parts)]
    return schema.build(made)
