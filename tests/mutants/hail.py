"""The hail: which faults a seed knows, how often they come, and how bad they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from numpy.random import Generator

from sunshower.faults.commands import drain, rebalance
from sunshower.faults.plans import Step, random
from sunshower.faults.targets import acker, lot, master, node, spout, worker
from sunshower.faults.vocabulary import Fault, cut, kill, lossy, pause
from sunshower.runtime.havoc import ANY
from sunshower.runtime.plan import ACKER, Layout

_STEPS_MAX = 8


def hail(stage: str, generator: Generator) -> Iterator[Step]:
    """Some faults of the kinds that this seed has drawn."""
    kinds = _network(generator)
    if stage == "apart":
        kinds = [kill(acker()), kill(acker()), kill(spout()), kill(worker())]
    elif stage != "poison":  # there, who dies while he is executing an innocent record is to blame
        kinds += _deaths()
    if stage == "moves":
        kinds = [*kinds, *_moves()] if generator.random() < 0.5 else _moves()
    on = [kind for kind in kinds if generator.random() < 0.3] or [lot(kinds, generator)]
    mean_s = float(generator.choice((0.005, 0.02, 0.06))) * (10 if stage == "apart" else 1)
    return islice(random(mean_s, on, generator), _STEPS_MAX)


def _deaths() -> list[Fault]:
    return [kill(worker()), kill(spout()), kill(acker()), kill(master()), kill(node())]


def _moves() -> list[Fault]:
    return [*(rebalance(workers, Layout.PACK, 0.05) for workers in (2, 3, 4)), drain()]


def _network(generator: Generator) -> list[Fault]:
    for_s = float(generator.choice((0.05, 0.2, 0.5)))
    rate = float(generator.choice((0.1, 0.3, 0.6)))
    end = lot((ANY, "numbers", ACKER), generator)
    return [
        *(pause(worker(), for_s), pause(acker(), for_s), pause(master(), for_s)),
        lossy(end, for_s=for_s, drop=rate),
        lossy(end, for_s=for_s, forget=rate),
        lossy(end, for_s=for_s, repeat=rate),
        lossy(end, for_s=for_s, delay=rate, delay_s=0.05),
        lossy(end, for_s=for_s, corrupt=rate),
        cut("numbers", end, for_s),
    ]
