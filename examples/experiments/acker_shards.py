"""Acker shards: with more shards, the death of a shard affects fewer trees.

    sunshower experiment run examples/experiments/acker_shards.py

A sweep: separate runs with 1, 2, 4 and 8 shards. In each, shard 0 is killed every `kill_s` seconds.
Look for: twice as many shards halve the replays; the recovery time is about the same. (Other
numbers: --sweep shards=1,3,5.)
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Topology
from sunshower.experiments import (
    AtLeastOnce,
    BoundedPending,
    Duplicates,
    Experiment,
    NoPrematureAck,
    Recovers,
    Step,
    acker,
    every,
    kill,
    relayed,
    until,
)


def topology(total: int, rate: float, shards: int) -> Topology:
    return relayed(total, rate, ackers=shards)


def plan(total: int, rate: float, kill_s: float) -> Iterator[Step]:
    return until(total / rate, every(kill_s, kill(acker(0))))


experiment = Experiment(
    name="acker-shards",
    about="One of 1 to 8 acker shards dies; only its trees are emitted again.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), BoundedPending(), Recovers(60), Duplicates()],
    parameters={"total": 6_000, "rate": 1_000.0, "kill_s": 1.5, "shards": 1},
    sweep={"shards": [1, 2, 4, 8]},
)
