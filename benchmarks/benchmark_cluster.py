"""Runs topologies of the benchmarks on one Ray, from the start signal to the last ack."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray

from benchmarks import (
    bare_actors,
    corpus,
    kafka_topologies,
    machine,
    start_signal,
    topologies,
    trident_topologies,
)
from benchmarks.measure import BenchmarkError, Outcome
from benchmarks.start_signal import StartSignal
from sunshower import Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.names import NAMESPACE, master_name, worker_name
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout

_TIMEOUT_S = 300.0
_POLL_S = 0.1


class BenchmarkCluster:
    """One Ray for all runs, and a folder that all processes can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.during_run: Callable[[RayRun], None] = lambda _: None  # called during each run
        ship([bare_actors, corpus, start_signal, topologies, kafka_topologies, trident_topologies])
        self._cluster = RayCluster()

    def start_signal(self) -> StartSignal:
        """A start signal that is not sent yet."""
        return StartSignal(self.folder)

    @contextmanager
    def fresh_folder(self) -> Iterator[Path]:
        """An empty folder that all processes can write to; it is removed after the block."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield Path(folder)

    @contextmanager
    def running(
        self, topology: Topology, layout: Layout, sample: int | None = None
    ) -> Iterator[RayRun]:
        """Run a topology, and stop it after the block. `sample`: record a history."""
        run = self._cluster.submit(topology.graph(), layout, sample=sample)
        try:
            yield run
        finally:
            run.stop()

    def run(
        self, topology: Topology, signal: StartSignal, layout: Layout, sample: int | None = None
    ) -> Outcome:
        """Run a topology to its end.

        `done` of the outcome is the count that its sinks return, or else the number of tuples that
        they have executed. `sample`: record a history, which must contain each completed tuple.
        """
        with self.running(topology, layout, sample) as run:
            wait(lambda: all(result and result[0] for result in run.results("source")))
            pids = worker_pids(run)
            before_s = machine.cpu_s(pids)
            signal.send()
            self.during_run(run)
            wait(run.finished)
            after_s = machine.cpu_s(pids)
            outcome = _outcome(run, None if None in (before_s, after_s) else after_s - before_s)
            if sample is not None:
                _check_history(run, outcome.done)
            return outcome

    def idle(self, topology: Topology, seconds: float) -> float | None:
        """The share of one core that the processes of an idle topology use."""
        with self.running(topology, Layout.ISOLATE) as run:
            self.during_run(run)
            return idle_share([*worker_pids(run), _pid(master_name(run.id))], seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cluster.close()


def idle_share(pids: list[int], seconds: float) -> float | None:
    """The share of one core that these processes use, measured after a pause of one second."""
    time.sleep(1.0)
    before_s = machine.cpu_s(pids)
    time.sleep(seconds)
    after_s = machine.cpu_s(pids)
    return None if before_s is None or after_s is None else (after_s - before_s) / seconds


def worker_pids(run: RayRun) -> list[int]:
    """The process ids of a run's workers."""
    return [_pid(worker_name(run.id, worker)) for worker in run.plan.workers]


def _pid(name: str) -> int:
    actor = ray.get_actor(name, namespace=NAMESPACE)
    pid: int = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    return pid


def wait(done: Callable[[], Any]) -> None:
    """Poll ten times a second until `done` returns true. Raises BenchmarkError after 5 minutes."""
    end_s = time.monotonic() + _TIMEOUT_S
    while not done():
        if time.monotonic() >= end_s:
            raise BenchmarkError(f"a topology has not finished within {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


def _outcome(run: RayRun, cpu_s: float | None) -> Outcome:
    snapshot = run.snapshot()
    source = snapshot.component("source")
    if source.failed:
        raise BenchmarkError(f"{source.failed:,} tuples of {run.plan.graph.id} have failed")
    sinks = run.results("sink")
    tracked = run.plan.graph.config.tracked
    spouts = [task for task in snapshot.tasks() if task.component == "source"]
    ends = [task.done_s for task in spouts] if tracked else [last_s for _, last_s in sinks]
    begun = min(begun_s for _, begun_s in run.results("source"))
    counted = [count for count, _ in sinks if count is not None]
    done = sum(counted) if counted else snapshot.component("sink").executed
    if tracked and source.acked != source.emitted:
        raise BenchmarkError(f"{source.emitted:,} were emitted, {source.acked:,} acked")
    return Outcome(begun, max(ends), done, cpu_s, _latencies(snapshot) if tracked else {})


def _check_history(run: RayRun, done: int) -> None:
    completed = sum(len(entry.roots) for entry in run.history() if entry.what is What.COMPLETED)
    if completed != done:
        raise BenchmarkError(f"{done:,} tuples were completed, and {completed:,} in the history")


def _latencies(snapshot: Snapshot) -> dict[str, float]:
    latencies = snapshot.latencies("source")
    return {f"p{percent}_s": latencies.percentile(percent) or 0.0 for percent in (50, 99)}
