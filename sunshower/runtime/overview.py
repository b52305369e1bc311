"""One topology as somebody sees it who has not its code: a name on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sunshower.runtime.metrics import Snapshot
from sunshower.runtime.plan import Plan


@dataclass(frozen=True)
class Overview:
    """Everything that there is to show at one moment."""

    plan: Plan  # without user code
    snapshot: Snapshot
    error: str | None  # why it gave up
    since_s: float  # when it was submitted, in Unix time
    processes: Mapping[int, tuple[str, int]]  # worker → node, process id


def without_code(plan: Plan) -> Plan:
    """The plan with nothing of the user's in it: it can be read where that cannot be imported."""
    bare = {
        id: replace(component, implementation=None, streams={}, inputs=())
        for id, component in plan.graph.components.items()
    }
    return replace(plan, graph=replace(plan.graph, components=bare), streams=())
