"""When quarantined tasks are tried again, and which of them have recovered.

A task whose process kept dying is tried again after 30 s, and after twice as long each time that it
dies once more, up to 10 minutes; for ever. It has recovered when it has run for 30 s without
interruption and has executed or emitted something in that process. What makes a task wait while its
process lives is in supervision.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sunshower.runtime.metrics import TaskStats
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.supervision import Standing, backoff
from sunshower.runtime.usercode import TaskError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 600.0
_RECOVERED_S = 30.0


class Quarantine(NamedTuple):
    """What the worker of a quarantined task is told when it says hello."""

    error: TaskError  # why
    wait_s: float  # until the task is tried


class Probations:
    """Kept by one life of the master: the next one begins with the shortest wait again."""

    def __init__(self) -> None:
        self._failed: dict[int, int] = {}  # task → probations that its process did not survive
        self._runs_since_s: dict[int, float] = {}  # task → when it was first heard to run

    def of(self, task: int, why: TaskError) -> Quarantine:
        """How long a quarantined task waits, from the hello of its worker."""
        failed = self._failed.get(task, 0)
        return Quarantine(why, backoff(_FIRST_WAIT_S, 1 + failed, _LONGEST_WAIT_S))

    def has_recovered(self, task: TaskStats, now: float) -> bool:
        """Whether a quarantined task may count as healthy, by what its worker has told last."""
        if task.health.standing is not Standing.RUNNING:
            self._runs_since_s.pop(task.task, None)
            return False
        since_s = self._runs_since_s.setdefault(task.task, now)
        if now - since_s < _RECOVERED_S or not (task.counts.executed or task.counts.emitted):
            return False
        self._runs_since_s.pop(task.task)
        self._failed.pop(task.task, None)
        return True

    def died(self, tasks: Iterable[int], obituary: Obituary | None) -> None:
        """The process of these quarantined tasks has died. Without a crash report, those that were
        heard to run have failed; with one, the task whose user code was running."""
        for task in tasks:
            ran = self._runs_since_s.pop(task, None) is not None
            if ran if obituary is None else obituary.task == task:
                self._failed[task] = self._failed.get(task, 0) + 1
