"""Aggregation within a batch: of all rows at once, or partially before a repartitioning.

Storm: org.apache.storm.trident.planner.processor.AggregateProcessor, GroupedAggregator,
CombinerAggregatorCombineImpl, ChainedAggregatorImpl, SingleEmitAggregator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import product, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sunshower.records import Schema, key_of, keys_of_rows
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.value_types import KEYS_THEMSELVES

if TYPE_CHECKING:
    from sunshower.topologies.operators.aggregators import AnyAggregator, CombinerAggregator, Table

# ---- grouping ------------------------------------------------------------------------------------

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
    place = 0 if width == 1 else None
    return list(keys_of_rows(getters, itemgetter(*range(width)), rows, place))


def key_of_partial(width: int, row: Sequence[Any]) -> Any:
    """The group of a row, as `keys_of_partial`; `width`: at least 1."""
    key = row[0] if width == 1 else tuple(row[:width])
    return key if type(key) in KEYS_THEMSELVES else key_of(key)


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
    rows = []
    for key in tables[0]:
        parts = [a.rows(table[key]) for a, table in zip(aggregators, tables, strict=True)]
        first = values_of_key(key, width)
        rows += [sum(several, first) for several in product(*parts)]
    return schema.make(rows)


# ---- aggregating ---------------------------------------------------------------------------------


class Empty(Enum):
    """Which tasks emit a value for a batch, or their part of one, that has no rows."""

    NOBODY = "nobody"  # with groups: there are none
    EACH = "each task"  # for an aggregate per partition
    ONE = "one task"  # for an aggregate per batch: task txid % parallelism, as in ByBatch


class AggregatorOperator(Operator):
    """Keeps one table per aggregator: the groups of a batch and their values."""

    blocks_lineage = "an aggregate of one batch"
    makes_parts = False  # whether its rows are combined further, in the task of their group

    def __init__(self, schema: Schema, by: Sequence[str], aggregators: Sequence[AnyAggregator]):
        self.schema, self.by, self.aggregators = schema, tuple(by), tuple(aggregators)

    def start(self, attempt: Attempt) -> tuple[Attempt, list[Table]]:
        return attempt, [aggregator.table() for aggregator in self.aggregators]

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        attempt, tables = batch
        for aggregator, table in zip(self.aggregators, tables, strict=True):
            aggregator.gather(table, group_keys(self.schema, self.by, rows), rows, attempt)


class Aggregate(AggregatorOperator):
    """Emits the aggregates of groups whose rows are all in this task."""

    def __init__(
        self,
        schema: Schema,
        by: Sequence[str],
        aggregators: Sequence[AnyAggregator],
        out: Schema,
        empty: Empty,
    ) -> None:
        super().__init__(schema, by, aggregators)
        self.out, self.empty = out, empty

    def prepare(self, context: Context) -> None:
        self._index, self._parallelism = context.index, context.parallelism

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        tables: list[Table] = batch[1]
        if not tables[0] and self._emits_without_rows(attempt):
            for aggregator, table in zip(self.aggregators, tables, strict=True):
                table[GLOBAL] = aggregator.fresh(attempt)
        if results := result_rows(self.aggregators, tables, len(self.by), self.out):
            emit(results)

    def _emits_without_rows(self, attempt: Attempt) -> bool:
        if self.empty is Empty.ONE:
            return attempt.txid % self._parallelism == self._index
        return self.empty is Empty.EACH


class Combine(AggregatorOperator):
    """Emits this task's partial aggregates: rows (fields of the group, values so far)."""

    by_row = True  # the parts differ, but not what they are combined to behind it
    makes_parts = True

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        tables: list[Table] = batch[1]
        if not tables[0]:
            return
        values = [table.values() for table in tables]
        match len(self.by):
            case 0:
                emit(list(zip(*values, strict=True)))
            case 1:
                emit(list(zip(tables[0], *values, strict=True)))
            case _:
                emit([(*key, *rest) for key, *rest in zip(tables[0], *values, strict=True)])


class CombineFurther(Aggregate):
    """Combines the partial aggregates of other tasks."""

    aggregators: tuple[CombinerAggregator[Any, Any], ...]

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        width = len(self.by)
        keys = keys_of_partial(width, rows)
        for place, (aggregator, table) in enumerate(
            zip(self.aggregators, batch[1], strict=True), start=width
        ):
            combine_into(table, aggregator, keys, [row[place] for row in rows])


def combine_into(
    table: Table,
    combiner: CombinerAggregator[Any, Any],
    keys: Sequence[Any],
    values: Sequence[Any],
) -> None:
    """Combine values into those of their groups in `table`."""
    if not table:  # what one task has combined has each group once: no call for each
        dict.update(table, zip(keys, values, strict=True))  # a Counter would count them
        if len(table) == len(keys):
            return
        table.clear()
    combiner.combine_into(table, keys, values)
