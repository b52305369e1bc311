"""Rolling kill: spout, bolts, acker and master are killed, one after the other.

    sunshower experiment run examples/experiments/rolling_kill.py

Every `kill_s` seconds the next process gets a SIGKILL, from the source to the sink, then the acker
and the master. Look for: which deaths have an effect, and for how long (the second chart). The
death of the master has no effect, because no tuple passes through it.
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
    about="All processes are killed, one after the other.",
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
