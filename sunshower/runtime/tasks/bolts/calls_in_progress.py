"""The calls of an unordered async function, which continue between the slices of a task.

    begin(call, batch, records) ──▶ an event loop that runs a little in each slice
                                       └──▶ ended(wait_s): the inputs whose calls have ended

A shared batch succeeds or fails as a whole, so it ends with the last of its calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sunshower.clock import Clock
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.runtime.transport.batch import Batch, can_join, join
from sunshower.topologies.async_calls import AsyncCalls, BegunCall, Outcome


@dataclass(slots=True, eq=False)
class _Input:
    """A record, or a shared batch, and its calls."""

    batch: Batch
    tasks: list[BegunCall]

    @property
    def has_ended(self) -> bool:
        return all(task.done() for task in self.tasks)


class CallsInProgress:
    """Those of one task."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls
        self._inputs: list[_Input] = []
        self._since_s = 0.0  # since when calls are in progress without one that has ended

    def __len__(self) -> int:
        """How many records are in progress."""
        return sum(len(one.batch) for one in self._inputs)

    @property
    def roots(self) -> U64:
        """Those of the records in progress."""
        return np.concatenate([NO_IDS, *(one.batch.roots for one in self._inputs)])

    def begin(
        self,
        call: Callable[[Any], Awaitable[Any]],
        batch: Batch,
        records: Sequence[Any],
        clock: Clock,
    ) -> None:
        """Begin the calls for the records of a batch."""
        if not self._inputs:
            self._since_s = clock.now()
        batch = replace(batch, records=list(records))
        alone = [batch] if batch.shared else [batch.only(index) for index in range(len(batch))]
        for one in alone:
            tasks = [self._calls.begin(call, record) for record in one.records]
            self._inputs.append(_Input(one, tasks))

    def ended(self, wait_s: float) -> Iterator[tuple[Batch, list[Outcome]]]:
        """Let the calls go on until one of them has ended, at most for `wait_s`. Yields inputs
        whose calls have ended, joined if they can be, and the outcomes of their records."""
        waited = [task for one in self._inputs for task in one.tasks if not task.done()]
        self._calls.wait_for_one(waited, wait_s)
        ended = [one for one in self._inputs if one.has_ended]
        if not ended:
            return
        self._inputs = [one for one in self._inputs if not one.has_ended]
        while ended:
            first = ended[0].batch
            some = [ended[0], *(one for one in ended[1:] if can_join(first, one.batch))]
            ended = [one for one in ended if one not in some]
            outcomes = [task.result() for one in some for task in one.tasks]
            yield join([one.batch for one in some]), outcomes

    def seconds(self, now: float) -> float:
        """For how long calls have been in progress since this was asked before."""
        since_s, self._since_s = self._since_s, now
        return max(0.0, now - since_s)

    def cancel(self) -> None:
        """Give all calls up: their records are emitted again."""
        inputs, self._inputs = self._inputs, []
        self._calls.cancel([task for one in inputs for task in one.tasks])
