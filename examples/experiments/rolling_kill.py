"""Rolling kill: spout, bolts, acker and master, each in its turn.

    sunshower experiment run examples/experiments/rolling_kill.py

Every `kill_s` seconds the next one gets a SIGKILL, from the source to the sink, then the acker and
the master; nobody is spared. Look for: which deaths are felt, and how long (the second chart). Of
the master's nothing is seen: it is not on the way of any tuple.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Topology
from sunshower.experiments import (
    AtLeastOnce,
    BoundedPending,
    Duplicates,
    EachEdgeOnce,
    Experiment,
    Liveness,
    NoPrematureAck,
    Recovers,
    Step,
    acker,
    every,
    kill,
    master,
    relayed,
    task,
    until,
)

VICTIMS = (task("numbers", 0), task("relay", 0), task("sink", 0), acker(0), master())


def topology(total: int, rate: float) -> Topology:
    return relayed(total, rate)


def plan(total: int, rate: float, kill_s: float) -> Iterator[Step]:
    return until(total / rate, every(kill_s, *map(kill, VICTIMS)))


experiment = Experiment(
    name="rolling-kill",
    about="Everybody is killed in turn.",
    topology=topology,
    plan=plan,
    checkers=[
        AtLeastOnce(),
        NoPrematureAck(),
        EachEdgeOnce(),
        BoundedPending(),
        Recovers(60),
        Liveness(60),
        Duplicates(),
    ],
    parameters={"total": 5_000, "rate": 300.0, "kill_s": 3.0},
)
