"""Kills actors of a run: draws the victims by a seed, and sends a SIGKILL by process id."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray

from benchmarks.endurance.deliveries import Kill
from benchmarks.measure import BenchmarkError, Log
from sunshower.actors.names import NAMESPACE, master_name, worker_name
from sunshower.actors.run import RayRun
from sunshower.errors import ClusterError
from sunshower.runtime.plan import ACKER, Layout, Plan

KINDS = ("bolt", "spout", "acker", "worker", "master")
EVERY_S = 2.0
_JITTER_S = 0.25  # otherwise all kills might be between two bursts of the source
_PATIENCE_S = 20.0  # for an actor that is starting
_POLL_S = 0.1  # not more often, to keep the load of the master low


@dataclass(frozen=True)
class Victim:
    """An actor that may be killed. `worker` is None for the master."""

    kind: str
    worker: int | None
    label: str


def victims(plan: Plan, kinds: Sequence[str]) -> list[Victim]:
    """All actors of those kinds. In the layout pack, each worker has the kind `worker`."""
    spouts = {spout.component for spout in plan.spouts}
    victims = [Victim("master", None, "the master")]
    for worker in plan.workers:
        if plan.layout is Layout.PACK:
            victims.append(Victim("worker", worker, f"worker {worker}"))
            continue
        (task,) = plan.tasks_on(worker)
        kind = {ACKER: "acker"}.get(task.component, "bolt")
        kind = "spout" if task.component in spouts else kind
        victims.append(Victim(kind, worker, f"{task.component}[{task.index}]"))
    return [victim for victim in victims if victim.kind in kinds]


def draw_victims(victims: Sequence[Victim], generator: np.random.Generator) -> Iterator[Victim]:
    """The next victims, endlessly: all kinds in a random order, then again; a random actor each."""
    kinds = sorted({victim.kind for victim in victims})
    while kinds:
        for kind in generator.permutation(kinds).tolist():
            of_kind = [victim for victim in victims if victim.kind == kind]
            yield of_kind[int(generator.integers(len(of_kind)))]


def kill_repeatedly(
    run: RayRun, seconds: float, kinds: Sequence[str], generator: np.random.Generator, log: Log
) -> list[Kill]:
    """Kill a victim every 2 s, with jitter. If a successor takes longer, the following kills are
    delayed, but never closer together."""
    begun_s = time.monotonic()
    kills: list[Kill] = []
    due_s = begun_s
    for victim in draw_victims(victims(run.plan, kinds), generator):
        due_s = max(due_s + EVERY_S, time.monotonic())
        if due_s >= begun_s + seconds:
            break
        at_s = due_s + generator.uniform(-_JITTER_S, _JITTER_S)
        time.sleep(max(at_s - time.monotonic(), 0))
        kills.append(kill_victim(run, victim, log))
    time.sleep(max(begun_s + seconds - time.monotonic(), 0))
    return kills


def wait_for_end(run: RayRun, end_s: float) -> None:
    while not run.finished():
        if time.monotonic() >= end_s:
            raise BenchmarkError(f"the run has not finished: {run.snapshot()}")
        time.sleep(0.1)


def kill_victim(run: RayRun, victim: Victim, log: Log) -> Kill:
    """Kill the victim, and wait until its successor has registered with the master."""
    name = master_name(run.id) if victim.worker is None else worker_name(run.id, victim.worker)
    restarts = _restarts(run)
    pid = _pid(name)
    at_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    back_s = _wait_for_successor(run, name, pid if victim.worker is None else None, restarts, at_ns)
    log(f"SIGKILL for {victim.label}, process {pid}: its successor came after {back_s:.2f} s")
    return Kill(victim.kind, victim.label, at_ns, back_s)


def _wait_for_successor(
    run: RayRun, name: str, master: int | None, restarts: int, at_ns: int
) -> float:
    """Seconds until a worker's successor has registered, or until the new master answers."""
    end_s = time.monotonic() + _PATIENCE_S
    while _pid(name) == master if master is not None else _restarts(run) <= restarts:
        if time.monotonic() > end_s:
            raise ClusterError(f"{name} did not come back in {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)
    return (time.monotonic_ns() - at_ns) / 1e9


def _restarts(run: RayRun) -> int:
    return int(run.snapshot().restarts)


def _pid(name: str) -> int:
    """The process id of an actor; waits for one that is restarting."""
    end_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            actor = ray.get_actor(name, namespace=NAMESPACE)
            call = actor.__ray_call__.remote(_own_pid)
            return int(ray.get(call, timeout=_PATIENCE_S))
        except ray.exceptions.ActorUnavailableError:  # dead, and Ray has not detected it yet
            if time.monotonic() > end_s:
                raise
            time.sleep(_POLL_S)


def _own_pid(_: Any) -> int:
    return os.getpid()
