"""Tests of `sunshower run` as a process: signals, pipes, failed starts, no leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.cli.conftest import Write
from tests.leftovers import left_behind, marked
from tests.structure.reading import ROOT

pytestmark = pytest.mark.ray

Start = Callable[..., subprocess.Popen[str]]

ENDLESS = """
    topology = Topology("endless")
    topology.spout("numbers", Counter()).shuffle().bolt("out", Stdout)
"""
HANGING = """
    import threading

    def hang(number: Number) -> None:
        threading.Event().wait()

    topology = Topology("hanging", workers=1)
    topology.spout("numbers", Counter()).shuffle().bolt("hang", hang)
"""


OUTAGE = """
    def store(number: Number) -> None:
        if number.value >= 100:
            raise ConnectionRefusedError("no database answers at localhost:1")

    topology = Topology("storing", workers=1)
    topology.spout("numbers", Counter()).shuffle().bolt("store", store)
"""
DOUBT = """
    def store(number: Number) -> None:
        if number.value >= 100:
            number.value + "one"

    topology = Topology("storing", workers=1)
    topology.spout("numbers", Counter()).shuffle().bolt("store", store)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `sunshower run`; when the test is over nothing of it may be running."""
    environments = []
    processes = []

    def run(
        *arguments: object, out: IO[str] | int = subprocess.PIPE, **environment: str
    ) -> subprocess.Popen[str]:
        environments.append({**marked(), "PYTHONPATH": str(ROOT), **environment})
        command = [sys.executable, "-m", "sunshower", "run", *map(str, arguments)]
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.PIPE, text=True,
            env=environments[-1], start_new_session=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.communicate(timeout=60)
    assert [left_behind(environment) for environment in environments] == [[] for _ in processes]


def read_until(file: IO[str] | None, mark: str) -> str:
    """Read lines until one has `mark`; the command must not end before."""
    assert file is not None
    seen = []
    for line in file:
        seen.append(line)
        if mark in line:
            return "".join(seen)
    raise AssertionError(f"the command never said {mark!r}, but:\n{''.join(seen)}")


def signal_like_a_terminal(process: subprocess.Popen[str]) -> None:
    """Ctrl-C goes to all processes in the foreground, Ray's among them."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.ray
def test_ctrl_c_finishes_what_is_under_way(start: Start, write: Write, tmp_path: Path) -> None:
    with (tmp_path / "lines").open("w+") as out:
        process = start(write(ENDLESS), out=out)
        read_until(process.stderr, "pending")
        signal_like_a_terminal(process)
        _, errors = process.communicate(timeout=60)
        numbers = list(map(int, out.seek(0) or out))
    assert process.returncode == 0, errors
    assert "Draining" in errors
    assert f"{len(numbers):,} tuples taken in, all of them acked." in errors
    assert sorted(numbers) == list(range(len(numbers)))


@pytest.mark.ray
def test_a_second_ctrl_c_stops_even_user_code_that_hangs(start: Start, write: Write) -> None:
    process = start(write(HANGING))
    read_until(process.stderr, "pending")
    signal_like_a_terminal(process)
    read_until(process.stderr, "Draining")
    signal_like_a_terminal(process)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert "will not be finished" in errors


@pytest.mark.ray
def test_a_second_ctrl_c_stops_at_once_while_a_dependency_is_away(
    start: Start, write: Write
) -> None:
    process = start(write(OUTAGE))
    read_until(process.stderr, "store[0] waits for a dependency")
    signal_like_a_terminal(process)
    told = read_until(process.stderr, "Draining")
    assert "last error: ConnectionRefusedError: no database answers at localhost:1" in told
    signal_like_a_terminal(process)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert "will not be finished" in errors


@pytest.mark.ray
def test_code_that_worked_and_then_raises_for_everything_is_shown_at_once(
    start: Start, write: Write
) -> None:
    process = start(write(DOUBT))
    told = read_until(process.stderr, "store[0] keeps failing after it had succeeded (doubt): ")
    assert "last error: TypeError: unsupported operand" in told
    read_until(process.stderr, 'number.value + "one"')
    signal_like_a_terminal(process)
    read_until(process.stderr, "Draining")
    signal_like_a_terminal(process)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors


@pytest.mark.ray
def test_a_closed_pipe_ends_the_run(start: Start, write: Write) -> None:
    process = start(write(ENDLESS))
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in errors


def complaint_of(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    return errors[errors.index("sunshower: ") :]


@pytest.mark.ray
@pytest.mark.parametrize("folder", ["a file", "x" * 120])
def test_a_ray_that_cannot_start(folder: str, start: Start, write: Write, tmp_path: Path) -> None:
    if folder == "a file":
        (tmp_path / folder).write_text("where Ray wants to make a folder")
    text = complaint_of(start(write(ENDLESS), RAY_TMPDIR=str(tmp_path / folder)))
    assert text.startswith("sunshower: cannot start a local Ray: ")
    assert "sunshower doctor" in text


@pytest.mark.ray
def test_ctrl_c_while_ray_starts(start: Start, write: Write) -> None:
    process = start(write(ENDLESS))
    read_until(process.stderr, "Starting Ray")
    signal_like_a_terminal(process)
    process.communicate(timeout=60)
    assert process.returncode == 130
