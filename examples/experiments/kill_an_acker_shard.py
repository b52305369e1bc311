"""Kill an acker shard: only the trees that it tracked are emitted again.

    sunshower experiment run examples/experiments/kill_an_acker_shard.py

An acker has the open edges of its trees in memory, and a SIGKILL loses them. Each spout knows which
of its trees the shard tracked. One second after the new acker has registered, the spout fails those
that are still open, and emits them again. Look for: pending trees accumulate until then; one burst
of replays follows. With more `shards` a death affects fewer trees.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Topology
from sunshower.experiments import (
    AtLeastOnce,
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
    name="kill-an-acker-shard",
    about="An acker shard loses its trees; their spout emits them again.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60), Duplicates()],
    parameters={"total": 4_000, "rate": 400.0, "kill_s": 4.0, "shards": 2},
)
