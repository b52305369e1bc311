"""Owns one Spark session: runs a bounded number of jobs with time limits and replaces a dead JVM.

    submitted ──▶ waiting ──a slot is free──▶ running ──▶ done · failed
                                                └─ timeout ─▶ SparkTimeout; Spark stops its tasks
                                                └─ JVM dead ─▶ SparkLost; the next job starts Spark

A slot is a thread. After a timeout its job may hang in user code for ever, so the thread is
abandoned and a new slot replaces it.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sunshower.errors import ConfigError, SparkError, SparkLost, SparkTimeout, SparkUnavailable
from sunshower.spark_integration.error_report import error_text, spark_error
from sunshower.spark_integration.job import OpenSession, Runner
from sunshower.spark_integration.job_reports import job_metrics
from sunshower.spark_integration.sessions.jobs import Job, JobQueue
from sunshower.spark_integration.sessions.spark_port import JobReport

_START_S = 300.0  # the JVM starts in 10 s, on a busy machine or a cluster in a minute
_JOB_BYTES = 2 << 20  # JVM memory that a job holds besides its rows
_UNCOLLECTED_MAX = 64 << 20
_CANCEL_AGAIN_S = 1.0
_CLOSED = "the gateway to Spark was closed before this job ran"


class SessionHost:
    """Runs jobs in one session, `slots` of them concurrently. Thread-safe."""

    def __init__(self, open_session: Callable[[], OpenSession], slots: int) -> None:
        self._open_session = open_session
        self._queue = JobQueue()
        self._lock = threading.Lock()  # guards the session
        self._session: OpenSession | None = None
        self._stopped = False
        self._numbers = itertools.count()
        self._uncollected = 0  # estimated bytes of ended jobs since the last garbage collection
        for _ in range(slots):
            self._add_slot()

    def submit(self, job: Job) -> Job:
        """Queue a job; a slot or its timeout settles it."""
        if not self._queue.put(job):
            job.settle(error=SparkLost(_CLOSED))
        return job

    @property
    def opened(self) -> bool:
        """Whether a session is open."""
        return self._session is not None

    def start(self) -> None:
        """Open the session in the background; the first job raises the error of a failed start."""

        def open_quietly() -> None:
            with suppress(SparkError):
                self._opened()

        threading.Thread(target=open_quietly, name="spark-start", daemon=True).start()

    def stop(self) -> None:
        """End the session. Waiting and running jobs are lost."""
        self._queue.close()
        with self._lock:
            self._stopped = True
            session, self._session = self._session, None
        if session is not None:
            session.stop()

    def _opened(self) -> OpenSession:
        """The open session, or a new one. Raises SparkError."""
        try:
            with self._lock:
                if self._stopped:
                    raise SparkLost(_CLOSED)
                if self._session is not None and not self._session.alive():
                    self._session.stop()
                    self._session = None
                if self._session is None:
                    self._session = self._open_session()
                return self._session
        except SparkError:
            raise
        except ConfigError as error:  # waiting does not help
            raise SparkError(str(error)) from error
        except Exception as error:
            raise SparkUnavailable(f"Spark does not start: {error_text(error)}") from error

    def _add_slot(self) -> None:
        threading.Thread(target=self._run_jobs, name="spark-slot", daemon=True).start()

    def _run_jobs(self) -> None:
        """Run jobs in turn until the host stops, or until the job of this slot is given up."""
        runner: Runner | None = None
        while (job := self._queue.next()) is not None:
            if not job.done():  # cancelled
                runner = self._runner(job, runner)
                if runner is not None:
                    self._run(job, runner)
            self._collect_garbage(job)
            if not self._queue.end(job):
                return

    def _runner(self, job: Job, last: Runner | None) -> Runner | None:
        """The slot's runner, a new one for each session; None if the job failed for lack of a
        session."""
        limit = after(_START_S, lambda: self._give_up_opening(job))
        try:
            session = self._opened()
            if last is not None and last.session is session:
                return last
            try:
                return Runner(session)
            except Exception as error:
                raise spark_error(error, "a new session", session.alive()) from error
        except SparkError as error:
            job.settle(error=error)
            return None
        finally:
            limit.cancel()

    def _run(self, job: Job, runner: Runner) -> None:
        group = f"sunshower-{next(self._numbers)}"
        context = runner.session.spark.sparkContext
        ended = threading.Event()
        job.cancel_tasks = partial(cancel, runner.session, group, ended)
        limit = after(job.step.timeout_s, lambda: self._give_up(job))
        try:
            if not job.done():
                # These are thread properties; pyspark pins a JVM thread to each Python thread.
                context.setJobGroup(group, _description(job), True)
                context.setLocalProperty("spark.scheduler.pool", job.batch.topology or None)
                self._compute(job, runner, context, group)
        except BaseException as error:  # every error settles the job
            job.settle(error=spark_error(error, str(job.step), runner.session.alive()))
        finally:
            ended.set()
            limit.cancel()
            job.settle(error=SparkLost(f"{job.step} has ended without a result"))

    def _compute(self, job: Job, runner: Runner, context: Any, group: str) -> None:
        began_s = time.perf_counter()
        result = runner.run(job.step, job.tables, job.batch, job.done)
        took_s = time.perf_counter() - began_s
        job.cost = JobReport(
            job.batch.id,
            job.batch.attempt,
            wait_s=began_s - job.submitted_s,
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

    def _give_up_opening(self, job: Job) -> None:
        """Fail a job that got no session in time, replace its slot, and kill a JVM that hangs."""
        if not self._queue.end(job):
            return
        job.settle(
            error=SparkUnavailable(
                f"Spark has not answered within {_START_S:g} s: its Java is ended, and the next "
                "job opens another. If it continues, its machine lacks processors or memory"
            )
        )
        self._add_slot()
        if (session := self._session) is not None:  # without the lock: the hanging thread holds it
            session.kill()

    def _give_up(self, job: Job) -> None:
        """Fail a job whose time is over, stop its Spark tasks, and replace its slot."""
        if not self._queue.end(job):
            return
        job.settle(
            error=SparkTimeout(
                f"{job.step} took longer than {job.step.timeout_s:g} s for batch {job.batch.id} of "
                f"{job.batch.rows} rows: give spark(…, timeout_s=…), or smaller batches"
            )
        )
        self._add_slot()
        job.cancel()

    def _collect_garbage(self, job: Job) -> None:
        """Collect garbage when ended jobs hold more than 64 MiB of JVM memory. py4j's proxies are
        in reference cycles and keep their Java objects until a collection. Workers collect rarely,
        so the JVM would fill with ended batches."""
        self._uncollected += _JOB_BYTES + sum(table.nbytes for table in job.tables)
        if self._uncollected > _UNCOLLECTED_MAX:
            self._uncollected = 0
            gc.collect()


def _description(job: Job) -> str:
    """The description that Spark's UI shows for the job."""
    where = f"{job.batch.topology}: " if job.batch.topology else ""
    return f"{where}{job.step}, batch {job.batch.id}, attempt {job.batch.attempt}"


def cancel(session: OpenSession, group: str, ended: threading.Event) -> None:
    """Cancel the Spark tasks of a job in the background until the job or its JVM has ended. Spark
    cancels only what runs: the job may start tasks later, such as those of a query it still
    plans."""

    def cancel_until_ended() -> None:
        while session.alive():
            with suppress(Exception):  # the JVM may have died since
                session.spark.sparkContext.cancelJobGroup(group)
            if ended.wait(_CANCEL_AGAIN_S):
                return

    threading.Thread(target=cancel_until_ended, name="spark-cancel", daemon=True).start()


def after(seconds: float, *calls: Callable[[], Any]) -> threading.Timer:
    """Make these calls after a delay, unless the returned timer is cancelled."""
    timer = threading.Timer(seconds, lambda: [call() for call in calls])
    timer.daemon = True
    timer.start()
    return timer
