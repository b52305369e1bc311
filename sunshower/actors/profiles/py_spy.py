"""Samples this process with py-spy, which reads the stacks from a separate process."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from sunshower.actors.profiles.process_files import shown_file
from sunshower.actors.profiles.stack_sampler import RATE
from sunshower.errors import ClusterError
from sunshower.runtime.profiles.stacks import frame_from, stack_of

_LOOK_S = 0.1
_LATE_S = 20.0  # to start, and to write what it has found
_END_S = 5.0  # to end after SIGINT
# A process whose tracer is killed in the middle of a sample stays stopped, and cannot go on itself.
_KILL = "kill -KILL {py_spy}; kill -CONT {pid}"
_LINE = re.compile(r"thread \(\w+\): (?P<thread>[^;]*);(?P<frames>.*) (?P<count>\d+)")
_REASON_MAX = 200  # characters


class SamplerRefused(ClusterError):
    """py-spy cannot record this process; the message says why."""


def find_py_spy() -> str | None:
    """The program, on the PATH or beside this Python; None if it is not installed."""
    beside = Path(sys.executable).parent / "py-spy"
    return shutil.which("py-spy") or (str(beside) if beside.is_file() else None)


def record(
    pid: int, seconds: float, threads: Mapping[str, str], stopped: threading.Event
) -> dict[str, int]:
    """Record the threads of these Python names for so long, or until `stopped`, which gives
    nothing. `threads`: name → what a stack calls it. Raises SamplerRefused."""
    if (program := find_py_spy()) is None:
        raise SamplerRefused("py-spy is not installed there (the extra `profile`)")
    wanted = ["--rate", str(RATE), "--duration", str(max(1, round(seconds)))]
    form = ["--format", "raw", "--threads", "--idle", "--function", "--full-filenames"]
    command = [program, "record", "--pid", str(pid), *wanted, *form, "--output", "/dev/stdout"]
    try:
        process = subprocess.Popen(  # noqa: S603 - the program of the extra
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise SamplerRefused(f"py-spy cannot be started: {error.strerror or error}") from error
    found = _output(process, pid, time.monotonic() + seconds + _LATE_S, stopped)
    return {} if found is None else parse(found, threads)


def parse(text: str, threads: Mapping[str, str]) -> dict[str, int]:
    """The stacks in py-spy's raw output, of these threads; see `record`."""
    stacks: Counter[str] = Counter()
    for line in text.splitlines():
        if (found := _LINE.fullmatch(line)) and found["thread"] in threads:
            frames = [frame_from(one) for one in found["frames"].split(";")]
            frames = [one._replace(file=shown_file(one.file)) for one in frames]
            stacks[stack_of(threads[found["thread"]], frames)] += int(found["count"])
    return dict(stacks)


def _output(
    process: subprocess.Popen[str], pid: int, end_s: float, stopped: threading.Event
) -> str | None:
    """What py-spy has written about `pid`, None if it was stopped. Raises SamplerRefused."""
    with process:
        while True:
            try:
                text, message = process.communicate(timeout=_LOOK_S)
            except subprocess.TimeoutExpired:
                if not stopped.is_set() and time.monotonic() < end_s:
                    continue
                _end(process, pid)
                if stopped.is_set():
                    return None
                raise SamplerRefused("py-spy does not end") from None
            if process.returncode != 0:
                raise SamplerRefused(_reason(message or text))
            return text


def _end(process: subprocess.Popen[str], pid: int) -> None:
    """End py-spy between two samples, as Ctrl-C does; if it does not end, kill it."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        kill = _KILL.format(py_spy=process.pid, pid=pid)
        with subprocess.Popen(["/bin/sh", "-c", kill], stdin=subprocess.DEVNULL):  # noqa: S603
            process.communicate()


def _reason(message: str) -> str:
    if "ermission" in message:
        return "this machine does not let py-spy read another process (ptrace is refused)"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"py-spy failed: {(lines or ['it says nothing'])[-1][:_REASON_MAX]}"
