"""The queue for slots: the topology with the fewest running jobs is served first."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Generic, Protocol, TypeVar

from sunshower.spark_integration.sessions.spark_port import BatchInfo


class OfTopology(Protocol):
    """A queued job."""

    batch: BatchInfo


J = TypeVar("J", bound=OfTopology)


class Line(Generic[J]):
    """One first-in-first-out queue per topology. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[J]] = {}  # the last served topology at the end
        self._served: dict[int, str] = {}  # id of a running job → its topology
        self._ended = False

    def put(self, job: J) -> bool:
        """Queue a job. Returns False if the queue has been closed."""
        with self._changed:
            if not self._ended:
                self._waiting.setdefault(job.batch.topology, deque()).append(job)
                self._changed.notify()
            return not self._ended

    def end(self) -> None:
        """Close the queue: jobs already in it are still served."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def next(self) -> J | None:
        """Wait for a job; it counts as running until `left`. None: closed and empty."""
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
        """Mark a job as finished or given up. Returns False if it already was."""
        with self._changed:
            return self._served.pop(id(job), None) is not None
