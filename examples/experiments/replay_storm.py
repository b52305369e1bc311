"""Replay storm: a timeout shorter than the queueing time creates replays, which make it longer.

    sunshower experiment run examples/experiments/replay_storm.py

For `slow_s` seconds `relay` needs so much time for each record that `pending` trees take longer
than `timeout_s`. Tuples that time out are emitted again, and wait behind their own old copies: the
bolt is busy, but hardly any tree completes. `pending=auto` adapts the number of open trees. Both
runs are at least once. Look for: many timeouts, replays and duplicates with the fixed number, and
few with auto.

By default, Sunshower's windows (a quarter of a second of work) slow a spout down much earlier. Here
they are very large (`window_s`, an internal value of the runtime), as in Storm, where
max.spout.pending is the only limit. With --set window_s=0.25 the fixed number does not cause a
replay storm either.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import Topology
from sunshower.config import Internals
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
        internals=Internals(window_s=window_s),
        attempts_max=1_000,  # timeouts count: five of them would end the run
    )


def plan(record_s: float, slow_s: float) -> Iterator[Step]:
    return at(1, slow(task("relay", 0), record_s, for_s=slow_s))


experiment = Experiment(
    name="replay-storm",
    about="Tuples time out faster than they are processed, and are emitted repeatedly.",
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
