"""Totals of the last row of each group of other totals: what an aggregate of an aggregate keeps.

A group has a slot for the value of each origin ("update rows" below) that has rows in it. The slots
are the leaves of a tree of partly combined values:

    value of a group        combined from the highest node, stored under the key of the group
    node (level 1)          the combined values of 16 nodes of level 0
    node (level 0)          the values of 16 slots; a free slot has the number of the next free one

A later update of an origin replaces its values, and the nodes above them are combined again: no
value is subtracted, so this suits every aggregator, and floats are exact. An update costs a few
nodes, however many origins a group has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from itertools import chain, islice
from typing import Any

from sunshower.errors import TopologyError
from sunshower.json_values import are_flat
from sunshower.records import Schema, copied, is_table, key_of
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregating import GLOBAL, group_keys, values_of_key
from sunshower.topologies.operators.aggregators import CombinerAggregator, ReducerAggregator
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.state_slot import StateDraft
from sunshower.topologies.operators.states import NODE, ORIGIN, SLOTS, FoundPart, Key, MapState
from sunshower.topologies.operators.steps import RowFunction, RowOperator, check_rows
from sunshower.topologies.operators.totals import CombinedTotals

_WIDTH = 16  # of a node
_NO_SLOT = -1
_LEFT_MAX = 8  # groups that an origin has left, of which it is known


# ---- update rows ---------------------------------------------------------------------------------
# Updates: rows of running totals with their group and a number, so that later rows replace them.
#
#     totals ──▶ (origin, number, rows) ──▶ filter, map, flat_map … ──▶ parts of the next groups
#
# A stage passes updates on only where an aggregate reads them; everything else gets plain rows. An
# update replaces whatever an update of the same origin with a lower number has brought; an update
# without rows removes it. So updates may be lost and repeated, and may overtake one another. The
# record of a group that has lost its last row is for readers of plain rows alone: it follows as an
# update with the number SHOWN, as far as there are such readers. Flink: the changelogs of dynamic
# tables, with the group as their key (upsert streams).

# origin: (name of the totals, key of the group, number of each merge that it has passed)
UPDATE = ("origin", "number", "rows")
# What an update has for a group of the next totals: `value`, a list of the combined value, or None
# for nothing. `groups` is None, or in a record without a key: all groups of the update.
PART = ("key", "origin", "number", "value", "groups")
SHOWN = -1  # the number of updates that only readers of plain rows get
_BATCH = Attempt(0, 0, 0)
WINDOW_RESULTS = "results of windows with early= or allowed="
_AGGREGATE = ".aggregate(…), which computes from the last row of each group"
INSTEAD_OF_WINDOW = f"Declare the window over the records before them, or use {_AGGREGATE}"
INSTEAD_OF_PROCESS = f"Use {_AGGREGATE}, or a bolt, which gets each row: .fields(…).bolt(…)"
INSTEAD_IN_BATCHES = f"Use {_AGGREGATE}, or .partition_persist(…), whose function gets each row"
INSTEAD_OF_JOIN = (
    "Make a table of the totals, .group_by(…).table(), and join the other stream with it; or join "
    "before the aggregate"
)


def update_schema(schema: Schema) -> Schema:
    """The updates of records of `schema`."""
    return Schema(UPDATE, tuple, tuple(dict.fromkeys((*schema.classes, *schema.own_class))))


@dataclass(frozen=True)
class Lineage:
    """How rows follow from running totals: each row replaces those that followed from the earlier
    row of its group. `places`: the fields that have a value of the group's key, with its place in
    the key. `blocked`: the operator on the way behind which that is no longer known. `of`: what
    they are, for errors."""

    width: int  # of the key
    places: Mapping[str, int] = field(default_factory=dict)
    blocked: str = ""
    of: str = "running totals"

    def behind(self, operator: Operator, schema: Schema) -> Lineage | None:
        """The same for what `operator` makes of these rows."""
        if operator.blocks_lineage:
            return replace(self, blocked=operator.blocks_lineage)
        if operator.reads_updates or operator.ends_lineage:
            return None
        if not operator.keeps_values:
            return replace(self, places={})
        if isinstance(operator, RowOperator) and operator.renames:
            return self  # rows of a branch are within others until one of them is taken
        places = {name: place for name, place in self.places.items() if name in schema.fields}
        return replace(self, places=places)

    def keys_places(self, by: Sequence[str]) -> list[int] | None:
        """The places in the key of the values of the fields `by`; None: they may change."""
        places = [None if self.blocked else self.places.get(name) for name in by]
        return None if None in places else [place for place in places if place is not None]


def totals_lineage(by: Sequence[str]) -> Lineage:
    """The lineage of the rows of totals that are grouped by the fields `by`."""
    return Lineage(len(by), {name: place for place, name in enumerate(by)})


def merged_lineage(lineages: Sequence[Lineage | None]) -> Lineage | None:
    """The lineage of merged streams."""
    known = [lineage for lineage in lineages if lineage is not None]
    if not known:
        return None
    blocked = next((lineage.blocked for lineage in known if lineage.blocked), "")
    if len(known) < len(lineages):
        blocked = "a merge with a stream of other records"
    first = known[0]
    same = set.intersection(*({*lineage.places.items()} for lineage in known))
    if any(lineage.width != first.width for lineage in known):
        same = set()
    return Lineage(first.width, dict(same), blocked, first.of)


def check_replaces(lineage: Lineage | None, where: str) -> None:
    """Raise TopologyError if rows follow from running totals, and nobody knows which earlier row
    each of them replaces."""
    if lineage is not None and lineage.blocked:
        raise TopologyError(
            f"{where}: its records follow from {lineage.of}, each of which replaces the earlier "
            f"one of its group, and {lineage.blocked} is on the way: an aggregate behind it would "
            "count every update. Aggregate before it, each stream by itself"
        )


def refuse_updates(lineage: Lineage | None, where: str, what: str, instead: str) -> None:
    """Raise TopologyError if rows follow from running totals: `what` would count each of them.
    `instead`: what to declare."""
    if lineage is not None:
        raise TopologyError(
            f"{where}: its records are {lineage.of}, or follow from them: each replaces the "
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
        emit([tagged for row in rows for tagged in self.expand(row)] if self.tags else rows)

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
        records: list[Any] = []
        self.process(None, 0, [update], records.extend)
        return records

    def _of_tables(self, rows: Sequence[Any]) -> list[Any]:
        """What a function of tables makes of some rows."""
        parts: list[Any] = []
        if len(rows):
            self.inner.process(self.inner.start(_BATCH), 0, rows, parts.append)
        tables = (self.schema.rows_of_table(part) if is_table(part) else part for part in parts)
        return [row for table in tables for row in table]

    def _parts(self, inner: RowOperator, rows: Sequence[Any]) -> list[list[Any]]:
        """What the operator makes of each row. The calls of an async function run together."""
        if isinstance(inner, RowFunction) and inner.calls is not None:
            parts = []
            for several, error in inner.calls.run(inner.expand_async, rows):
                if error is not None:
                    raise error
                parts.append([*several])
        else:
            parts = [[*inner.expand(row)] for row in rows]
        if inner.makes is not None:
            check_rows([*chain(*parts)], inner.makes, getattr(inner, "function", inner))
        return parts


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


# ---- updated totals ------------------------------------------------------------------------------


class AllRows(CombinerAggregator[Any, list[Any]]):
    """A reducer as a combiner: its value is all rows, which are reduced anew for each result."""

    _values_by = ("_rows",)

    def __init__(self, reducer: ReducerAggregator[Any, Any], schema: Schema) -> None:
        self.reducer, self.schema = reducer, schema
        self.fields = reducer.emits  # type: ignore[misc]

    @property
    def _rows(self) -> tuple[str, ...]:
        return self.schema.fields

    def init(self, record: Any) -> list[Any]:
        return [tuple(row) for row in self.schema.rows([record])]

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        return [*first, *second]

    def zero(self) -> list[Any]:
        return []

    def result(self, value: list[Any]) -> Any:
        return reduce(self.reducer.reduce, self.schema.build(value), self.reducer.init())


def updated_operators(
    schema: Schema,
    by: Sequence[str],
    aggregator: CombinerAggregator[Any, Any] | ReducerAggregator[Any, Any],
    lineage: Lineage,
) -> tuple[CombinerAggregator[Any, Any], PartsOfUpdates]:
    """The aggregator as a combiner, and what makes parts of updates of records of `schema`."""
    combiner = (
        aggregator if isinstance(aggregator, CombinerAggregator) else AllRows(aggregator, schema)
    )
    return combiner, PartsOfUpdates(schema, by, combiner, lineage)


class _GroupTree:
    """The values of one group, while a batch changes them."""

    def __init__(self, key: Any, draft: StateDraft, combiner: CombinerAggregator[Any, Any]) -> None:
        self.key, self._draft, self._combiner = key, draft, combiner
        size, free, count = draft.get((SLOTS, key)) or (0, _NO_SLOT, 0)
        self._size, self._free, self.count = size, free, count
        self._dirty: dict[int, list[Any]] = {}  # the nodes of level 0 that have changed

    def put(self, slot: int, value: Any) -> int:
        """Set the value of a slot, or of a new one. Returns the slot."""
        if slot == _NO_SLOT:
            slot = self._free
            if slot == _NO_SLOT:
                slot = self._size
                self._size += 1
            else:
                self._free = self._leaf(slot)[slot % _WIDTH]
            self.count += 1
        self._leaf(slot)[slot % _WIDTH] = [value]
        return slot

    def remove(self, slot: int) -> None:
        self._leaf(slot)[slot % _WIDTH] = self._free
        self._free = slot
        self.count -= 1

    def write(self) -> Any:
        """Combine what has changed and put it into the draft. Returns the value of the group."""
        put, key = self._draft.put, self.key
        if not self._dirty:
            return self._draft.get(key) if self.count else self._combiner.zero()
        if not self.count and self._size <= _WIDTH:
            put((SLOTS, key), None)
            put((NODE, key, 0, 0), None)
            put(key, None)
            return self._combiner.zero()
        level, dirty = 0, self._dirty
        for index, cells in dirty.items():
            put((NODE, key, 0, index), cells)
        while self._size > _WIDTH ** (level + 1):
            above: dict[int, list[Any]] = {}
            for index in dirty:
                place = index // _WIDTH
                if place not in above:
                    above[place] = self._node(level + 1, place)
                above[place][index % _WIDTH] = self._combined(dirty[index])
            level, dirty = level + 1, above
            for index, cells in dirty.items():
                put((NODE, key, level, index), cells)
        top = self._combined(dirty[0] if 0 in dirty else self._draft.get((NODE, key, level, 0)))
        put((SLOTS, key), [self._size, self._free, self.count])
        put(key, None if top is None else top[0])
        return self._combiner.zero() if top is None else top[0]

    def _leaf(self, slot: int) -> list[Any]:
        index = slot // _WIDTH
        if index not in self._dirty:
            cells = self._draft.get((NODE, self.key, 0, index))
            self._dirty[index] = [None] * _WIDTH if cells is None else [*cells]
        return self._dirty[index]

    def _node(self, level: int, index: int) -> list[Any]:
        """A node above others; a new one has the first of these, which was there before."""
        cells = self._draft.get((NODE, self.key, level, index))
        if cells is not None:
            return [*cells]
        first = self._draft.get((NODE, self.key, level - 1, index * _WIDTH))
        return [None if first is None else self._combined(first)] + [None] * (_WIDTH - 1)

    def _combined(self, cells: Sequence[Any]) -> list[Any] | None:
        """The combined values of a node, in a list; None if there are none."""
        values = [cell[0] for cell in cells if isinstance(cell, list | tuple)]
        if not are_flat(values, depth=0):  # a combiner may change what is in the nodes
            values = [*map(copied, values)]
        return [reduce(self._combiner.combine, values)] if values else None


class UpdatedTotals(CombinedTotals):
    """Combines the last rows of all origins of a group: reads PARTS of updates.

    Of each origin it stores the number of its last update and the slots that it has; a lower number
    is ignored. A task gets all updates that may have been in one of its groups. Of the groups that
    an origin has left, the last ones are emitted again with its next update: the update with which
    it left them may be lost behind this task. A batch is repeated as a whole, so there it is those
    that the same update has left.
    """

    takes_tables = False

    @property
    def described_values(self) -> str:
        return f"totals of {super().described_values}"

    @property
    def _repeats(self) -> bool:
        """Whether the rows of an update may be lost though it is written here."""
        return not self.slot.is_of_batches

    def start(self, attempt: Attempt) -> Any:
        return []

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        batch.extend(rows)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        draft = StateDraft(state)
        self._fetch(draft, batch)
        trees: dict[Any, _GroupTree] = {}  # of the groups to emit
        for key, origin, number, value, groups in batch:
            self._apply(draft, trees, key_of(key), _entry(origin), number, value, groups)
        values = [tree.write() for tree in trees.values()]
        draft.write()
        records = self.records(trees, values)
        if not self.emits_updates:
            return records
        updates = self.emitted(trees, records, attempt)
        emptied = [
            update for tree, update in zip(trees.values(), updates, strict=True) if not tree.count
        ]
        return [
            *(update for tree, update in zip(trees.values(), updates, strict=True) if tree.count),
            *((origin, number, []) for origin, number, _ in emptied),
            *((origin, SHOWN, rows) for origin, _, rows in emptied if self.shows),
        ]

    def _fetch(self, draft: StateDraft, batch: Sequence[Any]) -> None:
        """Read what the batch needs, in three calls."""
        draft.fetch(_entry(row[1]) for row in batch)
        places: dict[Any, list[int]] = {key_of(row[0]): [] for row in batch if row[4] is None}
        for row in batch:
            slots, left = (draft.get(_entry(row[1])) or (0, (), ()))[1:]
            for key, slot in slots:
                places.setdefault(key_of(key), []).append(slot)
            for key in left:
                places.setdefault(key_of(key), [])
        draft.fetch(name for key in places for name in ((SLOTS, key), key))
        nodes: list[Key] = []
        for key, slots in places.items():
            size, free, _ = draft.get((SLOTS, key)) or (0, _NO_SLOT, 0)
            indices = {slot // _WIDTH for slot in (*slots, size, max(free, 0))}
            level = 0
            while True:
                nodes += [(NODE, key, level, index) for index in indices]
                if size <= _WIDTH ** (level + 1):
                    break
                level, indices = level + 1, {index // _WIDTH for index in indices}
        draft.fetch(nodes)

    def _apply(
        self,
        draft: StateDraft,
        trees: dict[Any, _GroupTree],
        key: Any,
        entry: Any,
        number: int,
        value: Any,
        groups: Any,
    ) -> None:
        last, slots, left = draft.get(entry) or (number, (), ())
        if number < last:
            return
        held = {key_of(group): slot for group, slot in slots}
        is_known = self._repeats or number == last
        gone = {key_of(group): None for group in left if is_known}
        if groups is None:
            tree = self._tree(draft, trees, key)
            if value is not None:
                held[key] = tree.put(held.get(key, _NO_SLOT), value[0])
                gone.pop(key, None)
            elif key in held:
                tree.remove(held.pop(key))
        else:
            current = set(map(key_of, groups))
            for group in [*held, *gone]:
                tree = self._tree(draft, trees, group)
                if group in held and group not in current:
                    tree.remove(held.pop(group))
                    gone = {group: None, **gone}
        left = [*gone][:_LEFT_MAX] if self._repeats else [*gone]
        draft.put(entry, [number, [[*pair] for pair in held.items()], left])

    def _tree(self, draft: StateDraft, trees: dict[Any, _GroupTree], key: Any) -> _GroupTree:
        if key not in trees:
            trees[key] = _GroupTree(key, draft, self.combiner)
        return trees[key]


def _entry(origin: Any) -> Any:
    """The key of what is stored of an origin. No state has Enums in its keys, and totals in memory
    may be grouped by them."""
    return ORIGIN, _without_enums(key_of(origin))


def _without_enums(key: Any) -> Any:
    if isinstance(key, Enum):
        return type(key).__qualname__, key.name
    return tuple(map(_without_enums, key)) if type(key) is tuple else key


def moved_origins(parts: Sequence[FoundPart]) -> Mapping[Key, Any]:
    """What a new task has of the origins in other tasks: those with slots in its own groups, or
    that have left them with their last update."""
    origins: dict[Key, Any] = {}
    for part in parts:
        for name, value in part.beside.items():
            if type(name) is not tuple or name[0] != ORIGIN:
                continue
            number, slots, left = value
            own_slots = [pair for pair in slots if part.gets(key_of(pair[0]))]
            gone = [group for group in left if part.gets(key_of(group))]
            if own_slots or gone:
                last, others, before = origins.get(name, (number, [], []))
                latest = [*(before if last >= number else ()), *(gone if number >= last else ())]
                origins[name] = [max(last, number), [*others, *own_slots], latest]
    return origins
