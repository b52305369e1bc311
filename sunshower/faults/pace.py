"""How much the sources of a topology have, and how long they take: what a swarm must know.

A fault that comes when all is done hurts nobody. So the topology is run once without any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sunshower.faults.experiment import Experiment, prepare
from sunshower.faults.history import tasks_of
from sunshower.faults.plans import Step
from sunshower.faults.running import carry_out
from sunshower.faults.targets import task
from sunshower.faults.vocabulary import throttle
from sunshower.faults.workload import model_of
from sunshower.runtime.cluster import Cluster
from sunshower.topologies.graph import Graph
from sunshower.topologies.topology import Topology

_MESSAGES = 200  # what the sources are taken to have, if nobody says it
_EACH_S = 1e-4  # a source without end is slow enough to be stopped after some thousand
_SECONDS_MAX = 600.0


@dataclass(frozen=True)
class Pace:
    """What the sources have when nobody hurts them."""

    messages: Mapping[str, int]  # of each spout, all of its tasks together
    seconds: float = 0.0  # until the last of them is emitted


def declared(graph: Graph, messages_max: int | None = None) -> Pace:
    """What can be said of a topology that nobody has run: `messages_max` messages, shared out."""
    model = model_of(graph)
    messages = messages_max or (_MESSAGES if model is None else model.total)
    share = -(-messages // len(graph.spouts))
    return Pace({spout.id: share for spout in graph.spouts})


def pace_of(make: Callable[[], Topology], cluster: Cluster, messages_max: int) -> Pace:
    """Run what `make` declares, unhurt, until its sources have emitted `messages_max`.

    Raises what the declaration raises, and ClusterError where it cannot begin.
    """
    graph = make().graph()
    tasks = [task(spout.id, i) for spout in graph.spouts for i in range(spout.parallelism)]
    unhurt = Experiment(
        name=f"{graph.id}-unhurt",
        topology=make,
        plan=lambda: [Step(0, throttle(one, _EACH_S, _SECONDS_MAX / 2)) for one in tasks],
        checkers=(),
        seconds_max=_SECONDS_MAX,
        messages_max=messages_max,
    )
    prepared = prepare(unhurt)
    _, history = carry_out(prepared, cluster, "unhurt")
    accounts = history.accounts
    first = np.argsort(accounts.emitted_s, kind="stable")[:messages_max]
    components = {one.id: one.component for one in prepared.plan.spouts}
    counts = Counter(components[one] for one in tasks_of(accounts.messages[first]).tolist())
    messages = {spout.id: counts[spout.id] for spout in graph.spouts}
    return Pace(messages, float(accounts.emitted_s[first].max(initial=0.0)))
