"""Tests of exceptions that are no Exception: whatever user code raises, wherever it is called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sunshower import (
    Bolt,
    CombinerAggregator,
    Context,
    Derived,
    KeyState,
    Records,
    Retry,
    Spout,
    Topology,
    batch,
    tumbling,
    count,
)
from sunshower.errors import TopologyFailed
from sunshower.simulation import SimCluster
from sunshower.trident import FixedBatchSpout, InMemory, MemoryState, PartitionedSpout, Skip, batches

TOTAL, BAD = 12, 5


class Panic(BaseException):
    """As the PanicException of an extension in Rust."""


class Number(NamedTuple):
    n: int

    @property
    def at(self) -> float:
        return float(self.n)


@dataclass(frozen=True)
class Checked:
    n: int

    def __post_init__(self) -> None:
        raises(self.n)


KINDS: list[Callable[[], BaseException]] = [
    asyncio.CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    lambda: SystemExit(3),
    lambda: Panic("called `Option::unwrap()` on a `None` value"),
    lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]),
]


class Raiser:
    make: Callable[[], BaseException]
    times: float


def raises(n: int) -> None:
    """Raise for the bad number, as often as the test says."""
    if n == BAD and Raiser.times > 0:
        Raiser.times -= 1
        raise Raiser.make()


NUMBERS = [Number(n) for n in range(TOTAL)]


# ---- code that processes a record: this record fails, and no other ------------------------------


def mapped(n: Number) -> Number:
    raises(n.n)
    return n


def kept(n: Number) -> bool:
    raises(n.n)
    return True


def twice(n: Number) -> Iterator[Number]:
    yield n
    raises(n.n)
    yield n


async def awaited(n: Number) -> Number:
    await asyncio.sleep(0.01)
    raises(n.n)
    return n


async def at_once(n: Number) -> Number:
    raises(n.n)
    return n


async def generated(n: Number) -> AsyncIterator[Number]:
    yield n
    await asyncio.sleep(0.01)
    raises(n.n)


def same(n: Number) -> Number:
    return n


def pair(n: Number) -> Iterator[Number]:
    yield Number(n.n)
    yield Number(n.n + TOTAL)


def end(n: Number) -> None:
    pass


def sink(n: Number) -> None:
    raises(n.n)


async def async_sink(n: Number) -> None:
    await asyncio.sleep(0.01)
    raises(n.n)


def stated(n: Number, state: KeyState[int]) -> None:
    raises(n.n)
    state.value = n.n


def timed(n: Number, state: KeyState[int]) -> None:
    raises(n.n)
    state.value, state.timer = n.n, state.time + 1


def on_timer(key: int, state: KeyState[int]) -> Iterator[Number]:
    yield Number(state.value or 0)


@batch
def table_of(table: pa.Table) -> Derived:
    for n in table["n"].to_pylist():
        raises(n)
    return Derived(table, range(len(table)))


def checked(n: Number) -> Checked:
    return Checked(n.n)


def unchecked(n: Number) -> Checked:
    """A record whose constructor raises only in the process that receives it."""
    made = object.__new__(Checked)
    object.__setattr__(made, "n", n.n)
    return made


def end_checked(n: Checked) -> None:
    pass


class Processes(Bolt[Number, Number]):
    emits = Number

    def process(self, record: Number) -> Iterator[Number]:
        raises(record.n)
        yield record


class Executes(Bolt[Number, Number]):
    emits = Number

    def execute(self, tuple: Any, out: Any) -> None:
        raises(tuple.record.n)
        out.emit(tuple.record, tuple)
        out.ack(tuple)


class Chooses:
    def prepare(self, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose(self, record: Any) -> Sequence[int]:
        raises(record.n)
        return self.targets


class Largest(CombinerAggregator[Number, int]):
    def init(self, record: Number) -> int:
        raises(record.n)
        return record.n

    def combine(self, first: int, second: int) -> int:
        return max(first, second)

    def zero(self) -> int:
        return 0


class Timed(NamedTuple):
    n: int

    @property
    def at(self) -> float:
        raises(self.n)
        return float(self.n)


def timed_record(n: Number) -> Timed:
    return Timed(n.n)


class Combines(Largest):
    def init(self, record: Number) -> int:
        return record.n

    def combine(self, first: int, second: int) -> int:
        raises(second)
        return max(first, second)


FOR_A_RECORD: dict[str, Callable[[Any], Any]] = {
    "map": lambda numbers: numbers.map(mapped),
    "filter": lambda numbers: numbers.filter(kept),
    "flat_map": lambda numbers: numbers.flat_map(twice),
    "peek": lambda numbers: numbers.peek(sink),
    "async map": lambda numbers: numbers.map(awaited),
    "async map at once": lambda numbers: numbers.map(at_once),
    "two async maps": lambda numbers: numbers.map(awaited).map(at_once),
    "async calls for several rows": lambda numbers: numbers.flat_map(pair).map(awaited),
    "async generator": lambda numbers: numbers.flat_map(generated),
    "sink": lambda numbers: numbers.shuffle().bolt("sink", sink),
    "async sink": lambda numbers: numbers.shuffle().bolt("sink", async_sink),
    "process": lambda numbers: numbers.shuffle().bolt("bolt", Processes),
    "execute": lambda numbers: numbers.shuffle().bolt("bolt", Executes),
    "table": lambda numbers: numbers.shuffle().bolt("bolt", table_of, fields=Number),
    "record": lambda numbers: numbers.map(checked),
    "grouping": lambda numbers: numbers.map(same).custom(Chooses()).bolt("end", end),
    "aggregator": lambda numbers: numbers.group_by("n").aggregate(Largest()),
    "keyed state": lambda numbers: numbers.group_by("n").process(stated),
    "reader of times": lambda numbers: (
        numbers.map(timed_record).group_by("n").window(tumbling(seconds=5, field="at"), count())
    ),
    "timers": lambda numbers: numbers.group_by("n").process(
        timed, on_timer=on_timer, event_time="n"
    ),
    "a hop between workers": lambda numbers: (
        numbers.map(unchecked).shuffle().bolt("first", end_checked, parallelism=2)
    ),
    "window": lambda numbers: numbers.group_by("n").window(
        tumbling(seconds=5, field="n"), Largest()
    ),
}
