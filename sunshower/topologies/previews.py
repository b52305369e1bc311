"""Runs what is before a stream, and nothing else, to show its first records: `stream.show(10)`.

Sources are read beside a run: from their start, without storing positions. States begin empty, in
memory. Steps that the stream does not depend on, such as sinks, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from sunshower.errors import TopologyError
from sunshower.topologies.components import Bolt, Stateless
from sunshower.topologies.graph import Component, Graph, Level, own_copy
from sunshower.topologies.notebooks import Sample
from sunshower.topologies.operators.state_slot import StateSlot
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.retry import DEAD_LETTERS

# (graph, whether enough is there, for how many seconds) → why it ended before
Runner = Callable[[Graph, Callable[[], bool], float], str]


class _Runners:
    """How graphs are run, which is above this package: `sunshower/__init__.py` sets it."""

    until: Runner


def set_runner(until: Runner) -> None:
    """Let previews be run by `until`."""
    _Runners.until = until


class _Reduced(Protocol):
    """A topology of a preview."""

    bolt: Callable[..., Any]

    def unused_id(self, wish: str) -> str: ...
    def reopen(self) -> None: ...
    def reduced_to(self, id: str) -> Graph: ...


class PreviewedStream(Protocol):
    """A stream that can be shown."""

    def leave(self, id: str) -> Any:
        """It as an ordinary stream; `id`: of the bolt that this may need."""

    @property
    def program(self) -> _Reduced: ...


class _Shown(Stateless, Bolt[Any, None]):
    """Takes the first records of a stream. Its copies are itself."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.records = list[Any]()

    def __deepcopy__(self, memo: Any) -> _Shown:
        return self

    def process(self, record: Any) -> None:
        if not self.is_full():
            self.records.append(record)

    def is_full(self) -> bool:
        return len(self.records) >= self.count


def preview(stream: PreviewedStream, count: int, within_s: float, where: str) -> Sample:
    """The first `count` records of a stream, as RecordOperators.show says."""
    copied = own_copy(stream, where)
    topology, shown = copied.program, _Shown(count)
    topology.reopen()
    source = copied.leave(topology.unused_id("rows-shown"))
    id = topology.unused_id("shown")
    topology.bolt(id, shown, [source.global_()])
    graph = _without_traces(topology.reduced_to(id), where)
    why = _Runners.until(graph, shown.is_full, within_s)
    some = len(shown.records)
    number = f"the first {count}" if shown.is_full() else f"{some} record{'s' * (some != 1)}"
    return Sample(shown.records, source.schema, number if shown.is_full() else f"{number}, {why}")


def _without_traces(graph: Graph, where: str) -> Graph:
    """A graph whose run stores nothing, and whose first error ends it."""
    memories: list[tuple[StateFactory, Any]] = []
    for component in graph.components.values():
        for slot in _slots(component):
            slot.hold_in_memory(memories)
    reads_letters = any(read.stream == DEAD_LETTERS for bolt in graph.bolts for read in bolt.inputs)
    components = {
        name: _read_beside(component, where) if component.level.is_spout else component
        for name, component in graph.components.items()
    }
    attempts = graph.config.attempts_max if reads_letters else 1
    config = replace(graph.config, workers=1, trace_share=0.0, attempts_max=attempts)
    return replace(graph, components=components, config=config)


def _read_beside(spout: Component, where: str) -> Component:
    """A spout that takes nothing from a run, and stores nothing."""
    if spout.level is Level.REQUESTS:
        raise TopologyError(
            f"{where}: its records follow from requests {spout.id!r}, and nobody asks: run the "
            "topology with run_inline(graph, requests={…})"
        )
    if spout.level is not Level.LOG:
        return spout
    source = spout.instance().from_start()
    if source is None:
        raise TopologyError(
            f"{where}: spout {spout.id!r}, {type(spout.implementation).__name__}, cannot be read "
            "beside a run, because it does not begin at a start: let it, such as by "
            "KafkaOptions(first=StartPosition.EARLIEST)"
        )
    return replace(spout, implementation=source)


def without_letters(spout: Component) -> Component:
    """A spout whose first failed record ends the run."""
    streams = {id: spec for id, spec in spout.streams.items() if id != DEAD_LETTERS}
    retry = spout.retry and replace(spout.retry, attempts=1, dead_letters=False)
    return replace(spout, retry=retry, streams=streams)


def _slots(component: Component) -> Iterator[StateSlot]:
    """The states of a bolt."""
    nodes = [component.store, *getattr(component.implementation, "operators", ())]
    for node in nodes:
        calls = getattr(node, "calls", None)
        for holder in (node, getattr(node, "store", None), calls, getattr(calls, "store", None)):
            if isinstance(slot := getattr(holder, "slot", None), StateSlot):
                yield slot
