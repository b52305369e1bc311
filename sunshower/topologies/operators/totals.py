"""Writes totals of groups into a state, a batch at a time, for both kinds of stream.

In an ordinary stream a batch is what a task takes in at once. It is written before its tuples are
acked, so no acked tuple is missing; a tuple that is replayed counts again: at least once. In an
exactly-once program the slot (`BatchSlot`, sunshower/trident/stages/persisting.py) writes under the
number of the batch, so a batch that is repeated counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Any

from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregating import (
    Combine,
    combine_into,
    group_keys,
    keys_of_partial,
    values_of_key,
)
from sunshower.topologies.operators.aggregators import (
    AnyAggregator,
    CombinerAggregator,
    ReducerAggregator,
    Table,
)
from sunshower.topologies.operators.columns import CombineColumns, partial_rows
from sunshower.topologies.operators.port import Attempt, Emit, Gathering, Operator, Rows
from sunshower.topologies.operators.state_slot import StateSlot, own_copies
from sunshower.topologies.operators.states import Key, MapState, is_own

_ANY = Attempt(0, 0, 0)  # writes of ordinary streams have numbers of their own


# ---- persisting ----------------------------------------------------------------------------------
# Operators that write aggregates to a state, once for each batch.
#
# Storm: org.apache.storm.trident.planner.processor.PartitionPersistProcessor,
# org.apache.storm.trident.operation.impl.MapCombinerAggStateUpdater and similar classes.


class Persist(Gathering):
    """Writes a batch to a state, all or nothing; `write` defines what."""

    commits = True
    emits_updates = False  # instead of rows: see updates.py
    shows = False  # whether readers of plain rows get what it emits as updates

    def __init__(self, slot: StateSlot) -> None:
        self.slot = slot

    def prepare(self, context: Context) -> None:
        self.slot.open(context)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        """Write the contents of `batch`; returns the rows to emit."""
        raise NotImplementedError

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        slot, state = self.slot, self.slot.state
        try:
            slot.begin_commit(attempt)
            records = self.write(state, batch, attempt) if batch else ()
            slot.commit(attempt)
        except BaseException:
            state.abort()
            raise
        if records:
            emit(records)

    def cleanup(self) -> None:
        self.slot.close()

    def emitted(
        self, keys: Iterable[Any], records: Sequence[Any], attempt: Attempt
    ) -> Sequence[Any]:
        """The records of groups as they are emitted: as updates, if something reads these."""
        if not self.emits_updates:
            return records
        name, number = self.slot.name, self.slot.number(attempt)
        return [((name, key), number, [record]) for key, record in zip(keys, records, strict=True)]


class PersistCombined(Persist):
    """Combines values into those of their groups in a state."""

    def __init__(
        self, slot: StateSlot, width: int, combiner: CombinerAggregator[Any, Any], out: Schema
    ) -> None:
        super().__init__(slot)
        self.width, self.combiner, self.out = width, combiner, out

    @property
    def described_values(self) -> str:
        """What is stored, as a text that the store has."""
        return f"totals: {self.combiner.described_values}"

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
        if self.slot.memory is not None:
            results = own_copies([*results])
        if len(self.combiner.emits) == 1:
            return new_values(keys, results, self.width, self.out)
        rows = zip(keys, results, strict=True)
        return self.out.make([(*values_of_key(key, self.width), *row) for key, row in rows])

    def _update(self, value: Any, old: Any) -> Any:
        return value if old is None else self.combiner.combine(old, value)


class PersistReduced(Persist):
    """Reduces rows into the values of their groups in a state."""

    def __init__(
        self,
        slot: StateSlot,
        schema: Schema,
        by: Sequence[str],
        reducer: ReducerAggregator[Any, Any],
        out: Schema,
    ) -> None:
        super().__init__(slot)
        self.schema, self.by, self.reducer, self.out = schema, tuple(by), reducer, out

    @property
    def described_values(self) -> str:
        """As of PersistCombined."""
        return f"totals: {self.reducer.described_values}"

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


# ---- totals --------------------------------------------------------------------------------------


class _InMemory(Persist):
    """What a stage does with the state of a task that is in its memory."""

    def snapshot(self) -> Any:
        """The values, for another process, and the number of the last update, if there are any."""
        if (values := self._values) is None or not self.emits_updates:
            return values
        return [values, self.slot.number(_ANY)]

    def restore(self, state: Any) -> None:
        if self.slot.memory is None or state is None:
            return
        if not isinstance(state, dict):
            state, number = state
            self.slot.pass_number(number)
        self.slot.memory.values = state

    def result(self) -> Any:
        """The totals so far, if they are in memory: key → value."""
        return self._values

    @property
    def _values(self) -> dict[Key, Any] | None:
        return None if self.slot.memory is None else self.slot.memory.values

    def stored(self, keys: Sequence[Key]) -> list[Any]:
        values = self.slot.state.multi_get(keys)
        return [None if value is None else self.shown(value) for value in values]

    def stored_items(self) -> Iterator[tuple[Key, Any]]:
        items = self.slot.state.items()
        return ((key, self.shown(value)) for key, value in items if not is_own(key))

    def shown(self, value: Any) -> Any:
        """What is emitted of a value in the state."""
        return value


class CombinedTotals(_InMemory, PersistCombined):
    """Combines values into the totals of their groups."""

    @property
    def by(self) -> tuple[str, ...]:
        return self.out.fields[: self.width]

    def shown(self, value: Any) -> Any:
        result, names = self.combiner.result(value), self.combiner.emits
        return result if len(names) == 1 else dict(zip(names, result, strict=True))

    def result(self) -> Any:
        values, result = self._values, self.combiner.result
        if values is None:
            return None
        values = {key: value for key, value in values.items() if not is_own(key)}
        if len(self.combiner.emits) > 1:
            return {key: list(result(value)) for key, value in values.items()}
        return {key: result(value) for key, value in values.items()}

    takes_tables = True

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        super().process(batch, source, partial_rows(rows), emit)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        keys, combine = list(batch), self.combiner.combine
        pairs = zip(batch.values(), state.multi_get(keys), strict=True)
        values = [value if old is None else combine(old, value) for value, old in pairs]
        state.multi_put(keys, values)
        return self.emitted(keys, self.records(keys, values), attempt)


class ReducedTotals(_InMemory, PersistReduced):
    """Reduces rows into the totals of their groups."""


def totals_operators(
    slot: StateSlot,
    schema: Schema,
    by: Sequence[str],
    aggregator: CombinerAggregator[Any, Any] | ReducerAggregator[Any, Any],
    out: Schema,
) -> tuple[Combine | None, Operator]:
    """What combines records of `schema` in their task, if it can, and what keeps the totals."""
    if isinstance(aggregator, CombinerAggregator):
        parts = aggregator.combiners if isinstance(aggregator, Several) else (aggregator,)
        return CombineColumns(schema, by, aggregator, parts), CombinedTotals(
            slot, len(by), aggregator, out
        )
    return None, ReducedTotals(slot, schema, by, aggregator, out)


class Several(CombinerAggregator[Any, list[Any]]):
    """Several combiners as one, whose value is the list of theirs."""

    def __init__(self, combiners: Sequence[CombinerAggregator[Any, Any]]) -> None:
        self.combiners = tuple(combiners)
        names = tuple(name for combiner in combiners for name in combiner.emits)
        self.fields = names  # type: ignore[misc]

    @property
    def described_values(self) -> str:
        return ", ".join(combiner.described_values for combiner in self.combiners)

    def init(self, record: Any) -> list[Any]:
        return [combiner.init(record) for combiner in self.combiners]

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        pairs = zip(self.combiners, first, second, strict=True)
        return [combiner.combine(value, other) for combiner, value, other in pairs]

    def zero(self) -> list[Any]:
        return [combiner.zero() for combiner in self.combiners]

    def result(self, value: list[Any]) -> tuple[Any, ...]:
        pairs = zip(self.combiners, value, strict=True)
        return tuple(combiner.result(total) for combiner, total in pairs)


def single(
    aggregators: Sequence[AnyAggregator], by: Sequence[str], parallelism: int, where: str
) -> CombinerAggregator[Any, Any] | ReducerAggregator[Any, Any]:
    """The aggregators as one. Raises TopologyError if they cannot be."""
    check_one_task(by, parallelism, where)
    combiners = [
        aggregator for aggregator in aggregators if isinstance(aggregator, CombinerAggregator)
    ]
    if len(combiners) == len(aggregators) > 1:
        return Several(combiners)
    if len(aggregators) == 1 and isinstance(aggregators[0], CombinerAggregator | ReducerAggregator):
        return aggregators[0]
    raise TopologyError(
        f"{where}: totals are kept by one ReducerAggregator, or by one or several "
        "CombinerAggregators; declare two aggregations for other combinations"
    )


def check_one_task(by: Sequence[str], parallelism: int, where: str) -> None:
    """Raise TopologyError for several tasks without groups."""
    if not by and parallelism != 1:
        raise TopologyError(
            f"{where}: parallelism is {parallelism!r}, but without .group_by(…) one task has all "
            "records"
        )
