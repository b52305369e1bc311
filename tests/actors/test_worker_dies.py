"""A record that kills its worker or never returns ends the topology; a killed spout continues."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.errors import TopologyFailed
from sunshower.runtime.plan import Layout
from tests.actors.programs.evidence import Held, until_acked
from tests.guarantee.deaths import RECOVERY_S

POISON = 700


def keep(number: Number) -> None: ...


def never_returns(number: Number) -> None:
    if number.value == POISON:
        threading.Event().wait()


def kills_its_process(number: Number) -> None:
    if number.value == POISON:
        os.kill(os.getpid(), signal.SIGKILL)


def slow(number: Number) -> None:
    threading.Event().wait(0.4)


def topology(bolt: Callable[[Number], None], numbers: Counter | None = None) -> Topology:
    program = Topology("t", attempts_max=2, block_max_s=1.0)
    program.spout("numbers", numbers or Counter(1000)).shuffle().bolt("keep", bolt)
    return program


def outcome(run: RayRun) -> str:
    """The error with which the run fails, or ""."""
    end_s = time.monotonic() + RECOVERY_S
    try:
        while time.monotonic() < end_s:
            if run.wait(1):
                return ""
    except TopologyFailed as error:
        return str(error)
    raise AssertionError(f"it never ended: {run.snapshot()}")


@pytest.mark.long
@pytest.mark.parametrize("layout", list(Layout))
def test_record_on_which_a_bolt_never_returns_ends_the_topology_with_its_stack(
    ray_cluster: RayCluster, layout: Layout
) -> None:
    run = ray_cluster.submit(topology(never_returns).graph(), layout)
    try:
        text = outcome(run)
    finally:
        run.stop()
    assert f"message {POISON} of spout 'numbers' failed 2 times" in text
    assert "blocked in keep[0]: it did not return within 1 s" in text
    assert "in never_returns" in text


@pytest.mark.parametrize(
    "layout", [Layout.ISOLATE, pytest.param(Layout.PACK, marks=pytest.mark.long)]
)
def test_record_that_kills_its_process_ends_the_topology(
    ray_cluster: RayCluster, layout: Layout
) -> None:
    """There may be one attempt more, which begins before the report of the last crash arrives."""
    run = ray_cluster.submit(topology(kills_its_process).graph(), layout)
    try:
        text = outcome(run)
    finally:
        run.stop()
    assert re.search(rf"message {POISON} of spout 'numbers' failed [23] times", text)
    assert "its process died while executing it" in text


@pytest.mark.long
def test_slow_bolt_is_not_restarted(ray_cluster: RayCluster) -> None:
    run = ray_cluster.submit(topology(slow, Counter(8)).graph())
    try:
        assert outcome(run) == ""
        assert run.snapshot().restarts == 0
    finally:
        run.stop()


def test_spout_that_is_killed_continues_where_it_was_and_leaves_no_file(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    total, gate = 20_000, tmp_path / "gate"
    run = ray_cluster.submit(topology(keep, Held(total, gate)).graph(), Layout.ISOLATE)
    recorders = Path(tempfile.gettempdir(), f"sunshower-{os.getuid()}", run.id)
    try:
        until_acked(run, total // 4)
        assert len(list(recorders.iterdir())) == len(run.plan.workers)
        run.kill_worker(run.plan.tasks_of("numbers")[0].worker)
        gate.touch()
        assert outcome(run) == ""
        last = run.snapshot()
        spout = next(task for task in last.tasks() if task.component == "numbers")
        assert last.restarts == 1
        assert spout.committed == total
        assert spout.counts.acked <= total - total // 8, "it started again from the beginning"
    finally:
        run.stop()
    assert not recorders.exists()
