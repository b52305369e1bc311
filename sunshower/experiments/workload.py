"""A workload of numbered items from a source to a sink, in which each lost item is known.

topology.spout("numbers", numbers(10_000, rate=2_000))  …  .bolt("sink", Sink())
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sunshower.arguments import COUNT, NONE, AnyOf, Values, checked
from sunshower.errors import ExperimentError
from sunshower.experiments.evidence.facts import Model
from sunshower.topologies.components import Bolt, Context, Spout
from sunshower.topologies.graph import Component, Graph
from sunshower.topologies.topology import Topology

_GRAIN_S = 0.02  # items become due in batches; one by one, each would be a packet
KEYS = 16


class Item(NamedTuple):
    """An item of the source."""

    number: int  # 0 … total - 1
    key: int  # number % keys


class Numbers(Spout[Item]):
    """The spout of `numbers`."""

    def __init__(self, total: int, rate: float | None, keys: int) -> None:
        self.total = total
        self._rate = rate
        self._keys = keys

    def open(self, context: Context) -> None:
        self._context = context

    def records(self) -> Iterator[Item | None]:
        context = self._context
        mine = range(context.index, self.total, context.parallelism)
        begun_s = context.clock.now()
        due = len(mine) if self._rate is None else 0
        for position, number in enumerate(mine):
            while due <= position and (due := self._due(begun_s)) <= position:
                yield None
            yield Item(number, number % self._keys)

    def _due(self, begun_s: float) -> int:
        """Return how many of this task's items are due by now, including the settled ones."""
        assert self._rate is not None
        context = self._context
        grains = (context.clock.now() - begun_s) // _GRAIN_S + 1
        return context.committed + int(grains * _GRAIN_S * self._rate / context.parallelism)


_ABOVE_0 = Values(float, least=0, above=True)


@checked(ExperimentError, total=COUNT, rate=AnyOf((_ABOVE_0, NONE)), keys=COUNT)
def numbers(total: int, rate: float | None = None, keys: int = KEYS) -> Numbers:
    """Return a source of `total` items, `rate` of them a second (None: as fast as possible).

    Task i of n emits i, i + n, i + 2n … Raises ExperimentError for numbers that are not above 0.
    """
    return Numbers(total, rate, keys)


def relay(item: Item) -> Iterator[Item]:
    """A bolt that emits what it receives."""
    yield item


class _RecordingBolt(Bolt[Item, None]):
    """A bolt without state, which can move to another worker."""

    def prepare(self, context: Context) -> None:
        self._context = context

    def snapshot(self) -> None:
        """Return no state."""

    def restore(self, state: None) -> None:
        """Restore nothing."""


class Sink(_RecordingBolt):
    """A sink that records the number of each item."""

    def process(self, record: Item) -> None:
        self._context.wrote(record.number)


class PerKey(_RecordingBolt):
    """A sink that records the number of each item under its key, for PerKeyOrder."""

    def process(self, record: Item) -> None:
        self._context.wrote(record.key, record.number)


def relayed(
    total: int = 200,
    rate: float | None = None,
    parallelism: int = 1,
    name: str = "relayed",
    **settings: Any,
) -> Topology:
    """Declare numbers ──shuffle──▶ relay ──by key──▶ sink, `parallelism` tasks each."""
    topology = Topology(name, **settings)
    items = topology.spout("numbers", numbers(total, rate), parallelism)
    relays = items.shuffle().bolt("relay", relay, parallelism)
    relays.fields("key").bolt("sink", Sink(), parallelism)
    return topology


def model_of(graph: Graph) -> Model | None:
    """Return the model of a topology whose only source is `numbers`; else None."""
    sources = [spout for spout in graph.spouts if isinstance(spout.implementation, Numbers)]
    if len(sources) != 1:
        return None
    (source,) = sources
    written = any(map(_is_sink, graph.bolts))
    return Model(source.implementation.total, source.parallelism, written)


def _is_sink(bolt: Component) -> bool:
    code = bolt.implementation
    return issubclass(code, Sink) if isinstance(code, type) else isinstance(code, Sink)
