"""A topology for kills on real actors, which records in files what each process has done.

numbers ──▶ work ──▶ store: the same number of tasks of each, and of ackers. The files survive the
processes that are killed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sunshower import Bolt, Context, Failure, Number, Spout, Topology
from sunshower.actors.run import RayRun
from sunshower.runtime.plan import Plan

TOTAL = 20_000
HOLDING, KILLED = "holding", "killed"
# A test waits as long as this only if it fails. On a busy machine Ray took 50 s to detect that a
# node was lost.
RECOVERY_S = 180.0


class Log:
    """Lines of JSON in a file of this instance of a task, each appended by one write."""

    def __init__(self, folder: Path, what: str) -> None:
        self._file = os.open(folder / f"{what}-{os.urandom(8).hex()}", os.O_WRONLY | os.O_CREAT)

    def write(self, *rows: Any) -> None:
        os.write(self._file, "".join(json.dumps(row) + "\n" for row in rows).encode())


def read(folder: Path, what: str) -> list[Any]:
    """All rows that all instances of all tasks have written about `what`."""
    files = sorted(folder.glob(f"{what}-*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


class Numbers(Spout[Number]):
    """0 … TOTAL - 1, divided among the tasks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, context: Context) -> None:
        self._share = range(context.index, TOTAL, context.parallelism)
        self._acked, self._failed = Log(self._folder, "acked"), Log(self._folder, "failed")

    def records(self) -> Iterator[Number]:
        return map(Number, self._share)

    def ack(self, message_id: int) -> None:
        self._acked.write(self._share[message_id])

    def fail(self, message_id: int, failure: Failure) -> None:
        self._failed.write((failure.cause, failure.component, failure.worker))


class WaitsForKill(Bolt[Number, Number]):
    """Passes numbers on. If `held`, its first task waits for the kill at its 1,000th number."""

    def __init__(self, folder: Path, held: bool) -> None:
        self._folder = folder
        self._held = held

    def prepare(self, context: Context) -> None:
        self._holds_at = 1_000 if self._held and context.index == 0 else -1
        self._seen = 0

    def process(self, record: Number) -> Iterator[Number]:
        self._seen += 1
        if self._seen == self._holds_at:
            (self._folder / HOLDING).touch()
            until((self._folder / KILLED).exists)
        yield record


class Store(WaitsForKill):
    """Writes each number in `flush`, so before its ack leaves."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._values: list[int] = []
        self._stored = Log(self._folder, "stored")

    def process(self, record: Number) -> Iterator[Number]:
        yield from super().process(record)
        self._values.append(record.value)

    def flush(self) -> None:
        self._stored.write(*self._values)
        self._values.clear()


def topology(folder: Path, held: str = "store", tasks: int = 2, **settings: float) -> Topology:
    """Numbers that pass two bolts; the bolt `held` waits for the kill with tuples in its queue."""
    # No tree times out while a process starts, however long that takes on a busy machine.
    limits = {"ackers": tasks, "spout_pending": 512, "message_timeout_s": 300.0}
    topology = Topology("mortal", **{**limits, **settings})
    numbers = topology.spout("numbers", Numbers(folder), parallelism=tasks)
    worked = numbers.shuffle().bolt("work", WaitsForKill(folder, held == "work"), parallelism=tasks)
    worked.fields("value").bolt("store", Store(folder, held == "store"), parallelism=tasks)
    return topology


def worker_of(plan: Plan, component: str) -> int:
    """The worker of the first task of a component."""
    return plan.tasks_of(component)[0].worker


def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds. Raises AssertionError if it does not within `RECOVERY_S`."""
    end_s = time.monotonic() + RECOVERY_S
    while not condition():
        assert time.monotonic() < end_s, "the condition never held"
        threading.Event().wait(0.05)  # polling without a pause would take a processor


def kill_in_the_middle(run: RayRun, folder: Path, kill: Callable[[], object]) -> None:
    """Kill while the held task waits in the middle of a batch, which is surely not acked."""
    until((folder / HOLDING).exists)
    kill()
    (folder / KILLED).touch()


def check_nothing_is_lost(run: RayRun, folder: Path) -> None:
    """Wait for the end, and check that each number was acked and stored."""
    assert run.wait(RECOVERY_S), run.snapshot()
    every = set(range(TOTAL))
    assert set(read(folder, "acked")) == every
    assert set(read(folder, "stored")) == every
