"""Whether a command that has ended left processes behind, however they have detached themselves."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
import uuid
from pathlib import Path

_MARK = "SUNSHOWER_TEST_RUN"
_ROOT = Path(__file__).resolve().parents[1]


def marked() -> dict[str, str]:
    """An environment that all descendants of a command inherit, and that nobody else has."""
    return {**os.environ, _MARK: uuid.uuid4().hex}


def check_program(module: str, *arguments: object, grace_s: float = 10.0) -> None:
    """Run a module of tests, which has a Ray of its own: it succeeds, and leaves nothing behind."""
    environment = {**marked(), "PYTHONPATH": str(_ROOT)}  # for its nodes' workers, too
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


def left_behind(environment: dict[str, str], grace_s: float = 10.0) -> list[str]:
    """The commands of living processes with that mark, after they had `grace_s` to end."""
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
    except OSError:  # it has just ended, or is somebody else's
        return b""
