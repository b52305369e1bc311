"""Rolling kill: spout, bolts, ackers and the master, each in its turn, round after round.

    sunshower experiment run examples/experiments/rolling_kill.py

Every `kill_s` seconds the next one gets a SIGKILL; nobody is spared. Look for: which deaths are
felt, and how long. Of the master's nothing is seen: it is not on the way of any tuple. The second
chart has the time that each death was felt.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Topology
from sunshower.faults import (
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


def checkers(recovers_s: float) -> tuple:
    return (
        AtLeastOnce(),
        NoPrematureAck(),
        EachEdgeOnce(),
        BoundedPending(),
        Recovers(recovers_s),
        Liveness(recovers_s),
        Duplicates(),
    )


experiment = Experiment(
    name="rolling-kill",
    about="Everybody is killed in turn.",
    topology=topology,
    plan=plan,
    checkers=checkers,
    parameters={"total": 5_000, "rate": 300.0, "kill_s": 3.0, "recovers_s": 20.0},
)
