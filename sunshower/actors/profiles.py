"""Profiles a worker's process: with py-spy, or, if that is not permitted, by a thread in it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from sunshower.errors import ClusterError
from sunshower.runtime.profiles import (
    CALLS,
    LOOP,
    StackFrame,
    Stacks,
    frame_from,
    frames_of,
    merged,
    stack_of,
)

_THREADS = {"sunshower": LOOP, "MainThread": CALLS}  # Python's names of a worker's threads
PY_SPY, IN_PROCESS = "py-spy", "a thread in the process"


# ---- process files -------------------------------------------------------------------------------

_PACKAGE = Path(__file__).parents[1]
_PATHS = sysconfig.get_paths()
# The folders of installed packages come first: they are below that of the standard library. Python
# has the files of an environment with its own path, or with the one that a link leads to.
_FOLDERS = [
    *((str(folder), "sunshower") for folder in (_PACKAGE, _PACKAGE.resolve())),
    *((_PATHS[kind], "site-packages") for kind in ("purelib", "platlib")),
    *((str(Path(_PATHS[kind]).resolve()), "site-packages") for kind in ("purelib", "platlib")),
    *((f"{_PATHS[kind]}/site-packages", "site-packages") for kind in ("stdlib", "platstdlib")),
    *((_PATHS[kind], "python") for kind in ("stdlib", "platstdlib")),
]


def shown_file(file: str, folders: Sequence[tuple[str, str]] = _FOLDERS) -> str:
    """The file as a stack of a profile shows it. `folders`: pairs of a folder and what stands for
    it; the first one that the file is in is taken."""
    for folder, shown in folders:
        if file.startswith(f"{folder}/"):
            return f"{shown}{file[len(folder) :]}"
    return file


# ---- stack sampler -------------------------------------------------------------------------------

RATE = 100  # samples a second; also of py-spy
_STACKS_MAX = 10_000  # different ones; samples of others are counted as one
_DEPTH_MAX = 500  # frames of a sample, from the innermost
# A sample waits for the interpreter's lock: until the sampled thread gives it up, or for this time.
# With Python's 5 ms most samples of a busy worker would be taken where it gives the lock up.
_SWITCH_S = 0.0001
_OTHERS = StackFrame("… other stacks", "<none>", 0)


class StackSampler:
    """Counts stacks. `threads`: their ids, and what a stack calls them."""

    def __init__(self, threads: Mapping[int, str]) -> None:
        self._threads = threads
        self._counts: dict[tuple[str, tuple[int, ...]], int] = {}
        self._codes: dict[int, CodeType] = {}  # by id, which is cheaper to compare than a code

    def sample(self) -> None:
        """Count the present stack of each of the threads that runs."""
        frames = sys._current_frames()
        for thread, name in self._threads.items():
            if (frame := frames.get(thread)) is not None:
                self._count(name, frame)

    def run(self, seconds: float, stopped: threading.Event) -> None:
        """Sample RATE times a second, for so long or until it is stopped."""
        before_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        try:
            self._run(seconds, stopped)
        finally:
            sys.setswitchinterval(before_s)

    def _run(self, seconds: float, stopped: threading.Event) -> None:
        interval_s, end_s = 1 / RATE, time.monotonic() + seconds
        due_s = time.monotonic()
        while (now := time.monotonic()) < end_s and not stopped.is_set():
            self.sample()
            due_s = max(due_s + interval_s, now)  # a late sample is not made up for
            stopped.wait(max(0.0, due_s - time.monotonic()))

    def stacks(self) -> dict[str, int]:
        """The stacks so far, as texts."""
        return dict(
            merged({self._text(name, ids): count} for (name, ids), count in self._counts.items())
        )

    def _count(self, name: str, frame: FrameType | None) -> None:
        ids: list[int] = []
        while frame is not None and len(ids) < _DEPTH_MAX:
            code = frame.f_code
            ids.append(id(code))
            self._codes.setdefault(id(code), code)
            frame = frame.f_back
        key = (name, tuple(ids))
        if key not in self._counts and len(self._counts) >= _STACKS_MAX:
            key = (name, ())
        self._counts[key] = self._counts.get(key, 0) + 1

    def _text(self, name: str, ids: tuple[int, ...]) -> str:
        if not ids:
            return stack_of(name, [_OTHERS])
        return stack_of(name, [_frame(self._codes[code_id]) for code_id in reversed(ids)])


def _frame(code: CodeType) -> StackFrame:
    return StackFrame(code.co_qualname, shown_file(code.co_filename), code.co_firstlineno)


# ---- py spy --------------------------------------------------------------------------------------

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
    sampled = _output(process, pid, time.monotonic() + seconds + _LATE_S, stopped)
    return {} if sampled is None else parse(sampled, threads)


def parse(text: str, threads: Mapping[str, str]) -> dict[str, int]:
    """The stacks in py-spy's raw output, of these threads; see `record`."""
    stacks: Counter[str] = Counter()
    for line in text.splitlines():
        if (match := _LINE.fullmatch(line)) and match["thread"] in threads:
            frames = [frame_from(frame) for frame in match["frames"].split(";")]
            frames = [frame._replace(file=shown_file(frame.file)) for frame in frames]
            stacks[stack_of(threads[match["thread"]], frames)] += int(match["count"])
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


# ---- process profiler ----------------------------------------------------------------------------


class WorkerProfile(NamedTuple):
    """The answer of a worker that is profiled."""

    is_done: bool
    sampler: str
    refusal: str  # why py-spy did not sample; empty if it did, or was not to
    stacks: Stacks  # empty until it is done


class ProcessProfiler:
    """One profile at a time. Its methods return at once."""

    def __init__(self) -> None:
        self._id = ""
        self._sampler, self._refusal = PY_SPY, ""
        self._stacks: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def profile(self, id: str, seconds: float | None, *, in_process: bool) -> WorkerProfile:
        """Begin the profile with this id, or say how far it is. None: end it, and forget it.

        Raises ClusterError while another profile is recorded.
        """
        if seconds is None:
            if id == self._id:
                self._stopped.set()
                self._id, self._stacks = "", Counter()
            return WorkerProfile(True, self._sampler, "", {})
        if id != self._id:
            if self._is_running:
                raise ClusterError(
                    "another profile of this process is being recorded; try again when it has ended"
                )
            self._begin(id, seconds, in_process)
        is_done = not self._is_running
        stacks = dict(self._stacks) if is_done else {}
        return WorkerProfile(is_done, self._sampler, self._refusal, stacks)

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self, id: str, seconds: float, in_process: bool) -> None:
        self._id, self._stacks, self._refusal = id, Counter(), ""
        self._sampler = IN_PROCESS if in_process else PY_SPY
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._record, args=(seconds, self._stopped), name="profiler", daemon=True
        )
        self._thread.start()

    def _record(self, seconds: float, stopped: threading.Event) -> None:
        stacks: Stacks = {}
        if self._sampler == PY_SPY:
            try:
                stacks = record(os.getpid(), seconds, _THREADS, stopped)
            except SamplerRefused as refused:
                self._sampler, self._refusal = IN_PROCESS, str(refused)
        if self._sampler == IN_PROCESS:
            sampler = StackSampler(_threads())
            sampler.run(seconds, stopped)
            stacks = sampler.stacks()
        if not stopped.is_set():
            self._stacks = merged({_own_part(stack): count} for stack, count in stacks.items())
            del self._stacks[""]


PROFILER = ProcessProfiler()  # of this process: a sampler samples all of it


def _threads() -> dict[int, str]:
    alive = threading.enumerate()
    return {
        thread.ident: _THREADS[thread.name]
        for thread in alive
        if thread.ident and thread.name in _THREADS
    }


def _own_part(stack: str) -> str:
    """The stack without what Python and Ray call before the first function of this package. Empty
    if there is none: the main thread waits in Ray's code for calls to the worker."""
    thread, frames = stack.partition(";")[0], frames_of(stack)
    task_frames = list(dropwhile(lambda frame: not (frame.is_ours or frame.is_task), frames))
    return stack_of(thread, task_frames) if task_frames else ""
