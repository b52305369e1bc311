"""Replay storm: a timeout that is shorter than the wait makes work that makes the wait longer.

    sunshower experiment run examples/experiments/replay_storm.py

For `slow_s` seconds a record takes `relay` so long that a full table of `pending` trees needs
longer than `timeout_s` to get through. What times out is emitted again, and stands in the queue
behind its own old copies: the bolt works, and hardly anything is ever complete. `pending=auto`
finds by itself how many open trees the timeout bears. At least once holds in both cases; look for:
timeouts, replays and duplicates with the number, few with auto.

Sunshower's windows, a quarter of a second of work by default, hold a spout back long before that:
here they are opened wide (`window_s`), as in Storm, where max.spout.pending is all there is. With
--set window_s=0.25 there is no storm with the number either.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Topology
from sunshower.experiments import (
    AtLeastOnce,
    Duplicates,
    Experiment,
    NoPrematureAck,
    Step,
    at,
    relayed,
    slow,
    task,
)


def topology(total: int, rate: float, timeout_s: float, pending: str, window_s: float) -> Topology:
    return relayed(
        total,
        rate,
        message_timeout_s=timeout_s,
        spout_pending=pending if pending == "auto" else int(pending),
        window_s=window_s,
        attempts_max=1_000,  # timeouts count: five of them would end the run
    )


def plan(record_s: float, slow_s: float) -> Iterator[Step]:
    return at(1, slow(task("relay", 0), record_s, for_s=slow_s))


experiment = Experiment(
    name="replay-storm",
    about="Tuples time out faster than they are processed, and are emitted again and again.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Duplicates()],
    parameters={
        "total": 1_000,
        "rate": 100.0,
        "record_s": 0.05,
        "slow_s": 8.0,
        "timeout_s": 0.5,
        "pending": "auto",
        "window_s": 5.0,
    },
    sweep={"pending": ["200", "auto"]},
)
