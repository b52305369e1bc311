"""A process that starts lowers the priority of all its threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="threads have no niceness of their own here"
)
# Prints the niceness of each thread after n calls of `step_back`; one thread starts after them.
PROGRAM = """
import os, sys, threading
from sunshower.actors.worker import step_back

end = threading.Event()
threads = [threading.Thread(target=end.wait) for _ in range(2)]
threads[0].start()
for _ in range(int(sys.argv[1])):
    step_back()
threads[1].start()
print(*(os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir("/proc/self/task")))
end.set()
"""


def niceness(times: int) -> list[int]:
    command = [sys.executable, "-c", PROGRAM, f"{times}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_all_threads_step_back_and_also_those_that_start_later() -> None:
    before = niceness(0)[0]
    assert len(after := niceness(1)) >= 3
    assert set(after) == {min(before + 10, 19)}


def test_niceness_has_a_maximum() -> None:
    assert set(niceness(3)) == {19}
