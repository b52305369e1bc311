"""Schedules ticks: calls of user code at fixed intervals, independent of records.

Ticks are due at start + n × tick_s, exactly: a late tick does not delay the next one, and missed
ticks are skipped, never repeated in a burst. A tick whose receivers have no credit waits for it
until the next tick would be due; then it is called anyway. So a blocked receiver does not stop the
ticks of a bolt. A bolt misses ticks only while a receiver has `window_records_max` records waiting,
which bounds the outputs of ticks in memory.
Storm: org.apache.storm.executor.Executor (setupTicks), topology.tick.tuple.freq.secs: whole
seconds, by a tuple that waits in the bolt's queue behind all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor

from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.transport.output_streams import OutputStreams


@dataclass(slots=True)
class Ticker:
    """The ticks of one task, from `start_s` on."""

    task: BoltTask | SpoutTask
    output_streams: OutputStreams | None  # None for a spout, whose tick emits nothing
    every_s: float
    start_s: float
    number: int = 1  # of the next tick

    @property
    def due_s(self) -> float:
        """When the next tick is due."""
        return self.start_s + self.number * self.every_s

    def look_s(self, now: float) -> float:
        """When to check again; before that time only new credit can make the tick due."""
        return self.due_s if now < self.due_s else self.due_s + self.every_s

    def take(self, now: float) -> bool:
        """Whether to tick now; if so, the next tick is the first one due after `now`."""
        if now < self.due_s:
            return False
        output_streams = self.output_streams
        if output_streams is not None and output_streams.full and now < self.due_s + self.every_s:
            return False
        self.number = max(self.number + 1, floor((now - self.start_s) / self.every_s))
        while self.due_s <= now:
            self.number += 1
        return output_streams is None or not output_streams.overfull


def tickers(
    plan: Plan, task: BoltTask | SpoutTask, there: Iterable[Ticker], now: float
) -> list[Ticker]:
    """The Ticker of a task just opened, if it has a `tick_s` and none in `there` yet."""
    every_s = plan.component(task.task).tick_s
    if every_s is None or any(ticker.task is task for ticker in there):
        return []
    output_streams = task.output_streams if isinstance(task, BoltTask) else None
    return [Ticker(task, output_streams, every_s, now)]
