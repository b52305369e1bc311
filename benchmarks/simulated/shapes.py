"""Random topologies as plain values, each drawn from a seed, and the work of their workers.

chain     source → a → b → c
fan       source → a, source → b …, sometimes joined at the end
diamond   source → a → {b, c} → d
join      two sources → a
cycle     source → a → b, and b → a again for some rounds
any       each bolt reads one or two of all components before it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.simulated.components import AGAIN, KEYS, Item, Source, bolt_of
from sunshower import Topology
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.transport.routing import stable_hash

FAMILIES = ("chain", "fan", "diamond", "join", "cycle", "any")
KINDS = ("process", "execute", "batch", "function")
GROUPINGS = ("shuffle", "fields", "all")
SERVICE_S = (1e-6, 1.0)
TIMEOUT_S = 30.0
SHORT_TIMEOUT_S = 10.0
TIMEOUTS = 10.5  # message timeouts in a run
_WORK_MAX = 0.1  # of a message timeout: the work of a tree, one input after the other
_QUEUED_MAX = 0.25  # of a message timeout: the work of the records that windows always allow
_WINDOW_MIN = 2  # records that a task may always send to another one
_INPUTS_MAX = 10  # of a bolt, for each record of the source


@dataclass(frozen=True)
class Input:
    """One subscription."""

    source: str
    grouping: str


@dataclass(frozen=True)
class Node:
    """A spout (without inputs) or a bolt."""

    id: str
    kind: str
    parallelism: int
    inputs: tuple[Input, ...] = ()
    service_s: float = 0.0
    copies: int = 1  # outputs for each input
    cycles: bool = False


@dataclass(frozen=True)
class Shape:
    """A topology. `again`: the two ends of the edge that closes a cycle."""

    seed: int
    family: str
    nodes: tuple[Node, ...]
    layout: Layout
    settings: Mapping[str, Any]
    rounds: int = 0
    again: tuple[str, str] | None = None

    @property
    def timeout_s(self) -> float:
        """The message timeout."""
        return float(self.settings["message_timeout_s"])

    @property
    def pairs(self) -> int:
        """The number of pairs of tasks of which one sends to the other."""
        tasks = {node.id: node.parallelism for node in self.nodes}
        edges = [(edge.source, node.id) for node in self.nodes for edge in node.inputs]
        edges += [self.again] if self.again is not None else []
        return sum(tasks[source] * tasks[target] for source, target in edges)

    @property
    def spouts(self) -> list[Node]:
        """The sources."""
        return [node for node in self.nodes if not node.inputs]

    def topology(self, total: int | None = None, **changes: Any) -> Topology:
        """The topology. `total`: the number of records of each source; None: endless."""
        topology = Topology(f"shape-{self.seed}", **{**self.settings, **changes})
        streams: dict[str, Any] = {}
        for node in self.nodes:
            if not node.inputs:
                code = Source(self.rounds, total)
                streams[node.id] = topology.spout(node.id, code, parallelism=node.parallelism)
                continue
            streams[node.id] = topology.bolt(
                node.id,
                bolt_of(node.kind, node.service_s, node.copies, node.cycles),
                inputs=[_grouped(streams[edge.source], edge.grouping) for edge in node.inputs],
                parallelism=node.parallelism,
                fields=Item if node.kind == "batch" and node.copies else None,
                streams={AGAIN: Item} if node.cycles else None,
            )
        if self.again is not None:
            streams[self.again[0]].stream(AGAIN, Item).shuffle().into(self.again[1])
        return topology

    def plan(self) -> Plan:
        """The placement of its tasks."""
        return make_plan(self.topology().graph(), self.layout)

    def inputs_per_root(self, spout: str) -> dict[str, float]:
        """Component → inputs of all its tasks for each record of that spout."""
        rates = {spout: 1.0}
        for node in self.nodes:
            if node.inputs:
                rates[node.id] = sum(
                    rates.get(edge.source, 0.0)
                    * self._copies(edge.source)
                    * (node.parallelism if edge.grouping == "all" else 1)
                    for edge in node.inputs
                )
        if self.again is not None:  # all bolts of the cycle process each record again
            start = [node.id for node in self.nodes].index(self.again[1])
            stop = [node.id for node in self.nodes].index(self.again[0])
            for node in self.nodes[start : stop + 1]:
                rates[node.id] *= 1 + self.rounds
        return rates

    def work(self, plan: Plan, spout: str) -> dict[int, float]:
        """Worker → seconds of work for each record of that spout."""
        inputs = self.inputs_per_root(spout)
        loads = dict.fromkeys(plan.workers, 0.0)
        for node in self.nodes:
            for task in plan.tasks_of(node.id) if node.inputs else ():
                share = inputs[node.id] * self._share(node, task.index)
                loads[task.worker] += share * node.service_s
        return loads

    def _copies(self, source: str) -> int:
        return next(node.copies for node in self.nodes if node.id == source)

    def _share(self, node: Node, index: int) -> float:
        """The fraction of a component's inputs that a task receives, by the first grouping."""
        if node.inputs[0].grouping != "fields":
            return 1 / node.parallelism
        mine = sum(stable_hash(key) % node.parallelism == index for key in range(KEYS))
        return mine / KEYS


def draw_shape(seed: int, records_max: int = 20_000) -> Shape:
    """The topology of that seed, slow enough for about `records_max` inputs in a run."""
    rng = np.random.default_rng([seed, 77])
    family = FAMILIES[int(rng.integers(len(FAMILIES)))]
    layout = list(Layout)[int(rng.integers(2))]
    timeout_s = TIMEOUT_S if rng.random() < 0.75 else SHORT_TIMEOUT_S
    pending = (32_767, "auto", 1_000, 20_000)[int(rng.integers(4))]
    settings = {
        "message_timeout_s": timeout_s,
        "spout_pending": pending,
        "workers": int(rng.integers(1, 5)),
        "ackers": int(rng.integers(1, 3)),
    }
    nodes = tuple(_limit_copies([_node(rng, *edge) for edge in _edges(rng, family)]))
    shape = Shape(seed, family, nodes, layout, settings)
    if family == "cycle":
        shape = _close_cycle(shape, rng)
    return _scale_service(shape, records_max)


def _edges(rng: np.random.Generator, family: str) -> list[tuple[str, tuple[str, ...]]]:
    """(id, ids of its inputs) of each component, upstream first."""
    if family == "chain":
        names = ["n", *"abcde"[: int(rng.integers(1, 6))]]
        return [("n", ()), *((b, (a,)) for a, b in pairwise(names))]
    if family == "fan":
        width = int(rng.integers(2, 5))
        bolts = [(name, ("n",)) for name in "abcd"[:width]]
        joined = [("end", tuple("abcd"[:width]))] if rng.random() < 0.5 else []
        return [("n", ()), *bolts, *joined]
    if family == "diamond":
        return [("n", ()), ("a", ("n",)), ("b", ("a",)), ("c", ("a",)), ("d", ("b", "c"))]
    if family == "join":
        last = [("b", ("a",))] if rng.random() < 0.5 else []
        return [("n", ()), ("m", ()), ("a", ("n", "m")), *last]
    if family == "cycle":
        return [("n", ()), ("a", ("n",)), ("b", ("a",)), ("end", ("b",))]
    edges: list[tuple[str, tuple[str, ...]]] = [("n", ())]
    for name in "abcdef"[: int(rng.integers(2, 7))]:
        sources = [source for source, _ in edges]
        count = min(len(sources), int(rng.integers(1, 3)))
        edges.append((name, tuple(map(str, rng.choice(sources, count, replace=False)))))
    return edges


def _node(rng: np.random.Generator, id: str, sources: tuple[str, ...]) -> Node:
    parallelism = int(rng.integers(1, 4))
    if not sources:
        return Node(id, "source", 1 + parallelism // 3)
    kind = KINDS[int(rng.integers(len(KINDS)))]
    grouping = GROUPINGS[int(rng.choice(3, p=(0.5, 0.35, 0.15)))]
    inputs = tuple(Input(source, grouping) for source in sources)
    service_s = 0.0 if kind == "function" else _log_uniform(rng, *SERVICE_S)
    copies = 2 if rng.random() < 0.2 and kind != "function" else 1
    return Node(id, kind, parallelism, inputs, service_s, copies)


def _limit_copies(nodes: list[Node]) -> list[Node]:
    """Limit how often records are multiplied; bolts without a reader emit nothing."""
    read = {edge.source for node in nodes for edge in node.inputs}
    rates: dict[str, float] = {}
    limited: list[Node] = []
    for node in nodes:
        inputs, count = node.inputs, sum(rates[edge.source] for edge in node.inputs) or 1.0
        if inputs and inputs[0].grouping == "all":
            if count * node.parallelism > _INPUTS_MAX:
                inputs = tuple(replace(edge, grouping="shuffle") for edge in inputs)
            else:
                count *= node.parallelism
        copies = node.copies if count * node.copies <= _INPUTS_MAX else 1
        changed = replace(node, inputs=inputs, copies=copies if node.id in read else 0)
        rates[node.id] = count * changed.copies
        limited.append(changed)
    return limited


def _close_cycle(shape: Shape, rng: np.random.Generator) -> Shape:
    """Close a cycle b → a, or of b alone; its bolts are of kind `process`, and shuffled."""
    start = "b" if rng.random() < 0.3 else "a"
    nodes = []
    for node in shape.nodes:
        if node.id not in "ab":
            nodes.append(node)
            continue
        inputs = tuple(replace(edge, grouping="shuffle") for edge in node.inputs)
        service_s = node.service_s or _log_uniform(rng, *SERVICE_S)
        changed = replace(node, kind="process", inputs=inputs, copies=1, service_s=service_s)
        nodes.append(replace(changed, cycles=node.id == "b"))
    rounds = int(rng.integers(1, 4))
    return replace(shape, nodes=tuple(nodes), rounds=rounds, again=("b", start))


def _scale_service(shape: Shape, records_max: int) -> Shape:
    """Scale the service times, so that a tree takes much less than its timeout, and a run has
    fewer than `records_max` records."""
    plan = shape.plan()
    factor, least = np.inf, 0.0
    for spout in shape.spouts:
        inputs, work = shape.inputs_per_root(spout.id), shape.work(plan, spout.id)
        whole_s = sum(inputs.get(node.id, 0.0) * node.service_s for node in shape.nodes)
        if not whole_s:
            return _scale_service(_with_work(shape), records_max)
        factor = min(factor, _WORK_MAX * shape.timeout_s / whole_s)
        queued_s = _WINDOW_MIN * shape.pairs * max(work.values())
        factor = min(factor, _QUEUED_MAX * shape.timeout_s / queued_s)
        rate_max = records_max / sum(inputs.values()) / (TIMEOUTS * shape.timeout_s)
        least = max(least, 1 / rate_max / max(work.values()))
    scale = min(max(1.0, least), factor)
    nodes = tuple(replace(node, service_s=node.service_s * scale) for node in shape.nodes)
    return replace(shape, nodes=nodes)


def _with_work(shape: Shape) -> Shape:
    """A topology of functions only: its last one becomes a bolt that takes time."""
    *others, last = shape.nodes
    return replace(shape, nodes=(*others, replace(last, kind="process", service_s=0.01)))


def _grouped(stream: Any, grouping: str) -> Any:
    return stream.fields("key") if grouping == "fields" else getattr(stream, grouping)()


def _log_uniform(rng: np.random.Generator, least: float, most: float) -> float:
    return float(least * (most / least) ** rng.random())
