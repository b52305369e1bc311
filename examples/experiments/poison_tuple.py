"""Poison tuple: a tuple that always fails becomes a dead letter, and the others continue.

    sunshower experiment run examples/experiments/poison_tuple.py

For `poison_s` seconds `relay` raises for every record of one key. After `attempts` attempts, with
increasing waits, the spout emits such a tuple on its dead-letter stream, which `morgue` reads. Look
for: failures with the cause exception, `dead` in the figures, and an unchanged throughput of all
other tuples.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunshower import DeadLetter, Retry, Topology
from sunshower.experiments import (
    AtLeastOnce,
    Experiment,
    Liveness,
    NoPrematureAck,
    Sink,
    Step,
    at,
    errors,
    numbers,
    relay,
)


def morgue(letter: DeadLetter) -> None:
    """A real topology would write the dead letter to a file, or send a notification."""


def topology(total: int, rate: float, attempts: int) -> Topology:
    topology = Topology("poisoned")
    retry = Retry(attempts=attempts, dead_letters=True)
    items = topology.spout("numbers", numbers(total, rate), retry=retry)
    items.shuffle().bolt("relay", relay).shuffle().bolt("sink", Sink())
    items.stream("dead_letters").shuffle().bolt("morgue", morgue)
    return topology


def plan(key: int, poison_s: float) -> Iterator[Step]:
    return at(1, errors("relay", where={"key": key}, for_s=poison_s))


experiment = Experiment(
    name="poison-tuple",
    about="Some tuples always fail: only they become dead letters.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Liveness(60)],
    parameters={"total": 4_000, "rate": 400.0, "key": 13, "poison_s": 7.0, "attempts": 3},
)
