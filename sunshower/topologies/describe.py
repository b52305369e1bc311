"""Renders a graph: aligned text for a terminal, or a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator

from sunshower.config import Config
from sunshower.topologies.components import DEFAULT
from sunshower.topologies.graph import Component, Graph, StreamSpec, Subscription
from sunshower.topologies.groupings import describe as word


def as_text(graph: Graph) -> str:
    """Return each component with its tasks, level, inputs and streams, without a final newline."""
    width = max(map(len, graph.components), default=0)
    blocks = ["\n".join(_block(c, width)) for c in graph.components.values()]
    return "\n\n".join([f"topology {graph.id}: {_tracking(graph.config)}", *blocks])


def as_mermaid(graph: Graph) -> str:
    """Return a Mermaid flowchart: spouts are rounded, an arrow's text is its grouping."""
    number = {id: f"c{n}" for n, id in enumerate(graph.components)}  # ids may not suit Mermaid
    lines = ["flowchart LR"]
    for component in graph.components.values():
        left, right = ("([", "])") if component.level.is_spout else ("[", "]")
        label = _quoted(f"{component.id} × {component.parallelism}")
        lines.append(f"    {number[component.id]}{left}{label}{right}")
    for bolt in graph.bolts:
        for subscription in bolt.inputs:
            label = _quoted(" ".join(_edge(subscription)))
            lines.append(f"    {number[subscription.source]} -->|{label}| {number[bolt.id]}")
    return "\n".join(lines)


def _tracking(config: Config) -> str:
    if not config.tracked:
        return "untracked"
    ackers = "an acker for each worker" if config.ackers is None else f"ackers: {config.ackers}"
    return f"{ackers}, timeout: {config.message_timeout_s:g} s"


def _block(component: Component, width: int) -> Iterator[str]:
    own = component.message_timeout_s
    timeout = "" if own is None else f", timeout: {own:g} s"
    tick = "" if component.tick_s is None else f", a tick every {component.tick_s:g} s"
    says = f"{component.level.value}{timeout}{tick}"
    yield f"{component.id:{width}}  × {component.parallelism}  {says}"
    for subscription in component.inputs:
        yield f"{'':{width}}  ← {subscription.source} {' '.join(_edge(subscription))}"
    for spec in component.streams.values():
        yield f"{'':{width}}  → {' '.join(_stream(spec))}"


def _edge(subscription: Subscription) -> Iterator[str]:
    if subscription.stream != DEFAULT:
        yield f"{subscription.stream}:"
    yield word(subscription.grouping)


def _stream(spec: StreamSpec) -> Iterator[str]:
    if spec.id != DEFAULT:
        yield f"{spec.id}:"
    yield spec.schema.name
    if spec.direct:
        yield "direct"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "#quot;") + '"'
