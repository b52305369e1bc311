"""Tests of `make test-ci`: which Pythons it finds, and what a job that fails does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import other_versions
from tests.other_versions import Job, pythons, run, runs

HERE = (sys.version_info.major, sys.version_info.minor)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return path


def test_pythons_on_the_path_precede_those_of_pyenv_and_uv(tmp_path: Path) -> None:
    of_uv = program(tmp_path / ".local/share/uv/python/cpython-3.14.2-linux/bin/python3.14")
    of_pyenv = program(tmp_path / ".pyenv/versions/3.14.0/bin/python3.14")
    on_path = program(tmp_path / "bin/python3.14")
    program(tmp_path / ".pyenv/versions/3.13.5/bin/python3.13")
    found = list(pythons((3, 14), str(tmp_path / "bin"), tmp_path))
    assert found == [on_path, of_pyenv, of_uv]
    assert not list(pythons((3, 15), str(tmp_path / "bin"), tmp_path))


def test_a_python_that_does_not_start_or_has_another_version_is_passed_over(tmp_path: Path) -> None:
    assert runs(Path(sys.executable), HERE)
    assert not runs(Path(sys.executable), (3, 9))
    assert not runs(program(tmp_path / "python3.13"), (3, 13))  # as a shim of pyenv


@pytest.mark.parametrize(("status", "result"), [(0, "passed"), (1, "FAILED"), (5, "FAILED")])
def test_a_command_that_fails_ends_its_job_and_its_log_is_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    status: int,
    result: str,
) -> None:
    def three(_: Job) -> list[Sequence[str]]:
        codes = ("print('first')", f"import sys; print('second'); sys.exit({status})")
        return [(sys.executable, "-c", code) for code in (*codes, "print('third')")]

    monkeypatch.setattr(other_versions, "FOLDER", tmp_path)
    monkeypatch.setattr(other_versions, "commands", three)
    assert run(Job("some", Path(sys.executable), "constraints.txt", ())) is (status == 0)
    printed = capsys.readouterr().out
    assert f"some: {result} in " in printed
    assert "second" in printed
    assert ("third" in printed) is (status == 0)


@pytest.mark.parametrize("failing", ["lowest", "newest", None])
def test_the_status_is_that_of_the_worst_job(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    failing: str | None,
) -> None:
    monkeypatch.setattr(other_versions, "FOLDER", tmp_path)
    monkeypatch.setattr(other_versions, "python_of", lambda *_: Path(sys.executable))
    monkeypatch.setattr(other_versions, "run", lambda job: job.name != failing)
    assert other_versions.main() == (failing is not None)
    monkeypatch.setattr(other_versions, "python_of", lambda *_: None)
    assert other_versions.main() == 0
    assert capsys.readouterr().out.count("SKIPPED") == 2
