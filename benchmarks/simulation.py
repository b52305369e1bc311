"""Simulated runs per minute on one core: 200 tuples, ten faults, and a complete history.

Spout, relay, sink and acker; twenty numbers every 0.2 s of simulated time. Every 0.2 s there is a
fault, in a random order: three kills of a worker and one of the master, two pauses, two network
faults, errors in the relay, and a slow sink. Each run is checked: no number may be lost.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from benchmarks.figures import Key
from benchmarks.measure import BenchmarkError, Comparison, Entry, Outcome, Sample
from sunshower import Bolt, Context, Number, Spout, Topology
from sunshower.errors import ClusterError
from sunshower.runtime.cluster import Run
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.injected_faults import InjectedFaults, Link, Raise, SlowTask
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.graph import Graph

TOTAL = 200
_BURST, _PAUSE_S = 20, 0.2
_FINISH_MAX_S = 120.0  # of simulated time
_MINUTE = 1 / 60

Fault = Callable[[Run, int], None]  # called with the run and a random worker


class Bursts(Spout[Number]):
    """Twenty numbers at once, then none for a while."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Number | None]:
        for number in range(TOTAL):
            yield Number(number)
            if number % _BURST == _BURST - 1:
                again_s = self.clock.now() + _PAUSE_S
                while self.clock.now() < again_s:
                    yield None


def relay(number: Number) -> Iterator[Number]:
    yield number


class RecordNumbers(Bolt[Number, None]):
    def prepare(self, context: Context) -> None:
        self.wrote = context.wrote

    def process(self, record: Number) -> None:
        self.wrote(record.value)


def topology() -> Graph:
    topology = Topology("simulated")
    numbers = topology.spout("numbers", Bursts)
    numbers.shuffle().bolt("relay", relay).shuffle().bolt("sink", RecordNumbers)
    return topology.graph()


def comparison(runs: int) -> Comparison:
    """Both layouts; a sample consists of `runs` seeds."""
    entries = []
    for layout in Layout:
        key = Key("simulation", "sunshower", f"{layout}-10-faults", "runs/min")
        entries.append(Entry(key, partial(_sample, layout, runs)))
    return Comparison("simulation", entries, rounds=2)


def one_run(graph: Graph, layout: Layout, seed: int) -> int:
    """Run one simulation with its faults. Returns how many numbers the sink has written."""
    draw = Random(seed)
    faults = draw.sample(_FAULTS, k=len(_FAULTS))
    with SimCluster(seed) as cluster:
        run = cluster.submit(graph, layout, sample=1)
        workers = run.plan.workers
        for fault in faults:
            run.wait(_PAUSE_S)
            try:
                fault(run, draw.choice(workers))
            except ClusterError:
                continue  # its target has just died
        run.wait(_PAUSE_S)
        run.disturb(InjectedFaults())
        if not run.wait(_FINISH_MAX_S):
            raise BenchmarkError(f"seed {seed} does not end: {run.snapshot()}")
        return len({e.detail[0] for e in run.history() if e.what is What.WROTE})


def _kill(run: Run, worker: int) -> None:
    run.kill_worker(worker)


def _kill_master(run: Run, _worker: int) -> None:
    run.kill_master()


def _pause(run: Run, worker: int) -> None:
    run.pause_worker(worker)
    run.wait(_PAUSE_S)
    run.resume_worker(worker)


def _disturb(injected: InjectedFaults, run: Run, _worker: int) -> None:
    run.disturb(injected)


_FAULTS: list[Fault] = [
    *[_kill] * 3,
    _kill_master,
    *[_pause] * 2,
    partial(_disturb, InjectedFaults(links=(Link(drop=0.1, corrupt=0.1),))),
    partial(_disturb, InjectedFaults(links=(Link(delay=0.3, repeat=0.1),))),
    partial(_disturb, InjectedFaults(raises=(Raise(component="relay", probability=0.1),))),
    partial(_disturb, InjectedFaults(slows=(SlowTask(component="sink", seconds=0.01),))),
]


def _sample(layout: Layout, runs: int) -> Sample:
    gc.collect()  # the settings of a worker, where garbage is rarely collected
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    graph = topology()
    begun_s = time.process_time()  # one thread without waiting: other processes matter less
    written = [one_run(graph, layout, seed) for seed in range(runs)]
    ended_s = time.process_time()
    if set(written) != {TOTAL}:
        raise BenchmarkError(f"{min(written)} numbers of {TOTAL} were written")
    return Outcome(begun_s, ended_s, runs).sample(_MINUTE)
