"""Finds processes that a command has left behind, including those that detached themselves."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
import uuid
from pathlib import Path

_MARK = "_SUNSHOWER_TEST_RUN"  # without the underscore it would be a setting
_ROOT = Path(__file__).resolve().parents[1]


def marked() -> dict[str, str]:
    """An environment for a command, with a mark that only its descendants inherit."""
    return {**os.environ, _MARK: uuid.uuid4().hex}


def check_program(module: str, *arguments: object, grace_s: float = 120.0) -> None:
    """Check that a module of tests, which starts its own Ray, succeeds and leaves no process."""
    environment = {**marked(), "PYTHONPATH": str(_ROOT)}  # Ray's workers inherit it
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not left_behind(environment, grace_s)


def left_behind(environment: dict[str, str], grace_s: float = 120.0) -> list[str]:
    """The commands of the processes with this mark that have not ended within `grace_s`."""
    end_s = time.monotonic() + grace_s
    for pid in _living(environment[_MARK]):
        _wait_for_end(pid, end_s - time.monotonic())
    return [_command(pid) for pid in _living(environment[_MARK])]


def _living(mark: str) -> list[int]:
    sign = f"{_MARK}={mark}".encode()
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and sign in _bytes(folder / "environ").split(b"\0")
    ]


def _wait_for_end(pid: int, seconds: float) -> None:
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([file], [], [], max(seconds, 0))
    finally:
        os.close(file)


def _command(pid: int) -> str:
    return f"{pid} {_bytes(Path(f'/proc/{pid}/cmdline')).replace(bytes(1), b' ').decode()}"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has just ended, or belongs to another user
        return b""
