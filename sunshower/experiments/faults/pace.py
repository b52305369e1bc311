"""Measures how many messages the sources of a topology have, and how long they emit.

A swarm needs this to place faults before the end, so it runs the topology once without faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sunshower.experiments.evidence.event_history import tasks_of
from sunshower.experiments.experiment import Experiment, prepare
from sunshower.experiments.experiment_run import carry_out
from sunshower.experiments.faults.fault_kinds import throttle
from sunshower.experiments.faults.fault_plan import Step
from sunshower.experiments.faults.targets import task
from sunshower.experiments.workload import model_of
from sunshower.runtime.cluster import Cluster
from sunshower.topologies.graph import Graph
from sunshower.topologies.topology import Topology

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
        plan=lambda: [Step(0, throttle(one, _EACH_S, _SECONDS_MAX / 2)) for one in tasks],
        checkers=(),
        seconds_max=_SECONDS_MAX,
        messages_max=messages_max,
    )
    prepared = prepare(undisturbed)
    _, history = carry_out(prepared, cluster)
    accounts = history.accounts
    first = np.argsort(accounts.emitted_s, kind="stable")[:messages_max]
    components = {one.id: one.component for one in prepared.plan.spouts}
    counts = Counter(components[one] for one in tasks_of(accounts.messages[first]).tolist())
    messages = {spout.id: counts[spout.id] for spout in graph.spouts}
    return Pace(messages, float(accounts.emitted_s[first].max(initial=0.0)))
