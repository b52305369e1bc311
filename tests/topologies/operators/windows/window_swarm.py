"""Topologies of windows, joins and tables over clicks, and their runs under random faults."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from sunshower import Context, Spout, Topology, count
from sunshower.config import Internals
from sunshower.errors import ClusterError
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.injected_faults import InjectedFaults, Raise, SlowTask
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from sunshower.topologies.components import Bolt
from tests.simulation.swarm import FAULTS
from tests.trident.rigs.programs import heal

TOTAL, SECONDS, DISORDER = 120, 3.0, 8
_FAULTS = {
    **FAULTS,
    "errors": lambda run, draw: run.disturb(
        InjectedFaults(raises=(Raise(component="note", probability=0.3 + draw.random() / 2),))
    ),
    "slowness": lambda run, draw: run.disturb(
        InjectedFaults(slows=(SlowTask(component="note", seconds=draw.random() / 5),))
    ),
}
_FAULTS_PER_RUN = 8


class Click(NamedTuple):
    user: str
    at: int


def clicks_of(seed: int, task: int) -> list[Click]:
    """Return the clicks of one spout task, out of order by less than DISORDER."""
    draw = Random(f"{seed} {task}")
    times = [n * 2 + draw.randrange(DISORDER // 2) for n in range(TOTAL)]
    return [Click(draw.choice("abc"), time) for time in times]


class Clicks(Spout[Click]):
    """Emits the clicks of its task in SECONDS; the second task takes twice as long."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def open(self, context: Context) -> None:
        self.clock, self.index = context.clock, context.index

    def records(self) -> Iterator[Click | None]:
        begun_s, pace_s = self.clock.now(), (1 + self.index) * SECONDS / TOTAL
        for number, click in enumerate(clicks_of(self.seed, self.index)):
            while self.clock.now() < begun_s + number * pace_s:
                yield None
            yield click


class Note(Bolt[Any, None]):
    """Writes its records to the event log."""

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.wrote(record[:2], record[2])


def window_topology(seed: int, window: Any, tasks: int = 2, state: Any = None) -> Topology:
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    clicks = topology.spout("clicks", Clicks(seed), parallelism=tasks)
    ended = clicks.group_by("user").window(
        window, count(), state=state or MemoryState(), parallelism=2
    )
    ended.shuffle().bolt("note", Note)
    return topology


def join_topology(seed: int, within: Any, how: Any, state: Any = None) -> Topology:
    """Declare a join of clicks. Its records have the times of both sides, or the user and the time
    of the left side; `how` "as of": the right side is a table."""
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    left = topology.spout("left", Clicks(seed), parallelism=2)
    right = topology.spout("right", Clicks(-seed - 1))
    place: Any = {"late": DISORDER, "state": state or MemoryState(), "parallelism": 2}
    times: Any = {"within": within, "field": "at", "how": how, **place}
    if how == "as of":
        changes = right.map(lambda click: (*click, click.at), fields=("user", "at", "last"))
        table = changes.group_by("user").table(field="at", wait=False)
        names = ("user", "at", "changed", "last")
        joined: Any = left.join(table, as_of="at", how="left", fields=names, **place)
    elif how in ("semi", "anti"):
        halves = left.join(right, "user", **times)
        joined = halves.map(lambda click: (*click, how), fields=("user", "at", "how"))
    else:
        joined = left.join(right, "user", fields=("user", "at", "other_at"), **times)
    joined.shuffle().bolt("note", Note)
    return topology


def table_topology(seed: int, *, broadcast: bool, state: Any = None) -> Topology:
    """Declare a join of the clicks with the last change of their user."""
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    left = topology.spout("left", Clicks(seed), parallelism=2)
    right = topology.spout("right", Clicks(-seed - 1)).map(change_of, fields=("user", "at", "name"))
    table = right.group_by("user").table(
        field="at", broadcast=broadcast, state=state or MemoryState(), parallelism=2
    )
    joined = left.join(table, how="left", fields=("user", "at", "last", "name"))
    joined.shuffle().bolt("note", Note)
    late = topology.spout("late", After(seed, 40.0)).join(
        table, fields=("user", "at", "last", "name")
    )
    late.shuffle().bolt("note-late", Note)
    return topology


def change_of(click: Click) -> tuple[str, int, str]:
    """Return a change of a user. The times are not in the order in which they are emitted."""
    return click.user, click.at * 37 % 251, click.user


class After(Clicks):
    """Emits a click of each user, with the time -1, after `begin_s`."""

    def __init__(self, seed: int, begin_s: float) -> None:
        super().__init__(seed)
        self.begin_s = begin_s

    def records(self) -> Iterator[Click | None]:
        begun_s = self.clock.now()
        while self.clock.now() < begun_s + self.begin_s:
            yield None
        yield from (Click(user, -1) for user in "abc")


def run_with_faults(seed: int, topology: Topology) -> SimRun:
    """Run to the end, with some faults that are removed before the end."""
    draw = Random(seed)
    cluster = SimCluster(seed, nodes=1 + seed % 2, check=True)
    run = cluster.submit(topology.graph(), list(Layout)[seed % 3 > 0], sample=1)
    for _ in range(_FAULTS_PER_RUN):
        run.wait(draw.expovariate(1.5))
        with suppress(ClusterError):  # the target of the fault is dead
            _FAULTS[draw.choice([*_FAULTS])](run, draw)
    heal(run)
    assert run.wait(600.0), f"seed {seed}: the run does not end\n{run._describe()}"
    return run


def written_values(run: SimRun) -> dict[tuple[Any, ...], Counter[int]]:
    """Return the first two values of the rows → how often each third value was written."""
    counts: defaultdict[tuple[Any, ...], Counter[int]] = defaultdict(Counter)
    for entry in run.history():
        if entry.what is What.WROTE:
            place, times = entry.detail
            counts[tuple(place)][times] += 1
    return counts
