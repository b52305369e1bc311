"""Jobs of a session: their outcome, the queue for slots, and which jobs have lost their task."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from sunshower.errors import SparkError
from sunshower.spark_integration.sessions.spark_port import BatchInfo, JobReport, SparkStep

_EARLY_MAX = 1_000  # ids of jobs that were cancelled before they arrived


@dataclass
class Job:
    """A step, its input tables, and its outcome."""

    step: SparkStep
    tables: Sequence[pa.Table]
    batch: BatchInfo
    outcome: Future[pa.Table | None] = field(default_factory=Future)
    submitted_s: float = field(default_factory=time.perf_counter)
    cancel_tasks: Callable[[], None] | None = None  # in Spark; None until the job runs
    cost: JobReport | None = None

    def done(self) -> bool:
        return self.outcome.done()

    def result(self) -> pa.Table | None:
        return self.outcome.result()

    def report(self) -> JobReport | None:
        return self.cost

    def cancel(self) -> None:
        self.settle(error=SparkError(f"batch {self.batch.id} was given up: no task waits for it"))
        cancel_tasks, self.cancel_tasks = self.cancel_tasks, None  # once is enough
        if cancel_tasks is not None:
            cancel_tasks()

    def settle(self, result: pa.Table | None = None, error: SparkError | None = None) -> None:
        """Set the outcome unless there is one: a result after the timeout changes nothing."""
        with suppress(InvalidStateError):
            if error is None:
                self.outcome.set_result(result)
            else:
                self.outcome.set_exception(error)


class JobQueue:
    """One first-in-first-out queue per topology; the topology with the fewest running jobs is
    served first. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[Job]] = {}  # the last served topology at the end
        self._running: dict[int, str] = {}  # id of a running job → its topology
        self._closed = False

    def put(self, job: Job) -> bool:
        """Queue a job. Returns False if the queue has been closed."""
        with self._changed:
            if not self._closed:
                self._waiting.setdefault(job.batch.topology, deque()).append(job)
                self._changed.notify()
            return not self._closed

    def close(self) -> None:
        """Refuse new jobs: those already in the queue are still served."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next(self) -> Job | None:
        """Wait for a job; it counts as running until `end`. None: closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            counts = Counter(self._running.values())
            name = min(self._waiting, key=counts.__getitem__)
            jobs = self._waiting.pop(name)
            job = jobs.popleft()
            if jobs:
                self._waiting[name] = jobs
            self._running[id(job)] = name
            return job

    def end(self, job: Job) -> bool:
        """Mark a job as finished or given up. Returns False if it already was."""
        with self._changed:
            return self._running.pop(id(job), None) is not None


class RunningJobs:
    """The jobs of a shared gateway, by number. Thread-safe.

    A task that was killed cannot cancel its jobs. When its next life submits a job, those of its
    former lives are cancelled, including calls that still wait at the gateway.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[Job, str]] = {}  # with the life of its task
        self._lives: dict[tuple[str, str], list[str]] = {}  # of a topology's task, oldest first
        self._early: deque[str] = deque(maxlen=_EARLY_MAX)

    def add(self, number: str, job: Job, life: str) -> None:
        """Register a job of a task's life, and cancel the jobs of its former lives. The job itself
        is cancelled if `cancel` came before it, or if its life is a former one."""
        with self._lock:
            self._jobs[number] = job, life
            over = self._of_former_lives(job, life) if job.batch.task else []
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
            job, _ = self._jobs.get(number, (None, ""))
            if job is None:
                self._early.append(number)
        if job is not None:
            job.cancel()

    def _of_former_lives(self, job: Job, life: str) -> list[Job]:
        lives = self._lives.setdefault(_task(job), [])
        if life not in lives:
            lives.append(life)
        there = self._jobs.values()
        return [one for one, its in there if its in lives[:-1] and _task(one) == _task(job)]


def _task(job: Job) -> tuple[str, str]:
    return job.batch.topology, job.batch.task
