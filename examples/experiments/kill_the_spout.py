"""Kill the spout: its successor goes on behind what was settled, and leaves nothing out.

    sunshower experiment run examples/experiments/kill_the_spout.py

A spout that dies forgets what it had emitted. How far its source was settled is known to the
master, so the successor passes over so many records and emits the rest. Look for: a gap in the
emits while it is away, and then messages that are emitted a second time (replays without a
failure: nobody was there to be told of one). The sink sees those twice: they are the duplicates.
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
    every,
    kill,
    relayed,
    spout,
    until,
)


def topology(total: int, rate: float) -> Topology:
    return relayed(total, rate)


def plan(total: int, rate: float, kill_s: float) -> Iterator[Step]:
    return until(total / rate, every(kill_s, kill(spout())))


experiment = Experiment(
    name="kill-the-spout",
    about="The source itself dies; its successor goes on where it was settled.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60), Duplicates()],
    parameters={"total": 4_000, "rate": 400.0, "kill_s": 4.0},
)
