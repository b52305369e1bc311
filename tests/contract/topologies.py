"""A topology for the contract tests: numbers at a given pace, through a relay, into a sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sunshower import Bolt, Context, Spout, Topology

TOTAL = 60
SECONDS = 3.0  # that the source takes


class Item(NamedTuple):
    number: int


class Paced(Spout[Item]):
    """`total` items over `seconds`, by the clock of the topology. With `go`, the last item waits
    until that file exists; then all that are left are emitted at once."""

    def __init__(
        self, total: int = TOTAL, seconds: float = SECONDS, go: Path | None = None
    ) -> None:
        self.total, self.seconds, self.go = total, seconds, go

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Item | None]:
        begun_s = self.clock.now()
        for number in range(self.total):
            due_s = begun_s + number * self.seconds / self.total
            while not self._is_due(number, due_s):
                yield None
            yield Item(number)

    def _is_due(self, number: int, due_s: float) -> bool:
        if self.go is not None and self.go.exists():
            return True
        waits = self.go is not None and number == self.total - 1
        return not waits and self.clock.now() >= due_s


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
