"""Slow bolt: pressure holds the spout back, so that nothing times out and nothing is emitted twice.

    sunshower experiment run examples/experiments/slow_bolt.py

For `slow_s` seconds each record takes `relay` so much longer that it cannot keep up. How much may
wait before a task is measured in its own service time. Look for: what was on its way already takes
its time, then the window shrinks, the spout waits as well, and latency comes down to a quarter of a
second while the bolt still is slow. No replays, no failures; afterwards the source makes up for it.
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
    about="A bolt cannot keep up for a while; the spout waits for it.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), BoundedPending(), Recovers(60)],
    parameters={"total": 3_000, "rate": 300.0, "record_s": 0.02, "slow_s": 5.0, "pending": 1_000},
)
