"""Kill a bolt: the tuples in a dead process are detected and emitted again within seconds.

    sunshower experiment run examples/experiments/kill_a_bolt.py

Every `kill_s` seconds one of the two `relay` tasks gets a SIGKILL. Look for: replays right after
each kill (cause: actor died), and no timeouts, because a death is detected long before `timeout_s`
is over. No message is lost. Records that the sink received before the death may arrive again, as
duplicates.
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
    about="A bolt is killed repeatedly; the tuples in its process are emitted again.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Recovers(60), Duplicates()],
    parameters={"total": 4_000, "rate": 400.0, "kill_s": 3.0, "timeout_s": 30.0},
)
