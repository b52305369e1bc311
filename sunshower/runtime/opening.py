"""Tasks that wait to be opened: for the first time, after an error, or with luggage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from sunshower.clock import Clock
from sunshower.runtime.bolt_task import BoltTask
from sunshower.runtime.calls import Calls
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.plan import Plan
from sunshower.runtime.spout_task import SpoutTask
from sunshower.runtime.ticks import Ticker, tickers
from sunshower.runtime.usercode import Raised
from sunshower.runtime.wiring import context


class Opening:
    """When each is to be opened, says its supervision; see supervision.py."""

    def __init__(
        self,
        plan: Plan,
        call: Calls,
        clock: Clock,
        tasks: Iterable[BoltTask | SpoutTask],
        luggage: Mapping[int, Luggage],
    ) -> None:
        self.waiting = list(tasks)
        self.active = True  # whether spouts are told so when they are open
        self.tickers = list[Ticker]()  # of the tasks that are open and have a tick
        self._plan = plan
        self._call = call
        self._clock = clock
        self._luggage = dict(luggage)

    @property
    def luggage_left(self) -> Mapping[int, Luggage]:
        """The luggage of tasks that are not open yet: it goes along once more."""
        return self._luggage

    def wait_for(self, task: BoltTask | SpoutTask, raised: Raised) -> None:
        """User code has raised: it is asked again later. One that was opened and in doubt for too
        long, or has raised too often, is quarantined."""
        care, now = task.supervision, self._clock.now()
        if isinstance(task, BoltTask) or not care.doubted(raised, now):
            care.raised(raised, now)
        if task not in self.waiting:
            self.waiting.append(task)

    def look(self, now: float) -> None:
        """Open those whose time has come."""
        for task in self.waiting:
            if task.supervision.retry_s <= now:
                try:
                    self._open(task)
                except Raised as raised:
                    self.wait_for(task, raised)
            if isinstance(task, SpoutTask) and task.supervision.is_quarantined:
                task.abandon()
        self.waiting = [task for task in self.waiting if _is_tried_again(task)]

    def _open(self, task: BoltTask | SpoutTask) -> None:
        committed = getattr(task, "committed", 0)
        where = context(self._plan, task.task, committed, self._clock, task.scribe)
        own = self._luggage.get(task.task.id)
        begin = partial(task.unpack, own) if own else task.resume
        before = getattr(task, "spout", None)
        self._call(task.task, "the opening", partial(begin, where))
        task.supervision.tried()
        if isinstance(task, BoltTask):
            task.supervision.end_wait()
        self._luggage.pop(task.task.id, None)
        if isinstance(task, SpoutTask) and self.active and task.spout is not before:
            self._call(task.task, "activate", task.activate)
        self.tickers += tickers(self._plan, task, self.tickers, self._clock.now())


def _is_tried_again(task: BoltTask | SpoutTask) -> bool:
    """Whether it is not open; a quarantined spout is given up, a bolt is tried now and then."""
    care = task.supervision
    return care.waits or (care.is_quarantined and isinstance(task, BoltTask))
