"""Tests of `make test-ci`: which Pythons it finds, and what a job that fails does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import again, other_versions
from tests.other_versions import (
    CHOSEN_OF_SPARK_4,
    MORE_WITH_SPARK_4,
    Job,
    python_of,
    pythons,
    run,
    runs,
    spark_4,
)

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
    paths = list(pythons((3, 14), str(tmp_path / "bin"), tmp_path))
    assert paths == [on_path, of_pyenv, of_uv]
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


@pytest.mark.parametrize(("failing", "passes"), [(1, True), (3, True), (4, False)])
def test_few_failed_tests_must_pass_alone_and_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, failing: int, passes: bool
) -> None:
    """They fail as long as there is no file, which each of them makes."""
    (tmp_path / "test_some.py").write_text(
        "import pathlib, pytest\n"
        f"@pytest.mark.parametrize('name', [*'abcd'[:{failing}]])\n"
        "def test_file(name):\n"
        "    path = pathlib.Path(name)\n"
        "    exists = path.exists()\n"
        "    path.touch()\n"
        "    assert exists\n"
    )
    cache = tmp_path / "cache"
    first = (sys.executable, "-m", "pytest", "-n", "1", "--dist", "loadgroup")
    options: dict[str, Any] = {"cwd": tmp_path, "stdout": subprocess.DEVNULL}
    assert not again.passes(sys.executable, cache, **options), "nothing has failed"
    status = subprocess.run((*first, "-o", f"cache_dir={cache}"), check=False, **options).returncode
    assert status == again.TESTS_FAILED
    assert again.passes(sys.executable, cache, **options) is passes
    assert ("FLAKY" in capsys.readouterr().out) is passes


def test_a_test_that_fails_again_has_failed(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("def test_false():\n    assert False\n")
    options: dict[str, Any] = {"cwd": tmp_path, "stdout": subprocess.DEVNULL}
    cache = tmp_path / "cache"
    first = (sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}")
    assert subprocess.run(first, check=False, **options).returncode == again.TESTS_FAILED
    assert not again.passes(sys.executable, cache, **options)


@pytest.mark.parametrize("failing", ["lowest", "newest", "spark4", None])
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


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.spark
@pytest.mark.servers
@pytest.mark.timeout(5_400)  # many sessions of Spark, and a pipeline with kills
def test_steps_tables_states_ranges_and_the_pipeline_pass_with_spark_4() -> None:
    python = python_of(other_versions.LOWEST)
    assert python, "no Python 3.11 here, and uv cannot install it"
    other_versions.FOLDER.mkdir(parents=True, exist_ok=True)
    options: Any = {"tests": MORE_WITH_SPARK_4, "chosen": CHOSEN_OF_SPARK_4, "cached": True}
    job = spark_4(python, name="spark4-all", **options)
    assert run(job)
