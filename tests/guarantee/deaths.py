"""A topology on real actors that a test can hurt, and the evidence of it in files.

numbers ──▶ work ──▶ store: two tasks of each and two ackers. Files outlive whoever is killed.
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
RECOVERY_S = 60.0  # generous: the machine may be busy, and a lost tuple would never come


class Log:
    """Lines of JSON, appended to a file of this life of a task, each in one write."""

    def __init__(self, folder: Path, what: str) -> None:
        self._file = os.open(folder / f"{what}-{os.urandom(8).hex()}", os.O_WRONLY | os.O_CREAT)

    def write(self, *rows: Any) -> None:
        os.write(self._file, "".join(json.dumps(row) + "\n" for row in rows).encode())


def read(folder: Path, what: str) -> list[Any]:
    """Everything that all lives of all tasks have written about `what`."""
    files = sorted(folder.glob(f"{what}-*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


class Numbers(Spout[Number]):
    """0 … TOTAL - 1, of which a task has every second one."""

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


def work(number: Number) -> Iterator[Number]:
    yield number


class Store(Bolt[Number, None]):
    """Has written down what it has seen before any ack of it leaves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: list[int] = []

    def prepare(self, context: Context) -> None:
        self._stored = Log(self._folder, "stored")

    def process(self, record: Number) -> None:
        self._seen.append(record.value)

    def flush(self) -> None:
        self._stored.write(*self._seen)
        self._seen.clear()


def topology(folder: Path, **settings: float) -> Topology:
    """Slowed by its few pending tuples, so that there is always something to hurt."""
    topology = Topology("mortal", **{"ackers": 2, "spout_pending": 512, **settings})
    numbers = topology.spout("numbers", Numbers(folder), parallelism=2)
    worked = numbers.shuffle().bolt("work", work, parallelism=2)
    worked.fields("value").bolt("store", Store(folder), parallelism=2)
    return topology


def worker_of(plan: Plan, component: str) -> int:
    """Where the first task of a component lives."""
    return plan.tasks_of(component)[0].worker


def until(condition: Callable[[], bool]) -> None:
    """Wait for it. Raises AssertionError when it does not come to pass in `RECOVERY_S`."""
    end_s = time.monotonic() + RECOVERY_S
    while not condition():
        assert time.monotonic() < end_s, "it never came to that"
        threading.Event().wait(0.01)


def kill_in_the_middle(run: RayRun, kill: Callable[[], object]) -> int:
    """Kill when a third is acked. Returns how many tuples were not, just before."""

    def acked() -> int:
        return run.snapshot().component("numbers").acked

    until(lambda: acked() >= TOTAL // 3)
    left = TOTAL - acked()
    kill()
    return left


def check_nothing_is_lost(run: RayRun, folder: Path) -> None:
    """Everything is acked, and what is acked was stored."""
    assert run.wait(RECOVERY_S), run.snapshot()
    every = set(range(TOTAL))
    assert set(read(folder, "acked")) == every
    assert set(read(folder, "stored")) == every
