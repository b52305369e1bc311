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
        self._served: dict[int, str] = {}  # by the job's identity: its topology
        self._ended = False

    def put(self, job: J) -> bool:
        """Let it wait. False: the line has ended."""
        with self._changed:
            if not self._ended:
                self._waiting.setdefault(job.batch.topology, deque()).append(job)
                self._changed.notify()
            return not self._ended

    def end(self) -> None:
        """Nobody comes any more: those who wait are the last."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def next(self) -> J | None:
        """Wait for a job; it is being served until `left`. None: there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                return None
            counts = Counter(self._served.values())
            name = min(self._waiting, key=counts.__getitem__)
            jobs = self._waiting.pop(name)
            job = jobs.popleft()
            if jobs:
                self._waiting[name] = jobs
            self._served[id(job)] = name
            return job

    def left(self, job: J) -> bool:
        """It is served, or given up. False: somebody has said so before."""
        with self._changed:
            return self._served.pop(id(job), None) is not None
