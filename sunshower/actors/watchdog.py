"""A thread that reports slow calls of user code, and kills the process if a call never returns.

Ray restarts the process. Python cannot stop another thread, so there is no milder remedy. Code that
never releases the interpreter's lock (a C extension; a regular expression that backtracks) blocks
the watchdog, too.

Time in which the process was stopped (SIGSTOP, a suspended machine) does not count.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from sunshower.runtime.control.flight_recorder import Recorder, Running
from sunshower.runtime.tasks.user_code import guard

SLOW_S = 10.0  # a call is reported after this time, and at each doubling of it
_LOOKS = 8  # checks within the shorter limit: an overrun is found at most an eighth late


class Slow(NamedTuple):
    """The report of a slow call."""

    task: int
    for_s: float
    stack: traceback.StackSummary

    @property
    def where(self) -> str:
        """The innermost line: file, line, function, code."""
        if not self.stack:
            return "an unknown place"
        frame = self.stack[-1]
        return f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"


class SlowCalls:
    """Decides when to report a running call: after `first_s`, and at each doubling."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._call: Running | None = None
        self._due_s = first_s  # the duration at which the next report is due

    def is_due(self, call: Running | None, for_s: float) -> bool:
        """Whether to report `call`, which has lasted for `for_s`; true once for each due time."""
        if call != self._call:
            self._call, self._due_s = call, self._first_s
        if call is None or for_s < self._due_s:
            return False
        while self._due_s <= for_s:
            self._due_s *= 2
        return True


def start(
    recorder: Callable[[], Recorder],
    watched: threading.Thread,
    limit_s: float,
    report: Callable[[Slow], None],
    slow_s: float = SLOW_S,
) -> None:
    """Watch the thread that runs user code from now on, until the process ends.

    `recorder` returns the current flight recorder; a rebalance creates a new one. `report` is
    called for slow calls, on the watchdog's thread.
    """
    threading.Thread(
        target=_watch,
        args=(recorder, watched, limit_s, report, slow_s),
        name="watchdog",
        daemon=True,
    ).start()


def _watch(
    recorder: Callable[[], Recorder],
    watched: threading.Thread,
    limit_s: float,
    report: Callable[[Slow], None],
    slow_s: float,
) -> None:
    slow_calls, look_s = SlowCalls(slow_s), min(limit_s, slow_s) / _LOOKS
    looked_s, used_s, awake_s = time.monotonic(), time.process_time(), -math.inf
    while watched.is_alive():
        watched.join(look_s)
        now, used = time.monotonic(), time.process_time()
        if now - looked_s > 2 * limit_s / _LOOKS and used - used_s < (now - looked_s) / 2:
            awake_s = now  # it was stopped: the running call gets the whole limit from now
        call = recorder().running()
        for_s = 0.0 if call is None else now - max(call.since_s, awake_s)
        if call is not None and for_s >= limit_s:
            recorder().note_stack("".join(_stack_of(watched).format()))
            os.kill(os.getpid(), signal.SIGKILL)
        if call is not None and slow_calls.is_due(call, for_s):
            report(Slow(call.task, for_s, _user_part(_stack_of(watched))))
        looked_s, used_s = now, used


def _user_part(stack: traceback.StackSummary) -> traceback.StackSummary:
    """The frames of user code, below `guard`; the whole stack if `guard` is not in it."""
    code = guard.__code__
    for at in range(len(stack) - 1, -1, -1):
        if (stack[at].filename, stack[at].name) == (code.co_filename, code.co_name):
            return traceback.StackSummary.from_list(stack[at + 1 :])
    return stack


def _stack_of(thread: threading.Thread) -> traceback.StackSummary:
    return traceback.extract_stack(sys._current_frames().get(thread.ident or 0))
