"""Runs a topology in a loop in this process and thread, with all tasks in one worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sunshower.clock import Clock, ManualClock, SystemClock
from sunshower.errors import ClusterError, TopologyFailed
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.worker import Worker
from sunshower.topologies.graph import Graph

_NAP_S = 0.01  # threads of user code may run meanwhile


@dataclass(frozen=True)
class Finished:
    """The outcome of a topology."""

    snapshot: Snapshot
    results: Mapping[str, list[Any]]  # component id → result() of each task


def run_inline(
    graph: Graph, *, seed: int = 0, clock: Clock | None = None, steps_max: int | None = None
) -> Finished:
    """Run `graph` until its spouts are exhausted and everything is processed.

    Nothing is serialised and nothing crashes: for unit tests of a topology, and for debuggers. No
    task is retried: an error of user code outside the processing of a tuple is raised at once, as
    TopologyFailed from it. When there is nothing to do, a ManualClock advances to the next due
    time, such as a replay after its back-off; with the system's clock the loop polls in short
    sleeps, each of which counts as one of `steps_max`. The settings are the topology's own: set
    `check_mutation` there in tests. Raises any other error that ends the topology, and ClusterError
    after `steps_max` slices.
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
