"""Owns one Spark session: runs a bounded number of jobs with time limits and replaces a dead JVM.

    submitted ──▶ waiting ──a slot is free──▶ running ──▶ done · failed
                                                └─ timeout ─▶ SparkTimeout; Spark stops its tasks
                                                └─ JVM dead ─▶ SparkLost; the next job opens anew

A slot is a thread. After a timeout its job may hang in user code for ever, so the thread is
abandoned and a new slot replaces it.
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
from sunshower.spark_integration.error_report import error_text, spark_error
from sunshower.spark_integration.job import Runner
from sunshower.spark_integration.job_reports import job_metrics
from sunshower.spark_integration.sessions.slot_queue import Line
from sunshower.spark_integration.sessions.spark_port import BatchInfo, JobReport, Step

_START_S = 300.0  # the JVM starts in 10 s, on a busy machine or a cluster in a minute

_JOB_BYTES = 2 << 20  # JVM memory that a job holds besides its rows
_UNSWEPT_MAX = 64 << 20
_CLOSED = "the gateway to Spark was closed before this job ran"


class Session(Protocol):
    """An open session."""

    spark: Any

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        """Convert a normalised table to a DataFrame of `session`."""

    def alive(self) -> bool:
        """Whether the JVM runs."""

    def kill(self) -> None:
        """Kill the JVM, if this session started it, so that waiting calls raise."""

    def stop(self) -> None:
        """End the session and its JVM, or what is left of them, so that another can be opened."""


@dataclass
class Job:
    """A step, its input tables, and its outcome."""

    step: Step
    tables: Sequence[pa.Table]
    batch: BatchInfo
    outcome: Future[pa.Table | None] = field(default_factory=Future)
    given_s: float = field(default_factory=time.perf_counter)
    end: Callable[[], None] | None = None  # cancels its Spark tasks; None until it runs
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
        """Set the outcome unless there is one: a result after the timeout changes nothing."""
        with suppress(InvalidStateError):
            if error is None:
                self.outcome.set_result(result)
            else:
                self.outcome.set_exception(error)


class Host:
    """Runs jobs in one session, `slots` of them concurrently. Thread-safe."""

    def __init__(self, open_session: Callable[[], Session], slots: int) -> None:
        self._open_session = open_session
        self._line = Line[Job]()
        self._lock = threading.Lock()  # guards the session
        self._session: Session | None = None
        self._stopped = False
        self._life = 0  # number of sessions opened so far
        self._numbers = itertools.count()
        self._unswept = 0  # estimated bytes of ended jobs since the last garbage collection
        for _ in range(slots):
            self._add_slot()

    def submit(self, job: Job) -> Job:
        """Queue a job; a slot or its timeout settles it."""
        if not self._line.put(job):
            job.settle(error=SparkLost(_CLOSED))
        return job

    @property
    def opened(self) -> bool:
        """Whether a session is open."""
        return self._session is not None

    def start(self) -> None:
        """Open the session in the background; the first job raises the error of a failed start."""
        threading.Thread(target=self._warm, name="spark-start", daemon=True).start()

    def stop(self) -> None:
        """End the session. Waiting and running jobs are lost."""
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
        """The open session, or a new one, and its number."""
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
        """Wait for a job; None means that the slot ends."""
        return self._line.next()

    def left(self, job: Job) -> bool:
        """Mark a job as finished. Returns False if it was given up and has a new slot."""
        return self._line.left(job)

    def runner(self, slot: Slot) -> tuple[Runner, Session]:
        """The runner of a slot, created anew for each session. Raises SparkError."""
        session = None
        try:
            session, life = self._opened()
            if slot.runner is None or slot.life != life:
                slot.runner, slot.life = Runner(session.spark, session.hand_over), life
            return slot.runner, session
        except SparkError:
            raise
        except ConfigError as error:  # waiting does not help
            raise SparkError(str(error)) from error
        except Exception as error:
            if session is None:
                raise SparkUnavailable(f"Spark does not start: {error_text(error)}") from error
            raise spark_error(error, "its first words", session.alive()) from error

    def give_up_opening(self, job: Job) -> None:
        """Fail a job that got no session in time, replace its slot, and kill a JVM that hangs."""
        if not self._line.left(job):
            return
        job.settle(
            error=SparkUnavailable(
                f"Spark has not answered within {_START_S:g} s: its Java is ended, and the next "
                "job opens another. If it goes on, its machine lacks processors or memory"
            )
        )
        self._add_slot()
        if (session := self._session) is not None:  # without the lock: the hanging thread holds it
            session.kill()

    def give_up(self, session: Session, job: Job, group: str) -> None:
        """Fail a job whose time is over, stop its Spark tasks, and replace its slot."""
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
        """Collect garbage when ended jobs hold more than 64 MiB of JVM memory. py4j's proxies are
        in reference cycles and keep their Java objects until a collection. Workers collect rarely,
        so the JVM would fill with ended batches."""
        self._unswept += _JOB_BYTES + sum(table.nbytes for table in job.tables)
        if self._unswept > _UNSWEPT_MAX:
            self._unswept = 0
            gc.collect()

    def number(self) -> int:
        """A number that no other job has."""
        return next(self._numbers)


class Slot:
    """A thread that runs jobs in turn, with its runner for the current session."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.runner: Runner | None = None
        self.life = 0

    def work(self) -> None:
        """Run jobs until the host stops or this slot is given up."""
        while (job := self._host.next_job()) is not None:
            self._settle(job)
            self._host.sweep(job)
            if not self._host.left(job):
                return

    def _settle(self, job: Job) -> None:
        if job.done():
            return  # cancelled
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
                # These are thread properties; pyspark pins a JVM thread to each Python thread.
                context.setJobGroup(group, _told(job), True)
                context.setLocalProperty("spark.scheduler.pool", job.batch.topology or None)
                self._run(job, runner, context, group)
        except BaseException as error:  # every error settles the job
            job.settle(error=spark_error(error, str(job.step), session.alive()))
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
            # `nbytes` reads offsets that empty lists from Java do not have: SIGSEGV
            bytes_out=0 if result is None else result.get_total_buffer_size(),
            **job_metrics(context, group),
        )
        job.settle(result)


def _told(job: Job) -> str:
    """The description that Spark's UI shows for the job."""
    where = f"{job.batch.topology}: " if job.batch.topology else ""
    return f"{where}{job.step}, batch {job.batch.id}, attempt {job.batch.attempt}"


def cancel(context: Any, group: str) -> None:
    """Cancel the Spark tasks of a job, if the JVM runs."""
    with suppress(Exception):
        context.cancelJobGroup(group)


def after(seconds: float, *calls: Callable[[], Any]) -> threading.Timer:
    """Make these calls after a delay, unless the returned timer is cancelled."""
    timer = threading.Timer(seconds, lambda: [call() for call in calls])
    timer.daemon = True
    timer.start()
    return timer
