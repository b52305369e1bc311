"""Topology files for the command line to load, and commands as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import IO

import pytest
from _pytest.capture import CaptureResult

from tests.conftest import Sunshower
from tests.leftovers import left_behind, marked
from tests.structure.reading import ROOT

HEAD = """
    from __future__ import annotations
    from collections.abc import Iterator
    from typing import NamedTuple
    from sunshower import Bolt, Context, Counter, Line, Number, Stdout, TextFiles, Topology
"""
Write = Callable[..., Path]
Start = Callable[..., subprocess.Popen[str]]
PrintedBy = Callable[..., CaptureResult[str]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a topology file: the usual imports, then `code`."""

    def file(code: str, name: str = "some_topology.py") -> Path:
        path = tmp_path / name
        path.write_text(dedent(HEAD) + dedent(code))
        return path

    return file


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    """A file of one test is not imported by the next one."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(modules):
        if "pytest-of" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def printed_by(sunshower: Sunshower, capsys: pytest.CaptureFixture[str]) -> PrintedBy:
    """Run a command in this process, which ends with `status`; returns what it printed."""

    def run(*arguments: object, status: int = 0) -> CaptureResult[str]:
        capsys.readouterr()
        found = sunshower(*arguments)
        printed = capsys.readouterr()
        assert found == status, printed.err
        return printed

    return run


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `sunshower …` as a process; when the test is over nothing of it may be running."""
    environments = []
    processes = []

    def run(
        *arguments: object, out: IO[str] | int = subprocess.PIPE, **environment: str
    ) -> subprocess.Popen[str]:
        environments.append({**marked(), "PYTHONPATH": str(ROOT), **environment})
        command = [sys.executable, "-m", "sunshower", *map(str, arguments)]
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
