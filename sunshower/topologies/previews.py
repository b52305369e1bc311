"""Runs what is before a stream, and nothing else, to show its first records: `stream.show(10)`.

Sources are read beside a run: from their start, without storing positions. States begin empty, in
memory. Steps that the stream does not depend on, such as sinks, are left out. Dead letters depend
on all that the records of their spout reach, except for sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from sunshower.errors import TopologyError
from sunshower.topologies.components import Bolt, Stateless
from sunshower.topologies.graph import Component, Graph, Level, Subscription, own_copy
from sunshower.topologies.notebooks import Sample
from sunshower.topologies.operators.state_slot import held_states
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.retry import DEAD_LETTERS

# (graph, whether enough is there, for how many seconds) → why it ended before
Runner = Callable[[Graph, Callable[[], bool], float], str]


_NO_SINKS = (Level.OPERATORS, Level.ANSWERS)  # also without a stream that is read


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
    def reduced_to(self, id: str, where: str) -> Graph: ...


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
    graph = _without_traces(_without_sinks(topology.reduced_to(id, where), where), where)
    why = _Runners.until(graph, shown.is_full, within_s)
    some = len(shown.records)
    number = f"the first {count}" if shown.is_full() else f"{some} record{'s' * (some != 1)}"
    return Sample(shown.records, source.schema, number if shown.is_full() else f"{number}, {why}")


def _without_sinks(graph: Graph, where: str) -> Graph:
    """The graph. Raises TopologyError if a bolt of it writes outside the topology."""
    for bolt in graph.bolts:
        for node in (bolt.implementation, *bolt.operators):
            if getattr(node, "writes_outside", False):
                raise TopologyError(
                    f"{where}: bolt {bolt.id!r}, which it depends on, writes outside the topology, "
                    "and a preview writes nothing: show the stream in front of the sink"
                )
    return graph


def _without_traces(graph: Graph, where: str) -> Graph:
    """A graph whose run stores nothing, and whose first error ends it, or is a dead letter."""
    memories: list[tuple[StateFactory, Any]] = []
    for component in graph.components.values():
        for held in held_states(component):
            held.slot.hold_in_memory(memories)
    components = {
        name: _read_beside(component, where) if component.level.is_spout else component
        for name, component in graph.components.items()
    }
    config = replace(graph.config, workers=1, ackers=1, trace_share=0.0, attempts_max=1)
    return replace(graph, components=components, config=config)


def _read_beside(spout: Component, where: str) -> Component:
    """A spout that takes nothing from a run, and stores nothing."""
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


def failing_bolts(components: Mapping[str, Component], ids: Iterable[str]) -> set[str]:
    """The bolts that make the dead letters which some components read: those that the records of
    the letters' spouts reach."""
    sources, reached = _read_letters(components[id] for id in ids), set[str]()
    while new := {
        id
        for id, bolt in components.items()
        if id not in reached and any(_is_reached(read, sources | reached) for read in bolt.inputs)
    }:
        reached |= new
    return reached


def _is_reached(read: Subscription, sources: Collection[str]) -> bool:
    return read.source in sources and read.stream != DEAD_LETTERS


def _read_letters(components: Iterable[Component]) -> set[str]:
    """The spouts whose dead letters are read."""
    reads = (read for component in components for read in component.inputs)
    return {read.source for read in reads if read.stream == DEAD_LETTERS}


def only(
    components: Mapping[str, Component], ids: Collection[str], where: str
) -> dict[str, Component]:
    """Some components, as a preview runs them: the first failure of a record ends it, or is a dead
    letter if these are read; sinks do nothing. Raises TopologyError for requests."""
    chosen = [component for id, component in components.items() if id in ids]
    letters = _read_letters(chosen)
    return {
        part.id: _once(part, part.id in letters, where) if part.level.is_spout else _idle_sink(part)
        for part in chosen
    }


def _once(spout: Component, has_letters: bool, where: str) -> Component:
    """A spout whose records have one attempt."""
    if spout.level is Level.REQUESTS:
        raise TopologyError(
            f"{where}: its records follow from requests {spout.id!r}, and nobody asks: run the "
            "topology with run_inline(graph, requests={…})"
        )
    retry = spout.retry and replace(spout.retry, attempts=1)
    if has_letters:
        return replace(spout, retry=retry)
    streams = {id: spec for id, spec in spout.streams.items() if id != DEAD_LETTERS}
    retry = retry and replace(retry, dead_letters=False)
    return replace(spout, retry=retry, streams=streams)


def _idle_sink(bolt: Component) -> Component:
    """A bolt, or one that does nothing in the place of a sink."""
    if bolt.streams or bolt.level in _NO_SINKS or isinstance(bolt.implementation, _Shown):
        return bolt
    return Component(bolt.id, Level.PROCESS, _Shown(0), inputs=bolt.inputs)
