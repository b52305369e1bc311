"""Draws the faults of a seed for a stage: their kinds, their times and their strength."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from numpy.random import Generator

from sunshower.experiments.fault_kinds import (
    Fault,
    acker,
    choose,
    cut,
    errors,
    kill,
    lossy,
    master,
    node,
    pause,
    spout,
    worker,
)
from sunshower.experiments.fault_plan import Step, drain, random, rebalance
from sunshower.runtime.events.injected_faults import ANY
from sunshower.runtime.plan import ACKER, Layout

_STEPS_MAX = 8
DRAINED_S = 1.0  # on the stage `masters`: when the drain begins
QUIET_S = 1.5  # after that time the drain has reached all tasks


def draw_plan(stage: str, generator: Generator) -> Iterator[Step]:
    """The faults of a run: their kinds are drawn, unless the stage has its own plan."""
    if stage in _SCRIPTS:
        return _SCRIPTS[stage](generator)
    kinds = _network(generator)
    if stage == "isolated":
        kinds = [kill(acker()), kill(acker()), kill(spout()), kill(worker())]
    elif stage != "poison":  # there, other deaths would charge attempts to healthy records
        kinds += _deaths()
    if stage == "moves":
        kinds = [*kinds, *_moves()] if generator.random() < 0.5 else _moves()
    drawn = [kind for kind in kinds if generator.random() < 0.3] or [choose(kinds, generator)]
    mean_s = float(generator.choice((0.005, 0.02, 0.06))) * (10 if stage == "isolated" else 1)
    return islice(random(mean_s, drawn, generator), _STEPS_MAX)


def _delays(generator: Generator) -> Iterator[Step]:
    """Packets arrive late, when the spout that sends or receives them has restarted."""
    late_s = float(generator.uniform(0.1, 0.8))
    yield Step(0.0, lossy(for_s=3.0, delay=0.4, delay_s=late_s, drop=0.3))
    yield from islice(random(0.4, [kill(spout())], generator), _STEPS_MAX // 2)


def _masters(generator: Generator) -> Iterator[Step]:
    """Tasks move; then the master dies and soon after it a spout, in half of the runs draining."""
    yield Step(float(generator.uniform(0.1, DRAINED_S / 2)), rebalance(3, Layout.PACK, 0.05))
    if generator.random() < 0.5:
        yield Step(DRAINED_S / 2, errors("audit", for_s=3.5))  # so that the drain takes a while
        yield Step(DRAINED_S, drain())
    at_s = DRAINED_S + QUIET_S + float(generator.random())
    yield Step(at_s, kill(master()))
    yield Step(at_s + float(generator.uniform(0.0, 0.4)), kill(spout()))


def _drains(generator: Generator) -> Iterator[Step]:
    """Processes and nodes die before, during and after the start of a drain."""
    at_s = float(generator.uniform(0.02, 0.3))
    around = [float(at_s * (0.5 + generator.random())) for _ in range(4)]
    kills = [Step(when_s, choose(_deaths(), generator)) for when_s in around]
    yield from sorted([Step(at_s, drain()), *kills], key=lambda step: step.at_s)


def _bad_routes(generator: Generator) -> Iterator[Step]:
    """The starts of trees reach the acker late."""
    late = lossy(
        "numbers", ACKER, for_s=2.0, delay=0.6, delay_s=float(generator.uniform(0.02, 0.3))
    )
    yield Step(0.0, late)


_SCRIPTS = {"drains": _drains, "delays": _delays, "masters": _masters, "bad_routes": _bad_routes}


def _deaths() -> list[Fault]:
    return [kill(worker()), kill(spout()), kill(acker()), kill(master()), kill(node())]


def _moves() -> list[Fault]:
    return [*(rebalance(workers, Layout.PACK, 0.05) for workers in (2, 3, 4)), drain()]


def _network(generator: Generator) -> list[Fault]:
    for_s = float(generator.choice((0.05, 0.2, 0.5)))
    rate = float(generator.choice((0.1, 0.3, 0.6)))
    end = choose((ANY, "numbers", ACKER), generator)
    return [
        *(pause(worker(), for_s), pause(acker(), for_s), pause(master(), for_s)),
        lossy(end, for_s=for_s, drop=rate),
        lossy(end, for_s=for_s, forget=rate),
        lossy(end, for_s=for_s, repeat=rate),
        lossy(end, for_s=for_s, delay=rate, delay_s=0.05),
        lossy(end, for_s=for_s, corrupt=rate),
        cut("numbers", end, for_s),
    ]
