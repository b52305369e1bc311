"""Kill the spout: its successor continues after the settled records, and skips no other record.

    sunshower experiment run examples/experiments/kill_the_spout.py

A spout that dies loses the list of its emitted messages. The master has the position up to which
the source was settled, so the successor skips the records before it, and emits the rest. Look for:
a gap in the emits while the spout is down, and then messages that are emitted a second time
(replays without a failure, because no spout existed to which a failure could be reported). The
sink receives these twice: they are the duplicates.
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
    about="The source itself dies; its successor continues after the settled records.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60), Duplicates()],
    parameters={"total": 4_000, "rate": 400.0, "kill_s": 4.0},
)
