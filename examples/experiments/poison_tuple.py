"""Poison tuple: what fails each time becomes a dead letter, and all the rest goes on.

    sunshower experiment run examples/experiments/poison_tuple.py

For `poison_s` seconds the records of one key make `relay` raise, each time that they come. After
`attempts` attempts, each later than the one before, the spout gives such a tuple up and emits it on
its stream of dead letters, where `morgue` reads it. Look for: failures with the cause exception,
`buried` in the figures, and a throughput of all the others that does not suffer.
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
    """Here you would write it to a file, or tell somebody."""


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
    about="Some tuples fail each time: they are put away, and nothing else is.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), Liveness(60)],
    parameters={"total": 4_000, "rate": 400.0, "key": 13, "poison_s": 7.0, "attempts": 3},
)
