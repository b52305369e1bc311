"""The topology at a fixed rate, and two bare Ray actors to compare it with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from benchmarks.start_signal import StartSignal
from benchmarks.sweeps.open_loop import UNDONE, Step, flat_due_times
from benchmarks.topologies import NullBolt, WaitingSpout, identity
from sunshower import Topology


class Paced(WaitingSpout):
    """Emits each number when it is due; notes when each was emitted and acked.

    `wakes`: it says when it is due, as sources do that wait in a thread of their own.
    """

    emits = ("value",)

    def __init__(self, signal: StartSignal, steps: Sequence[Step], *, wakes: bool = True) -> None:
        super().__init__(signal)
        self._wakes = wakes
        self._due_s = flat_due_times(steps)
        self._emitted_s = [UNDONE] * len(self._due_s)
        self._acked_s = [UNDONE] * len(self._due_s)

    def records(self) -> Iterator[Any]:
        start_s = yield from self._start()
        clock, emitted_s = time.monotonic, self._emitted_s
        for number, due_s in enumerate(self._due_s):
            while (now_s := clock()) < start_s + due_s:
                if self._wakes:
                    self.context.wake(start_s + due_s - now_s)
                yield None
            emitted_s[number] = now_s
            yield (number,)

    def _start(self) -> Iterator[None]:
        yield from self.wait_for_start()
        return self._signal.start_s

    def ack(self, message_id: int) -> None:
        self._acked_s[message_id] = time.monotonic()

    def result(self) -> tuple[bool, float | None, list[float], list[float]]:
        """(whether it is open, start time, emit time of each, ack time of each)."""
        return self._is_ready, self._signal.start_s, self._emitted_s, self._acked_s


def chain(signal: StartSignal, steps: Sequence[Step], bolts: int, *, wakes: bool) -> Topology:
    """A paced source, `bolts` bolts in a row that forward, and a sink; one task each."""
    topology = Topology("paced")
    stream = topology.spout("source", Paced(signal, steps, wakes=wakes))
    for number in range(bolts):
        stream = stream.shuffle().bolt(f"id-{number}", identity, fields=("value",))
    stream.shuffle().bolt("sink", NullBolt, fields=())
    return topology


class AnswerActor:
    """An actor that answers with its argument."""

    def answer(self, value: int) -> int:
        return value

    def take(self, data: bytes) -> int:
        return len(data)

    def pid(self) -> int:
        return os.getpid()


class CallActor(AnswerActor):
    """An actor that calls another one, at a fixed rate or as fast as possible."""

    def call(self, other: Any, steps: Sequence[Step]) -> tuple[float, list[float]]:
        """(start time, time of each answer)."""
        ray.get(other.answer.remote(0))
        due_s = flat_due_times(steps)
        done_s = [UNDONE] * len(due_s)
        open_calls: dict[Any, int] = {}
        number, start_s = 0, time.monotonic() + 0.1
        while number < len(due_s) or open_calls:
            left_s = start_s + due_s[number] - time.monotonic() if number < len(due_s) else 1.0
            if left_s <= 0:
                open_calls[other.answer.remote(number)] = number
                number += 1
            elif not open_calls:
                time.sleep(left_s)
            else:
                answered, _ = ray.wait(list(open_calls), num_returns=1, timeout=left_s)
                for call in answered:
                    ray.get(call)
                    done_s[open_calls.pop(call)] = time.monotonic()
        return start_s, done_s

    def call_repeatedly(self, other: Any, calls: int, data: bytes, at_once: int) -> None:
        """Make `calls` calls with `data`, `at_once` of them unanswered at a time."""
        for _ in range(calls // at_once):
            ray.get([other.take.remote(data) for _ in range(at_once)])


@contextmanager
def two_actors() -> Iterator[tuple[Any, Any]]:
    """A calling and an answering actor, which end with the block."""
    actor = {"num_cpus": 0}
    caller, other = (
        ray.remote(**actor)(CallActor).remote(),
        ray.remote(**actor)(AnswerActor).remote(),
    )
    try:
        yield caller, other
    finally:
        ray.kill(caller)
        ray.kill(other)
