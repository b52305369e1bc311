"""Which jobs a shared gateway has, and that those of a task that died are not run for nobody.

A task that was killed cannot cancel what it has handed over. But it is started again, and when its
next life hands something over, the jobs of its former lives are ended. Calls of a former life may
still wait at the gateway then: they come to nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from sunshower.spark_integration.port import BatchInfo

_EARLY_MAX = 1_000  # numbers of jobs that were given up before they came


class Cancellable(Protocol):
    """A job."""

    batch: BatchInfo

    def cancel(self) -> None:
        """Nobody waits for it any more."""


@dataclass
class Lives:
    """Those of a task: the one that handed over last, and those before it."""

    last: str
    former: set[str] = field(default_factory=set)

    def begin(self, life: str) -> None:
        """It hands something over."""
        if life != self.last and life not in self.former:
            self.former.add(self.last)
            self.last = life


class UnderWay:
    """Jobs by number. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[Cancellable, str]] = {}
        self._lives: dict[tuple[str, str], Lives] = {}  # by topology and task
        self._early: deque[str] = deque(maxlen=_EARLY_MAX)

    def add(self, number: str, job: Cancellable, life: str) -> None:
        """A job that its task has handed over in this life; those of former ones are cancelled. So
        is this one, if nobody has waited for it to come so far."""
        with self._lock:
            self._jobs[number] = job, life
            over = self._orphans(job, life) if job.batch.task else []
            over += [job] if number in self._early else []
        for one in over:
            one.cancel()

    def remove(self, number: str) -> None:
        """A job has ended."""
        with self._lock:
            self._jobs.pop(number, None)

    def cancel(self, number: str) -> None:
        """Nobody waits for this job any more, whether it is there or is still to come."""
        with self._lock:
            there = self._jobs.get(number)
            if there is None:
                self._early.append(number)
        if there is not None:
            there[0].cancel()

    def _orphans(self, job: Cancellable, life: str) -> list[Cancellable]:
        owner = _owner(job)
        lives = self._lives.setdefault(owner, Lives(life))
        lives.begin(life)
        there = self._jobs.values()
        return [one for one, of in there if of in lives.former and _owner(one) == owner]


def _owner(job: Cancellable) -> tuple[str, str]:
    return job.batch.topology, job.batch.task
