"""A database for the rig that is a real state, such as MemoryState or SqliteState."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from sunshower import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import nothing_else
from sunshower.topologies.operators.states import MapState, Moving, Place, Spread
from sunshower.trident.states.factories import KeptState
from tests.trident.rigs.group_rig import Database, Row, Writer


class InState(Database):
    """Each life of a task opens its part again, and writes as `stages/persisting.py` does. `moves`:
    whether the values move to other numbers of tasks."""

    def __init__(self, factory: KeptState, *, moves: bool = False) -> None:
        super().__init__()
        self.factory, self.moves = factory, moves

    def open(self, context: Context) -> Writer:
        moving = Moving(Spread.BY_KEY, nothing_else, check=lambda *_: None)
        place = Place(
            context.topology,
            "counts",
            context.index,
            context.parallelism,
            moving=moving if self.moves else None,
        )
        state = self.factory.make(place)

        def write(attempt: Attempt, rows: Sequence[Row]) -> None:
            state.begin_commit(attempt)
            try:
                add(state, rows)
                state.commit(attempt)
            except BaseException:
                state.abort()
                raise
            self.order.append((context.index, attempt.txid, attempt.attempt))

        return write

    @property
    def counts(self) -> Counter[int]:
        totals = Counter[int]()
        for _, numbers in self.factory.items("counts"):
            totals.update({int(number): count for number, count in numbers.items()})
        return totals


def add(state: MapState, rows: Sequence[Row]) -> None:
    """Count each number below its key."""
    counts: dict[int, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row.key, Counter())[str(row.number)] += 1
    state.multi_update([*counts], [plus(numbers) for numbers in counts.values()])


def plus(numbers: Counter[str]) -> Callable[[Any], dict[str, int]]:
    return lambda old: dict(Counter(old or {}) + numbers)
