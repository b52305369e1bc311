"""Timeout sweep: a short timeout replays slow tuples, and does not detect deaths sooner.

    sunshower experiment run examples/experiments/timeout_sweep.py

Separate runs with several timeouts. In each, one `relay` task is paused for `pause_s` seconds, and
later killed. Look for: replays and duplicates if the timeout is shorter than the pause, and none if
it is longer; the recovery from the kill takes the same time with every timeout.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from sunshower import Topology
from sunshower.experiments import (
    AtLeastOnce,
    Duplicates,
    Experiment,
    NoPrematureAck,
    Recovers,
    Step,
    at,
    kill,
    pause,
    relayed,
    task,
)


def topology(total: int, rate: float, timeout_s: float) -> Topology:
    return relayed(total, rate, parallelism=2, message_timeout_s=timeout_s, attempts_max=100)


def plan(pause_s: float) -> Iterator[Step]:
    victim = task("relay", 0)
    return merge(at(1, pause(victim, for_s=pause_s)), at(pause_s + 3, kill(victim)))


experiment = Experiment(
    name="timeout-sweep",
    about="Timeouts from shorter than a pause to much longer.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60), Duplicates()],
    parameters={"total": 3_000, "rate": 300.0, "timeout_s": 30.0, "pause_s": 3.0},
    sweep={"timeout_s": [0.5, 1, 2, 5, 30]},
)
