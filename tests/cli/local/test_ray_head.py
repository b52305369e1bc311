"""Tests of `sunshower ray up`, `down` and `status`, with a real Ray beside another one."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from sunshower.actors import local_head
from sunshower.actors.cluster import RayCluster
from sunshower.errors import ClusterError
from tests.cli.conftest import PrintedBy


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands note the head, in a state folder of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sunshower" / "ray" / "head.json"


def test_without_a_head_there_is_nothing_to_show_or_end(note: Path, printed_by: PrintedBy) -> None:
    assert "No Ray is up" in printed_by("ray", "status").out
    assert json.loads(printed_by("ray", "status", "--json").out) == {}
    assert "No Ray is up" in printed_by("ray", "down").out
    assert not note.exists()


def test_a_port_in_use_is_refused_before_anything_starts(note: Path, printed_by: PrintedBy) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        errors = printed_by("ray", "up", "--port", port, status=1).err
    assert f"port {port} is in use" in errors
    assert not note.exists()


def test_a_damaged_note_is_named(note: Path, printed_by: PrintedBy) -> None:
    note.parent.mkdir(parents=True)
    note.write_text("{}")
    assert str(note) in printed_by("ray", "down", status=1).err


def test_a_note_of_processes_that_have_ended_is_forgotten(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/true"], start_new_session=True) as process:
        process.wait()
    (tmp_path / "head.json").write_text(
        json.dumps({"address": "h:1", "mark": "m", "session": process.pid, "log": "l"})
    )
    assert local_head.find(tmp_path) is None
    assert not (tmp_path / "head.json").exists()


def test_a_session_that_got_the_number_of_a_former_one_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as process:
        head = local_head.LocalHead("h:1", "another", process.pid, "l")
        local_head.end(tmp_path, head)
        assert process.poll() is None
        process.kill()


def test_a_head_that_does_not_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_head, "SYSTEM_CONFIG", {"no_such_setting": 1})
    monkeypatch.setattr(local_head, "_START_S", 2.0)
    with pytest.raises(ClusterError, match=r"head\.log"):
        local_head.start(tmp_path, 0)
    assert local_head.find(tmp_path) is None


@pytest.mark.ray
def test_down_ends_the_ray_that_up_started_and_no_other(
    ray_cluster: RayCluster, note: Path, printed_by: PrintedBy
) -> None:
    printed = printed_by("ray", "up", "--port", 0, "--cpus", 1)
    assert "Ray is up" in printed.out
    head = local_head.find(note.parent)
    assert head is not None
    assert "up already" in printed_by("ray", "up").out
    assert json.loads(printed_by("ray", "status", "--json").out)["answers"] is True
    assert "Ray is down" in printed_by("ray", "down").out
    assert head.processes() == []
    assert not note.exists()
    assert ray_cluster.runs() == {}, "the other Ray answers"
