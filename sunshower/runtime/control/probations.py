"""Decides when quarantined tasks are tried again, and when they have recovered.

A task whose process kept dying is tried again after 30 s, and after twice as long for each further
death, up to 10 minutes; without limit. It has recovered once it has run for 30 s without
interruption and has executed or emitted something in that process. Waits of a task whose process
stays alive are in supervision.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.events.metrics import TaskStats
from sunshower.runtime.tasks.supervision import Standing, backoff
from sunshower.runtime.tasks.user_code import TaskError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 600.0
_RECOVERED_S = 30.0


class Quarantine(NamedTuple):
    """What the master sends to the worker of a quarantined task at its hello."""

    error: TaskError  # why
    wait_s: float  # until the task is tried


class Probations:
    """Kept by one life of the master: the next one begins with the shortest wait again."""

    def __init__(self) -> None:
        self._failed: dict[int, int] = {}  # task → probations that its process did not survive
        self._runs_since_s: dict[int, float] = {}  # task → when it was first reported running

    def of(self, task: int, why: TaskError) -> Quarantine:
        """The quarantine of a task, with its wait from the hello of its worker."""
        failed = self._failed.get(task, 0)
        return Quarantine(why, backoff(_FIRST_WAIT_S, 1 + failed, _LONGEST_WAIT_S))

    def has_recovered(self, task: TaskStats, now: float) -> bool:
        """Whether a quarantined task counts as healthy, by the last statistics of its worker."""
        if task.health.standing is not Standing.RUNNING:
            self._runs_since_s.pop(task.task, None)
            return False
        since_s = self._runs_since_s.setdefault(task.task, now)
        if now - since_s < _RECOVERED_S or not (task.counts.executed or task.counts.emitted):
            return False
        self._runs_since_s.pop(task.task)
        self._failed.pop(task.task, None)
        return True

    def died(self, tasks: Iterable[int], crash_report: CrashReport | None) -> None:
        """The process of these quarantined tasks died. With a crash report, the task whose code ran
        has failed its probation; without one, all tasks that were reported running."""
        for task in tasks:
            ran = self._runs_since_s.pop(task, None) is not None
            if ran if crash_report is None else crash_report.task == task:
                self._failed[task] = self._failed.get(task, 0) + 1
