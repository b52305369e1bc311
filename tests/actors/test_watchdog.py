"""Calls of user code that do not return: reported with their place, once and at each doubling."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sunshower import Counter, Number, Topology
from sunshower.actors import worker
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.actors.worker import Slow, SlowCalls
from sunshower.runtime.events.metrics import StuckCall
from sunshower.runtime.plan import make_plan
from sunshower.runtime.tasks.flight_recorder import FlightRecorder, Running
from sunshower.runtime.tracking.ids import NO_IDS
from tests.guarantee.deaths import until


def reported(slow: SlowCalls, call: Running | None, *lasted_s: float) -> list[float]:
    return [for_s for for_s in lasted_s if slow.is_due(call, for_s)]


def test_slow_call_is_reported_once_and_again_whenever_its_time_has_doubled() -> None:
    slow, call = SlowCalls(10), Running(3, 100.0)
    seconds = [float(second) for second in range(100)]
    assert reported(slow, call, *seconds) == [10, 20, 40, 80]


def test_look_that_comes_late_reports_once() -> None:
    assert reported(SlowCalls(10), Running(3, 100.0), 9, 45, 46, 79, 80) == [45, 80]


def test_next_slow_call_is_reported_again_and_a_short_one_is_not() -> None:
    slow = SlowCalls(10)
    assert reported(slow, Running(3, 100.0), 10, 11) == [10]
    assert reported(slow, Running(3, 112.0), 0, 9) == []
    assert reported(slow, None, 0) == []
    assert reported(slow, Running(3, 130.0), 10) == [10]


@pytest.fixture
def ends() -> Iterator[threading.Event]:
    """When it is set, the call in `hang` returns."""
    event = threading.Event()
    yield event
    event.set()


def hang(recorder: FlightRecorder, ends: threading.Event) -> None:
    recorder.begin(1, NO_IDS, time.monotonic())
    ends.wait()
    recorder.end()


def is_waiting(recorder: FlightRecorder, thread: threading.Thread) -> bool:
    """Whether the call of `hang` has begun to wait."""
    frame = sys._current_frames()[thread.ident or 0]
    return recorder.running() is not None and frame.f_code.co_filename == threading.__file__


def test_watchdog_reports_which_task_is_stuck_and_where(ends: threading.Event) -> None:
    topology = Topology("t")
    topology.spout("numbers", Counter(9))
    plan = make_plan(topology.graph())
    recorder = FlightRecorder(bytearray(FlightRecorder.size_of(plan, 0)), 1)
    thread = threading.Thread(target=hang, args=(recorder, ends))
    thread.start()
    until(partial(is_waiting, recorder, thread))
    reports = queue.Queue[Slow]()
    worker.start(lambda: recorder, thread, 60.0, reports.put, slow_s=0.05)
    first, second = reports.get(timeout=120), reports.get(timeout=120)
    ends.set()
    thread.join()
    assert (first.task, second.task) == (1, 1)
    assert 0.05 <= first.for_s < second.for_s
    assert first.where.startswith(f"{__file__}:")
    assert "in hang: ends.wait() (is in " in first.where
    assert "threading.py" in first.where
    assert "in hang\n    ends.wait()" in "".join(first.stack.format())


def waits(number: Number, resumes: Path) -> None:
    """For one number it returns when the file is there; another thread looks for the file."""
    if number.value == 7:
        has_come = threading.Event()
        threading.Thread(target=wait_for, args=(resumes, has_come), daemon=True).start()
        has_come.wait()


def wait_for(file: Path, has_come: threading.Event) -> None:
    until(file.exists)
    has_come.set()


def until_stuck(run: RayRun) -> StuckCall:
    end_s = time.monotonic() + 60
    while not run.wait(0.2):
        assert time.monotonic() < end_s
        for call in run.snapshot().stuck.values():
            return call
    raise AssertionError("no stuck call was reported")


@pytest.mark.long
def test_call_that_has_not_returned_for_ten_seconds_is_in_the_snapshot_until_it_returns(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology, resumes = Topology("stuck"), tmp_path / "resumes"
    bolt = partial(waits, resumes=resumes)
    topology.spout("numbers", Counter(9)).shuffle().bolt("waits", bolt)
    begun_s = time.monotonic()
    run = ray_cluster.submit(topology.graph())
    try:
        call = until_stuck(run)
        assert (call.component, call.index) == ("waits", 0)
        assert 10 <= call.for_s < time.monotonic() - begun_s
        assert "wait" in call.where
        assert "threading.py" in call.where
        assert f"waits[0] has been in one call for {call.for_s:.0f} s" in str(call)
        resumes.touch()
        assert run.wait(60)
        assert not run.snapshot().stuck
        assert run.snapshot().restarts == 0
    finally:
        run.stop()
