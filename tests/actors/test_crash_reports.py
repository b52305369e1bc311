"""Where crash reports are kept, and what happens where they cannot be."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from sunshower import Counter, Topology
from sunshower.actors import flight_recorder
from sunshower.clock import ManualClock
from sunshower.runtime.plan import Plan, make_plan
from sunshower.runtime.tracking.ids import NO_IDS, seeded
from sunshower.runtime.worker import Worker
from tests.leftovers import check_program


def plan() -> Plan:
    topology = Topology("t")
    topology.spout("numbers", Counter(9))
    return make_plan(topology.graph())


def test_folder_that_cannot_be_written_is_told_and_calls_are_watched_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))  # no folder can be in there
    recorder = flight_recorder.make("run-1", plan(), 0, 1)
    assert recorder.unwritable is not None
    assert recorder.unwritable.endswith("Not a directory")
    recorder.begin(1, NO_IDS, 5.0)
    assert recorder.running() == (1, 5.0), "the watchdog needs no file"
    assert flight_recorder.find("run-1", 0) is None
    worker = Worker(plan(), 0, 1, seeded(1), ManualClock(), recorder=recorder)
    assert worker.stats().crash_reports == recorder.unwritable


def test_folder_that_can_be_written_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recorder = flight_recorder.make("run-1", plan(), 0, 1)
    assert recorder.unwritable is None
    recorder.begin(1, NO_IDS, 5.0)
    found = flight_recorder.find("run-1", 0)
    assert found is not None
    assert found.task == 1
    worker = Worker(plan(), 0, 1, seeded(1), ManualClock(), recorder=recorder)
    assert worker.stats().crash_reports is None


def test_poison_kills_as_many_processes_as_it_has_attempts_on_two_nodes(tmp_path: Path) -> None:
    check_program("tests.actors.programs.poison_on_two_nodes", tmp_path)
