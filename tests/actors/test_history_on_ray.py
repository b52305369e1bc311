"""Histories of real actors are complete despite SIGKILL, and are removed with their topology."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sunshower import Cause
from sunshower.actors.cluster import RayCluster
from sunshower.actors.event_log_files import EventLogFile, EventLogFolder, this_machine
from sunshower.clock import ManualClock
from sunshower.errors import ClusterError, ExperimentError
from sunshower.runtime.events.event_log import Entry, EventWriter, What
from sunshower.runtime.plan import ACKER, Layout
from sunshower.runtime.tracking.ids import slots_of
from tests.actors.programs.evidence import (
    TOTAL,
    Held,
    check_no_ack_came_too_soon,
    finish,
    rows,
    stored,
    submitted,
    topology,
    until_acked,
    worker_of,
    wrote,
)

WROTE = Entry(1.0, What.WROTE, 1, detail=("key", 1))


@pytest.mark.long
@pytest.mark.parametrize("layout", list(Layout))
def test_history_of_an_undisturbed_run_has_every_edge_of_every_tree(
    ray_cluster: RayCluster, tmp_path: Path, layout: Layout
) -> None:
    with submitted(ray_cluster, topology(tmp_path), layout=layout, sample=1) as run:
        begun_s = run.now()
        finish(run)
        entries, ended_s = run.history(), run.now()
        started = {entry.detail for entry in entries if entry.what is What.STARTED}
        assert started == {(worker, 1) for worker in run.plan.workers}
    times = [entry.at_s for entry in entries]
    assert times == sorted(times)
    assert begun_s < times[-1] < ended_s
    sent = rows(entries, What.SENT)
    assert len(sent) == 2 * TOTAL
    assert sent.keys() == rows(entries, What.DELIVERED).keys() == rows(entries, What.ACKED).keys()
    numbers = [number for _, number in rows(entries, What.COMPLETED)]
    assert sorted(numbers) == list(range(TOTAL))
    assert rows(entries, What.EMITTED).keys() == rows(entries, What.COMPLETED).keys()
    assert check_no_ack_came_too_soon(entries) == TOTAL
    assert sorted(wrote(entries)) == list(range(TOTAL))


@pytest.mark.long
@pytest.mark.parametrize("target", ["work", "store", ACKER, "numbers"])
def test_history_is_complete_after_a_kill(
    ray_cluster: RayCluster, tmp_path: Path, target: str
) -> None:
    gate = tmp_path / "gate"
    with submitted(ray_cluster, topology(tmp_path, Held(TOTAL, gate)), sample=1) as run:
        until_acked(run, TOTAL // 4)
        worker = worker_of(run, target)
        run.kill_worker(worker)
        gate.touch()
        finish(run)
        assert run.snapshot().restarts == 1
        entries = run.history()
        started = [entry.detail for entry in entries if entry.what is What.STARTED]
        assert [life for whose, life in started if whose == worker] == [1, 2]
    in_files = stored(tmp_path)
    assert set(in_files) == set(range(TOTAL))
    missing = set(in_files) - set(wrote(entries))
    assert not missing, "written out, and not in the history"
    assert len(wrote(entries)) - len(in_files) <= 1, "at most one was noted and not written"
    assert check_no_ack_came_too_soon(entries) >= TOTAL * 3 // 4
    failed = [entry for entry in entries if entry.what is What.FAILED]
    assert {cause for entry in failed for cause in entry.detail} <= {Cause.ACTOR_DIED}
    if target != "numbers":  # its successor begins after the settled messages
        assert {n for _, n in rows(entries, What.COMPLETED)} == set(range(TOTAL))


def test_a_sample_has_whole_trees_and_all_entries_without_edges(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with submitted(ray_cluster, topology(tmp_path), layout=Layout.PACK, sample=8) as run:
        finish(run)
        entries = run.history()
    roots = {root for root, _ in rows(entries, What.EMITTED)}
    assert len(roots) == TOTAL == len(wrote(entries))
    sampled = {root for root in roots if slots_of(np.uint64(root)) % 8 == 0}
    assert {root for root, _ in rows(entries, What.SENT)} == sampled
    assert check_no_ack_came_too_soon(entries, sample=8) == len(sampled)


@pytest.mark.long
def test_history_continues_through_a_rebalance(ray_cluster: RayCluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    program = topology(tmp_path, Held(TOTAL, gate))
    with submitted(ray_cluster, program, layout=Layout.PACK, sample=1) as run:
        until_acked(run, 1)
        run.rebalance(workers=3)
        gate.touch()
        finish(run)
        entries = run.history()
    started = [entry.detail for entry in entries if entry.what is What.STARTED]
    assert len(started) > 2 + 3 - 1
    assert sorted(wrote(entries)) == list(range(TOTAL))
    assert check_no_ack_came_too_soon(entries) == TOTAL


def test_a_sample_of_nothing_is_refused(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="the sample of a history is 0; it must be"):
        ray_cluster.submit(topology(tmp_path).graph(), sample=0)
    assert "evident" not in ray_cluster.runs()


def test_a_full_disk_is_an_error_and_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "worker-3-1"
    path.symlink_to("/dev/null")
    file = EventLogFile(EventLogFolder(str(tmp_path), 1, this_machine()), 3, 1)
    file.put(WROTE)
    file.check()
    path.unlink()
    path.symlink_to("/dev/full")
    file = EventLogFile(EventLogFolder(str(tmp_path), 1, this_machine()), 3, 1)  # its first line
    with pytest.raises(ClusterError, match=r"worker-3-1: No space left.*larger `sample`"):
        file.check()


def test_an_entry_after_the_end_of_its_file_is_not_written_to_another_one(tmp_path: Path) -> None:
    """A thread of user code may still write when a new life of the worker has another file."""
    former = EventLogFile(EventLogFolder(str(tmp_path), 1, this_machine()), 3, 1)
    former.close()
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT, 0o600)  # gets the free number
    former.put(WROTE)
    os.close(other)
    assert (tmp_path / "other").read_bytes() == b""


def test_what_kept_contexts_write_goes_to_the_file_of_the_present_life(tmp_path: Path) -> None:
    folder = EventLogFolder(str(tmp_path), 1, this_machine())
    first, second = (EventLogFile(folder, 3, life) for life in (1, 2))
    writer = EventWriter(ManualClock(), first.put)  # that of the contexts
    writer.write_to(second.put)
    first.close()
    writer.note(What.WROTE, 1, detail=("key", 1))
    second.close()
    assert [entry.detail for entry in folder.read()] == [("key", 1)]


def test_a_truncated_event_log_has_all_entries_before_its_end(tmp_path: Path) -> None:
    folder = EventLogFolder(str(tmp_path), 1, this_machine())
    file = EventLogFile(folder, 3, 1)
    for _ in range(3):
        file.put(WROTE)
    path = tmp_path / "worker-3-1"
    os.truncate(path, path.stat().st_size - 1)
    assert len(folder.read()) == 2


def test_a_worker_on_another_machine_refuses_to_keep_a_history(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"worker 3 cannot reach .* submit without `sample`"):
        EventLogFile(EventLogFolder(str(tmp_path), 1, "another machine"), 3, 1)
    with pytest.raises(ClusterError, match="this program cannot reach"):
        EventLogFolder(str(tmp_path / "gone"), 1, this_machine()).read()
