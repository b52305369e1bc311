"""Groups of rows by the values of some fields: their keys, and rows made of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product, repeat
from typing import Any

from sunshower.records import Schema
from sunshower.trident.aggregators import Aggregating, Table
from sunshower.trident.states.views import GLOBAL  # the one group of rows that are not grouped


def group_keys(schema: Schema, by: Sequence[str], rows: Sequence[Any]) -> Iterable[Any]:
    """The group of each row: the value of a single field, a tuple of several, GLOBAL of none."""
    return map(schema.key(by), rows) if by else repeat(GLOBAL, len(rows))


def key_of_row(width: int) -> Callable[[Any], Any]:
    """The group of a row that begins with the `width` values of its group."""
    if width == 0:
        return lambda _: GLOBAL
    return (lambda row: row[0]) if width == 1 else (lambda row: tuple(row[:width]))


def values_of_key(key: Any, width: int) -> tuple[Any, ...]:
    """The values of the fields that a group is made by."""
    if width == 0:
        return ()
    return (key,) if width == 1 else key


def result_rows(
    aggregators: Sequence[Aggregating], tables: Sequence[Table], width: int, schema: Schema
) -> list[Any]:
    """The records that groups come to: (fields of the group, what each aggregator makes).

    Where an aggregator makes several rows, each goes with each of the others'.
    Storm: org.apache.storm.trident.operation.impl.ChainedAggregatorImpl.
    """
    made = []
    for key in tables[0]:
        parts = [a.rows(table[key]) for a, table in zip(aggregators, tables, strict=True)]
        first = values_of_key(key, width)
        made += [sum(several, first) for several in product(*parts)]
    return schema.build(made)
