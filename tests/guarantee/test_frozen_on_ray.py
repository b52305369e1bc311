"""Tests that a stopped process, or a process whose code holds the GIL, is replaced."""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from pathlib import Path

import pytest

from sunshower import Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.runtime.plan import Layout
from tests.guarantee.deaths import RECOVERY_S, until

# Another process must not be silent for so long, even if it has to wait for a processor.
TIMEOUT_S = 8.0
# Longer than the time after which deadlines stop, and shorter than that after which a new process
# starts.
MESSAGE_S = 0.75 * TIMEOUT_S
LONG_S = 600


def keep(number: Number) -> None: ...


def hold(number: Number, mark: Path) -> None:
    if number.value == 3 and not mark.exists():
        mark.touch()
        # Wait until the answer to its packet has left. Else the sender counts the packet as lost,
        # and the tree fails as `actor died` (it is charged even so).
        threading.Event().wait(1.0)
        ctypes.PyDLL(None).sleep(LONG_S)  # PyDLL does not release the lock


def submitted(cluster: RayCluster, bolt: object, message_s: float = MESSAGE_S) -> RayRun:
    topology = Topology("frozen", worker_timeout_s=TIMEOUT_S, message_timeout_s=message_s)
    topology.spout("numbers", Counter(10)).shuffle().bolt("keep", bolt)
    return cluster.submit(topology.graph(), Layout.ISOLATE, active=False)


def test_worker_that_is_stopped_is_replaced(ray_cluster: RayCluster) -> None:
    run = submitted(ray_cluster, keep)
    try:
        (frozen,) = run.plan.tasks_of("keep")
        run.pause_worker(frozen.worker)
        run.activate()
        assert run.wait(RECOVERY_S)
        snapshot = run.snapshot()
        assert snapshot.restarts == 1
        assert "timeout" not in snapshot.component("numbers").causes
    finally:
        run.stop()


def test_code_that_holds_the_lock_is_replaced_and_charged(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    run = submitted(ray_cluster, partial(hold, mark=tmp_path / "mark"), LONG_S)
    try:
        run.activate()
        assert run.wait(RECOVERY_S)
        snapshot = run.snapshot()
        assert snapshot.restarts == 1
        assert snapshot.component("numbers").causes["blocked"] >= 1
    finally:
        run.stop()


@pytest.mark.long
def test_resumed_spout_reads_verdicts_before_it_checks_deadlines(
    ray_cluster: RayCluster,
) -> None:
    topology = Topology("still", message_timeout_s=3.0, spout_pending=64)
    topology.spout("numbers", Counter(300)).shuffle().bolt("slow", slow)
    run = ray_cluster.submit(topology.graph(), Layout.ISOLATE)
    try:
        (spout,) = run.plan.tasks_of("numbers")
        until(lambda: run.snapshot().component("numbers").acked > 0)
        run.pause_worker(spout.worker)
        threading.Event().wait(5.0)
        run.resume_worker(spout.worker)
        assert run.wait(RECOVERY_S)
        assert not run.snapshot().component("numbers").causes
    finally:
        run.stop()


def slow(number: Number) -> None:
    threading.Event().wait(0.02)
