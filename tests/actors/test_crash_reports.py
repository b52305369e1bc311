"""The files of flight recorders: unusable folders, planted and damaged files."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sunshower import Counter, Topology
from sunshower.actors import event_log_files, flight_recorder
from sunshower.clock import ManualClock
from sunshower.errors import ClusterError
from sunshower.runtime.plan import Plan, make_plan
from sunshower.runtime.tasks import flight_recorder as layout
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.runtime.tracking.ids import NO_IDS, make_roots, seeded
from sunshower.runtime.worker import Worker
from tests.leftovers import check_program


def plan() -> Plan:
    topology = Topology("t")
    topology.spout("numbers", Counter(9))
    return make_plan(topology.graph())


def test_folder_that_cannot_be_written_is_reported_and_calls_are_watched_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))  # a file has no folders
    recorder = flight_recorder.make("run-1", plan(), 0, 1)
    assert recorder.unwritable is not None
    assert recorder.unwritable.endswith("Not a directory")
    recorder.begin(1, NO_IDS, 5.0)
    assert recorder.running() == (1, 5.0), "the watchdog needs no file"
    assert flight_recorder.find("run-1", 0) is None
    worker = Worker(plan(), 0, 1, seeded(1), ManualClock(), recorder=recorder)
    assert worker.stats().crash_reports == recorder.unwritable


def test_folder_that_can_be_written_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recorder = flight_recorder.make("run-1", plan(), 0, 1)
    assert recorder.unwritable is None
    recorder.begin(1, NO_IDS, 5.0)
    recorded = flight_recorder.find("run-1", 0)
    assert recorded is not None
    assert recorded.task == 1
    worker = Worker(plan(), 0, 1, seeded(1), ManualClock(), recorder=recorder)
    assert worker.stats().crash_reports is None


def open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def replaced_by_a_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


@pytest.mark.parametrize("change", [open_to_all, replaced_by_a_link])
@pytest.mark.parametrize("level", ["parent", "run"])
def test_folder_that_others_may_write_is_neither_written_nor_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], None],
    level: str,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flight_recorder.make("run-1", plan(), 0, 1).begin(1, NO_IDS, 5.0)
    folder = flight_recorder.folder_of("run-1")
    change(folder if level == "run" else folder.parent)
    assert flight_recorder.find("run-1", 0) is None
    assert "others may write there" in caplog.text
    recorder = flight_recorder.make("run-1", plan(), 0, 2)
    assert "others may write there" in (recorder.unwritable or "")
    with pytest.raises(ClusterError, match="others may write there"):
        event_log_files.create("run-1", 1)


def test_folder_that_others_may_replace_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o777)
    assert flight_recorder.make("run-1", plan(), 0, 1).unwritable is not None
    tmp_path.chmod(0o1777)  # as /tmp is
    assert flight_recorder.make("run-1", plan(), 0, 1).unwritable is None


def test_folder_is_closed_to_other_users_even_if_an_earlier_version_created_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = flight_recorder.folder_of("run-1")
    folder.parent.mkdir()
    folder.parent.chmod(0o755)
    flight_recorder.make("run-1", plan(), 0, 1)
    paths = (folder.parent, folder, folder / "worker-0")
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o700, 0o700, 0o600]


def a_link(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_hard_link(path: Path) -> None:
    path.with_name("other").hardlink_to(path)


def open_to_writers(path: Path) -> None:
    path.chmod(0o666)


def of_many_roots(path: Path) -> None:
    data = bytearray(path.read_bytes())
    layout._HEAD.pack_into(data, 0, layout._MARK, 1, 1, 1 << 40, 0.0, 0, 0)
    path.write_bytes(data)


def of_a_table_before_itself(path: Path) -> None:
    """Each table would begin where the one before began."""
    data = bytearray(path.read_bytes())
    layout._HEAD.pack_into(data, 0, layout._MARK, 1, -1, 0, 0.0, 0, 1 << 60)
    layout._PLACE.pack_into(data, layout._TABLES_AT, 0, 1, -3, 0, 0)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "plant",
    [
        *(a_link, a_pipe, a_folder, a_hard_link, open_to_writers),
        *(of_many_roots, of_a_table_before_itself, Path.unlink, os.truncate),
    ],
)
@pytest.mark.timeout(20)
def test_planted_file_is_no_crash_report_and_stops_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[..., None]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flight_recorder.make("run-1", plan(), 0, 1).begin(1, NO_IDS, 5.0)
    path = flight_recorder.folder_of("run-1") / "worker-0"
    plant(*(path, 100) if plant is os.truncate else (path,))
    assert flight_recorder.find("run-1", 0) is None
    flight_recorder.make("run-1", plan(), 0, 2)


HEAD = range(8, layout._HEAD.size + 24)  # behind the mark


def test_mutated_flight_recorders_are_read_or_refused_and_name_only_what_the_plan_has() -> None:
    dice, program_plan = random.Random(5), plan()
    for _ in range(800):
        data = bytearray(layout.FlightRecorder.size_of(program_plan, 0))
        recorder = layout.FlightRecorder(data, 1)
        recorder.tables(0, 1, 64)
        recorder.drew(0, 5, 9)
        recorder.begin(1, make_roots(1, np.ones(3, np.uint32), np.arange(3)), 5.0)
        for _ in range(dice.randint(1, 4)):
            at = dice.choice([*HEAD, *range(layout._TABLES_AT, layout._TABLES_AT + 60)])
            data[at] = dice.randrange(256)
        recorded = layout.read(bytes(data), 0)
        if recorded is not None and recorded.fits(program_plan) and recorded.task is not None:
            assert recorded.failure(program_plan).component


@pytest.mark.parametrize(
    "report",
    [
        CrashReport(0, 1, task=99),
        CrashReport(0, 1, numbers={99: (1,)}),
        CrashReport(0, 1, drawn={99: (1, 1)}),
        CrashReport(0, 1, drawn={0: (-1, 1)}),
    ],
)
def test_report_about_tasks_that_the_topology_does_not_have_is_dropped(report: CrashReport) -> None:
    assert not report.fits(plan())


@pytest.mark.long
def test_poison_kills_as_many_processes_as_it_has_attempts_on_two_nodes(tmp_path: Path) -> None:
    check_program("tests.actors.programs.poison_on_two_nodes", tmp_path)
