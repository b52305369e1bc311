"""A thread that reports slow calls of user code, and ends the process for one that never returns.

Ray starts the process again. Python cannot stop another thread, so nothing less would help. Code
that holds the interpreter's lock without end (a C extension; a regular expression that backtracks)
stops the watchdog, too.

Time in which the process stood still (SIGSTOP, a machine that slept) is no call's fault.
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

from sunshower.runtime.blackbox import Recorder, Running
from sunshower.runtime.usercode import guard

SLOW_S = 10.0  # a call is reported after this long, and each time that this has doubled
_LOOKS = 8  # within the shorter limit: an overrun is found an eighth late at most


class Slow(NamedTuple):
    """A call that has not returned for long, as it is reported."""

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
    """Says when a call that runs is to be reported: after `first_s`, and at each doubling."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._call: Running | None = None
        self._due_s = first_s  # how long the call has to last until its next report

    def is_due(self, call: Running | None, for_s: float) -> bool:
        """Whether to report `call`, which has lasted for `for_s`; once for each time it is due."""
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

    `recorder` says where it notes what it runs: a rebalance makes a new one. `report` is called
    for slow calls, on the watchdog's thread.
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
            awake_s = now  # it stood still; what runs now has the whole limit from here
        call = recorder().running()
        for_s = 0.0 if call is None else now - max(call.since_s, awake_s)
        if call is not None and for_s >= limit_s:
            recorder().testify("".join(_stack_of(watched).format()))
            os.kill(os.getpid(), signal.SIGKILL)
        if call is not None and slow_calls.is_due(call, for_s):
            report(Slow(call.task, for_s, _user_part(_stack_of(watched))))
        looked_s, used_s = now, used


def _user_part(stack: traceback.StackSummary) -> traceback.StackSummary:
    """What is below `guard`, by which user code is called; all of it, if that is not there."""
    code = guard.__code__
    for at in range(len(stack) - 1, -1, -1):
        if (stack[at].filename, stack[at].name) == (code.co_filename, code.co_name):
            return traceback.StackSummary.from_list(stack[at + 1 :])
    return stack


def _stack_of(thread: threading.Thread) -> traceback.StackSummary:
    return traceback.extract_stack(sys._current_frames().get(thread.ident or 0))
