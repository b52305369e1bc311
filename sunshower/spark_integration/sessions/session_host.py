"""Owns one Spark session: runs a bounded number of jobs with time limits and replaces a dead JVM.

    submitted ──▶ waiting ──a slot is free──▶ running ──▶ done · failed
                                                └─ timeout ─▶ SparkTimeout; Spark stops its tasks
                                                └─ JVM dead ─▶ SparkLost; the next job starts Spark

A slot is a thread. After a timeout its job may hang in user code, so a new slot replaces it.
"""

from __future__ import annotations

import gc
import itertools
import socket
import subprocess
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from sunshower.errors import (
    ConfigError,
    SparkError,
    SparkLost,
    SparkTimeout,
    SparkUnavailable,
    SunshowerError,
)
from sunshower.secret import protected
from sunshower.spark_integration.job import (
    Runner,
    SharedReads,
    collect_rows,
    error_text,
    job_metrics,
    spark_error,
    without_java,
)
from sunshower.spark_integration.sessions.environment import TIMES
from sunshower.spark_integration.sessions.spark_port import BatchInfo, JobReport, SparkStep

_START_S = 300.0  # the JVM starts in 10 s, on a busy machine or a cluster in a minute
_JOB_BYTES = 2 << 20  # JVM memory that a job holds besides its rows
_UNCOLLECTED_MAX = 64 << 20
_CANCEL_AGAIN_S = 1.0
_CLOSED = "the gateway to Spark was closed before this job ran"


# ---- driver session ------------------------------------------------------------------------------

_END_S = 10.0  # limit for the JVM to exit
_OPEN_S = 240.0  # limit for opening a session and running its first job


class DriverSession:
    """A session: `open` starts it, `stop` ends it. `owned`: whether it has started the JVM itself,
    and so ends it."""

    owned = True
    start: Callable[[], Any]  # starts Spark, and returns its SparkSession
    _reads: SharedReads
    spark: Any
    _java: Any = None  # the JVM's process; None before it is open, or if pyspark did not start it

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        """Convert a normalised table to a DataFrame of `session`."""
        raise NotImplementedError

    def open(self) -> None:
        """Start the session and run its first job. Raises SparkUnavailable if that fails, and after
        `_OPEN_S`: Spark waits for ever for executors that never start, or whose master has died."""
        self._reads = SharedReads()
        late = threading.Event()
        limit = after(_OPEN_S, late.set, self.kill)
        try:
            self.connect()
            self.warm()
        except BaseException as error:
            limit.cancel()
            why = without_java(error_text(error)) or type(error).__name__  # before its Java ends
            if self.owned:
                self.stop()
            if isinstance(error, SunshowerError) or not isinstance(error, Exception):
                raise
            if not late.is_set():
                raise SparkUnavailable(f"Spark does not start: {why}") from error
            raise SparkUnavailable(
                f"Spark has not opened, and run a first job, within {_OPEN_S:g} s. See whether one "
                "node alone has the processors and the memory of an executor, and a Java that "
                "starts"
            ) from error
        limit.cancel()

    def connect(self) -> None:
        """Start the JVM, and set `spark`."""
        _hide_secrets_from_arguments()
        self.spark = self.start()
        if self.owned:
            self.spark.sparkContext.setLogLevel("OFF")  # relevant errors are raised
        self._java = self.spark.sparkContext._gateway.proc
        if self.owned:
            end_calls_with(self._java, self.spark.sparkContext._gateway)

    def new(self) -> Any:
        """A SparkSession with views and settings of its own, for the jobs of one thread."""
        session = self.spark.newSession()
        for name in TIMES:  # a new session has them only from a SparkContext that we have made
            session.conf.set(name, self.spark.conf.get(name, TIMES[name]))
        return session

    def read(self, session: Any, step: SparkStep, table: pa.Table) -> Any:
        """The DataFrame that the rows of the table refer to; steps that read the same share it."""
        return self._reads.frame(session, step, table)

    def has_read(self, step: SparkStep, table: pa.Table) -> None:
        """A job has succeeded that has read this."""
        self._reads.used(step, table)

    def begin(self, session: Any, group: str, job: Job) -> None:
        """Mark what this thread runs from now on as a job: to cancel it, and for Spark's UI."""
        # These are thread properties; pyspark pins a JVM thread to each Python thread.
        context = self.spark.sparkContext
        context.setJobGroup(group, _description(job), True)
        context.setLocalProperty("spark.scheduler.pool", job.batch.topology or None)

    def cancel(self, session: Any, group: str) -> None:
        """Cancel what runs of a job now; it may start more."""
        self.spark.sparkContext.cancelJobGroup(group)

    def metrics(self, group: str) -> dict[str, Any]:
        """What Spark reports of a job that has ended: fields of a JobReport."""
        return job_metrics(self.spark.sparkContext, group)

    def warm(self) -> None:
        """Run a small job: the first job of a session takes seconds."""
        frame = self.hand_over(self.spark, pa.table({"key": [0], "value": [0.0]}))
        collect_rows(frame.groupBy("key").sum("value"))

    def alive(self) -> bool:
        """Whether the JVM runs and its Spark context has not stopped."""
        try:
            running = self._java is None or self._java.poll() is None
            return running and not self.spark.sparkContext._jsc.sc().isStopped()
        except Exception:
            return False

    def kill(self) -> None:
        """Kill the JVM, if this session started it, so that waiting calls raise: also one that does
        not open."""
        if self.owned and (java := self._started_java()) is not None:
            java.kill()

    def stop(self) -> None:
        """End the session and its JVM, or what is left of them, so that another can be opened."""
        end_java(self._started_java())

    def _started_java(self) -> Any:
        """The process of the JVM; before the session is open, that of pyspark's gateway."""
        from pyspark import SparkContext

        if self._java is None and SparkContext._gateway is not None:
            return SparkContext._gateway.proc
        return self._java


def _hide_secrets_from_arguments() -> None:
    """Let pyspark start the JVM without the settings that hold secrets: it passes all of them as
    arguments of the process, which every user of the machine can see. It sets them again in the
    JVM, through its gateway."""
    from pyspark import context

    launch = context.launch_gateway
    if hasattr(launch, "hides_secrets"):
        return

    def launched(conf: Any = None, popen_kwargs: Any = None) -> Any:
        from pyspark import SparkConf

        public = SparkConf(loadDefaults=False)
        for name, value in conf.getAll() if conf else ():
            if protected({name: value}) == {name: value}:
                public.set(name, value)
        return launch(public, popen_kwargs)

    launched.hides_secrets = True  # type: ignore[attr-defined]
    context.launch_gateway = launched


def end_calls_with(java: Any, gateway: Any) -> None:
    """Have waiting calls of py4j raise when the JVM has ended. Its sockets alone do not tell: a
    process that it was just starting inherits them, and in Java 17.0.9 waits for ever
    (JDK-8307990)."""
    client = gateway._gateway_client
    connections, connect = weakref.WeakSet[Any](client.deque), client._create_new_connection

    def connected() -> Any:
        if java.poll() is not None:
            raise ConnectionError("Java has ended")
        connection = connect()
        connections.add(connection)
        return connection

    def close() -> None:
        java.wait()
        for connection in [*connections]:
            with suppress(Exception):
                connection.socket.shutdown(socket.SHUT_RDWR)

    client._create_new_connection = connected
    threading.Thread(target=close, name="spark-java", daemon=True).start()


def end_java(java: Any) -> None:
    """End the driver's JVM, if this process started it, and clear pyspark's references to it.
    pyspark keeps the gateway in class attributes and would use the dead JVM again. The JVM removes
    its temporary folders when it exits by itself."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if java is None:
        return
    with suppress(Exception):
        SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession.builder._options.clear()
    with suppress(OSError):
        java.stdin.close()  # the JVM exits when its stdin is closed
    try:
        java.wait(_END_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


# ---- jobs ----------------------------------------------------------------------------------------

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
        for former in over:
            former.cancel()

    def remove(self, number: str) -> None:
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
        jobs = self._jobs.values()
        return [other for other, its in jobs if its in lives[:-1] and _task(other) == _task(job)]


def _task(job: Job) -> tuple[str, str]:
    return job.batch.topology, job.batch.task


# ---- session host --------------------------------------------------------------------------------


class SessionHost:
    """Runs jobs in one session, `slots` of them concurrently. Thread-safe."""

    def __init__(self, open_session: Callable[[], DriverSession], slots: int) -> None:
        self._open_session = open_session
        self._queue = JobQueue()
        self._lock = threading.Lock()  # guards the session
        self._session: DriverSession | None = None
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

    def _opened(self) -> DriverSession:
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
        ended = threading.Event()
        job.cancel_tasks = partial(cancel, runner, group, ended)
        limit = after(job.step.timeout_s, lambda: self._give_up(job))
        try:
            if not job.done():
                runner.session.begin(runner.spark, group, job)
                self._compute(job, runner, group)
        except BaseException as error:  # every error settles the job
            job.settle(error=spark_error(error, str(job.step), runner.session.alive()))
        finally:
            ended.set()
            limit.cancel()
            job.settle(error=SparkLost(f"{job.step} has ended without a result"))

    def _compute(self, job: Job, runner: Runner, group: str) -> None:
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
            **runner.session.metrics(group),
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
    where = f"{job.batch.topology}: " if job.batch.topology else ""
    return f"{where}{job.step}, batch {job.batch.id}, attempt {job.batch.attempt}"


def cancel(runner: Runner, group: str, ended: threading.Event) -> None:
    """Cancel the Spark tasks of a job in the background until the job or its JVM has ended. Spark
    cancels only what runs: the job may start tasks later, such as those of a query it still
    plans."""

    def cancel_until_ended() -> None:
        while runner.session.alive():
            with suppress(Exception):  # the JVM may have died since
                runner.session.cancel(runner.spark, group)
            if ended.wait(_CANCEL_AGAIN_S):
                return

    threading.Thread(target=cancel_until_ended, name="spark-cancel", daemon=True).start()


def after(seconds: float, *calls: Callable[[], Any]) -> threading.Timer:
    """Make these calls after a delay, unless the returned timer is cancelled."""
    timer = threading.Timer(seconds, lambda: [call() for call in calls])
    timer.daemon = True
    timer.start()
    return timer
