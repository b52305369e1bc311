"""A topology for the contract tests: numbers at a given pace, through a relay, into a sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sunshower import Bolt, Context, Spout, Topology

TOTAL = 60
SECONDS = 3.0  # that the source takes


class Item(NamedTuple):
    number: int


class Paced(Spout[Item]):
    """`total` items over `seconds`, by the clock of the topology."""

    def __init__(self, total: int = TOTAL, seconds: float = SECONDS) -> None:
        self.total, self.seconds = total, seconds

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Item | None]:
        begun_s = self.clock.now()
        for number in range(self.total):
            while self.clock.now() < begun_s + number * self.seconds / self.total:
                yield None
            yield Item(number)


def relay(item: Item) -> Iterator[Item]:
    yield item


def refuse(item: Item) -> Iterator[Item]:
    if item.number == 7:
        raise ValueError("no sevens")
    yield item


class Keep(Bolt[Item, None]):
    """Reports each item as written. Its state moves with a rebalance, and is lost if it dies."""

    def prepare(self, context: Context) -> None:
        self.context = context
        self.seen: set[int] = set()

    def process(self, record: Item) -> None:
        self.seen.add(record.number)
        self.context.wrote(record.number)

    def snapshot(self) -> set[int]:
        return self.seen

    def restore(self, state: set[int]) -> None:
        self.seen = state

    def result(self) -> set[int]:
        return self.seen


def chain(
    spout: Any = None, bolt: Any = relay, *, name: str = "chain", sinks: int = 1, **settings: Any
) -> Topology:
    """Numbers → relay → sink."""
    topology = Topology(name, **settings)
    items = topology.spout("numbers", spout or Paced())
    items.shuffle().bolt("relay", bolt).shuffle().bolt("sink", Keep, parallelism=sinks)
    return topology
