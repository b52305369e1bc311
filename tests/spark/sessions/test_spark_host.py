"""SessionHost with fake sessions: restarts, slots, time limits, and answers that come too late."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from sunshower.errors import (
    ConfigError,
    SparkError,
    SparkLost,
    SparkTimeout,
    SparkUnavailable,
    TransformFailed,
)
from sunshower.spark_integration.sessions import session_host
from sunshower.spark_integration.sessions import session_host as module
from sunshower.spark_integration.sessions.session_host import DriverSession, Job, SessionHost
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkStep

WITHIN_S = 120.0


class FakeConf(dict[str, str]):
    """The settings of a session."""

    set = dict.__setitem__


class FakeContext:
    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.calls: list[tuple[object, ...]] = []

    def setJobGroup(self, *group: object) -> None:  # noqa: N802
        self.calls.append(group[1:])

    def setLocalProperty(self, *named: object) -> None:  # noqa: N802
        self.calls.append(named)

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.set()


class FakeSession(DriverSession):
    """A session, which is its own Spark."""

    def __init__(self) -> None:
        self.spark, self.sparkContext, self.conf = self, FakeContext(), FakeConf()
        self.dead = self.stopped = False
        self.on_hand_over: Callable[[], Any] = list
        self.hangs = False
        self.killed = threading.Event()

    def newSession(self) -> FakeSession:  # noqa: N802
        return self

    def hand_over(self, session: Any, table: pa.Table) -> Any:
        self.on_hand_over()
        return self

    def alive(self) -> bool:
        if self.hangs:
            self.dead = self.killed.wait(WITHIN_S)
        return not self.dead

    def kill(self) -> None:
        self.killed.set()

    def stop(self) -> None:
        self.stopped = True


class FakeHost(SessionHost):
    """A host of fake sessions. The first attempts to open one raise the `refusals`."""

    hosts: ClassVar[list[FakeHost]] = []  # those of the current test, to be stopped

    def __init__(self, *refusals: Exception, slots: int = 1) -> None:
        self.refusals, self.sessions = [*refusals], list[FakeSession]()
        self.hosts.append(self)
        super().__init__(self.open_fake, slots)

    def open_fake(self) -> FakeSession:
        if self.refusals:
            raise self.refusals.pop(0)
        self.sessions.append(FakeSession())
        return self.sessions[-1]

    def run(self, transform: Any) -> None:
        assert self.submit(job(transform)).result() is None


@pytest.fixture(autouse=True)
def _stop_hosts() -> Iterator[None]:
    yield
    while FakeHost.hosts:
        FakeHost.hosts.pop().stop()


def job(transform: Any, timeout_s: float = WITHIN_S) -> Job:
    return Job(SparkStep(transform, timeout_s=timeout_s), [pa.table({})], BatchInfo("7", 3))


def nothing(df: Any, batch: BatchInfo) -> None:
    return None


def dying(df: Any, batch: BatchInfo) -> None:
    df.dead = True
    raise ConnectionRefusedError


def test_jobs_share_a_session_and_a_dead_one_is_replaced() -> None:
    host = FakeHost()
    host.run(nothing)
    with pytest.raises(SparkLost, match="Spark died while it ran dying"):
        host.run(dying)
    host.run(nothing)
    host.run(nothing)
    assert [session.stopped for session in host.sessions] == [True, False]
    host.stop()
    assert host.sessions[1].stopped


class StrRaises(Exception):
    """An error whose text cannot be read, like one of Java's when Java has ended."""

    def __str__(self) -> str:
        raise AssertionError


def test_an_error_whose_text_cannot_be_read_also_ends_its_job() -> None:
    def failing(df: Any, batch: BatchInfo) -> None:
        raise StrRaises

    host = FakeHost(StrRaises())
    with pytest.raises(SparkUnavailable, match="its Java is gone"):
        host.run(nothing)
    with pytest.raises(TransformFailed, match="its Java is gone"):
        host.run(failing)


def test_a_job_that_is_cancelled_while_its_tables_are_handed_over_is_not_run() -> None:
    called: list[BatchInfo] = []
    host = FakeHost()
    host.run(nothing)

    def transform(df: Any, batch: BatchInfo) -> None:
        called.append(batch)

    given_up, session = job(transform), host.sessions[0]
    session.on_hand_over = given_up.cancel
    with pytest.raises(SparkError, match="given up"):
        host.submit(given_up).result()
    session.on_hand_over = list
    host.run(nothing)  # when it is done, so is the one before
    assert not called


class Cycle:
    """A reference cycle, like those of py4j: only the garbage collector removes it."""

    def __init__(self) -> None:
        self.itself = self


def test_reference_cycles_of_jobs_are_collected_even_without_automatic_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_UNCOLLECTED_MAX", 3 * module._JOB_BYTES)
    left: list[weakref.ref[Cycle]] = []

    def leaving(df: Any, batch: BatchInfo) -> None:
        left.append(weakref.ref(Cycle()))

    host = FakeHost()
    gc.disable()
    try:
        for _ in range(5):  # the fourth exceeds the limit
            host.run(leaving)
        assert [reference() is None for reference in left[:4]] == [True] * 4
    finally:
        gc.enable()


def test_a_session_that_does_not_open_is_reported_and_tried_again() -> None:
    host = FakeHost(RuntimeError("Java gateway exited"), SparkUnavailable("no room"))
    with pytest.raises(SparkUnavailable, match="does not start: Java gateway exited"):
        host.run(nothing)
    with pytest.raises(SparkUnavailable, match="no room"):
        host.run(nothing)
    host.run(nothing)


def test_a_job_that_hangs_loses_its_slot_and_its_late_answer_is_ignored() -> None:
    host, proceed = FakeHost(), threading.Event()

    def hanging(df: Any, batch: BatchInfo) -> None:
        proceed.wait(WITHIN_S)

    hung = host.submit(job(hanging, timeout_s=0.05))
    with pytest.raises(SparkTimeout, match=r"hanging took longer than 0\.05 s for batch 7 of 3"):
        hung.result()
    assert host.sessions[0].sparkContext.cancelled.wait(WITHIN_S)
    host.run(nothing)
    proceed.set()
    with pytest.raises(SparkTimeout):
        hung.result()


def test_a_session_that_hangs_while_it_opens_fails_its_jobs_after_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_START_S", 0.05)
    proceed = threading.Event()

    def opening() -> FakeSession:
        proceed.wait(WITHIN_S)
        return FakeSession()

    host = SessionHost(opening, 1)
    for _ in range(2):  # also a job that comes later
        with pytest.raises(SparkUnavailable, match="has not answered within"):
            host.submit(job(nothing)).result()
    proceed.set()
    host.stop()


def test_a_session_whose_java_hangs_is_killed_and_another_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = FakeHost()
    host.run(nothing)
    monkeypatch.setattr(module, "_START_S", 0.05)
    host.sessions[0].hangs = True
    with pytest.raises(SparkUnavailable, match="has not answered within"):
        host.run(nothing)
    monkeypatch.setattr(module, "_START_S", WITHIN_S)
    host.run(nothing)
    assert host.sessions[0].killed.is_set()
    assert len(host.sessions) == 2


def test_an_error_that_waiting_cannot_repair_is_not_an_outage() -> None:
    host = FakeHost(ConfigError("no such amount"))
    with pytest.raises(SparkError, match="no such amount") as caught:
        host.run(nothing)
    assert not isinstance(caught.value, SparkUnavailable)


def test_an_opening_that_hangs_is_killed_and_one_that_fails_raises_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark")
    killed = threading.Event()

    class Hanging(DriverSession):
        def start(self) -> None:
            assert killed.wait(WITHIN_S)
            raise ConnectionResetError

        def kill(self) -> None:
            killed.set()

        def stop(self) -> None:
            pass

    monkeypatch.setattr(session_host, "_OPEN_S", 0.05)
    with pytest.raises(SparkUnavailable, match=r"not opened, and run a first job, within 0\.05 s"):
        Hanging().open()
    monkeypatch.setattr(session_host, "_OPEN_S", WITHIN_S)
    with pytest.raises(SparkUnavailable, match="Spark does not start: ConnectionResetError"):
        Hanging().open()


def test_as_many_jobs_run_at_a_time_as_there_are_slots() -> None:
    together = threading.Barrier(3, timeout=WITHIN_S)
    running, running_counts = set[int](), []

    def meeting(df: Any, batch: BatchInfo) -> None:
        running.add(threading.get_ident())
        running_counts.append(len(running))
        together.wait()
        running.discard(threading.get_ident())

    host = FakeHost(slots=3)
    jobs = [host.submit(job(meeting)) for _ in range(6)]
    wait([job.outcome for job in jobs], WITHIN_S)
    assert all(job.result() is None for job in jobs)
    assert max(running_counts) == 3


def test_a_job_for_a_host_that_has_stopped_is_lost() -> None:
    host = FakeHost()
    host.stop()
    with pytest.raises(SparkLost, match="was closed"):
        host.run(nothing)
    assert host.sessions == []


def test_whatever_a_transform_raises_its_job_ends_and_the_slot_continues() -> None:
    def leaving(df: Any, batch: BatchInfo) -> None:
        raise SystemExit("away")

    host = FakeHost()
    with pytest.raises(TransformFailed, match="SystemExit: away"):
        host.run(leaving)
    host.run(nothing)


def test_each_topology_has_a_pool_and_each_job_a_description() -> None:
    host = FakeHost()
    of_one = Job(SparkStep(nothing), [pa.table({})], BatchInfo("7", 3, 2, topology="sales"))
    host.submit(of_one).result()
    host.run(nothing)
    pool = "spark.scheduler.pool"
    assert host.sessions[0].sparkContext.calls == [
        ("sales: nothing, batch 7, attempt 2", True),
        (pool, "sales"),
        ("nothing, batch 7, attempt 0", True),
        (pool, None),
    ]


def test_a_job_has_a_report_even_without_figures_of_spark() -> None:
    host = FakeHost()
    submitted = host.submit(job(nothing))
    submitted.result()
    report = submitted.report()
    assert report is not None
    assert (report.batch, report.rows_in, report.rows_out, report.jobs) == ("7", 3, 0, ())
    assert min(report.wait_s, report.hand_over_s, report.job_s) >= 0
    failed = host.submit(job(dying))
    with pytest.raises(SparkLost):
        failed.result()
    assert failed.report() is None


def test_a_cancelled_job_is_ended_and_a_cancelled_waiting_one_does_not_begin() -> None:
    host, began, proceed = FakeHost(), threading.Event(), threading.Event()

    def long(df: Any, batch: BatchInfo) -> None:
        began.set()
        proceed.wait(WITHIN_S)

    def refusing(df: Any, batch: BatchInfo) -> None:
        raise AssertionError("it was given up before")

    running, waiting = host.submit(job(long)), host.submit(job(refusing))
    began.wait(WITHIN_S)
    waiting.cancel()
    running.cancel()
    assert host.sessions[0].sparkContext.cancelled.wait(WITHIN_S)  # by a thread
    for submitted_job in (running, waiting):
        with pytest.raises(SparkError, match="batch 7 was given up"):
            submitted_job.result()
    proceed.set()
    host.run(nothing)
