"""Swarm runs: each seed draws a layout, faults and their times; and a digest of the history."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from random import Random

from sunshower.config import Internals
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.events.injected_faults import InjectedFaults, Link, Raise, SlowTask
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from tests.contract.topologies import Paced, chain

TOTAL = 60
_FAULTS_PER_RUN = 8


def run_with_faults(seed: int) -> SimRun:
    """Start a run, inject random faults, and end them all; the run may not be finished yet."""
    draw = Random(seed)
    cluster = SimCluster(seed, nodes=1 + seed % 2, check=True)
    topology = chain(
        Paced(TOTAL, 2.0),
        sinks=2,
        ackers=1 + seed % 2,
        attempts_max=1_000,
        internals=Internals(peer_link_retry_s=0.5),
    )
    run = cluster.submit(topology.graph(), list(Layout)[seed % 3 > 0], sample=1)
    faults = draw.sample(list(FAULTS), k=draw.randint(1, len(FAULTS)))
    for _ in range(_FAULTS_PER_RUN):
        run.wait(draw.expovariate(4.0))
        try:
            FAULTS[draw.choice(faults)](run, draw)
        except ClusterError:
            continue  # the process for which it was drawn is dead
    for worker in run.plan.workers:
        run.resume_worker(worker)
    run.disturb(InjectedFaults())
    with suppress(LifecycleError):  # it is finished
        run.activate()
    return run


def _worker(run: SimRun, draw: Random) -> int:
    return draw.choice([worker for workers in run.nodes().values() for worker in workers] or [0])


def _pause(run: SimRun, draw: Random) -> None:
    worker = _worker(run, draw)
    run.pause_worker(worker)
    run.wait(draw.expovariate(2.0))
    run.resume_worker(worker)


def _pause_master(run: SimRun, draw: Random) -> None:
    run.pause_master()
    run.wait(draw.expovariate(2.0))
    run.resume_master()


def _kill_master(run: SimRun, _draw: Random) -> None:
    run.kill_master()


def _link(run: SimRun, draw: Random) -> None:
    kinds = ("drop", "forget", "repeat", "corrupt", "delay")
    run.disturb(
        InjectedFaults(links=(Link(**dict.fromkeys(draw.sample(kinds, 2), draw.random() / 2)),))
    )


FAULTS: dict[str, Callable[[SimRun, Random], object]] = {
    "kill a worker": lambda run, draw: run.kill_worker(_worker(run, draw)),
    "kill the master": _kill_master,
    "kill a node": lambda run, draw: run.kill_node(draw.choice(sorted(run.nodes()))),
    "pause a worker": _pause,
    "pause the master": _pause_master,
    "bad links": _link,
    "errors": lambda run, draw: run.disturb(
        InjectedFaults(raises=(Raise(component="relay", probability=draw.random() / 2),))
    ),
    "slowness": lambda run, draw: run.disturb(
        InjectedFaults(slows=(SlowTask(component="sink", seconds=draw.random() / 20),))
    ),
    "rest": lambda run, draw: (run.deactivate(), run.wait(draw.random()), run.activate()),
    "other places": lambda run, draw: run.rebalance(layout=draw.choice(list(Layout)), wait_s=0.3),
}


def digest(run: SimRun) -> str:
    """A hash of the whole history of a run."""
    history_hash = sha256()
    for e in run.history():
        arrays = (e.roots.tobytes(), e.values.tobytes(), e.attempts.tobytes())
        history_hash.update(repr((e.at_s, e.what, e.task, arrays, e.detail)).encode())
    return history_hash.hexdigest()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        run_of_seed = run_with_faults(int(argument))
        run_of_seed.wait(600.0)
        sys.stdout.write(digest(run_of_seed) + "\n")
