"""Slow bolt: backpressure slows the spout down, so no tree times out and no tuple is replayed.

    sunshower experiment run examples/experiments/slow_bolt.py

For `slow_s` seconds `relay` needs so much time for each record that it cannot keep up. The number
of records that may wait for a task depends on its service time. Look for: the records in the queue
take long at first; then the window shrinks, the spout waits, and the latency falls to a quarter of
a second while the bolt is still slow. There are no replays and no failures; afterwards the source
catches up.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Topology
from sunshower.experiments import (
    AtLeastOnce,
    BoundedPending,
    Experiment,
    NoPrematureAck,
    Recovers,
    Step,
    at,
    relayed,
    slow,
    task,
)


def topology(total: int, rate: float, pending: int) -> Topology:
    return relayed(total, rate, spout_pending=pending)


def plan(record_s: float, slow_s: float) -> Iterator[Step]:
    return at(2, slow(task("relay", 0), record_s, for_s=slow_s))


experiment = Experiment(
    name="slow-bolt",
    about="A bolt cannot keep up for some time; the spout waits for it.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), BoundedPending(), Recovers(60)],
    parameters={"total": 3_000, "rate": 300.0, "record_s": 0.02, "slow_s": 5.0, "pending": 1_000},
)
