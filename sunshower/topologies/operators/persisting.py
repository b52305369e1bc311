"""Operators that write aggregates to a state, once for each batch.

Storm: org.apache.storm.trident.planner.processor.PartitionPersistProcessor,
org.apache.storm.trident.operation.impl.MapCombinerAggStateUpdater and similar classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, reduce
from typing import Any, Protocol

from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregating import combine_into
from sunshower.topologies.operators.aggregators import (
    CombinerAggregator,
    ReducerAggregator,
    Table,
)
from sunshower.topologies.operators.grouping import group_keys, keys_of_partial, values_of_key
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.states import MapState


class Slot(Protocol):
    """The state of one task."""

    name: str

    @property
    def state(self) -> MapState:
        """The open state."""

    def number(self, attempt: Attempt) -> int:
        """The number of the write that has begun; a later write of a group has a higher one."""

    def open(self, context: Context) -> None:
        """Open the state, unless it is open."""

    def begin_commit(self, attempt: Attempt) -> None:
        """Begin to write a batch."""

    def commit(self, attempt: Attempt) -> None:
        """Store what was written, all or nothing."""

    def close(self) -> None:
        """Close the state."""


class Persist(Operator):
    """Writes a batch to a state, all or nothing; `write` defines what."""

    commits = True
    emits_updates = False  # instead of rows: see updates.py
    shows = False  # whether readers of plain rows get what it emits as updates

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    def prepare(self, context: Context) -> None:
        self.slot.open(context)

    def start(self, attempt: Attempt) -> Any:
        return []

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        batch.extend(rows)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        """Write the contents of `batch`; returns the rows to emit."""
        raise NotImplementedError

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        slot, state = self.slot, self.slot.state
        try:
            slot.begin_commit(attempt)
            made = self.write(state, batch, attempt) if batch else ()
            slot.commit(attempt)
        except BaseException:
            state.abort()
            raise
        if made:
            emit(made)

    def cleanup(self) -> None:
        self.slot.close()

    def emitted(
        self, keys: Iterable[Any], records: Sequence[Any], attempt: Attempt
    ) -> Sequence[Any]:
        """The records of groups as they are emitted: as updates, if something reads these."""
        if not self.emits_updates:
            return records
        name, number = self.slot.name, self.slot.number(attempt)
        return [((name, key), number, [one]) for key, one in zip(keys, records, strict=True)]


class PersistCombined(Persist):
    """Combines values into those of their groups in a state."""

    def __init__(
        self, slot: Slot, width: int, combiner: CombinerAggregator[Any, Any], out: Schema
    ) -> None:
        super().__init__(slot)
        self.width, self.combiner, self.out = width, combiner, out

    def start(self, attempt: Attempt) -> Table:
        return {}

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        keys, width = keys_of_partial(self.width, rows), self.width
        combine_into(batch, self.combiner, keys, [row[width] for row in rows])

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        updates = [partial(self._update, value) for value in batch.values()]
        values = state.multi_update(list(batch), updates)
        return self.emitted(batch, self.records(batch, values), attempt)

    def records(self, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        """The records to emit: (fields of the group, what the combiner emits)."""
        results: Iterable[Any] = values
        if type(self.combiner).result is not CombinerAggregator.result:
            results = map(self.combiner.result, values)
        if len(self.combiner.emits) == 1:
            return new_values(keys, results, self.width, self.out)
        made = zip(keys, results, strict=True)
        return self.out.make([(*values_of_key(key, self.width), *row) for key, row in made])

    def _update(self, value: Any, old: Any) -> Any:
        return value if old is None else self.combiner.combine(old, value)


class PersistReduced(Persist):
    """Reduces rows into the values of their groups in a state."""

    def __init__(
        self,
        slot: Slot,
        schema: Schema,
        by: Sequence[str],
        reducer: ReducerAggregator[Any, Any],
        out: Schema,
    ) -> None:
        super().__init__(slot)
        self.schema, self.by, self.reducer, self.out = schema, tuple(by), reducer, out

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        groups: dict[Any, list[Any]] = {}
        for key, row in zip(group_keys(self.schema, self.by, batch), batch, strict=True):
            groups.setdefault(key, []).append(row)
        updates = [partial(self._update, rows) for rows in groups.values()]
        values = state.multi_update(list(groups), updates)
        return self.emitted(groups, new_values(groups, values, len(self.by), self.out), attempt)

    def _update(self, rows: Sequence[Any], old: Any) -> Any:
        return reduce(self.reducer.reduce, rows, self.reducer.init() if old is None else old)


def new_values(keys: Any, values: Any, width: int, out: Schema) -> list[Any]:
    """Records (fields of the group, its new value)."""
    rows: Iterable[tuple[Any, ...]] = zip(keys, values, strict=True)
    if width != 1:
        rows = ((*values_of_key(key, width), value) for key, value in rows)
    return out.make(rows)
