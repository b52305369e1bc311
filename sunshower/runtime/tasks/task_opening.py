"""Opens tasks: for the first time, after an error, or with a TaskTransfer after a rebalance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from sunshower.clock import Clock
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.tasks.ticks import Ticker, tickers
from sunshower.runtime.tasks.user_code import Raised
from sunshower.runtime.tasks.user_code_calls import UserCodeCalls
from sunshower.runtime.wiring import context
from sunshower.topologies.components import Context


class TaskOpening:
    """Opens each task at the time that its supervision decides; see supervision.py."""

    def __init__(
        self,
        plan: Plan,
        call: UserCodeCalls,
        clock: Clock,
        tasks: Iterable[BoltTask | SpoutTask],
        transfer: Mapping[int, TaskTransfer],
    ) -> None:
        self.waiting = list(tasks)
        self.active = True  # whether spouts are activated once they are open
        self.is_code_new = False  # whether the code may still be rolled back
        self._tickers = list[Ticker]()  # of open tasks that have a tick
        self._plan = plan
        self._call = call
        self._clock = clock
        self._transfer = dict(transfer)

    @property
    def tickers(self) -> Sequence[Ticker]:
        """Those of open tasks that have a tick."""
        return () if self.is_code_new else self._tickers

    @property
    def transfer_left(self) -> Mapping[int, TaskTransfer]:
        """The TaskTransfer of tasks that are not open yet; the next rebalance moves it again."""
        return self._transfer

    def wait_for(self, task: BoltTask | SpoutTask, raised: Raised) -> None:
        """Try a task again later, because its user code raised. A task that was in doubt for too
        long, or has raised too often, is quarantined."""
        care, now = task.supervision, self._clock.now()
        if isinstance(task, BoltTask) or not care.doubted(raised, now):
            care.raised(raised, now)
        if task not in self.waiting:
            self.waiting.append(task)

    def look(self, now: float) -> None:
        """Open the tasks that are due."""
        for task in self.waiting:
            if task.supervision.retry_s <= now:
                try:
                    self._open(task)
                except Raised as raised:
                    self.wait_for(task, raised)
            if isinstance(task, SpoutTask) and task.supervision.is_quarantined:
                task.abandon()
        self.waiting = [task for task in self.waiting if _is_tried_again(task)]

    def context_of(self, task: BoltTask | SpoutTask) -> Context:
        """The Context passed to the user code of a task."""
        committed = getattr(task, "committed", 0)
        return context(self._plan, task.task, committed, self._clock, task.instrument)

    def _open(self, task: BoltTask | SpoutTask) -> None:
        where = self.context_of(task)
        own = self._transfer.get(task.task.id)
        begin = partial(task.unpack, own) if own else task.resume
        before = getattr(task, "spout", None)
        self._call(task.task, "the opening", partial(begin, where))
        task.supervision.tried()
        if isinstance(task, BoltTask):
            task.supervision.end_wait()
        self._transfer.pop(task.task.id, None)
        if isinstance(task, SpoutTask) and self.active and task.spout is not before:
            self._call(task.task, "activate", task.activate)
        self._tickers += tickers(self._plan, task, self._tickers, self._clock.now())


def _is_tried_again(task: BoltTask | SpoutTask) -> bool:
    """Whether to try it again: if it waits, or is a quarantined bolt (spouts are given up)."""
    care = task.supervision
    return care.waits or (care.is_quarantined and isinstance(task, BoltTask))
