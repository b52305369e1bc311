"""The plainest shell: all tasks in one worker, in this process and thread, in a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sunshower.clock import Clock, ManualClock, SystemClock
from sunshower.errors import ClusterError, TopologyFailed
from sunshower.runtime.metrics import Snapshot
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.worker import Worker
from sunshower.topologies.graph import Graph

_NAP_S = 0.01  # threads of user code have work to do meanwhile


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
    So no task is tried again either: an error of user code outside a tuple's care is raised at
    once, as TopologyFailed from it. A ManualClock is moved on to whatever is due next when there is
    nothing to do, such as a replay that waits its back-off; with the system's, such a wait is a
    loop with short naps, and uses up `steps_max`. The settings are the topology's own: tests do
    well to set `check_mutation` there. Raises whatever else ends the topology, and ClusterError if
    `steps_max` slices were not enough.
    """
    graph = replace(graph, config=replace(graph.config, workers=1))
    clock = clock or SystemClock()
    worker = Worker(make_plan(graph, Layout.PACK), 0, 1, np.random.default_rng(seed), clock)
    steps = 0
    try:
        while (wait_s := worker.step()) == 0 or not worker.finished:
            _raise_first(worker)
            if wait_s:
                clock.sleep(wait_s if isinstance(clock, ManualClock) else min(wait_s, _NAP_S))
            steps += 1
            if steps_max is not None and steps >= steps_max:
                raise ClusterError(
                    f"{graph.id!r} is not finished after {steps_max} steps: a bolt "
                    "forgets to ack, or the spouts never end"
                )
        _raise_first(worker)
        results = {component: worker.results(component) for component in graph.components}
    finally:
        worker.close()
    _raise_first(worker)
    return Finished(Snapshot(graph.id, {0: worker.stats()}), results)


def _raise_first(worker: Worker) -> None:
    for one in worker.supervisions:
        if one.last is not None:
            raise TopologyFailed(one.last.story) from one.cause
