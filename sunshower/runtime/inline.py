"""Runs a topology in a loop in this process and thread, with all tasks in one worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from sunshower.arguments import COUNT, checked
from sunshower.clock import Clock, ManualClock, SystemClock
from sunshower.errors import ClusterError, TopologyError, TopologyFailed, interruptible
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.events.trace_recorder import TraceRecorder, WorkerTraces
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.request_calls import worker_of_requests
from sunshower.runtime.tasks.letter_replays import taker_of
from sunshower.runtime.tuple_traces import NO_TRACES, Traces, assemble
from sunshower.runtime.worker import Worker
from sunshower.topologies.graph import Graph, Level
from sunshower.topologies.requests import Reply, Request, RequestProgress, fields_of

_NAP_S = 0.01  # threads of user code may run meanwhile


@dataclass(frozen=True)
class Finished:
    """The outcome of a topology."""

    snapshot: Snapshot
    results: Mapping[str, list[Any]]  # component id → result() of each task
    answers: Mapping[str, list[list[Any]]] = field(default_factory=dict)  # of `requests`, in order
    traces: Traces = NO_TRACES


@checked(TopologyError, steps_max=COUNT.or_else("none", None))
def run_inline(
    graph: Graph,
    *,
    seed: int = 0,
    clock: Clock | None = None,
    steps_max: int | None = None,
    requests: Mapping[str, Sequence[Any]] | None = None,
) -> Finished:
    """Run `graph` until its spouts are exhausted and everything is processed.

    Nothing is serialised and nothing crashes: for unit tests of a topology, and for debuggers. No
    task is retried: an error of user code outside the processing of a tuple is raised at once, as
    TopologyFailed from it. When there is nothing to do, a ManualClock advances to the next due
    time, such as a replay after its back-off; with the system's clock the loop polls in short
    sleeps, each of which counts as one of `steps_max`. The settings are the topology's own: set
    `check_mutation` there in tests. `requests`: by stream, what to ask, or by spout, the
    DeadLetters to replay; the first error of one is raised at the end. Raises any other error that
    ends the topology, and ClusterError after `steps_max` slices.
    """
    graph = replace(graph, config=replace(graph.config, workers=1))
    modules = nullcontext() if graph.modules is None else graph.modules.in_force()
    with interruptible(), modules:
        return _run(graph, seed, clock, steps_max, requests)


def _run(
    graph: Graph,
    seed: int,
    clock: Clock | None,
    steps_max: int | None,
    requests: Mapping[str, Sequence[Any]] | None,
) -> Finished:
    clock = clock or SystemClock()
    plan, recorder = make_plan(graph, Layout.PACK), None
    if graph.config.trace_share:
        recorder = TraceRecorder(clock)
    own = (plan, 0, 1, np.random.default_rng(seed), clock)
    wake = None if isinstance(clock, ManualClock) else _look_soon
    worker = Worker(*own, trace_recorder=recorder, wake=wake)
    steps, asked = 0, _Asked(graph, requests or {})
    try:
        while (wait_s := worker.step()) == 0 or not worker.finished or asked.send(worker):
            _raise_first(worker)
            worker.end_waits()
            asked.send(worker)
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
    found = [WorkerTraces(0, 0.0, recorder.trees())] if recorder is not None else []
    snapshot = Snapshot(graph.id, {0: worker.stats()})
    return Finished(snapshot, results, asked.answers(), assemble(plan, found))


def _look_soon() -> None:
    """Do nothing: the loop looks at the calls of other threads after each nap."""


def _raise_first(worker: Worker) -> None:
    for one in worker.supervisions:
        if one.last is not None:
            raise TopologyFailed(one.last.story) from one.cause


class _Asked:
    """The requests of a run, and their replies."""

    def __init__(self, graph: Graph, requests: Mapping[str, Sequence[Any]]) -> None:
        for name in requests:
            worker_of_requests(make_plan(graph), name)
        self._requests = requests
        asked = [one.id for one in graph.spouts if one.level is Level.REQUESTS]
        names = dict.fromkeys([*asked, *requests])
        self._unsent = {name: enumerate(requests.get(name, ())) for name in names}
        self._replies: dict[tuple[str, int], Reply] = {}

    def send(self, worker: Worker) -> bool:
        """Send requests to those spouts that are open now, as many as they take at a time. Returns
        whether there were any."""
        sent = 0
        for name, unsent in [*self._unsent.items()]:
            if not (opened := worker.open_spouts(name)):
                continue
            taker = taker_of(opened[0].spout, opened[0].letters)
            while taker.room > 0 and not taker.ends:
                if (one := next(unsent, None)) is None:
                    del self._unsent[name]
                    taker.ends = True
                else:
                    request = Request(str(one[0]), fields_of(one[1]), inf)
                    taker.ask(request, partial(self._hear, (name, one[0])))
                    sent += 1
        return sent > 0

    def answers(self) -> dict[str, list[list[Any]]]:
        """The answers of each stream. Raises RequestFailed and RequestRefused."""
        for key in sorted(self._replies):
            if (reply := self._replies[key]).error is not None:
                raise reply.error
        return {
            name: [self._replies[name, number].rows for number in range(len(values))]
            for name, values in self._requests.items()
        }

    def _hear(self, key: tuple[str, int], said: Reply | RequestProgress, _: float) -> None:
        if isinstance(said, Reply):
            self._replies[key] = said
