"""Groups of rows by the values of some fields: their keys, and rows of keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product, repeat
from operator import itemgetter
from typing import Any

from sunshower.records import Schema, keys_of_rows
from sunshower.topologies.operators.aggregators import AnyAggregator, Table

GLOBAL = "$GLOBAL$"  # the key of the single group of ungrouped rows, as in Storm


def group_keys(schema: Schema, by: Sequence[str], rows: Sequence[Any]) -> Iterable[Any]:
    """The group of each row: the key (`records.key_of`) of a single field, a tuple of several,
    GLOBAL for none."""
    return schema.keys(by, rows) if by else repeat(GLOBAL, len(rows))


def keys_of_partial(width: int, rows: Sequence[Any]) -> list[Any]:
    """The groups of rows whose first `width` values are those of their group."""
    if width == 0:
        return [GLOBAL] * len(rows)
    getters = [itemgetter(place) for place in range(width)]
    return list(keys_of_rows(getters, itemgetter(*range(width)), rows))


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
    return schema.make(made)
