"""Runs topologies of batches on Ray, until all batches are committed or for some seconds.

The time of a run begins when a task is first called for a batch, and ends when all tasks have
received the commit of the last batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import machine
from benchmarks.benchmark_cluster import BenchmarkCluster, wait, worker_pids
from benchmarks.measure import BenchmarkError, Outcome, Sample
from benchmarks.start_signal import StartSignal
from benchmarks.trident_topologies import BEGUN, SOURCE, SUCCEEDED, state_of
from sunshower import Topology
from sunshower.actors.run import RayRun
from sunshower.runtime.events.metrics import Snapshot, TaskStats
from sunshower.runtime.plan import Layout
from sunshower.topologies.operators.states import StateKind

_MASTER = f"$mastercoord-{SOURCE}"
_SETTLE_S = 1.0
_MIB = float(1 << 20)


def commit_all(
    cluster: BenchmarkCluster,
    topology: Topology,
    signal: StartSignal,
    done: Callable[[RayRun], int],
    sample: Callable[[list[int]], None] | None = None,
) -> Outcome:
    """Run to the end. `done`: counts what was done. `sample` is called ten times a second, with the
    process ids of the workers."""
    with _ready(cluster, topology) as run:
        pids = worker_pids(run)
        before_s = machine.cpu_s(pids)
        signal.send()
        cluster.during_run(run)
        wait(lambda: (sample and sample(pids), run.finished())[1])
        after_s = machine.cpu_s(pids)
        snapshot, count = run.snapshot(), done(run)
    figures = _master(snapshot).figures
    if figures["attempts failed"] or figures["batches skipped"]:
        raise BenchmarkError(f"batches of {topology.id} have failed: {figures}")
    emitters = _emitters(snapshot)
    return Outcome(
        min(figures[BEGUN] for figures in emitters),
        max(figures[SUCCEEDED] for figures in emitters),
        count,
        None if None in (before_s, after_s) else after_s - before_s,
        {"batches": figures["batches committed"], "batch_s": figures["mean seconds"]},
    )


def words_counted(folder: Path, kind: StateKind, _: RayRun) -> int:
    """The words in the state of a topology in this folder."""
    return sum(count for _, count in state_of(folder, kind).items())


def growth(
    cluster: BenchmarkCluster, topology: Topology, signal: StartSignal, folder: Path, done: int
) -> Sample:
    """By how many MiB the highest memory of the workers in the second half of a run is above that
    in the first half."""
    samples: list[float] = []
    commit_all(
        cluster,
        topology,
        signal,
        partial(words_counted, folder, StateKind.OPAQUE),
        sample=lambda pids: samples.append(machine.resident(pids) / _MIB),
    ).expect(done)
    half = len(samples) // 2
    if half < 2:
        raise BenchmarkError(f"a run with {len(samples)} samples is too short to measure growth")
    first, second = max(samples[:half]), max(samples[half:])
    return Sample(second - first, more={"peak_mib": second, "start_mib": samples[0]})


def empty_batches(
    cluster: BenchmarkCluster, topology: Topology, signal: StartSignal, seconds: float
) -> dict[str, float]:
    """Milliseconds for each batch: `wall`, and `cpu`, the processor time of all workers above what
    they use without batches."""
    with _ready(cluster, topology) as run:
        pids = worker_pids(run)
        time.sleep(_SETTLE_S)
        idle_s = _cpu_used(pids, seconds)
        signal.send()
        time.sleep(_SETTLE_S)
        before = _batches(run)
        busy_s = _cpu_used(pids, seconds)
        after = _batches(run)
    count, took_s = after[0] - before[0], after[1] - before[1]
    if count < 3:
        raise BenchmarkError(f"{count:g} batches in {seconds:g} s are too few for a figure")
    return {"wall": took_s / count * 1e3, "cpu": (busy_s - idle_s) / count * 1e3}


@contextmanager
def _ready(cluster: BenchmarkCluster, topology: Topology) -> Iterator[RayRun]:
    """A run whose master has opened its store, and its tasks the source; it waits for the start
    signal."""
    with cluster.running(topology, Layout.PACK) as run:
        wait(lambda: "txid" in run.snapshot().figures(_MASTER))
        wait(lambda: all("rows emitted" in figures for figures in _emitters(run.snapshot())))
        yield run


def _emitters(snapshot: Snapshot) -> list[Mapping[str, float]]:
    """The figures of the tasks of the source."""
    return [task.figures for task in snapshot.tasks() if task.component == SOURCE]


def _master(snapshot: Snapshot) -> TaskStats:
    return next(task for task in snapshot.tasks() if task.component == _MASTER)


def _batches(run: RayRun) -> tuple[float, float]:
    """(committed batches, the sum of their seconds)."""
    figures = _master(run.snapshot()).figures
    count = figures["batches committed"]
    return count, count * figures["mean seconds"]


def _cpu_used(pids: list[int], seconds: float) -> float:
    before_s = machine.cpu_s(pids)
    time.sleep(seconds)
    after_s = machine.cpu_s(pids)
    if before_s is None or after_s is None:
        raise BenchmarkError("this machine does not report the processor time of a process")
    return after_s - before_s
