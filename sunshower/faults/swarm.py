"""Swarm testing: an experiment for any topology, all of it drawn from one seed.

Each seed has some kinds of faults and others not at all, at wildly different rates: what never
happens in the average run happens in some. The layout, the number of workers and a few limits are
drawn, too. In one seed of four there are only overload and outages of what bolts and spouts depend
on, and then no tree may wait for its deadline. Prior art:
TigerBeetle's VOPR; Groce et al., Swarm Testing, 2012.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from sunshower.config import Config
from sunshower.faults.checkers.delivery import AtLeastOnce, Duplicates
from sunshower.faults.checkers.edges import EachEdgeOnce, NoPrematureAck
from sunshower.faults.checkers.healing import Liveness, NoneTimedOut
from sunshower.faults.checkers.port import Checker
from sunshower.faults.checkers.pressure import BoundedPending
from sunshower.faults.commands import drain, rebalance
from sunshower.faults.experiment import Experiment
from sunshower.faults.pace import Pace, declared
from sunshower.faults.plans import Step
from sunshower.faults.targets import acker, component, lot, master, node, spout, task, worker
from sunshower.faults.vocabulary import (
    Fault,
    away,
    cut,
    errors,
    expire,
    kill,
    lossy,
    pause,
    slow,
    throttle,
)
from sunshower.runtime.havoc import ANY
from sunshower.runtime.placement import can_move
from sunshower.runtime.plan import ACKER, Layout
from sunshower.topologies.graph import Graph
from sunshower.topologies.topology import Topology

T = TypeVar("T")
SECONDS_MAX = 600.0  # virtual ones: a run that needs more is stuck
_LIVELY_S = 300.0  # after the last fault
_FAULTS_MAX = 30  # of one run
_LASTS_MAX_S = 20.0  # of a source that takes its time: it is hurt at its beginning
_AWAY_S = (0.1, 120.0)  # how long a dependency is away
_OVERLOAD = 1.2  # for how many message timeouts a bolt is slower than its source
_OVERLOAD_MAX_S = 120.0
_PENDING = (1, 4, 32)  # small tables: their slots are used again and again
# What a random hail may do to the innocent is not what these limits are for.
_PATIENT = {"attempts_max": 1_000, "task_errors_max": 1_000, "deaths_max": 1_000}


@dataclass(frozen=True)
class _Dice:
    """Everything that is drawn for one seed."""

    generator: np.random.Generator

    def chance(self, probability: float) -> bool:
        return bool(self.generator.random() < probability)

    def magnitude(self, least: float, most: float) -> float:
        """Between the two, every order of magnitude alike."""
        value = least * (most / least) ** self.generator.random()
        return float(f"{value:.3g}")  # so that it can be read

    def any(self, *things: str) -> str:
        return lot(things, self.generator)

    def weighed(self, things: Sequence[T], weights: Sequence[float]) -> T:
        """Any of them, by weight."""
        shares = np.array(weights) / sum(weights)
        return things[int(self.generator.choice(len(things), p=shares))]


def swarm(
    make: Callable[[], Topology],
    seed: int,
    *,
    messages_max: int | None = None,
    checkers: Sequence[Checker] | None = None,
    pace: Pace | None = None,
) -> Experiment:
    """The experiment of that seed, on the topology that `make` declares.

    Its own settings stay as they are where they are not the defaults. `messages_max`: its sources
    are told to end after so many, for those that have no end. `checkers`: instead of `generic`.
    `pace`: what the sources have, as `pace_of` finds it; its faults come while they emit.
    Raises what the declaration raises.
    """
    dice = _dice(seed, 0)
    topology = _varied(make(), dice)
    graph = topology.graph()
    return Experiment(
        name=f"{topology.id}-{seed}",
        topology=lambda: topology,
        plan=partial(_plan, graph, seed, pace or declared(graph, messages_max)),
        checkers=_promises(graph, seed) if checkers is None else checkers,
        layout=Layout(dice.any(*Layout)),
        seconds_max=SECONDS_MAX,
        messages_max=messages_max,
        about=f"swarm of seed {seed}",
    )


def generic() -> tuple[Checker, ...]:
    """The checkers that hold of every tracked topology, whatever its bolts do."""
    promises = (AtLeastOnce(), NoPrematureAck(), EachEdgeOnce(), BoundedPending())
    return (*promises, Liveness(_LIVELY_S), Duplicates())


def _promises(graph: Graph, seed: int) -> tuple[Checker, ...]:
    timed = graph.config.tracked and _is_ordinary(seed)
    return (*generic(), NoneTimedOut()) if timed else generic()


def _is_ordinary(seed: int) -> bool:
    """Whether a seed has only what happens on an ordinary day: overload and outages."""
    return _dice(seed, 2).chance(0.25)


def _varied(topology: Topology, dice: _Dice) -> Topology:
    """The same with settings of its own where it had the defaults."""
    default, mine = Config(), topology.config
    drawn: dict[str, Any] = {
        "workers": int(dice.generator.integers(1, 5)),
        "ackers": lot((None, 1, 2, 3), dice.generator),
        "spout_pending": lot((*_PENDING, default.spout_pending), dice.generator),
        "frame_records_max": int(dice.magnitude(1, default.frame_records_max)),
        **_PATIENT,
    }
    changes = {n: v for n, v in drawn.items() if getattr(mine, n) == getattr(default, n)}
    varied = copy(topology)
    varied.config = replace(mine, **changes)
    return varied


def _dice(seed: int, lot: int) -> _Dice:
    return _Dice(np.random.default_rng([seed, lot]))


def _plan(graph: Graph, seed: int, pace: Pace) -> Iterator[Step]:
    """Some kinds of faults, each as often as it is drawn, while the sources emit.

    These are slowed down: what is over in a moment cannot be hurt. The first fault is one that
    hurts, in the first half of their time.
    """
    dice = _dice(seed, 1)
    overload, outage = _overload(graph, dice, pace), _outage(graph, dice)
    menu = [outage] if _is_ordinary(seed) else [*_menu(graph, dice), outage, *overload]
    on = [kind for kind in menu if dice.chance(0.5)] or [lot(menu, dice.generator)]
    weights = [dice.magnitude(0.01, 1) for _ in on]
    count = int(dice.magnitude(2, _FAULTS_MAX))
    lasts_s = max(dice.magnitude(0.05, 2), min(pace.seconds, _LASTS_MAX_S))
    for source in graph.spouts:
        each_s = lasts_s * source.parallelism / max(pace.messages[source.id], 1)
        for index in range(source.parallelism):
            yield Step(0, throttle(task(source.id, index), each_s, 2 * lasts_s))
    if _is_ordinary(seed):  # later, what waits then would have to wait for its deadline
        yield from (Step(0, slower()) for slower in overload)
    at_s = lasts_s / 2 * dice.generator.random()
    yield Step(round(at_s, 6), dice.weighed(on, weights)())
    if all(spout.level.counts_records for spout in graph.spouts) and dice.chance(0.5):
        on, weights = [*on, drain], [*weights, dice.magnitude(0.01, 1)]
    for _ in range(count - 1):
        at_s += float(dice.generator.exponential(lasts_s / count))
        yield Step(round(at_s, 6), dice.weighed(on, weights)())


def _outage(graph: Graph, dice: _Dice) -> Callable[[], Fault]:
    return lambda: away(dice.any(*graph.components), for_s=dice.magnitude(*_AWAY_S))


def _overload(graph: Graph, dice: _Dice, pace: Pace) -> list[Callable[[], Fault]]:
    """A bolt that is slower than its source; none where there is no bolt.

    All messages together take longer than a timeout, and none of them takes a large part of it.
    """
    timeout_s = graph.config.message_timeout_s
    messages = max(1, *pace.messages.values())
    each_s = min(_OVERLOAD * timeout_s / messages, timeout_s / 20)
    for_s = min(_OVERLOAD * timeout_s, _OVERLOAD_MAX_S)
    names = [bolt.id for bolt in graph.bolts]
    return [lambda: slow(component(dice.any(*names)), each_s, for_s)] if names else []


def _menu(graph: Graph, dice: _Dice) -> Iterator[Callable[[], Fault]]:
    """Every kind of fault that there can be; a drain, which hurts nobody, is none."""
    bolts = [bolt.id for bolt in graph.bolts]
    spouts = [spout.id for spout in graph.spouts]
    ackers = [ACKER] if graph.config.tracked else []
    while_s = partial(dice.magnitude, 0.01, 3)
    ratio = partial(dice.magnitude, 0.01, 0.6)
    bolt = partial(dice.any, *bolts)
    end = partial(dice.any, ANY, *bolts, *spouts, *ackers)

    def bad(name: str) -> Fault:
        return lossy(end(), end(), for_s=while_s(), **{name: ratio()})

    if bolts:
        yield lambda: kill(component(bolt()))
        yield lambda: errors(bolt(), for_s=while_s(), probability=ratio())
    if ackers:
        yield lambda: kill(acker())
        yield expire
    yield lambda: kill(spout())
    yield lambda: kill(worker())
    yield lambda: kill(master())
    yield lambda: kill(node())
    yield lambda: errors(dice.any(*spouts), for_s=while_s(), probability=ratio())
    yield lambda: pause(worker(), while_s())
    yield lambda: pause(master(), while_s())
    yield lambda: slow(worker(), dice.magnitude(0.0001, 0.3), while_s())
    yield lambda: cut(end(), end(), while_s())
    if all(spout.level.counts_records for spout in graph.spouts):
        wait_s = partial(dice.magnitude, 0.01, 1)
        if all(map(can_move, graph.components.values())):
            yield lambda: rebalance(int(dice.generator.integers(1, 5)), Layout.PACK, wait_s())
            yield lambda: rebalance(None, Layout(dice.any(*Layout)), wait_s())
    yield from (partial(bad, name) for name in ("drop", "forget", "repeat", "corrupt"))
    yield lambda: lossy(
        end(), end(), for_s=while_s(), delay=ratio(), delay_s=dice.magnitude(0.001, 2)
    )
