"""An overview of one topology for a client that does not have its code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Plan
from sunshower.topologies.graph import Graph
from sunshower.topologies.groupings import describe
from sunshower.topologies.retry import LetterStore


@dataclass(frozen=True)
class Edge:
    """One subscription of the graph, without user code."""

    source: str
    stream: str
    target: str
    grouping: str  # as in the DSL: `fields(word)`


@dataclass(frozen=True)
class Overview:
    """Plan, statistics and processes of a topology at one moment."""

    plan: Plan  # without user code
    snapshot: Snapshot
    error: str | None  # why it failed
    since_s: float  # when it was submitted, in Unix time
    processes: Mapping[int, tuple[str, int]]  # worker → node, process id
    edges: tuple[Edge, ...] = ()  # in declared order
    letters: Mapping[str, LetterStore | None] = field(default_factory=dict)  # bolt that reads dead
    # letters → where it writes them; None: that is not known

    def reached_from(self, sources: Collection[str]) -> set[str]:
        """The components that a record of these can reach."""
        found: set[str] = set()
        frontier = [*sources]
        while frontier:
            here = frontier.pop()
            targets = {edge.target for edge in self.edges if edge.source == here} - found
            found |= targets
            frontier += targets
        return found


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """Every subscription of a graph, by bolt in declared order."""
    return tuple(
        Edge(read.source, read.stream, bolt.id, describe(read.grouping))
        for bolt in graph.bolts
        for read in bolt.inputs
    )


def letter_stores(graph: Graph) -> dict[str, LetterStore | None]:
    """Where the bolts that read dead letters write them, by bolt."""
    return {
        bolt.id: find(bolt.parallelism)
        if callable(find := getattr(bolt.implementation, "__sunshower_letter_store__", None))
        and not isinstance(bolt.implementation, type)
        else None
        for bolt in graph.bolts
        if bolt.reads_dead_letters
    }


def without_code(plan: Plan) -> Plan:
    """The plan without user code, for clients that cannot import that code."""
    bare = {
        id: replace(component, implementation=None, streams={}, inputs=())
        for id, component in plan.graph.components.items()
    }
    return replace(plan, graph=replace(plan.graph, components=bare), streams=())
