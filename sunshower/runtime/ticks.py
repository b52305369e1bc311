"""Ticks: user code that is called by the clock, not by a record.

The times are start + n × tick_s, exactly: a late tick does not delay the next one, and ticks that
were missed meanwhile are left out, never made up for in a burst. A tick whose receivers have no
room waits for it, until the next one would be due; then it is called all the same. So a receiver
that stands still does not stop a bolt's clock, and only a receiver with `window_records_max`
ahead of it makes the bolt miss ticks: that bounds what ticks can pile up.
Storm: org.apache.storm.executor.Executor (setupTicks), topology.tick.tuple.freq.secs: whole
seconds, by a tuple that waits in the bolt's queue behind everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor

from sunshower.runtime.bolt_task import BoltTask
from sunshower.runtime.outlets import Outlets
from sunshower.runtime.plan import Plan
from sunshower.runtime.spout_task import SpoutTask


@dataclass(slots=True)
class Ticker:
    """The ticks of one task, from `start_s` on."""

    task: BoltTask | SpoutTask
    outlets: Outlets | None  # that must have room; None for a spout, whose tick emits nothing
    every_s: float
    start_s: float
    number: int = 1  # of the next tick

    @property
    def due_s(self) -> float:
        """When the next tick is due."""
        return self.start_s + self.number * self.every_s

    def look_s(self, now: float) -> float:
        """When to look again; before that only room that a receiver gives can change anything."""
        return self.due_s if now < self.due_s else self.due_s + self.every_s

    def take(self, now: float) -> bool:
        """Whether to tick now; if so, the next time is the first one after `now`."""
        if now < self.due_s:
            return False
        outlets = self.outlets
        if outlets is not None and outlets.full and now < self.due_s + self.every_s:
            return False
        self.number = max(self.number + 1, floor((now - self.start_s) / self.every_s))
        while self.due_s <= now:
            self.number += 1
        return outlets is None or not outlets.overfull


def tickers(
    plan: Plan, task: BoltTask | SpoutTask, there: Iterable[Ticker], now: float
) -> list[Ticker]:
    """That of a task which has just been opened, if it has a `tick_s` and is not `there` yet."""
    every_s = plan.component(task.task).tick_s
    if every_s is None or any(ticker.task is task for ticker in there):
        return []
    outlets = task.outlets if isinstance(task, BoltTask) else None
    return [Ticker(task, outlets, every_s, now)]
