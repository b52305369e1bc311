"""The plainest shell: all tasks in one worker, in this process and thread, in a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sunshower.clock import Clock, SystemClock
from sunshower.errors import ClusterError
from sunshower.runtime.metrics import Snapshot
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.worker import Worker
from sunshower.topologies.graph import Graph


@dataclass(frozen=True)
class Finished:
    """What a topology came to."""

    snapshot: Snapshot
    results: Mapping[str, list[Any]]  # component id → result() of each task


def run_inline(
    graph: Graph, *, seed: int = 0, clock: Clock | None = None, steps_max: int | None = None
) -> Finished:
    """Run `graph` until its spouts are exhausted and everything is processed.

    Nothing is serialised and nothing can die: for unit tests of a topology, and for debuggers.
    The settings are the topology's own: tests do well to set `check_mutation` there.
    Raises whatever ends the topology, and ClusterError if `steps_max` slices were not enough.
    """
    graph = replace(graph, config=replace(graph.config, workers=1))
    worker = Worker(
        make_plan(graph, Layout.PACK), 0, 1, np.random.default_rng(seed), clock or SystemClock()
    )
    steps = 0
    try:
        while worker.step() == 0 or not worker.finished:
            steps += 1
            if steps_max is not None and steps >= steps_max:
                raise ClusterError(
                    f"{graph.id!r} is not finished after {steps_max} steps: a bolt "
                    "forgets to ack, or the spouts never end"
                )
        results = {component: worker.results(component) for component in graph.components}
    finally:
        worker.close()
    return Finished(Snapshot(graph.id, {0: worker.stats()}), results)
