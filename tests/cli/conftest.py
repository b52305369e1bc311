"""Fixtures for tests of the command line: topology files, and commands with their output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import IO, TYPE_CHECKING

import pytest
from _pytest.capture import CaptureResult

from tests.conftest import Sunshower
from tests.leftovers import left_behind, marked
from tests.structure.reading import ROOT

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

HEAD = """
    from __future__ import annotations
    from collections.abc import Iterator
    from typing import NamedTuple
    from sunshower import Bolt, Context, Counter, Line, Number, Stdout, TextFiles, Topology
"""
Write = Callable[..., Path]
Start = Callable[..., subprocess.Popen[str]]
Command = Callable[..., subprocess.CompletedProcess[str]]
Capture = pytest.CaptureFixture[str]
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
        code = sunshower(*arguments)
        printed = capsys.readouterr()
        assert code == status, printed.err
        return printed

    return run


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `sunshower …` as a process; at the end of the test none of its processes may run."""
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
        process.communicate(timeout=120)
    assert [left_behind(environment) for environment in environments] == [[] for _ in processes]


@pytest.fixture
def command(ray_cluster: RayCluster) -> Iterator[Command]:
    """Run `sunshower …` on the Ray of this test; at the end its topologies are stopped."""
    import ray

    address = ray.get_runtime_context().gcs_address

    def run(*arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "sunshower", *map(str, arguments), "--address", address]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "150"}
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=environment, timeout=120
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    yield run
    for topology in ray_cluster.runs():
        ray_cluster.find(topology).stop()


@pytest.fixture
def here(
    command: Command, ray_cluster: RayCluster, sunshower: Sunshower, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> Command:  # fmt: skip
    """The same in this process, which saves the start of another process."""
    import ray

    monkeypatch.setenv("COLUMNS", "150")
    address = ray.get_runtime_context().gcs_address

    def run(*arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = sunshower(*arguments, "--address", address)
        printed = capsys.readouterr()
        assert code == status, printed.err
        assert "Traceback" not in printed.err
        return subprocess.CompletedProcess(arguments, code, printed.out, printed.err)

    return run


def read_until(file: IO[str] | None, mark: str) -> str:
    """Read lines until one has `mark`; the command must not end before."""
    assert file is not None
    seen = []
    for line in file:
        seen.append(line)
        if mark in line:
            return "".join(seen)
    raise AssertionError(f"the command did not print {mark!r}, but:\n{''.join(seen)}")


def signal_like_a_terminal(process: subprocess.Popen[str]) -> None:
    """Ctrl-C goes to all processes in the foreground, Ray's among them."""
    os.killpg(process.pid, signal.SIGINT)
