"""A thread that ends its own process when user code does not return: Ray starts it again.

Python cannot stop another thread, so nothing less would help. Code that holds the interpreter's
lock without end (a C extension; a regular expression that backtracks) stops the watchdog, too.

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

from sunshower.runtime.blackbox import Recorder

_LOOKS = 8  # within one limit: an overrun is found an eighth late at most


def start(recorder: Callable[[], Recorder], watched: threading.Thread, limit_s: float) -> None:
    """Watch the thread that runs user code from now on, until the process ends.

    `recorder` says where it notes what it runs: a rebalance makes a new one.
    """
    threading.Thread(
        target=_watch, args=(recorder, watched, limit_s), name="watchdog", daemon=True
    ).start()


def _watch(recorder: Callable[[], Recorder], watched: threading.Thread, limit_s: float) -> None:
    looked_s, used_s, awake_s = time.monotonic(), time.process_time(), -math.inf
    while watched.is_alive():
        watched.join(limit_s / _LOOKS)
        now, used = time.monotonic(), time.process_time()
        if now - looked_s > 2 * limit_s / _LOOKS and used - used_s < (now - looked_s) / 2:
            awake_s = now  # it stood still; what runs now has the whole limit from here
        if recorder().overdue(now, limit_s) and now - awake_s >= limit_s:
            frame = sys._current_frames().get(watched.ident or 0)
            recorder().testify("".join(traceback.format_stack(frame)))
            os.kill(os.getpid(), signal.SIGKILL)
        looked_s, used_s = now, used
