"""The plan of a topology: its tasks, their workers, and the subscriptions between them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from sunshower.config import Between, Resources, with_value
from sunshower.errors import ConfigError
from sunshower.runtime.tracking.ids import INCARNATIONS_MAX, lives_max

if TYPE_CHECKING:
    from sunshower.topologies.graph import Component, Graph, StreamSpec, Subscription

ACKER = "__acker"
_LIVES_MIN = 16  # lives of a worker before the incarnations of its spout tasks repeat


class Layout(StrEnum):
    """How tasks are distributed over workers."""

    ISOLATE = "isolate"  #: one task a worker, for experiments
    PACK = "pack"  #: tasks share workers, acker shards with their spouts, for throughput


@dataclass(frozen=True)
class Task:
    """One instance of a component (or of the acker), on its worker."""

    id: int
    component: str
    index: int  # among the tasks of its component
    worker: int

    @property
    def name(self) -> str:
        """The component and the index, such as `relay[0]`."""
        return f"{self.component}[{self.index}]"


@dataclass(frozen=True)
class PlannedStream:
    """An output stream with its index in the plan: frames carry `index`, not names. `classes` are
    those of all streams: the Enums and record types that its values may be."""

    index: int
    component: str
    spec: StreamSpec
    classes: tuple[type, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The graph with the user's code, and its tasks. An upgrade replaces the plan, a rebalance only
    its tasks: see `with_tasks`."""

    graph: Graph
    layout: Layout
    tasks: tuple[Task, ...]
    streams: tuple[PlannedStream, ...]
    back_edges: frozenset[tuple[str, str]] = field(default_factory=frozenset)  # without credits

    @cached_property
    def record_types(self) -> frozenset[type]:
        """The record types and Enums that values of its streams may be."""
        return frozenset(kind for stream in self.streams for kind in stream.classes)

    @cached_property
    def workers(self) -> list[int]:
        """The ids of all workers, ascending."""
        return sorted({task.worker for task in self.tasks})

    @property
    def task_names(self) -> dict[int, str]:
        """Task id → name, of all tasks."""
        return {task.id: task.name for task in self.tasks}

    @cached_property
    def spouts(self) -> list[Task]:
        """All spout tasks. Incarnation i belongs to spouts[i % len(spouts)]; see ids.py."""
        spouts = {component.id for component in self.graph.spouts}
        return [task for task in self.tasks if task.component in spouts]

    @cached_property
    def shards(self) -> list[list[Task]]:
        """For each spout task the acker tasks that share its slots: shards[k][slot % n]."""
        ackers = self.tasks_of(ACKER)
        near = [[a for a in ackers if a.worker == spout.worker] for spout in self.spouts]
        return [beside or ackers for beside in near]

    def with_tasks(self, tasks: Sequence[Task] | None) -> Plan:
        """The plan with these tasks instead, and the parallelism that they give each component;
        None: unchanged. The user's code stays the same objects."""
        if tasks is None:
            return self
        counts = Counter(task.component for task in tasks)
        graph = self.graph
        if any(
            component.parallelism != counts[name] for name, component in graph.components.items()
        ):
            components = {
                name: replace(
                    component, parallelism=with_value(component.parallelism, counts[name])
                )
                for name, component in graph.components.items()
            }
            graph = replace(graph, components=components)
        alone = len({task.worker for task in tasks}) == len(tasks)
        if isinstance(workers := graph.config.workers, Between):  # as many as tasks by chance
            alone = alone and (self.layout is Layout.ISOLATE or len(tasks) > workers.most)
        layout = Layout.ISOLATE if alone else Layout.PACK
        return replace(self, graph=graph, layout=layout, tasks=tuple(tasks))

    def tasks_of(self, component: str) -> list[Task]:
        """Return the tasks of a component, by ascending id."""
        return [task for task in self.tasks if task.component == component]

    def tasks_on(self, worker: int) -> list[Task]:
        """Return the tasks of a worker, by ascending id."""
        return [task for task in self.tasks if task.worker == worker]

    def request_of(self, worker: int) -> Resources:
        """What a worker requests of its node: the sum over its tasks."""
        return self.request_of_tasks(self.tasks_on(worker))

    def request_of_tasks(self, tasks: Iterable[Task]) -> Resources:
        """What these tasks request together; those of ackers nothing."""
        components = [self.component(task) for task in tasks if task.component != ACKER]
        return Resources.total(component.resources for component in components)

    def component(self, task: Task) -> Component:
        """Return the declaration of a task. Ackers have none."""
        return self.graph.components[task.component]

    def stream(self, component: str, stream: str) -> PlannedStream:
        """Return a component's output stream by name."""
        return next(s for s in self.streams if (s.component, s.spec.id) == (component, stream))

    def subscriptions(self, stream: PlannedStream) -> list[tuple[Component, Subscription]]:
        """Return the subscribers of a stream, in declared order."""
        return list(self.graph.subscribers(stream.component, stream.spec.id))

    def incarnation(self, spout: Task, life: int) -> int:
        """Return the incarnation number of a spout task in its worker's `life` (1, 2, …). Lives
        wrap around: see ids.py."""
        count = len(self.spouts)
        return life % lives_max(count) * count + self.spouts.index(spout)


def numbered(tasks: Iterable[Task], former: Sequence[Task], last_id: int = 0) -> tuple[Task, ...]:
    """The tasks with the ids that they had among the `former` ones, by component and index, in the
    order of their ids. New ones have ids above `last_id` and those of the former ones."""
    ids = {(task.component, task.index): task.id for task in former}
    new_ids = itertools.count(max(last_id, *ids.values()) + 1)
    known_ids = [(ids.get((task.component, task.index)), task) for task in tasks]
    renumbered = [replace(task, id=next(new_ids) if id is None else id) for id, task in known_ids]
    return tuple(sorted(renumbered, key=lambda task: task.id))


def make_plan(graph: Graph, layout: Layout = Layout.PACK) -> Plan:
    """Assign the tasks of `graph` to workers. Raises ConfigError if that is not possible."""
    workers = graph.config.workers
    placed: list[tuple[str, int, int]] = []
    names = [(component.id, component.parallelism) for component in graph.components.values()]
    if layout is Layout.ISOLATE:
        places = iter(range(INCARNATIONS_MAX))
        for name, parallelism in [*names, (ACKER, _shard_count(graph, 1))]:
            placed += [(name, index, next(places)) for index in range(parallelism)]
        placed = beside(graph, placed)
    else:
        for name, parallelism in names:
            placed += [(name, index, index % workers) for index in range(parallelism)]
        spouts = {component.id for component in graph.spouts}
        near = sorted({worker for name, _, worker in placed if name in spouts})
        shards = _shard_count(graph, len(near))
        placed += [(ACKER, index, near[index % len(near)]) for index in range(shards)]
    _check_spouts(sum(component.parallelism for component in graph.spouts))
    tasks = tuple(Task(id, *place) for id, place in enumerate(placed, start=1))
    declared = [(c.id, spec) for c in graph.components.values() for spec in c.streams.values()]
    classes = tuple(dict.fromkeys(kind for _, spec in declared for kind in spec.schema.classes))
    streams = tuple(PlannedStream(index, *pair, classes) for index, pair in enumerate(declared))
    return Plan(graph, layout, tasks, streams, _back_edges(graph))


def beside(graph: Graph, placed: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The same (component, index, worker), with answers in the worker of their requests."""
    first = {name: worker for name, index, worker in placed if index == 0}
    wanted = {
        component.id: component.beside
        for component in graph.components.values()
        if component.beside
    }
    return [
        (name, index, first[wanted[name]] if name in wanted else worker)
        for name, index, worker in placed
    ]


def _check_spouts(count: int) -> None:
    if count and lives_max(count) < _LIVES_MIN:
        raise ConfigError(
            f"the topology has {count:,} spout tasks, more than root ids can distinguish "
            f"({INCARNATIONS_MAX // _LIVES_MIN:,}): lower the parallelism of its spouts"
        )


def _shard_count(graph: Graph, default: int) -> int:
    return default if graph.config.ackers is None else graph.config.ackers


def _back_edges(graph: Graph) -> frozenset[tuple[str, str]]:
    """Return the edges that close a cycle, found depth first from the spouts in declared order."""
    back_edges: set[tuple[str, str]] = set()
    done: set[str] = set()

    def walk(here: str, path: Sequence[str]) -> None:
        for bolt in graph.bolts:
            if all(s.source != here for s in bolt.inputs):
                continue
            if bolt.id == here or bolt.id in path:
                back_edges.add((here, bolt.id))
            elif bolt.id not in done:
                walk(bolt.id, [*path, here])
        done.add(here)

    for spout in graph.spouts:
        walk(spout.id, [])
    return frozenset(back_edges)
