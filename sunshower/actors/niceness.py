"""Who goes first when processors are scarce: a process that is being born.

A death is over when the successor has said hello, and that takes 0.7 s of CPU, mostly imports. Its
peers meanwhile have a backlog and take all there is: at 20,000 tuples/s on two cores the hello came
after 1.9 to 2.9 s, and the next kill before all was well. With this it comes after 1.0 to 1.2 s.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_STEP = 10  # a tenth of the weight; with 5, a third of it, the hello came after 1.4 to 2.5 s
_NICEST = 19
_THREADS = Path("/proc/self/task")


def step_back() -> None:
    """This process is born, and lets others go first: all its threads, and those to come.

    Relative to where it was started: only the superuser may take niceness away.
    """
    if not _THREADS.exists():  # elsewhere it belongs to the process
        os.nice(_STEP)
        return
    for thread in map(int, os.listdir(_THREADS)):
        with contextlib.suppress(ProcessLookupError):  # a thread may have ended in between
            nicer = min(os.getpriority(os.PRIO_PROCESS, thread) + _STEP, _NICEST)
            os.setpriority(os.PRIO_PROCESS, thread, nicer)
