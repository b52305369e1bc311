"""The spout and the bolts of random topologies, which take simulated time for each input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from sunshower import Bolt, Collector, Context, Spout, Tuple
from sunshower.topologies.components import BatchBolt, Derived, OnStream

if TYPE_CHECKING:
    import pyarrow as pa

AGAIN = "again"  # the stream of a bolt that sends records back, in a cycle
KEYS = 24


class Item(NamedTuple):
    """A record."""

    number: int
    key: int  # number modulo KEYS
    rounds: int  # remaining passes of the cycle


class Source(Spout[Item]):
    """Items 0, 1, 2 …, divided among its tasks, at full speed."""

    def __init__(self, rounds: int, total: int | None = None) -> None:
        self.rounds, self.total = rounds, total

    def open(self, context: Context) -> None:
        self._first, self._step = context.index, context.parallelism

    def records(self) -> Iterator[Item]:
        number = self._first
        while self.total is None or number < self.total:
            yield Item(number, number % KEYS, self.rounds)
            number += self._step


class TimedBolt:
    """Base of the bolts: they wait `service_s` for each input, and emit it `copies` times.

    `cycles`: an input with rounds left goes to the stream AGAIN instead of the default one.
    """

    def __init__(self, service_s: float, copies: int, cycles: bool = False) -> None:
        self.service_s, self.copies, self.cycles = service_s, copies, cycles

    def prepare(self, context: Context) -> None:
        self._clock = context.clock

    def work(self, inputs: int = 1) -> None:
        """Wait the time of `inputs` inputs."""
        if self.service_s:
            self._clock.sleep(self.service_s * inputs)

    def outputs(self, item: Item) -> list[Item]:
        """The outputs of an input on the default stream."""
        return [item] * self.copies


class ProcessBolt(TimedBolt, Bolt[Item, Item]):
    """Yields its outputs."""

    def process(self, record: Item) -> Iterator[Item | OnStream]:
        self.work()
        if self.cycles and record.rounds:
            yield OnStream(AGAIN, record._replace(rounds=record.rounds - 1))
        else:
            yield from self.outputs(record)


class ExecuteBolt(TimedBolt, Bolt[Item, Item]):
    """Emits with anchors, and acks."""

    def execute(self, tuple: Tuple[Item], out: Collector[Item]) -> None:
        self.work()
        for item in self.outputs(tuple.record):
            out.emit(item, tuple)
        out.ack(tuple)


class TableBolt(TimedBolt, BatchBolt[Item, Item]):
    """Takes tables."""

    def process(self, table: pa.Table) -> Derived | None:
        import numpy as np

        self.work(len(table))
        if not self.copies:
            return None
        parents = np.repeat(np.arange(len(table)), self.copies)
        return Derived(table.take(parents), parents)


def relay(item: Item) -> Iterator[Item]:
    """A function that takes no time."""
    yield item


def end(item: Item) -> None:
    """A function that ends a tree, and takes no time."""
    del item


def bolt_of(kind: str, service_s: float, copies: int, cycles: bool) -> Any:
    """The code of a bolt of that kind: process, execute, batch or function."""
    if kind == "function":
        return relay if copies else end
    code = {"process": ProcessBolt, "execute": ExecuteBolt, "batch": TableBolt}[kind]
    return code(service_s, copies, cycles)
