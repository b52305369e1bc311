"""The aggregated contents of panes.

A pane is the part of the rows of a group that all windows share: `sliding(seconds=60, every=10)`
has panes of ten seconds. The content of a pane is one value for each combiner. If an aggregator is
no combiner, it is the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sunshower.records import Schema
from sunshower.topologies.operators.aggregators import AnyAggregator, CombinerAggregator, Table
from sunshower.topologies.operators.grouping import result_rows
from sunshower.topologies.operators.port import Attempt

Content = list[Any]  # one value per aggregator; or rows, as lists of values


class PaneValues:
    """Computes the contents of panes, and what the aggregators emit for a window."""

    def __init__(self, schema: Schema, aggregators: Sequence[AnyAggregator]) -> None:
        self.schema, self.aggregators = schema, tuple(aggregators)
        self.combiners = [a for a in aggregators if isinstance(a, CombinerAggregator)]
        self.combines = len(self.combiners) == len(self.aggregators)

    def gather(
        self, places: Sequence[Any], rows: Sequence[Any], attempt: Attempt
    ) -> dict[Any, Content]:
        """The contents of these rows alone, by place; `places`: that of each row."""
        if not self.combines:
            found: dict[Any, Content] = {}
            for place, row in zip(places, self.schema.rows(rows), strict=True):
                found.setdefault(place, []).append(list(row))
            return found
        tables = [combiner.table() for combiner in self.combiners]
        for combiner, table in zip(self.combiners, tables, strict=True):
            combiner.gather(table, places, rows, attempt)
        return {place: [table[place] for table in tables] for place in tables[0]}

    def merged(self, first: Content, second: Content) -> Content:
        """The content of both."""
        if not self.combines:
            return [*first, *second]
        pairs = zip(self.combiners, first, second, strict=True)
        return [combiner.combine(value, other) for combiner, value, other in pairs]

    def results(self, key: Any, content: Content, attempt: Attempt) -> Iterable[tuple[Any, ...]]:
        """What the aggregators emit for `content`; `key`: the group."""
        if self.combines:
            tables: list[Table] = [{key: value} for value in content]
        else:
            tables = [aggregator.table() for aggregator in self.aggregators]
            rows = self.schema.build(content)
            for aggregator, table in zip(self.aggregators, tables, strict=True):
                aggregator.gather(table, [key] * len(rows), rows, attempt)
        return result_rows(self.aggregators, tables, 0, Schema(("rows",)))
