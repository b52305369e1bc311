"""Who is next for a slot: of the topologies that wait, the one that has the fewest at Spark."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Generic, Protocol, TypeVar

from sunshower.spark_integration.port import BatchInfo


class OfTopology(Protocol):
    """What stands in line."""

    batch: BatchInfo


J = TypeVar("J", bound=OfTopology)


class Line(Generic[J]):
    """A queue for each topology: within one, first come, first served. Threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[J]] = {}  # those that were served last, at the end
        self._served: Counter[str] = Counter()
        self._ends = 0

    def put(self, job: J) -> None:
        """Let it wait."""
        with self._changed:
            self._waiting.setdefault(job.batch.topology, deque()).append(job)
            self._changed.notify()

    def end(self, count: int) -> None:
        """When nothing waits any more, tell so many that there is nothing."""
        with self._changed:
            self._ends += count
            self._changed.notify_all()

    def next(self) -> J | None:
        """Wait for a job; it is being served until `left`. None: there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ends)
            if not self._waiting:
                self._ends -= 1
                return None
            name = min(self._waiting, key=self._served.__getitem__)
            jobs = self._waiting.pop(name)
            job = jobs.popleft()
            if jobs:
                self._waiting[name] = jobs
            self._served[name] += 1
            return job

    def left(self, job: J) -> None:
        """It is served."""
        with self._changed:
            self._served[job.batch.topology] -= 1
            if self._served[job.batch.topology] <= 0:
                del self._served[job.batch.topology]
