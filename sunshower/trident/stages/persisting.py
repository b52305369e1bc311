"""States of exactly-once batches: written in the commit phase, or queried.

A batch without rows in a task is begun and committed there too, because an earlier attempt may have
had some, whose writes the state then undoes (Storm does not, and counts them twice). Storm:
org.apache.storm.trident.planner.processor.PartitionPersistProcessor, StateQueryProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from sunshower.errors import BatchError
from sunshower.records import Schema
from sunshower.topologies.components import Context
from sunshower.topologies.graph import own_copy
from sunshower.topologies.operators.aggregating import group_keys
from sunshower.topologies.operators.port import Attempt, Emit, Gathering
from sunshower.topologies.operators.state_slot import Join, StateSlot, nothing_else
from sunshower.topologies.operators.states import (
    Key,
    MapState,
    Moving,
    Place,
    RecognisedState,
    Spread,
    StateFactory,
)
from sunshower.topologies.operators.steps import check_rows, keys_of, prepare_code
from sunshower.topologies.operators.totals import Persist
from sunshower.trident.states.factories import MemoryState, StaticState
from sunshower.trident.states.stored_map import CountedIn, LastWrite


class BatchSlot(StateSlot):
    """The state of one task of batches: its writes have the numbers of the batches, and are noted
    in the store of the batches."""

    is_of_batches = True
    factory: StateFactory

    def __init__(
        self,
        factory: StateFactory,
        name: str,
        join: Join = nothing_else,
        *,
        spread: Spread = Spread.BY_KEY,
        by: Sequence[str] = (),
        exactly_once: bool = True,
        can_move: bool = True,
    ) -> None:
        """`join` and `spread`: as of StateSlot; `by`: the fields of its keys; `can_move`: whether
        its keys choose the task of a row."""
        super().__init__(factory, name, f"state {name!r}", join, spread=spread)
        self.by, self.exactly_once, self.can_move = tuple(by), exactly_once, can_move
        self.counted: CountedIn | None = None  # set by GroupBuilder.freeze
        self._noted: LastWrite | None = None  # of states that are exactly once
        self._begun: Attempt | None = None  # while a batch is written
        self.changes: dict[Key, Any] = {}  # what `write` has written of the last batch

    def hold_in_memory(self, memories: list[tuple[StateFactory, Any]]) -> None:
        if isinstance(self.factory, StaticState):  # which is only read
            return
        known = (memory for factory, memory in memories if factory == self.factory)
        if (memory := next(known, None)) is None:
            name = getattr(self.factory, "name", None)
            memory = MemoryState(self.factory.kind, name)
            memories.append((self.factory, memory))
        self.factory = memory

    def begin_commit(self, attempt: Attempt) -> None:
        self.state.begin_commit(attempt)
        self._begun = attempt
        self._check()

    def write(self, changes: Mapping[Key, Any]) -> None:
        """Write changes as a part of the batch that has begun; None: removed."""
        self.changes |= changes
        self.state.multi_put([*changes], [*changes.values()])

    def items(self) -> Iterator[tuple[Key, Any]]:
        """All entries, in no order. A batch that has begun, and written nothing yet, gets them as
        they were before it, also if an earlier attempt of it has changed them."""
        again = dict.fromkeys(self.written_by(self._begun) if self._begun is not None else ())
        for key, value in self.state.items():
            if key not in again:
                yield key, value
        for key, value in zip(again, self.state.multi_get([*again]), strict=True):
            if value is not None:
                yield key, value

    def written_by(self, attempt: Attempt) -> Sequence[Key]:
        """The keys that an earlier attempt of a batch has changed, if the state knows them."""
        keys: Callable[[Attempt], Sequence[Key]] | None = getattr(self.state, "written_by", None)
        return () if keys is None else keys(attempt)

    @property
    def undoes_attempts(self) -> bool:
        """Whether the state says what an earlier attempt of a batch has written."""
        return isinstance(self.state, RecognisedState) and hasattr(self.state, "written_by")

    @property
    def must_undo(self) -> bool:
        is_again = self._begun is not None and self._begun.attempt > 0
        return is_again and not self.undoes_attempts

    def commit(self, attempt: Attempt) -> None:
        self.state.commit(attempt)
        self._begun = None
        if self._noted is not None and (last := self.last_attempt) is not None:
            self._noted.note(last)

    def number(self, attempt: Attempt) -> int:
        return attempt.txid

    def close(self) -> None:
        super().close()
        if self._noted is not None:
            self._noted.close()
        self._noted = None

    def _begin(self, context: Context) -> None:
        counted = self.counted
        batches = counted.incarnation() if counted is not None else ""
        moving = Moving(self.spread, self._join, not self._was_open, self._check_former)
        place = Place(
            *(context.topology, self.name, context.index, context.parallelism, batches),
            values=self.values,
        )
        self._noted = self._note_of(context.index)
        self._told = self._told_of(context.index)
        self._state = self.factory.make(replace(place, moving=moving) if self.can_move else place)
        if self._noted is not None and not isinstance(self._state, RecognisedState):
            self._noted.close()
            self._noted = None
        self._check()

    def _check(self) -> None:
        if self._noted is not None:
            self._noted.check(self.last_attempt, self._told)

    def _check_former(self, task: int, last: Attempt | None) -> None:
        """Raise StateMismatch if a task has noted a later write than the last one of its part."""
        if (noted := self._note_of(task)) is not None:
            with closing(noted):
                noted.check(last, self._told_of(task))

    def _note_of(self, task: int) -> LastWrite | None:
        if self.counted is None or not self.exactly_once:
            return None
        return self.counted.last_write(self.stored_name, task)

    def _told_of(self, task: int) -> str:
        return f"state {self.stored_name!r}, task {task}"

    @property
    def stored_name(self) -> str:
        """By which a later run finds it; no two states of a topology have the same."""
        return getattr(self.factory, "name", None) or self.name


class PersistPartition(Persist):
    """Calls a user function with the state and the rows of a batch."""

    def __init__(self, slot: BatchSlot, updater: Callable[..., Any], out: Schema | None) -> None:
        super().__init__(slot)
        self.updater, self.out = own_copy(updater, "the updater of a state"), out

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        prepare_code(self.updater, context)

    def write(self, state: MapState, batch: Any, attempt: Attempt) -> Sequence[Any]:
        outputs = list(self.updater(state, batch) or ())
        if self.out is not None:
            check_rows(outputs, self.out, self.updater)
        return outputs if self.out is not None else ()


class QueryState(Gathering):
    """Queries a state for all rows of a batch at once and emits each row with its answer. With
    `commits` it runs in the commit phase and sees what the batches before have written."""

    blocks_lineage = "a state_query"

    def __init__(
        self,
        slot: BatchSlot,
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
        answered = zip(rows, answers, strict=True)
        if several:
            emit(self.out.make([(*row, *answer) for row, answer in answered]))
        else:
            emit(self.out.make([(*row, answer) for row, answer in answered]))

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
        values = dict.fromkeys(keys)
        for key, value in zip(values, state.multi_get(list(values)), strict=True):
            known = self.result is not None and value is not None
            values[key] = self.result(value) if known else value  # type: ignore[misc]
        return [values[key] for key in keys]
