"""Actors that are paused or killed, and networks with faults: no record is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sunshower import Bolt, Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.names import CALL_S
from sunshower.actors.processes import processes_of
from sunshower.actors.run import RayRun
from sunshower.errors import ClusterError
from sunshower.runtime.events.injected_faults import InjectedFaults, Link, Raise, SlowTask
from tests.actors.programs.evidence import (
    TOTAL,
    Endless,
    acked,
    finish,
    stored,
    submitted,
    topology,
    until_acked,
    worker_of,
)
from tests.guarantee.deaths import until

PAUSE_S = 2.0


def state_of(pid: int) -> str:
    """`T` for a stopped process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def pids(run: RayRun) -> list[int]:
    return [process.pid for process in processes_of(run.id).values()]


@pytest.mark.long
def test_topology_continues_and_workers_can_be_killed_while_its_master_is_paused(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    with submitted(ray_cluster, topology(tmp_path, Endless(end))) as run:
        until_acked(run, 1)
        run.pause_master()
        before = len(stored(tmp_path))
        until(lambda: len(stored(tmp_path)) > before)
        target = worker_of(run, "work")  # the plan is known without the master
        assert target in run.nodes()[next(iter(run.nodes()))]
        run.kill_worker(target)
        run.resume_master()
        until(lambda: run.snapshot().restarts == 1)
        end.touch()
        finish(run)
        assert run.snapshot().restarts == 1
        total = acked(run)
    assert set(stored(tmp_path)) == set(range(total))


@pytest.mark.long
def test_a_paused_master_injects_faults_when_it_is_resumed(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    with submitted(ray_cluster, topology(tmp_path, Endless(end), attempts_max=50)) as run:
        until_acked(run, 1)
        run.pause_master()
        begun_s = time.monotonic()
        run.disturb(InjectedFaults(raises=(Raise(component="work", probability=0.02),)))
        assert not run.wait(0.1)
        assert time.monotonic() - begun_s < CALL_S, "a call has waited for the master"
        run.resume_master()
        until(lambda: run.snapshot().component("numbers").failed > 0)
        run.disturb(InjectedFaults())
        end.touch()
        finish(run)


class Long(Bolt[Number, None]):
    """Takes 0.75 s for each record, and creates a file when it begins."""

    def __init__(self, folder: Path) -> None:
        self._begun = folder / "begun"

    def process(self, record: Number) -> None:
        self._begun.touch()
        threading.Event().wait(0.75)


@pytest.mark.long
def test_time_in_a_pause_does_not_count_as_a_call_that_does_not_return(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology = Topology("long", block_max_s=1.5)
    topology.spout("numbers", Counter(1)).shuffle().bolt("long", Long(tmp_path))
    with submitted(ray_cluster, topology) as run:
        until((tmp_path / "begun").exists)
        target = worker_of(run, "long")
        run.pause_worker(target)
        threading.Event().wait(2 * PAUSE_S)
        run.resume_worker(target)
        finish(run)
        assert run.snapshot().restarts == 0


@pytest.mark.long
@pytest.mark.parametrize("whole", [False, True], ids=["one", "all"])
def test_stop_ends_processes_that_are_paused(
    ray_cluster: RayCluster, tmp_path: Path, whole: bool
) -> None:
    with submitted(ray_cluster, topology(tmp_path), sample=1) as run:
        until_acked(run, 1)
        all_pids = pids(run)
        run.pause_worker(worker_of(run, "store"))
        if whole:
            run.pause_master()
            for worker in run.plan.workers:
                run.pause_worker(worker)
            until(lambda: {state_of(pid) for pid in all_pids} == {"T"})
        begun_s = time.monotonic()
    assert time.monotonic() - begun_s < CALL_S, "it waited for a paused process"
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in all_pids))
    with pytest.raises(ClusterError, match="was stopped"):
        run.pause_worker(0)


@pytest.mark.long
@pytest.mark.parametrize(
    "link",
    [
        Link(drop=0.05),
        Link(forget=0.05),
        Link(repeat=0.2),
        Link(corrupt=0.05),
        Link(delay=0.05, delay_s=0.05),
        Link(source="work", target="store", drop=0.1, delay=0.1, repeat=0.1, corrupt=0.1),
    ],
    ids=["drop", "forget", "repeat", "corrupt", "delay", "one edge, all"],
)
def test_bad_network_loses_nothing(ray_cluster: RayCluster, tmp_path: Path, link: Link) -> None:
    end, fails = tmp_path / "end", bool(link.drop or link.corrupt or link.forget)

    def is_affected() -> bool:
        numbers = run.snapshot().component("numbers")
        return numbers.acked >= TOTAL // 2 and (numbers.failed > 0 or not fails)

    with submitted(ray_cluster, topology(tmp_path, Endless(end))) as run:
        run.disturb(InjectedFaults(links=(link,)))
        until(is_affected)
        run.disturb(InjectedFaults())
        end.touch()
        finish(run)
        numbers = run.snapshot().component("numbers")
        assert run.snapshot().restarts == 0
    assert set(stored(tmp_path)) == set(range(numbers.acked))
    if link.repeat and link.source == "*":
        assert len(stored(tmp_path)) == numbers.acked, "a repeated packet was processed twice"
        assert numbers.failed == 0
    if fails:
        assert numbers.failed > 0, "the fault has affected no packet"


@pytest.mark.long
def test_delayed_packets_keep_no_process_of_a_stopped_topology_alive(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with submitted(ray_cluster, topology(tmp_path)) as run:
        run.disturb(InjectedFaults(links=(Link(delay=1.0, delay_s=1000.0),)))
        threading.Event().wait(1.0)
        all_pids = pids(run)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in all_pids))


@pytest.mark.long
def test_a_new_master_keeps_the_injected_faults(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with submitted(ray_cluster, topology(tmp_path), active=False) as run:
        run.disturb(InjectedFaults(slows=(SlowTask(component="work", seconds=0.05),)))
        run.kill_master()
        run.kill_worker(worker_of(run, "work", 0))
        run.kill_worker(worker_of(run, "work", 1))
        until(lambda: run.snapshot().restarts == 2)
        begun_s = time.monotonic()
        run.activate()
        threading.Event().wait(PAUSE_S)
        count = acked(run)
        assert count < 4 * (time.monotonic() - begun_s) / 0.05
        run.disturb(InjectedFaults())
        finish(run)
