"""Applies injected faults to one task: its code raises, or takes longer.

A task is wrapped only while a fault applies to it, and its code only for a batch that the fault
affects. An injected error is handled as any exception of user code; an injected delay is inside the
guarded call, where the flight recorder, the watchdog and the service time include it.

A spout's source raises before it returns a chosen record. `next_tuple` emits on its own: a fault
without `where` raises instead of a call, and one with `where` after a call that emitted such a
record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sunshower.clock import Clock, SystemClock
from sunshower.errors import InjectedError, InjectedOutage
from sunshower.records import Schema
from sunshower.runtime.events.injected_faults import InjectedFaults, Raise
from sunshower.runtime.plan import Task
from sunshower.runtime.transport.batch import Batch

Call = Callable[..., Any]


class TaskFaults:
    """The faults that apply to one task; `generator` draws the records."""

    def __init__(
        self,
        task: Task,
        raises: Sequence[Raise],
        slow_s: float,
        clock: Clock,
        generator: np.random.Generator,
    ) -> None:
        self._task = task
        self._raises = raises
        self._slow_s = slow_s  # the extra time per record
        self._clock = clock
        self._generator = generator

    # ---- bolts ------------------------------------------------------------------------------

    def around(self, call: Call, batch: Batch, schema: Schema) -> Call:
        """Wrap `call`, which processes the records of `batch` one by one, with their faults."""
        if self is NO_FAULTS:
            return call
        hits = self._hits(batch, schema)
        if not self._slow_s and not hits.any():
            return call
        waiting = iter(hits.tolist())

        def disturbed(*given: Any) -> Any:
            self.slow_down(1)
            if next(waiting):
                raise self.error
            return call(*given)

        return disturbed

    def strike(self, batch: Batch, schema: Schema) -> None:
        """Apply the faults of a table: one chosen row fails all of it."""
        self.slow_down(len(batch))
        if self._raises and self._hits(batch, schema).any():
            raise self.error

    # ---- spouts -----------------------------------------------------------------------------

    def slow_down(self, records: int) -> None:
        """Sleep for the extra time of so many records."""
        if self._slow_s and records:
            self._clock.sleep(self._slow_s * records)

    def first_hit(self, records: Any, schema: Schema) -> int | None:
        """The index of the first record instead of which the source raises."""
        if not self._raises:
            return None
        hits = self._hits(Batch(0, self._task.id, records), schema)
        return int(hits.argmax()) if hits.any() else None

    def before_call(self) -> None:
        """Called before next_tuple or poll."""
        chances = [rule.probability for rule in self._raises if not rule.where]
        if chances and (self._generator.random(len(chances)) < chances).any():
            raise self.error

    def around_next_tuple(
        self, call: Callable[[], None], emitted: Collection[Any], schema_of: Callable[[str], Schema]
    ) -> Callable[[], None]:
        """Wrap `call`, which appends emits (`stream`, `record`) to `emitted`."""
        if not self._raises:
            return call
        where = [rule for rule in self._raises if rule.where]

        def disturbed() -> None:
            before = len(emitted)
            self.before_call()
            call()
            for emit in islice(emitted, before, None) if where else ():
                batch = Batch(0, self._task.id, [emit.record])
                if self._hits(batch, schema_of(emit.stream), where).any():
                    raise self.error

        return disturbed

    @property
    def error(self) -> InjectedError:
        """The error to raise: an outage if any fault of the task says `unavailable`."""
        place = self._task.name
        if any(rule.unavailable for rule in self._raises):
            return InjectedOutage(f"an experiment takes the dependency of {place} away")
        return InjectedError(f"an experiment raises this in the place of the code of {place}")

    # ---- how --------------------------------------------------------------------------------

    def _hits(
        self, batch: Batch, schema: Schema, rules: Iterable[Raise] | None = None
    ) -> NDArray[np.bool_]:
        """Return which records of the batch are chosen."""
        hits = np.zeros(len(batch), np.bool_)
        for rule in self._raises if rules is None else rules:
            chosen = self._generator.random(len(batch)) < rule.probability
            if rule.where and chosen.any():
                chosen &= _fitting(rule.where, batch, schema)
            hits |= chosen
        return hits


NO_FAULTS = TaskFaults(Task(0, "", 0, 0), (), 0.0, SystemClock(), np.random.default_rng(0))


def faults_of(
    injected: InjectedFaults, task: Task, clock: Clock, generator: np.random.Generator
) -> TaskFaults:
    """The injected faults that apply to a task; NO_FAULTS if there is none."""
    mine = (rule for rule in injected.raises if rule.component == task.component)
    raises = [rule for rule in mine if rule.index in (None, task.index)]
    slow_s = slowness(injected, task)
    return TaskFaults(task, raises, slow_s, clock, generator) if raises or slow_s else NO_FAULTS


def slowness(injected: InjectedFaults, task: Task) -> float:
    """Return the seconds by which each record of a task takes longer."""
    mine = (rule for rule in injected.slows if rule.component == task.component)
    return sum(rule.seconds for rule in mine if rule.index in (None, task.index))


def _fitting(where: Any, batch: Batch, schema: Schema) -> NDArray[np.bool_]:
    if not where.keys() <= set(schema.fields):  # of another stream
        return np.zeros(len(batch), np.bool_)
    get = schema.key(list(where))
    wanted = next(iter(where.values())) if len(where) == 1 else tuple(where.values())
    return np.array([bool(get(row) == wanted) for row in batch.rows(schema)], np.bool_)
