"""Tracks the jobs of a shared gateway and cancels those whose task has restarted.

A task that was killed cannot cancel its jobs. When its next life submits a job, the gateway cancels
the jobs of its former lives, including calls that still wait at the gateway.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from sunshower.spark_integration.sessions.spark_port import BatchInfo

_EARLY_MAX = 1_000  # ids of jobs that were cancelled before they arrived


class Cancellable(Protocol):
    """A job of one batch."""

    batch: BatchInfo

    def cancel(self) -> None:
        """Stop the job: no caller waits for its result."""


@dataclass
class Lives:
    """The lives of one task: the last one that submitted a job, and those before it."""

    last: str
    former: set[str] = field(default_factory=set)

    def begin(self, life: str) -> None:
        """Register the life that submits a job."""
        if life != self.last and life not in self.former:
            self.former.add(self.last)
            self.last = life


class UnderWay:
    """The running jobs by number. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[Cancellable, str]] = {}
        self._lives: dict[tuple[str, str], Lives] = {}  # by topology and task
        self._early: deque[str] = deque(maxlen=_EARLY_MAX)

    def add(self, number: str, job: Cancellable, life: str) -> None:
        """Register a job of a task's life, and cancel the jobs of its former lives. The job itself
        is cancelled if `cancel` came before it, or if its life is a former one."""
        with self._lock:
            self._jobs[number] = job, life
            over = self._orphans(job, life) if job.batch.task else []
            over += [job] if number in self._early else []
        for one in over:
            one.cancel()

    def remove(self, number: str) -> None:
        """Forget a finished job."""
        with self._lock:
            self._jobs.pop(number, None)

    def cancel(self, number: str) -> None:
        """Cancel a job that runs or has not arrived yet."""
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
