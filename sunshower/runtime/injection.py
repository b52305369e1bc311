"""What the havoc of an experiment does to one task: its code raises, or takes longer.

The task is wrapped only while a rule concerns it, and its code only for a batch in which something
happens. What is raised goes the way of every exception of user code from there on, and what is
slow is so inside the guarded call, where the black box, the watchdog and the service time see it.

A spout's source raises before it gives a record that was chosen. `next_tuple` emits whatever it
wants: there a rule without `where` raises in the place of a call, and one with `where` after a call
that has emitted such a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sunshower.clock import Clock
from sunshower.errors import InjectedError, InjectedOutage
from sunshower.records import Schema
from sunshower.runtime.batch import Batch
from sunshower.runtime.havoc import Havoc, Raise
from sunshower.runtime.plan import Task

Call = Callable[..., Any]


class Injection:
    """The rules that concern one task; chance comes from `generator`."""

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
        self._slow_s = slow_s  # by which each record takes longer
        self._clock = clock
        self._generator = generator

    # ---- bolts ------------------------------------------------------------------------------

    def around(self, call: Call, batch: Batch, schema: Schema) -> Call:
        """`call`, for the records of `batch` one after the other, with what befalls each."""
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
        """What befalls a table: one row that is chosen is enough."""
        self.slow_down(len(batch))
        if self._hits(batch, schema).any():
            raise self.error

    # ---- spouts -----------------------------------------------------------------------------

    def slow_down(self, records: int) -> None:
        """Take the time that so many records take longer."""
        if self._slow_s and records:
            self._clock.sleep(self._slow_s * records)

    def first_hit(self, batch: Batch, schema: Schema) -> int | None:
        """The index of the first record that the source raises for instead."""
        hits = self._hits(batch, schema)
        return int(hits.argmax()) if hits.any() else None

    def before_call(self) -> None:
        """next_tuple is about to be called."""
        chances = [rule.probability for rule in self._raises if not rule.where]
        if chances and (self._generator.random(len(chances)) < chances).any():
            raise self.error

    def after_call(self, emitted: Iterable[tuple[Any, Schema]]) -> None:
        """next_tuple has emitted these records."""
        where = [rule for rule in self._raises if rule.where]
        for record, schema in emitted if where else ():
            if self._hits(Batch(0, self._task.id, [record]), schema, where).any():
                raise self.error

    @property
    def error(self) -> InjectedError:
        """What is raised: while any rule of the task says `unavailable`, an outage."""
        place = f"{self._task.component}[{self._task.index}]"
        if any(rule.unavailable for rule in self._raises):
            return InjectedOutage(f"an experiment takes the dependency of {place} away")
        return InjectedError(f"an experiment raises this in the place of the code of {place}")

    # ---- how --------------------------------------------------------------------------------

    def _hits(
        self, batch: Batch, schema: Schema, rules: Iterable[Raise] | None = None
    ) -> NDArray[np.bool_]:
        """Which records of the batch are chosen."""
        hits = np.zeros(len(batch), np.bool_)
        for rule in self._raises if rules is None else rules:
            chosen = self._generator.random(len(batch)) < rule.probability
            if rule.where and chosen.any():
                chosen &= _fitting(rule.where, batch, schema)
            hits |= chosen
        return hits


def injection_of(
    havoc: Havoc, task: Task, clock: Clock, generator: np.random.Generator
) -> Injection | None:
    """The rules of `havoc` that concern a task, if there are any."""
    mine = (rule for rule in havoc.raises if rule.component == task.component)
    raises = [rule for rule in mine if rule.index in (None, task.index)]
    slow_s = slowness(havoc, task)
    return Injection(task, raises, slow_s, clock, generator) if raises or slow_s else None


def slowness(havoc: Havoc, task: Task) -> float:
    """The seconds by which each record of a task takes longer."""
    mine = (rule for rule in havoc.slows if rule.component == task.component)
    return sum(rule.seconds for rule in mine if rule.index in (None, task.index))


def _fitting(where: Any, batch: Batch, schema: Schema) -> NDArray[np.bool_]:
    if not where.keys() <= set(schema.fields):  # of another stream
        return np.zeros(len(batch), np.bool_)
    get = schema.key(list(where))
    wanted = next(iter(where.values())) if len(where) == 1 else tuple(where.values())
    return np.array([bool(get(row) == wanted) for row in batch.rows(schema)], np.bool_)
