"""Kill a bolt: what a dead process held is found within seconds, and emitted again.

    sunshower experiment run examples/experiments/kill_a_bolt.py

Every `kill_s` seconds one of the two `relay` tasks gets a SIGKILL. Look for replays right after
each kill (cause: actor died), and for no timeout at all: a death is found by its consequences, long
before `timeout_s` is over. Nothing is lost. What the sink saw before the death it may see again:
these are the duplicates.
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
    task,
    until,
)


def topology(total: int, rate: float, timeout_s: float) -> Topology:
    return relayed(total, rate, parallelism=2, message_timeout_s=timeout_s)


def plan(total: int, rate: float, kill_s: float) -> Iterator[Step]:
    kills = every(kill_s, kill(task("relay", 0)), kill(task("relay", 1)))
    return until(total / rate, kills)


experiment = Experiment(
    name="kill-a-bolt",
    about="A bolt is killed again and again; what it held is emitted again.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60), Duplicates()],
    parameters={"total": 4_000, "rate": 400.0, "kill_s": 3.0, "timeout_s": 30.0},
)
