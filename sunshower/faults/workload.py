"""Numbered items from a source to a sink: a workload by which every single loss can be named.

topology.spout("numbers", numbers(10_000, rate=2_000))  …  .bolt("sink", Sink())
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sunshower.errors import ExperimentError
from sunshower.faults.facts import Model
from sunshower.topologies.components import Bolt, Context, Spout
from sunshower.topologies.graph import Component, Graph
from sunshower.topologies.topology import Topology

_GRAIN_S = 0.02  # a source has news so often; a tuple at a time would be a packet at a time
KEYS = 16


class Item(NamedTuple):
    """What the source emits."""

    number: int  # 0 … total - 1
    key: int  # one of so many; the same number always has the same one


class Numbers(Spout[Item]):
    """See `numbers`."""

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
        """How many of this task's items there are by now; what is settled was there before."""
        assert self._rate is not None
        context = self._context
        grains = (context.clock.now() - begun_s) // _GRAIN_S + 1
        return context.committed + int(grains * _GRAIN_S * self._rate / context.parallelism)


def numbers(total: int, rate: float | None = None, keys: int = KEYS) -> Numbers:
    """A source of `total` items, `rate` of them a second (None: as fast as they are taken).

    Its tasks share them out: task i of n has i, i + n, i + 2n … Raises ExperimentError for what
    cannot be counted.
    """
    for what, value in (("total", total), ("rate", rate), ("keys", keys)):
        if value is not None and value <= 0:
            raise ExperimentError(f"numbers: {what} is {value}; it must be above 0")
    return Numbers(total, rate, keys)


def relay(item: Item) -> Iterator[Item]:
    """A bolt that hands on what it gets."""
    yield item


class _Saying(Bolt[Item, None]):
    """Keeps nothing in memory: it can go on anywhere."""

    def prepare(self, context: Context) -> None:
        self._context = context

    def snapshot(self) -> None:
        """See Bolt."""

    def restore(self, state: None) -> None:
        """See Bolt."""


class Sink(_Saying):
    """A sink that says the number of each item that it has seen."""

    def process(self, record: Item) -> None:
        self._context.wrote(record.number)


class PerKey(_Saying):
    """A sink that says the number of each item under its key: what per-key order is judged by."""

    def process(self, record: Item) -> None:
        self._context.wrote(record.key, record.number)


def relayed(
    total: int = 200,
    rate: float | None = None,
    parallelism: int = 1,
    name: str = "relayed",
    **settings: Any,
) -> Topology:
    """Numbers ──shuffle──▶ relay ──by key──▶ sink, `parallelism` tasks each."""
    topology = Topology(name, **settings)
    items = topology.spout("numbers", numbers(total, rate), parallelism)
    relays = items.shuffle().bolt("relay", relay, parallelism)
    relays.fields("key").bolt("sink", Sink(), parallelism)
    return topology


def model_of(graph: Graph) -> Model | None:
    """What is known beforehand of a topology with one source, if that is `numbers`."""
    sources = [spout for spout in graph.spouts if isinstance(spout.implementation, Numbers)]
    if len(sources) != 1:
        return None
    (source,) = sources
    written = any(map(_is_sink, graph.bolts))
    return Model(source.implementation.total, source.parallelism, written)


def _is_sink(bolt: Component) -> bool:
    code = bolt.implementation
    return issubclass(code, Sink) if isinstance(code, type) else isinstance(code, Sink)
