"""Updates: rows of running totals with their group and a number, so that later rows replace them.

    totals ──▶ (origin, number, rows) ──▶ filter, map, flat_map … ──▶ parts of the next groups

A stage passes updates on only where an aggregate reads them; everything else gets plain rows. An
update replaces whatever an update of the same origin with a lower number has brought; an update
without rows removes it. So updates may be lost and repeated, and may overtake one another. The
record of a group that has lost its last row is for readers of plain rows alone: it follows as an
update with the number SHOWN, as far as there are such readers.
Flink: the changelogs of dynamic tables, with the group as their key (upsert streams).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from sunshower.errors import TopologyError
from sunshower.records import Schema, is_table
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregators import CombinerAggregator
from sunshower.topologies.operators.grouping import GLOBAL, group_keys, values_of_key
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.steps import RowFunction, RowOperator, check_rows

# origin: (name of the totals, key of the group, number of each merge that it has passed)
UPDATE = ("origin", "number", "rows")
# What an update has for a group of the next totals: `value`, a list of the combined value, or None
# for nothing. `groups` is None, or in a record without a key: all groups of the update.
PART = ("key", "origin", "number", "value", "groups")
SHOWN = -1  # the number of updates that only readers of plain rows get
_BATCH = Attempt(0, 0, 0)
_AGGREGATE = ".aggregate(…), which computes from the last row of each group"
INSTEAD_OF_WINDOW = f"Declare the window before the first aggregate, or use {_AGGREGATE}"
INSTEAD_OF_PROCESS = f"Use {_AGGREGATE}, or a bolt, which gets each row: .fields(…).bolt(…)"
INSTEAD_IN_BATCHES = f"Use {_AGGREGATE}, or .partition_persist(…), whose function gets each row"
INSTEAD_OF_JOIN = (
    "Make a table of the totals, .group_by(…).table(), and join the other stream with it; or join "
    "before the aggregate"
)


def update_schema(schema: Schema) -> Schema:
    """The updates of records of `schema`."""
    own = () if schema.type is tuple else (schema.type,)
    return Schema(UPDATE, tuple, tuple(dict.fromkeys((*schema.classes, *own))))


@dataclass(frozen=True)
class Lineage:
    """How rows follow from running totals: each row replaces those that followed from the earlier
    row of its group. `places`: the fields that have a value of the group's key, with its place in
    the key. `blocked`: the operator on the way behind which that is no longer known."""

    width: int  # of the key
    places: Mapping[str, int] = field(default_factory=dict)
    blocked: str = ""

    def behind(self, operator: Operator, schema: Schema) -> Lineage | None:
        """The same for what `operator` makes of these rows."""
        if operator.reads_updates or operator.ends_lineage:
            return None
        if not operator.keeps_values:
            return Lineage(self.width, {}, self.blocked)
        if isinstance(operator, RowOperator) and operator.renames:
            return self  # rows of a branch are within others until one of them is taken
        places = {name: place for name, place in self.places.items() if name in schema.fields}
        return Lineage(self.width, places, self.blocked)

    def keys_places(self, by: Sequence[str]) -> list[int] | None:
        """The places in the key of the values of the fields `by`; None: they may change."""
        found = [None if self.blocked else self.places.get(name) for name in by]
        return None if None in found else [place for place in found if place is not None]


def totals_lineage(by: Sequence[str]) -> Lineage:
    """The lineage of the rows of totals that are grouped by the fields `by`."""
    return Lineage(len(by), {name: place for place, name in enumerate(by)})


def merged_lineage(lineages: Sequence[Lineage | None]) -> Lineage | None:
    """The lineage of merged streams."""
    known = [one for one in lineages if one is not None]
    if not known:
        return None
    blocked = next((one.blocked for one in known if one.blocked), "")
    if len(known) < len(lineages):
        blocked = "a merge with a stream of other records"
    first = known[0]
    same = set.intersection(*({*one.places.items()} for one in known))
    if any(one.width != first.width for one in known):
        same = set()
    return Lineage(first.width, dict(same), blocked)


def check_replaces(lineage: Lineage | None, where: str) -> None:
    """Raise TopologyError if rows follow from running totals, and nobody knows which earlier row
    each of them replaces."""
    if lineage is not None and lineage.blocked:
        raise TopologyError(
            f"{where}: its records follow from running totals, each of which replaces the earlier "
            f"one of its group, and {lineage.blocked} is on the way: an aggregate behind it would "
            "count every update. Aggregate before it, each stream by itself"
        )


def refuse_updates(lineage: Lineage | None, where: str, what: str, instead: str) -> None:
    """Raise TopologyError if rows follow from running totals: `what` would count each of them.
    `instead`: what to declare."""
    if lineage is not None:
        raise TopologyError(
            f"{where}: its records are running totals, or follow from them: each replaces the "
            f"earlier one of its group. {what} would count every update, and cannot take one back. "
            f"{instead}"
        )


def key_of_origin(origin: Any, width: int, places: Sequence[int]) -> list[Any]:
    """Some values of the key of the group that an update is of, whose key has `width` values."""
    values = values_of_key(origin[1], width)
    return [values[place] for place in places]


class TagUpdates(RowOperator):
    """Passes rows to a merge. Updates of one origin that come on several ways are different there:
    their origins get the number of the way."""

    keeps_values = True

    def __init__(self, number: int) -> None:
        self.number, self.tags = number, False

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        emit([one for row in rows for one in self.expand(row)] if self.tags else rows)

    def expand(self, row: Any) -> Iterable[Any]:
        if not self.tags:
            return (row,)
        origin, number, rows = row
        return (((*origin, self.number), number, rows),)


class OfUpdates(RowOperator):
    """Runs an operator on the rows of each update."""

    def __init__(self, inner: Operator, schema: Schema, *, shows: bool) -> None:
        """`schema`: what `inner` makes; `shows`: whether readers of plain rows follow."""
        self.inner, self.schema, self.by_row = inner, schema, inner.by_row
        self.shows = shows

    def prepare(self, context: Context) -> None:
        self.inner.prepare(context)

    def cleanup(self) -> None:
        self.inner.cleanup()

    def process(self, batch: Any, source: int, updates: Rows, emit: Emit) -> None:
        if not self.shows:
            updates = [update for update in updates if update[1] != SHOWN]
        rows = [row for update in updates for row in update[2]]
        if isinstance(self.inner, RowOperator):
            parts = iter(self._parts(self.inner, rows))
            emit([(origin, n, [*chain(*islice(parts, len(rows)))]) for origin, n, rows in updates])
        else:
            emit([(origin, n, self._of_tables(rows)) for origin, n, rows in updates])

    def expand(self, update: Any) -> Iterable[Any]:
        made: list[Any] = []
        self.process(None, 0, [update], made.extend)
        return made

    def _of_tables(self, rows: Sequence[Any]) -> list[Any]:
        """What a function of tables makes of some rows."""
        parts: list[Any] = []
        if len(rows):
            self.inner.process(self.inner.start(_BATCH), 0, rows, parts.append)
        tables = (self.schema.rows_of_table(one) if is_table(one) else one for one in parts)
        return [row for table in tables for row in table]

    def _parts(self, inner: RowOperator, rows: Sequence[Any]) -> list[list[Any]]:
        """What the operator makes of each row. The calls of an async function run together."""
        if isinstance(inner, RowFunction) and inner.calls is not None:
            made = []
            for several, error in inner.calls.run(inner.expand_async, rows):
                if error is not None:
                    raise error
                made.append([*several])
        else:
            made = [[*inner.expand(row)] for row in rows]
        if inner.makes is not None:
            check_rows([*chain(*made)], inner.makes, getattr(inner, "function", inner))
        return made


def of_updates(operator: Operator, schema: Schema, *, shows: bool) -> Operator:
    """The operator for updates that does what another one does for rows. The rest is as for
    OfUpdates."""
    if isinstance(operator, TagUpdates):
        tagging = TagUpdates(operator.number)
        tagging.tags = True
        return tagging
    return OfUpdates(operator, schema, shows=shows)


class PlainRows(RowOperator):
    """Emits the rows of updates, for readers that get each of them."""

    by_row = True

    def process(self, batch: Any, source: int, updates: Rows, emit: Emit) -> None:
        if rows := [row for update in updates for row in update[2]]:
            emit(rows)

    def expand(self, update: Any) -> Iterable[Any]:
        rows: Iterable[Any] = update[2]
        return rows


class PartsOfUpdates(RowOperator):
    """Makes of each update what it has for the groups of the next totals: PART.

    If the group of the rows follows from the group of the update (`places`), an update is one part,
    with the value None if no row is left. Otherwise it is (0, part) for each group of its rows, for
    the task of the group, and (1, part) with all these groups, for each task: what the origin had
    in other groups is removed there.
    """

    reads_updates = True

    def __init__(
        self,
        schema: Schema,
        by: Sequence[str],
        combiner: CombinerAggregator[Any, Any],
        lineage: Lineage,
    ) -> None:
        self.schema, self.by, self.combiner = schema, tuple(by), combiner
        self.out = Schema(PART, tuple, update_schema(schema).classes)
        self.width, self.places = lineage.width, lineage.keys_places(by)

    def process(self, batch: Any, source: int, updates: Rows, emit: Emit) -> None:
        if parts := [part for update in updates for part in self.expand(update)]:
            emit(parts)

    def expand(self, update: Any) -> Iterator[Any]:
        origin, number, rows = update
        if number == SHOWN:
            return
        table = self.combiner.table()
        if len(rows):
            keys = group_keys(self.schema, self.by, rows)
            self.combiner.gather(table, keys, rows, _BATCH)
        if self.places is not None:
            key = self._key_of(origin)
            yield key, origin, number, [*table.values()] or None, None
            return
        for key, value in table.items():
            yield 0, (key, origin, number, [value], None)
        yield 1, (None, origin, number, None, [*table])

    def _key_of(self, origin: Any) -> Any:
        """The group of all rows of an update."""
        assert self.places is not None
        match key_of_origin(origin, self.width, self.places):
            case []:
                return GLOBAL
            case [value]:
                return value
            case several:
                return tuple(several)
