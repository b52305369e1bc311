"""Kill the spout: the next process skips only settled records, and emits all others.

    sunshower experiment run examples/experiments/kill_the_spout.py

A spout that dies loses the list of its emitted messages. The master has stored the position up to
which the source was settled, so the next process skips the records before it, and emits the rest.
Look for: a gap in the emits while the spout is down, and then messages that are emitted a second
time. These replays have no failure, because there was no spout to which one could be reported. The
sink receives these messages twice, as duplicates.
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
    about="The spout dies; the next process continues after the settled records.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60), Duplicates()],
    parameters={"total": 4_000, "rate": 400.0, "kill_s": 4.0},
)
