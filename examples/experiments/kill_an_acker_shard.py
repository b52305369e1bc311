"""Kill an acker shard: the trees that it followed are emitted again, all others do not notice.

    sunshower experiment run examples/experiments/kill_an_acker_shard.py

An acker keeps in memory which edges of which trees are open, and a SIGKILL takes that away. Each
spout knows which of its trees the shard followed: a second after the successor's hello those still
open have failed, and are emitted again. Look for: pending trees that pile up until then, and one
burst of replays. With more `shards` a death touches a smaller part of the trees.
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
    about="An acker shard forgets its trees; their spout does not.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60), Duplicates()],
    parameters={"total": 4_000, "rate": 400.0, "kill_s": 4.0, "shards": 2},
)
