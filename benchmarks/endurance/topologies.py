"""The topologies of chaos, slow and poison, which record the times of every tuple."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.endurance.row_files import CAUSES, RowFile
from benchmarks.start_signal import StartSignal
from sunshower import Bolt, Context, Spout, Topology
from sunshower.failures import Failure

_INTERVAL_S = (
    0.02  # a source emits in bursts at this interval; single tuples would be single packets
)
_BURST = 256  # numbers that are recorded as emitted, before they are emitted
_KEYS = 1_000
POISON_EVERY = 100_000
FIRST_POISON = POISON_EVERY // 2  # not the first record of a run, when batches are still small


class Item(NamedTuple):
    number: int
    key: int


class Numbers(Spout[Item]):
    """Numbered items, `rate` a second since the start signal.

    All tasks together emit 0 … total - 1. A restarted task is late, and emits faster until it has
    caught up.
    """

    def __init__(self, signal: StartSignal, folder: Path, rate: float, total: int) -> None:
        self._signal, self._folder = signal, folder
        self._rate, self._total = rate, total

    def open(self, context: Context) -> None:
        self._first, self._step = context.index, context.parallelism
        self._emitted = RowFile(self._folder, "emitted", context)
        self._acked = RowFile(self._folder, "acked", context)
        self._failed = RowFile(self._folder, "failed", context)

    def records(self) -> Iterator[Item | None]:
        while not self._signal.has_started:
            yield None
        start_s = self._signal.start_s
        mine = range(self._first, self._total, self._step)
        position = 0
        while position < len(mine):
            intervals = (time.monotonic() - start_s) // _INTERVAL_S
            due = int(intervals * _INTERVAL_S * self._rate / self._step)
            burst = mine[position : min(due, position + _BURST)]
            if not burst:
                yield None
                continue
            self._emitted.write_all(burst)
            for number in burst:
                yield Item(number, number % _KEYS)
            position += len(burst)

    def ack(self, message_id: int) -> None:
        self._acked.write(self._first + message_id * self._step)

    def fail(self, message_id: int, failure: Failure) -> None:
        number = self._first + message_id * self._step
        self._failed.write(number, CAUSES.index(failure.cause))


def relay(item: Item) -> Iterator[Item]:
    yield item


class Sink(Bolt[Item, None]):
    """Writes the numbers that it has received to its file, before their acks are sent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: list[int] = []

    def prepare(self, context: Context) -> None:
        self._sunk = RowFile(self._folder, "sunk", context)

    def process(self, record: Item) -> None:
        self._seen.append(record.number)

    def flush(self) -> None:
        self._sunk.write_all(self._seen)
        self._seen.clear()


class SlowSink(Sink):
    """A sink that pauses for each record."""

    def __init__(self, folder: Path, pause_s: float) -> None:
        super().__init__(folder)
        self._pause_s = pause_s

    def process(self, record: Item) -> None:
        time.sleep(self._pause_s)
        super().process(record)


class FullSpeedSpout(Spout[Item]):
    """Numbered items at full speed; records when the last one that is not poison was acked."""

    def __init__(self, signal: StartSignal, total: int) -> None:
        self._signal, self._total = signal, total
        self._begun_s = self._last_s = 0.0
        self._acks = 0

    def open(self, context: Context) -> None:
        self._first, self._step = context.index, context.parallelism

    def records(self) -> Iterator[Item | None]:
        while not self._signal.has_started:
            yield None
        self._begun_s = time.monotonic()
        for number in range(self._first, self._total, self._step):
            yield Item(number, (number + FIRST_POISON) % POISON_EVERY)

    def ack(self, message_id: int) -> None:
        if (self._first + message_id * self._step + FIRST_POISON) % POISON_EVERY:
            self._acks += 1
            self._last_s = time.monotonic()

    def result(self) -> tuple[int, float, float]:
        """(acked items that are not poison, time of the first emit, time of their last ack)."""
        return self._acks, self._begun_s, self._last_s


class PoisonBolt(Bolt[Item, None]):
    """Raises an error for each poison item, if `poisoned`."""

    def __init__(self, *, poisoned: bool) -> None:
        self._poisoned = poisoned

    def process(self, record: Item) -> None:
        if not record.key and self._poisoned:  # in this order, so that both streams pay for it
            raise ValueError(f"{record.number} is poison")


def chaos_topology(signal: StartSignal, folder: Path, rate: float, total: int) -> Topology:
    """Two tasks of each of spout, relay, sink and acker."""
    topology = Topology("chaos", ackers=2)
    numbers = topology.spout("numbers", Numbers(signal, folder, rate, total), parallelism=2)
    items = numbers.shuffle().bolt("relay", relay, parallelism=2)
    items.fields("key").bolt("sink", Sink(folder), parallelism=2)
    return topology


def slow_topology(
    signal: StartSignal, folder: Path, rate: float, total: int, pause_s: float
) -> Topology:
    """A spout whose bolt pauses for each record."""
    topology = Topology("slow")
    numbers = topology.spout("numbers", Numbers(signal, folder, rate, total))
    numbers.shuffle().bolt("sink", SlowSink(folder, pause_s))
    return topology
