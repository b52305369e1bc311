"""Runs a topology in a loop in this process and thread, with all tasks in one worker.

`run_inline` is for tests: it raises the first error of user code. `InlineTopology` is for commands:
its tasks are supervised as on Ray, by the algorithms of the master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from sunshower.arguments import COUNT, checked
from sunshower.clock import Clock, ManualClock, SystemClock
from sunshower.errors import ClusterError, TopologyError, TopologyFailed, interruptible
from sunshower.outages import is_unavailable
from sunshower.runtime.control import events
from sunshower.runtime.control.events import Tell
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.log_lines import FAILURES_LOGGER
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.events.trace_recorder import (
    NO_TRACES,
    TraceRecorder,
    Traces,
    WorkerTraces,
    assemble,
)
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.queries import worker_of_requests
from sunshower.runtime.tasks.flight_recorder import Recorder
from sunshower.runtime.tasks.letter_replays import taker_of
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.worker import Worker
from sunshower.topologies.graph import Graph, Level
from sunshower.topologies.notebooks import html_table
from sunshower.topologies.requests import Reply, Request, RequestProgress, fields_of

_NAP_S = 0.01  # threads of user code may run meanwhile
_WAIT_S = 0.1  # the longest wait of an InlineTopology without a look at its clock
_RESULTS_MAX = 10  # in a notebook
_SLICE_S = 0.02  # of work, before a preview looks whether it has enough
_LATE_S = 0.5  # so late a preview says which call it has waited for
_STATS_S = 0.25  # how often an InlineTopology reads its statistics, as a worker on Ray sends them
_FAILURES = logging.getLogger(FAILURES_LOGGER)
_STOPPED_S = 1.0  # a slice that takes this long held up everything: deadlines must not count it


@dataclass(frozen=True)
class Finished:
    """The outcome of a topology."""

    snapshot: Snapshot
    results: Mapping[str, list[Any]]  # component id → result() of each task
    answers: Mapping[str, list[list[Any]]] = field(default_factory=dict)  # of `requests`, in order
    traces: Traces = NO_TRACES

    def _repr_html_(self) -> str:
        """The counters, and the first results, in a notebook."""
        results = [
            (component, index, result)
            for component, of_tasks in self.results.items()
            for index, result in enumerate(of_tasks)
            if result is not None
        ]
        shown = html_table(("component", "task", "result"), results[:_RESULTS_MAX], "results")
        return self.snapshot._repr_html_() + (shown if results else "")


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
    clock = clock or SystemClock()
    graph.begin_outputs()
    with interruptible(), _modules_of(graph):
        return _run(graph, seed, clock, steps_max, requests)


class InlineTopology:
    """A topology that runs in this thread, a slice of work at a time, by the system's clock.

    Use it as a context manager: its end closes all tasks. What outages, deadlines, attempts and
    quarantines do is as on Ray. While a slice takes long, such as at a breakpoint, nothing else can
    happen, so the deadlines of pending trees are extended by that time. `quiet`: it logs nothing.
    `recorder` hears of all calls of user code.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        seed: int = 0,
        clock: Clock | None = None,
        quiet: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        graph.begin_outputs()
        self._is_quiet = quiet
        self._clock = clock or SystemClock()
        self.since_s = self._clock.wall()  # when it began, in Unix time
        self._wakes = SimpleQueue[None]()
        self._modules = _modules_of(graph)
        self._modules.__enter__()
        wake = partial(self._wakes.put, None)
        self._worker = _only_worker(graph, seed, self._clock, wake=wake, recorder=recorder)
        self.plan = self._worker.plan
        self._master = Master(self.plan, now=self._clock.now())
        welcome, _ = self._master.apply(events.Hello(self._worker.worker), self._clock.now())
        self._worker.welcome(welcome)
        self._look_s = -inf  # when to read the statistics again
        self._has_finished = self._is_closed = False

    def work(self, seconds: float) -> None:
        """Work for about so long, or until everything is processed; with nothing to do, wait.

        Raises TopologyFailed if a task fails for good."""
        end_s = self._clock.now() + seconds
        while not self._has_finished and (now := self._clock.now()) < end_s:
            if now >= self._look_s:
                self._look(now)
            try:
                wait_s = self._worker.step()
            except TopologyFailed as error:
                self._apply(events.Broken(self._worker.worker, self._worker.life, str(error)))
                raise
            if (took_s := self._clock.now() - now) >= _STOPPED_S:
                self._worker.stopped_for(took_s)
            self._worker.end_waits()
            if wait_s != 0 and self._worker.finished:
                self._has_finished = True
                self._look(self._clock.now())
            elif wait_s != 0:
                self._wait(min(_WAIT_S, inf if wait_s is None else wait_s))

    def drain(self) -> None:
        """Emit no new records; finish what is pending."""
        self._apply(events.DrainSpouts())
        self._look(self._clock.now())

    def snapshot(self, *, strict: bool = False) -> Snapshot:
        """The statistics of this moment. Raises TopologyFailed if a task has failed for good.
        `strict`: also if an untracked record has failed, or user code has raised outside the
        processing of a record, unless that was an outage."""
        snapshot = self._snapshot(windows=False)
        if self._master.stored.error is not None:
            raise TopologyFailed(self._master.stored.error)
        if strict and snapshot.untracked is not None:
            raise TopologyFailed(snapshot.untracked)
        if strict:
            _raise_first(self._worker, outages=False)
        return snapshot

    def overview(self) -> Overview:
        """As `RayRun.overview`: what the page shows, also if the topology has failed."""
        snapshot = self._snapshot(windows=True)
        return Overview.of(self.plan, snapshot, self._master.stored.error, self.since_s, {})

    def close_tasks(self) -> list[TaskError]:
        """Close all tasks. Returns the errors that they raised; a second call does nothing."""
        if self._is_closed:
            return []
        self._is_closed = True
        try:
            return self._worker.close()
        finally:
            self._log_notices()
            self._modules.__exit__(None, None, None)

    def __enter__(self) -> InlineTopology:
        return self

    def __exit__(self, *error: object) -> None:
        self.close_tasks()

    def _snapshot(self, *, windows: bool) -> Snapshot:
        now = self._clock.now()
        self._look(now)
        snapshot = self._master.snapshot(now, windows=windows)
        return replace(snapshot, state=State.FINISHED) if self._has_finished else snapshot

    def _look(self, now: float) -> None:
        """Let the master read the statistics, and carry out what it decides."""
        self._look_s = now + _STATS_S
        self._log_notices()
        self._apply(events.Statistics(self._worker.stats()))
        if self._has_finished:
            self._check_spouts()

    def _apply(self, event: events.Event) -> None:
        """Let the master apply an event, and the worker hear what it shall do then."""
        for command in self._master.apply(event, self._clock.now()).commands:
            if isinstance(command, Tell) and not self._has_finished:
                getattr(self._worker, command.what)(*command.given)

    def _log_notices(self) -> None:
        for line in self._worker.notices():
            if not self._is_quiet:
                _FAILURES.warning("%s", line)

    def _check_spouts(self) -> None:
        """Fail if a spout was given up: it has records left."""
        stored = self._master.stored
        for spout in () if stored.draining else self.plan.spouts:
            if spout.id in stored.quarantined:
                why = stored.quarantined[spout.id].story
                self._apply(events.Broken(self._worker.worker, self._worker.life, why))

    def _wait(self, seconds: float) -> None:
        """Wait, or until a thread of user code has something for a task."""
        if isinstance(self._clock, ManualClock):
            self._clock.sleep(seconds)
            return
        with suppress(Empty):
            self._wakes.get(timeout=max(seconds, 0.0))
            while True:
                self._wakes.get_nowait()


class _LongestCall(Recorder):
    """The call of user code that has taken longest."""

    def __init__(self, clock: Clock) -> None:
        self.task, self.seconds = -1, 0.0
        self._clock, self._running, self._since_s = clock, -1, inf

    def begin(self, task: int, roots: U64, now: float) -> None:
        self._running, self._since_s = task, now

    def end(self) -> None:
        if (seconds := self._clock.now() - self._since_s) > self.seconds:
            self.task, self.seconds = self._running, seconds
        self._since_s = inf


def run_until(
    graph: Graph, is_enough: Callable[[], bool], within_s: float, clock: Clock | None = None
) -> str:
    """Run a graph until `is_enough`, for `within_s` seconds, and until the call of user code that
    runs then has returned. Returns why there is no more:
    it is finished, or what the topology waits for. Raises TopologyFailed for the first error
    of user code before there is enough, be it of a record or of a task."""
    clock = clock or SystemClock()
    longest, begin_s = _LongestCall(clock), clock.now()
    with (
        interruptible(),
        InlineTopology(graph, clock=clock, quiet=True, recorder=longest) as topology,
    ):
        while clock.now() < begin_s + within_s:
            try:
                topology.work(_SLICE_S)
                state = topology.snapshot(strict=True).state
            except TopologyFailed:
                if not is_enough():
                    raise
                return ""
            if is_enough():
                return ""
            if state == State.FINISHED:
                return "and there are no more"
        took_s, waiting = clock.now() - begin_s, topology.snapshot().waiting()
    for task in waiting:
        assert task.health.wait is not None
        return f"because {task.component!r} waits: {task.health.wait.error.line}"
    blocking = [task.name for task in topology.plan.tasks if task.id == longest.task]
    if took_s < within_s + _LATE_S or not blocking:
        return f"and no more within {within_s:g} s"
    call_s = longest.seconds
    return f"and no more within {took_s:.0f} s: one call of {blocking[0]} took {call_s:.0f} s"


def _modules_of(graph: Graph) -> AbstractContextManager[None]:
    return nullcontext() if graph.modules is None else graph.modules.in_force()


def _only_worker(graph: Graph, seed: int, clock: Clock, **options: Any) -> Worker:
    """The worker that has all tasks of a graph."""
    graph = replace(graph, config=replace(graph.config, workers=1))
    plan = make_plan(graph, Layout.PACK)
    return Worker(plan, 0, 1, np.random.default_rng(seed), clock, **options)


def _run(
    graph: Graph,
    seed: int,
    clock: Clock,
    steps_max: int | None,
    requests: Mapping[str, Sequence[Any]] | None,
) -> Finished:
    recorder = TraceRecorder(clock) if graph.config.trace_share else None
    wake = None if isinstance(clock, ManualClock) else _look_soon
    worker = _only_worker(graph, seed, clock, trace_recorder=recorder, wake=wake)
    plan = worker.plan
    steps, asked = 0, _Asked(plan.graph, requests or {})
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
    traces = [WorkerTraces(0, 0.0, recorder.trees())] if recorder is not None else []
    snapshot = Snapshot(graph.id, {0: worker.stats()}, state=State.FINISHED)
    return Finished(snapshot, results, asked.answers(), assemble(plan, traces))


def _look_soon() -> None:
    """Do nothing: the loop looks at the calls of other threads after each nap."""


def _raise_first(worker: Worker, *, outages: bool = True) -> None:
    for supervision in worker.supervisions:
        cause = supervision.cause
        if supervision.last is None or (
            cause is not None and not outages and is_unavailable(cause, supervision.unavailable)
        ):
            continue
        raise TopologyFailed(supervision.last.story) from cause


class _Asked:
    """The requests of a run, and their replies."""

    def __init__(self, graph: Graph, requests: Mapping[str, Sequence[Any]]) -> None:
        for name in requests:
            worker_of_requests(make_plan(graph), name)
        self._requests = requests
        asked = [spout.id for spout in graph.spouts if spout.level is Level.REQUESTS]
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
                if (unsent_request := next(unsent, None)) is None:
                    del self._unsent[name]
                    taker.ends = True
                else:
                    request = Request(str(unsent_request[0]), fields_of(unsent_request[1]), inf)
                    taker.ask(request, partial(self._hear, (name, unsent_request[0])))
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

    def _hear(self, key: tuple[str, int], reply: Reply | RequestProgress, _: float) -> None:
        if isinstance(reply, Reply):
            self._replies[key] = reply
