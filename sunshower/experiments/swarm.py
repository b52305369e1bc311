"""Draws an experiment for any topology from one seed; separate because searches share its draws.

Each seed has only some kinds of faults, at rates of different magnitudes, so that rare situations
occur in some runs. The layout, the number of workers and a few limits are drawn, too. One seed of
four has only overload and outages of dependencies, and then no tree may fail at its deadline. Prior
art: TigerBeetle's VOPR; Groce et al., Swarm Testing, 2012.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from sunshower.config import Config, Internals
from sunshower.experiments.checkers import (
    AtLeastOnce,
    BoundedPending,
    Checker,
    Duplicates,
    EachEdgeOnce,
    Liveness,
    NoneTimedOut,
    NoPrematureAck,
)
from sunshower.experiments.event_history import tasks_of
from sunshower.experiments.experiment import Experiment, carry_out, model_of, prepare
from sunshower.experiments.fault_kinds import (
    Fault,
    acker,
    away,
    choose,
    component,
    cut,
    errors,
    expire,
    isolate,
    kill,
    lossy,
    master,
    node,
    pause,
    slow,
    spout,
    task,
    throttle,
    worker,
)
from sunshower.experiments.fault_plan import Step, drain, rebalance
from sunshower.runtime.cluster import Cluster
from sunshower.runtime.events.injected_faults import ANY
from sunshower.runtime.plan import ACKER, Layout
from sunshower.topologies.graph import Graph, can_move
from sunshower.topologies.topology import Topology

T = TypeVar("T")
SECONDS_MAX = 600.0  # virtual seconds; a run that needs more is stuck
_LIVELY_S = 300.0  # after the last fault
_FAULTS_MAX = 30  # of one run
_LASTS_MAX_S = 20.0  # a longer source has faults only at its beginning
_AWAY_S = (0.1, 120.0)  # range of the duration of an outage
_OVERLOAD = 1.2  # duration of an overload, in message timeouts
_OVERLOAD_MAX_S = 120.0
_PENDING = (1, 4, 32)  # small tables, whose slots are reused often
# These limits are not meant for many random faults.
_PATIENT = {"attempts_max": 1_000, "task_errors_max": 1_000, "deaths_max": 1_000}


# ---- pace ----------------------------------------------------------------------------------------
# Measures how many messages the sources of a topology have, and how long they emit.
#
# A swarm needs this to place faults before the end, so it runs the topology once without faults.

_MESSAGES = 200  # assumed number of messages, if unknown
_EACH_S = 1e-4  # slows an endless source, so that it can be drained
_SECONDS_MAX = 600.0


@dataclass(frozen=True)
class Pace:
    """The messages of the sources, and their duration, without faults."""

    messages: Mapping[str, int]  # spout → messages of all its tasks
    seconds: float = 0.0  # until the last emit


def declared(graph: Graph, messages_max: int | None = None) -> Pace:
    """Estimate the pace without a run: `messages_max` messages, divided between the spouts."""
    model = model_of(graph)
    messages = messages_max or (_MESSAGES if model is None else model.total)
    share = -(-messages // len(graph.spouts))
    return Pace({spout.id: share for spout in graph.spouts})


def pace_of(make: Callable[[], Topology], cluster: Cluster, messages_max: int) -> Pace:
    """Run the topology of `make` without faults, until its sources have emitted `messages_max`.

    Raises what the declaration raises, and ClusterError if it cannot start.
    """
    graph = make().graph()
    tasks = [task(spout.id, i) for spout in graph.spouts for i in range(spout.parallelism)]
    undisturbed = Experiment(
        name=f"{graph.id}-unhurt",
        topology=make,
        plan=lambda: [Step(0, throttle(item, _EACH_S, _SECONDS_MAX / 2)) for item in tasks],
        checkers=(),
        seconds_max=_SECONDS_MAX,
        messages_max=messages_max,
    )
    prepared = prepare(undisturbed)
    _, history = carry_out(prepared, cluster)
    accounts = history.accounts
    first = np.argsort(accounts.emitted_s, kind="stable")[:messages_max]
    components = {item.id: item.component for item in prepared.plan.spouts}
    counts = Counter(components[item] for item in tasks_of(accounts.messages[first]).tolist())
    messages = {spout.id: counts[spout.id] for spout in graph.spouts}
    return Pace(messages, float(accounts.emitted_s[first].max(initial=0.0)))


# ---- swarm ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Draw:
    """Draws random values for one seed."""

    generator: np.random.Generator

    def chance(self, probability: float) -> bool:
        return bool(self.generator.random() < probability)

    def magnitude(self, least: float, most: float) -> float:
        """Draw from a log-uniform distribution."""
        value = least * (most / least) ** self.generator.random()
        return float(f"{value:.3g}")  # three digits are readable

    def any(self, *things: str) -> str:
        return choose(things, self.generator)

    def weighed(self, things: Sequence[T], weights: Sequence[float]) -> T:
        """Draw one by weight."""
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
    """Return the experiment of a seed, on the topology that `make` declares.

    Settings that differ from the defaults are kept. `messages_max`: the sources are drained after
    so many. `checkers`: instead of `generic`. `pace`: the result of `pace_of`; faults begin while
    the sources emit. Raises what the declaration raises.
    """
    draw = _draw(seed, 0)
    topology = _varied(make(), draw)
    graph = topology.graph()
    return Experiment(
        name=f"{topology.id}-{seed}",
        topology=lambda: topology,
        plan=partial(_plan, graph, seed, pace or declared(graph, messages_max)),
        checkers=_promises(graph, seed) if checkers is None else checkers,
        layout=Layout(draw.any(*Layout)),
        seconds_max=SECONDS_MAX,
        messages_max=messages_max,
        about=f"swarm of seed {seed}",
    )


def generic() -> tuple[Checker, ...]:
    """Return the checkers for every tracked topology, whatever its bolts do."""
    promises = (AtLeastOnce(), NoPrematureAck(), EachEdgeOnce(), BoundedPending())
    return (*promises, Liveness(_LIVELY_S), Duplicates())


def _promises(graph: Graph, seed: int) -> tuple[Checker, ...]:
    timed = graph.config.tracked and _is_ordinary(seed)
    return (*generic(), NoneTimedOut()) if timed else generic()


def _is_ordinary(seed: int) -> bool:
    """Return whether a seed has only overload and outages."""
    return _draw(seed, 2).chance(0.25)


def _varied(topology: Topology, draw: _Draw) -> Topology:
    """Return the topology with drawn settings in place of the defaults."""
    default, mine = Config(), topology.config
    frame_records_max = default.internals.frame_records_max
    drawn: dict[str, Any] = {
        "workers": int(draw.generator.integers(1, 5)),
        "ackers": choose((None, 1, 2, 3), draw.generator),
        "spout_pending": choose((*_PENDING, default.spout_pending), draw.generator),
        "internals": Internals(frame_records_max=int(draw.magnitude(1, frame_records_max))),
        **_PATIENT,
    }
    changes = {n: v for n, v in drawn.items() if getattr(mine, n) == getattr(default, n)}
    varied = copy(topology)
    varied.config = replace(mine, **changes)
    return varied


def _draw(seed: int, stream: int) -> _Draw:
    return _Draw(np.random.default_rng([seed, stream]))


def _plan(graph: Graph, seed: int, pace: Pace) -> Iterator[Step]:
    """Yield faults of some kinds, with drawn rates, while the sources emit.

    The sources are slowed down, so that they still emit when faults begin. The first fault begins
    in the first half of that time.
    """
    draw = _draw(seed, 1)
    overload = _overload(graph, draw, pace)

    def outage() -> Fault:
        return away(draw.any(*graph.components), for_s=draw.magnitude(*_AWAY_S))

    menu = [outage] if _is_ordinary(seed) else [*_menu(graph, draw), outage, *overload]
    on = [kind for kind in menu if draw.chance(0.5)] or [choose(menu, draw.generator)]
    weights = [draw.magnitude(0.01, 1) for _ in on]
    count = int(draw.magnitude(2, _FAULTS_MAX))
    lasts_s = max(draw.magnitude(0.05, 2), min(pace.seconds, _LASTS_MAX_S))
    for source in graph.spouts:
        each_s = lasts_s * source.parallelism / max(pace.messages[source.id], 1)
        for index in range(source.parallelism):
            yield Step(0, throttle(task(source.id, index), each_s, 2 * lasts_s))
    if _is_ordinary(seed):  # if it began later, waiting trees might fail at their deadline
        yield from (Step(0, slower()) for slower in overload)
    at_s = lasts_s / 2 * draw.generator.random()
    yield Step(round(at_s, 6), draw.weighed(on, weights)())
    if all(spout.level.counts_records for spout in graph.spouts) and draw.chance(0.5):
        on, weights = [*on, drain], [*weights, draw.magnitude(0.01, 1)]
    for _ in range(count - 1):
        at_s += float(draw.generator.exponential(lasts_s / count))
        yield Step(round(at_s, 6), draw.weighed(on, weights)())


def _overload(graph: Graph, draw: _Draw, pace: Pace) -> list[Callable[[], Fault]]:
    """Return a fault that makes a bolt slower than its source; empty without bolts.

    All messages together take longer than a timeout, but each one only a small part of it.
    """
    timeout_s = graph.config.message_timeout_s
    messages = max(1, *pace.messages.values())
    each_s = min(_OVERLOAD * timeout_s / messages, timeout_s / 20)
    for_s = min(_OVERLOAD * timeout_s, _OVERLOAD_MAX_S)
    names = [bolt.id for bolt in graph.bolts]
    return [lambda: slow(component(draw.any(*names)), each_s, for_s)] if names else []


def _menu(graph: Graph, draw: _Draw) -> Iterator[Callable[[], Fault]]:
    """Yield every kind of fault that is possible for the graph."""
    bolts = [bolt.id for bolt in graph.bolts]
    spouts = [spout.id for spout in graph.spouts]
    ackers = [ACKER] if graph.config.tracked else []
    while_s = partial(draw.magnitude, 0.01, 3)
    long_s = partial(draw.magnitude, 3, 120)  # some are longer than worker_timeout_s
    ratio = partial(draw.magnitude, 0.01, 0.6)
    bolt = partial(draw.any, *bolts)
    end = partial(draw.any, ANY, *bolts, *spouts, *ackers)

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
    yield lambda: errors(draw.any(*spouts), for_s=while_s(), probability=ratio())
    yield lambda: pause(worker(), while_s())
    yield lambda: pause(master(), while_s())
    yield lambda: slow(worker(), draw.magnitude(0.0001, 0.3), while_s())
    yield lambda: cut(end(), end(), while_s())
    yield lambda: pause(worker(), long_s())
    yield lambda: pause(master(), long_s())
    yield lambda: isolate(worker(), long_s())
    yield lambda: cut(end(), end(), long_s())
    if all(spout.level.counts_records for spout in graph.spouts):
        wait_s = partial(draw.magnitude, 0.01, 1)
        if all(map(can_move, graph.components.values())):
            yield lambda: rebalance(int(draw.generator.integers(1, 5)), Layout.PACK, wait_s())
            yield lambda: rebalance(None, Layout(draw.any(*Layout)), wait_s())
    yield from (partial(bad, name) for name in ("drop", "forget", "repeat", "corrupt"))
    yield lambda: lossy(
        end(), end(), for_s=while_s(), delay=ratio(), delay_s=draw.magnitude(0.001, 2)
    )


# ---- shrinking -----------------------------------------------------------------------------------
# Shrinks a failing plan to a shorter one that still fails.
#
# First fewer steps (delta debugging: Zeller and Hildebrandt, Simplifying and Isolating Failure-
# Inducing Input, 2002), then shorter ones, then fewer messages.

Steps: TypeAlias = tuple[Step, ...]
Trial: TypeAlias = Callable[[Steps, int | None], bool]
_SHORTEST_S = 0.001


def shrink(
    steps: Sequence[Step],
    breaks: Trial,
    *,
    messages: int | None = None,
    tries_max: int = 200,
) -> Shrunk:
    """Return the shortest failing plan that is found in at most `tries_max` runs.

    `steps` are known to fail. `breaks(steps, messages)`: whether a run with these steps, whose
    source is drained after so many messages, still fails; it must be deterministic. `messages`: the
    number of messages in the failing run, if known.
    """
    shrunk = Shrunk(breaks, tries_max, tuple(steps))
    shrunk.fewer_steps()
    shrunk.shorter_steps()
    if messages is not None:
        shrunk.fewer_messages(messages)
    return shrunk


class Shrunk:
    """The shortest failing plan so far."""

    def __init__(self, breaks: Trial, tries_max: int, steps: Steps) -> None:
        self.steps = steps
        self.messages: int | None = None  # after which the source is drained; None: not drained
        self.tries = 0  # how many runs were needed
        self._breaks = breaks
        self._tries_max = tries_max

    def fewer_steps(self) -> None:
        """Remove halves, quarters, eighths …, until no single step can be removed."""
        parts = 2
        while self.steps:
            size = max(1, -(-len(self.steps) // parts))
            starts = range(0, len(self.steps), size)
            if any(self._try(self.steps[:at] + self.steps[at + size :]) for at in starts):
                parts = max(2, parts - 1)
            elif size == 1:
                return
            else:
                parts = min(2 * parts, len(self.steps))

    def shorter_steps(self) -> None:
        """Halve the duration of each step, as often as it still fails."""
        for place in range(len(self.steps)):
            while self._try(_shortened(self.steps, place)):
                pass

    def fewer_messages(self, messages: int) -> None:
        """Halve the number of messages, as often as it still fails."""
        while messages > 1 and self._try(self.steps, messages // 2):
            messages //= 2

    def _try(self, steps: Steps | None, messages: int | None = None) -> bool:
        """Keep a shorter plan if it fails, too."""
        if steps is None or self.tries >= self._tries_max:
            return False
        self.tries += 1
        if not self._breaks(steps, messages):
            return False
        self.steps, self.messages = steps, messages
        return True


def _shortened(steps: Steps, place: int) -> Steps | None:
    """Return the steps with half the duration for one; None if it has none."""
    step = steps[place]
    fault: Any = step.fault
    can_change = is_dataclass(fault)
    if not can_change or fault.for_s / 2 < _SHORTEST_S:
        return None
    shorter = replace(step, fault=replace(fault, for_s=fault.for_s / 2))
    return (*steps[:place], shorter, *steps[place + 1 :])
