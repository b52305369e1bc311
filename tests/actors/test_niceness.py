"""A process that starts lowers the priority of all its threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="threads have no niceness of their own here"
)
# Prints the niceness of each thread: before `step_back`, after one call, and after three. After
# each of them another thread starts.
PROGRAM = """
import os, threading
from sunshower.actors.worker import step_back

end = threading.Event()

def show(*calls):
    for call in calls:
        call()
    threading.Thread(target=end.wait).start()
    threads = map(int, os.listdir("/proc/self/task"))
    print(*(os.getpriority(os.PRIO_PROCESS, thread) for thread in threads))

show()
show(step_back)
show(step_back, step_back)
end.set()
"""


def test_all_threads_step_back_also_those_that_start_later_and_niceness_has_a_maximum() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before, once, thrice = ([*map(int, line.split())] for line in done.stdout.splitlines())
    assert len(once) >= 3
    assert set(once) == {min(before[0] + 10, 19)}
    assert set(thrice) == {19}
