"""`down` ends exactly the servers that `up` has started, and detects when they are gone already."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from sunshower.dev import units
from sunshower.dev.servers import KeeperClient
from sunshower.dev.units import Unit
from sunshower.errors import ServerError
from tests.dev.test_keeper import WAIT, gone


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with units.locked():  # creates the folder, as each command does
        return units.state()


def start_unit(folder: Path, *, kept: bool = False) -> tuple[Unit, int]:
    """A unit whose server only waits, and that server's pid."""
    client = KeeperClient(folder, remove=not kept, grace_s=5)
    pid = client.start("one", WAIT, folder / "log")
    started = units.start_time(client.pid)
    assert started
    client.stay()
    unit = Unit("kafka", "kafka-0", "127.0.0.1:1", (), str(folder), kept, client.pid, started)
    units.record(unit)
    return unit, pid


def test_a_running_unit_is_found_and_ended(state: Path) -> None:
    unit, pid = start_unit(state / "kafka")
    assert units.find("kafka") == unit
    assert units.find("zookeeper") is None
    assert unit.silent() == ["127.0.0.1:1"]
    units.end(unit)
    assert gone(pid)
    assert units.find("kafka") is None
    assert {file.name for file in state.iterdir()} == {"lock"}


def test_the_data_of_a_kept_unit_are_not_removed(tmp_path: Path) -> None:
    unit, pid = start_unit(tmp_path / "mine", kept=True)
    units.end(unit)
    assert gone(pid)
    assert (tmp_path / "mine" / "log").exists()


def test_the_record_of_a_killed_keeper_is_removed(state: Path) -> None:
    unit, pid = start_unit(state / "kafka")
    os.kill(unit.keeper, signal.SIGKILL)
    assert gone(unit.keeper)
    assert gone(pid)
    assert units.find("kafka") is None
    assert {file.name for file in state.iterdir()} == {"lock"}


def test_a_later_process_with_the_same_pid_is_not_ended(state: Path) -> None:
    unit, pid = start_unit(state / "kafka")
    other = replace(unit, started="another boot 1")
    units.end(other)
    assert units.start_time(pid)
    units.record(other)
    assert units.find("kafka") is None
    assert units.start_time(pid)
    units.end(unit)
    assert gone(pid)


@pytest.mark.parametrize("text", ["{", "{}", '{"name": "kafka", "logs": []}', "[]"])
def test_a_damaged_record_is_an_error_that_names_its_file(state: Path, text: str) -> None:
    (state / "kafka.json").write_text(text)
    with pytest.raises(ServerError, match=r"kafka\.json is not what"):
        units.find("kafka")
