"""States of exactly-once batches: written in the commit phase, or queried.

A batch without rows in a task is begun and committed there too, because an earlier attempt may have
had some, whose writes the state then undoes (Storm does not, and counts them twice). Storm:
org.apache.storm.trident.planner.processor.PartitionPersistProcessor, StateQueryProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sunshower.errors import BatchError
from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.graph import own_copy
from sunshower.topologies.operators.grouping import group_keys
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.keyed.moved_parts import count_of
from sunshower.topologies.operators.persisting import Persist
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.operators.states import MapState, Place, RecognisedState, StateFactory
from sunshower.topologies.operators.steps import check_rows, keys_of, prepare_code
from sunshower.trident.states.marks import CountedIn, LastWrite


class StateSlot:
    """The state of one task; several operators of its stage may share it."""

    def __init__(self, factory: StateFactory, name: str, *, exactly_once: bool = True) -> None:
        self.factory, self.name, self.exactly_once = factory, name, exactly_once
        self.counted: CountedIn | None = None  # set by GroupBuilder.freeze
        self._state: MapState | None = None
        self._written: LastWrite | None = None  # of states that are exactly once

    def open(self, context: Context) -> None:
        """Open the state. Raises StateMismatch for one that is not as it was left."""
        if self._state is not None:
            return
        counted, name = self.counted, getattr(self.factory, "name", None) or self.name
        batches = counted.incarnation() if counted is not None else ""
        place = Place(context.topology, self.name, context.index, context.parallelism, batches)
        self._told = f"state {name!r}, task {context.index}"
        try:
            if counted is not None and self.exactly_once:
                self._written = counted.last_write(name, context.index)
            self._state = self.factory.make(place)
            if self._written is not None and not isinstance(self._state, RecognisedState):
                self._written.close()
                self._written = None
            self._check()
        except BaseException:
            self.close()
            raise

    def begin_commit(self, attempt: Attempt) -> None:
        """Begin to write a batch. Raises StateMismatch as `open` does."""
        self.state.begin_commit(attempt)
        self._check()

    def commit(self, attempt: Attempt) -> None:
        """Write the batch to the state, and note that in the store of the batches."""
        self.state.commit(attempt)
        if self._written is not None and (last := self._last_attempt) is not None:
            self._written.note(last)

    @property
    def state(self) -> MapState:
        assert self._state is not None, f"state {self.name!r} is not open"
        return self._state

    def number(self, attempt: Attempt) -> int:
        """The number of a batch: a later one of a group is higher."""
        return attempt.txid

    def entry_count(self) -> int | None:
        """How many entries the state has; None: not known."""
        return count_of(self._state)

    def close(self) -> None:
        for client in (self._state, self._written):
            if client is not None:
                client.close()
        self._state = self._written = None

    def _check(self) -> None:
        if self._written is not None:
            self._written.check(self._last_attempt, self._told)

    @property
    def _last_attempt(self) -> Attempt | None:
        last: Attempt | None = getattr(self._state, "last_attempt", None)
        return last


class PersistPartition(Persist):
    """Calls a user function with the state and the rows of a batch."""

    def __init__(self, slot: StateSlot, updater: Callable[..., Any], out: Schema | None) -> None:
        super().__init__(slot)
        self.updater, self.out = own_copy(updater, "the updater of a state"), out

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        prepare_code(self.updater, context)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        made = list(self.updater(state, batch) or ())
        if self.out is not None:
            check_rows(made, self.out, self.updater)
        return made if self.out is not None else ()


class ProcessByKey(Persist):
    """Calls a function with each row of a batch and the state of its key.

    An opaque state gives a batch that is repeated the values from before the batch.
    """

    def __init__(self, slot: StateSlot, process: KeyedProcess) -> None:
        super().__init__(slot)
        self.calls = process  # its store reads the state of the slot

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.calls.prepare(context)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        calls, store = self.calls, self.calls.store
        store.read_from(state)
        try:
            calls.announce(batch)
            made = [one for row in batch for one in calls.expand(row)]
            changed = store.changed
        finally:
            store.read_from(None)
        state.multi_put([*changed], [*changed.values()])
        return made

    def cleanup(self) -> None:
        try:
            self.calls.cleanup()
        finally:
            super().cleanup()


class QueryState(Operator):
    """Queries a state for all rows of a batch at once and emits each row with its answer. With
    `commits` it runs in the commit phase and sees what the batches before have written."""

    def __init__(
        self,
        slot: StateSlot,
        query: Callable[..., Any],
        schema: Schema,
        out: Schema,
        *,
        commits: bool,
    ) -> None:
        self.slot, self.schema, self.out = slot, schema, out
        self.query = own_copy(query, "the query of a state")
        self.commits = commits

    def prepare(self, context: Context) -> None:
        self.slot.open(context)
        prepare_code(self.query, context)

    def start(self, attempt: Attempt) -> list[Any]:
        return []

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        batch.extend(rows)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        if not batch:
            return
        answers = list(self.query(self.slot.state, batch))
        if len(answers) != len(batch):
            raise BatchError(
                f"a query of state {self.slot.name!r} gave {len(answers)} answers to {len(batch)} "
                "rows; give one for each row, in their order, None where there is none"
            )
        several = len(self.out.fields) - len(self.schema.fields) > 1
        rows = keys_of(self.schema, self.schema.fields, batch)
        made = zip(rows, answers, strict=True)
        if several:
            emit(self.out.make([(*row, *answer) for row, answer in made]))
        else:
            emit(self.out.make([(*row, answer) for row, answer in made]))

    def cleanup(self) -> None:
        self.slot.close()


class Lookup:
    """The query for the value of each row's group. Storm: MapGet, SnapshotGet."""

    def __init__(
        self, schema: Schema, by: Sequence[str], result: Callable[[Any], Any] | None = None
    ) -> None:
        self.schema, self.by, self.result = schema, tuple(by), result

    def __call__(self, state: MapState, rows: Sequence[Any]) -> list[Any]:
        keys = list(group_keys(self.schema, self.by, rows))
        found = dict.fromkeys(keys)
        for key, value in zip(found, state.multi_get(list(found)), strict=True):
            known = self.result is not None and value is not None
            found[key] = self.result(value) if known else value  # type: ignore[misc]
        return [found[key] for key in keys]
