"""Who owns a session: some jobs at a time, each with a time limit, and a new one for a dead one.

    submitted ──▶ waiting ──a slot is free──▶ running ──▶ done · failed
                                                └─ time is up ─▶ SparkTimeout; Spark stops its tasks
                                                └─ Java is dead ─▶ SparkLost; the next job, anew

A slot is a thread. One whose job has run out of time may hang in the user's Python for ever: it is
given up, and another takes its place.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from sunshower.errors import ConfigError, SparkError, SparkLost, SparkTimeout, SparkUnavailable
from sunshower.spark_integration.blame import blamed, said
from sunshower.spark_integration.line import Line
from sunshower.spark_integration.port import BatchInfo, JobReport, Step
from sunshower.spark_integration.reports import spark_said
from sunshower.spark_integration.running import Runner

_START_S = 300.0  # Java starts in 10 s, on a busy machine and on a cluster in a minute

_JOB_BYTES = 2 << 20  # what a job keeps of Java, beside its rows
_UNSWEPT_MAX = 64 << 20
_CLOSED = "the gateway to Spark was closed before this job ran"


class Session(Protocol):
    """A session that was opened."""

    spark: Any

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        """A normal table as a DataFrame of one of its sessions."""

    def alive(self) -> bool:
        """Whether its Java is."""

    def kill(self) -> None:
        """Let whoever waits for its Java hear of an error, if that is ours to end."""

    def stop(self) -> None:
        """End it, and its Java; of a dead one what is left, so that another can be opened."""


@dataclass
class Job:
    """A step with its tables, and what becomes of it."""

    step: Step
    tables: Sequence[pa.Table]
    batch: BatchInfo
    outcome: Future[pa.Table | None] = field(default_factory=Future)
    given_s: float = field(default_factory=time.perf_counter)
    end: Callable[[], None] | None = None  # of its tasks in Spark; None: it does not run yet
    done_by: JobReport | None = None

    def done(self) -> bool:
        return self.outcome.done()

    def result(self) -> pa.Table | None:
        return self.outcome.result()

    def report(self) -> JobReport | None:
        return self.done_by

    def cancel(self) -> None:
        self.settle(error=SparkError(f"batch {self.batch.id} was given up: nobody waits for it"))
        if self.end is not None:
            self.end()

    def settle(self, result: pa.Table | None = None, error: SparkError | None = None) -> None:
        """The first word counts: an answer after the time is up changes nothing."""
        with suppress(InvalidStateError):
            if error is None:
                self.outcome.set_result(result)
            else:
                self.outcome.set_exception(error)


class Host:
    """Runs jobs in one session, `slots` of them at a time. Threads may share it."""

    def __init__(self, open_session: Callable[[], Session], slots: int) -> None:
        self._open_session = open_session
        self._line = Line[Job]()
        self._lock = threading.Lock()  # of the session
        self._session: Session | None = None
        self._stopped = False
        self._life = 0  # how many sessions there were
        self._numbers = itertools.count()
        self._unswept = 0  # of ended jobs, since cycles were collected
        for _ in range(slots):
            self._add_slot()

    def submit(self, job: Job) -> Job:
        """Hand a job in; it is settled by a slot, or by the clock."""
        if not self._line.put(job):
            job.settle(error=SparkLost(_CLOSED))
        return job

    @property
    def opened(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    def start(self) -> None:
        """Open the session beside other work. What goes wrong is told to the first job."""
        threading.Thread(target=self._warm, name="spark-start", daemon=True).start()

    def stop(self) -> None:
        """End the session. Jobs that wait, or run, are lost."""
        self._line.end()
        with self._lock:
            self._stopped = True
            session, self._session = self._session, None
        if session is not None:
            session.stop()

    def _warm(self) -> None:
        with suppress(Exception):
            self._opened()

    def _opened(self) -> tuple[Session, int]:
        """The session that is there, or a new one, and its number."""
        with self._lock:
            if self._stopped:
                raise SparkLost(_CLOSED)
            if self._session is not None and not self._session.alive():
                self._session.stop()
                self._session = None
            if self._session is None:
                self._session = self._open_session()
                self._life += 1
            return self._session, self._life

    def _add_slot(self) -> None:
        threading.Thread(target=Slot(self).work, name="spark-slot", daemon=True).start()

    def next_job(self) -> Job | None:
        """What a slot waits for; None: it is to end."""
        return self._line.next()

    def left(self, job: Job) -> bool:
        """A slot has done with its job. False: it was given up, and another is in its place."""
        return self._line.left(job)

    def runner(self, slot: Slot) -> tuple[Runner, Session]:
        """What a slot runs its jobs with: anew in each session. Raises a SparkError."""
        session = None
        try:
            session, life = self._opened()
            if slot.runner is None or slot.life != life:
                slot.runner, slot.life = Runner(session.spark, session.hand_over), life
            return slot.runner, session
        except SparkError:
            raise
        except ConfigError as error:  # it does not come by waiting
            raise SparkError(str(error)) from error
        except Exception as error:
            if session is None:
                raise SparkUnavailable(f"Spark does not start: {said(error)}") from error
            raise blamed(error, "its first words", session.alive()) from error

    def give_up_opening(self, job: Job) -> None:
        """No session within its time, or one whose Java hangs: that is killed, and another slot
        goes on."""
        if not self._line.left(job):
            return
        job.settle(
            error=SparkUnavailable(
                f"Spark has not answered within {_START_S:g} s: its Java is ended, and the next "
                "job opens another. If it goes on, its machine lacks processors or memory"
            )
        )
        self._add_slot()
        if (session := self._session) is not None:  # the lock is with who waits for it
            session.kill()

    def give_up(self, session: Session, job: Job, group: str) -> None:
        """A job's time is over: Spark stops its tasks, and another slot goes on."""
        if not self._line.left(job):
            return
        job.settle(
            error=SparkTimeout(
                f"{job.step} took longer than {job.step.timeout_s:g} s for batch {job.batch.id} of "
                f"{job.batch.rows} rows: give spark(…, timeout_s=…), or smaller batches"
            )
        )
        self._add_slot()
        cancel(session.spark.sparkContext, group)

    def sweep(self, job: Job) -> None:
        """Python's side of each object of Java is a cycle of py4j's, and keeps that object until
        cycles are collected. Workers do so seldom: Java's memory would fill with ended batches."""
        self._unswept += _JOB_BYTES + sum(table.nbytes for table in job.tables)
        if self._unswept > _UNSWEPT_MAX:
            self._unswept = 0
            gc.collect()

    def number(self) -> int:
        """One that no job had before."""
        return next(self._numbers)


class Slot:
    """A thread that runs one job after the other, and its part of the session."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.runner: Runner | None = None
        self.life = 0

    def work(self) -> None:
        """Until there are no more jobs, or this slot was given up."""
        while (job := self._host.next_job()) is not None:
            self._settle(job)
            self._host.sweep(job)
            if not self._host.left(job):
                return

    def _settle(self, job: Job) -> None:
        if job.done():
            return  # nobody waits for it
        limit = after(_START_S, lambda: self._host.give_up_opening(job))
        try:
            runner, session = self._host.runner(self)
        except SparkError as error:
            job.settle(error=error)
            return
        finally:
            limit.cancel()
        group = f"sunshower-{self._host.number()}"
        limit = after(job.step.timeout_s, lambda: self._host.give_up(session, job, group))
        context = session.spark.sparkContext
        job.end = partial(cancel, context, group)
        try:
            if not job.done():
                # Properties of this thread: pyspark has one of Java's for each of Python's.
                context.setJobGroup(group, _told(job), True)
                context.setLocalProperty("spark.scheduler.pool", job.batch.topology or None)
                self._run(job, runner, context, group)
        except BaseException as error:  # whatever it is, its batch hears of it
            job.settle(error=blamed(error, str(job.step), session.alive()))
        finally:
            limit.cancel()
            job.settle(error=SparkLost(f"{job.step} has ended without a word"))

    def _run(self, job: Job, runner: Runner, context: Any, group: str) -> None:
        began_s = time.perf_counter()
        result = runner.run(job.step, job.tables, job.batch, job.done)
        took_s = time.perf_counter() - began_s
        job.done_by = JobReport(
            job.batch.id,
            job.batch.attempt,
            wait_s=began_s - job.given_s,
            hand_over_s=runner.hand_over_s,
            job_s=took_s - runner.hand_over_s,
            rows_in=job.batch.rows,
            rows_out=0 if result is None else result.num_rows,
            bytes_in=sum(table.nbytes for table in job.tables),
            # `nbytes` would read offsets that empty lists of Java do not have: SIGSEGV.
            bytes_out=0 if result is None else result.get_total_buffer_size(),
            **spark_said(context, group),
        )
        job.settle(result)


def _told(job: Job) -> str:
    """What Spark's pages show beside the job."""
    where = f"{job.batch.topology}: " if job.batch.topology else ""
    return f"{where}{job.step}, batch {job.batch.id}, attempt {job.batch.attempt}"


def cancel(context: Any, group: str) -> None:
    """Let Spark end the tasks of a job, if it is alive."""
    with suppress(Exception):
        context.cancelJobGroup(group)


def after(seconds: float, *calls: Callable[[], Any]) -> threading.Timer:
    """Make these calls then, unless it is cancelled before."""
    timer = threading.Timer(seconds, lambda: [call() for call in calls])
    timer.daemon = True
    timer.start()
    return timer
