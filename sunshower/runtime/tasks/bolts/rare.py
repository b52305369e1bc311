"""What is rare about a bolt task; an ordinary one has nothing of it, and needs no slow_path.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import Any, NamedTuple

import numpy as np

from sunshower.clock import Clock
from sunshower.runtime.tracking.batch import Batch, can_join, join
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.topologies.async_calls import AsyncCalls, BegunCall, Outcome

Note = Callable[[U64], None]


# ---- calls in progress ---------------------------------------------------------------------------
# The calls of an unordered async function, which continue between the slices of a task.
#
#     begin(call, batch, records) ──▶ an event loop that runs a little in each slice
#                                        └──▶ ended(wait_s): the inputs whose calls have ended
#
# A shared batch succeeds or fails as a whole, so it ends with the last of its calls.


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
        return sum(len(waiting.batch) for waiting in self._inputs)

    @property
    def roots(self) -> U64:
        """Those of the records in progress."""
        return np.concatenate([NO_IDS, *(waiting.batch.roots for waiting in self._inputs)])

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
        for part in batch.inputs():
            tasks = [self._calls.begin(call, record) for record in part.records]
            self._inputs.append(_Input(part, tasks))

    def ended(self, wait_s: float) -> Iterator[tuple[Batch, list[Outcome]]]:
        """Let the calls go on until one of them has ended, at most for `wait_s`. Yields inputs
        whose calls have ended, joined if they can be, and the outcomes of their records."""
        waited = [task for waiting in self._inputs for task in waiting.tasks if not task.done()]
        self._calls.wait_for_one(waited, wait_s)
        ended = [waiting for waiting in self._inputs if waiting.has_ended]
        if not ended:
            return
        self._inputs = [waiting for waiting in self._inputs if not waiting.has_ended]
        while ended:
            first = ended[0].batch
            some = [ended[0], *(waiting for waiting in ended[1:] if can_join(first, waiting.batch))]
            ended = [waiting for waiting in ended if waiting not in some]
            outcomes = [task.result() for waiting in some for task in waiting.tasks]
            yield join([waiting.batch for waiting in some]), outcomes

    def seconds(self, now: float) -> float:
        """For how long calls have been in progress since this was asked before."""
        since_s, self._since_s = self._since_s, now
        return max(0.0, now - since_s)

    def cancel(self) -> None:
        """Give all calls up: their records are emitted again."""
        inputs, self._inputs = self._inputs, []
        self._calls.cancel([task for waiting in inputs for task in waiting.tasks])


# ---- rare ----------------------------------------------------------------------------------------


class Trial(Enum):
    """Which object of the bolt has the next input; see `SlowPath.begin_trial`."""

    NEW = "the new object has the next input: if it succeeds, the input is replayed"
    OLD = "the new object has succeeded; the old one has the next input"


_WAIT_MAX_S = 1.0  # of each wait for credit, that counts as time of an input


@dataclass(slots=True)
class Unfinished:
    """An input whose generator continues when there is credit."""

    input: Batch
    rest: Iterator[Any]
    made: U64 | None  # XOR of the edges made so far, shape (1,); None: untracked
    sent_s: float  # when its last outputs were made
    outputs: int  # made so far
    for_s: float = 0.0  # how long it has gone on; longer waits for credit, as in an outage, are not

    def goes_on(self, outputs: int, now: float) -> None:
        """Note further outputs."""
        self.outputs += outputs
        self.for_s += min(now - self.sent_s, _WAIT_MAX_S)
        self.sent_s = now


class Rare(NamedTuple):
    """What is rare about one task, besides its waits (supervision.py) and injected faults."""

    unfinished: Unfinished | None = None
    in_progress: CallsInProgress | None = None  # calls without order; None: it has none
    trial: Trial | None = None
    note: Note | None = None  # called with the roots of each record before its execution
    note_until_s: float = inf
    checks_mutation: bool = False
    input_s: float = inf  # an input whose generator has not ended after so long fails


ORDINARY = Rare()
