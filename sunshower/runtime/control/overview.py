"""An overview of one topology for a client that does not have its code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Plan


@dataclass(frozen=True)
class Overview:
    """Plan, statistics and processes of a topology at one moment."""

    plan: Plan  # without user code
    snapshot: Snapshot
    error: str | None  # why it failed
    since_s: float  # when it was submitted, in Unix time
    processes: Mapping[int, tuple[str, int]]  # worker → node, process id


def without_code(plan: Plan) -> Plan:
    """The plan without user code, for clients that cannot import that code."""
    bare = {
        id: replace(component, implementation=None, streams={}, inputs=())
        for id, component in plan.graph.components.items()
    }
    return replace(plan, graph=replace(plan.graph, components=bare), streams=())
