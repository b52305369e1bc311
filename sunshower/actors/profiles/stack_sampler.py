"""Samples the stacks of some threads of this process, in memory of a bounded size."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from types import CodeType, FrameType

from sunshower.actors.profiles.process_files import shown_file
from sunshower.runtime.profiles.stacks import StackFrame, merged, stack_of

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
        return stack_of(name, [_frame(self._codes[one]) for one in reversed(ids)])


def _frame(code: CodeType) -> StackFrame:
    return StackFrame(code.co_qualname, shown_file(code.co_filename), code.co_firstlineno)
