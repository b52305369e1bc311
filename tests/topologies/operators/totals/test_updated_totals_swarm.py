"""Aggregates of running totals under random faults: the last rows are those of a plain program."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from sunshower import Topology, count, max_, sum_
from sunshower.config import Internals
from sunshower.runtime.events.event_log import What
from sunshower.simulation.cluster import SimRun
from sunshower.state import MemoryState
from sunshower.topologies.operators.states import is_own
from tests.seeds import seeds
from tests.topologies.operators.windows.window_swarm import (
    Click,
    Clicks,
    Note,
    clicks_of,
    run_with_faults,
)

TASKS = 2


class Group(NamedTuple):
    user: str
    place: int
    at: int


class Reached(NamedTuple):
    user: str
    step: int
    at: int


def placed(click: Click) -> Group:
    return Group(click.user, click.at % 7, click.at)


def step_of(row: Group) -> Reached:
    """The group of a row changes as its maximum grows."""
    return Reached(row.user, row.at // 10, row.at)


def is_odd(row: Group) -> bool:
    return row.at % 2 == 1


def maxima(seed: int) -> list[Group]:
    """The last rows of the first aggregate: a click that counts twice changes nothing."""
    latest: dict[tuple[str, int], int] = {}
    for click in (click for task in range(TASKS) for click in clicks_of(seed, task)):
        key = click.user, click.at % 7
        latest[key] = max(click.at, latest.get(key, click.at))
    return [Group(*key, at) for key, at in latest.items()]


def topology_of(seed: int, *states: Any) -> Topology:
    """Three aggregates, with functions and a shuffle between them. `Note` fails some rows."""
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    groups = topology.spout("clicks", Clicks(seed), parallelism=TASKS).map(placed)
    rows = groups.group_by("user", "place").aggregate(
        max_("at"), fields=Group, state=states[0], name="maxima", parallelism=2
    )
    if seed % 2:
        rows = rows.shuffle().stage("shuffled", 2)
    steps = rows.filter(is_odd).map(step_of)
    counts = steps.group_by("step").aggregate(
        count(), sum_("at"), state=states[1], name="counts", parallelism=2
    )
    sizes = counts.group_by("count").aggregate(
        count(name="times"), sum_("at_sum"), state=states[2], name="sizes", parallelism=2
    )
    sizes.fields("count").bolt("note", Note, parallelism=2)
    return topology


def check_last_values(seed: int, run: SimRun, states: tuple[MemoryState, ...]) -> None:
    steps = [step_of(row) for row in maxima(seed) if is_odd(row)]
    counts, sums = Counter[int](), Counter[int]()
    for _, step, at in steps:
        counts[step] += 1
        sums[step] += at
    values = {key: list(value) for key, value in states[1].items() if not is_own(key)}
    assert values == {step: [counts[step], sums[step]] for step in counts}, f"seed {seed}"
    sizes, totals = Counter[int](), Counter[int]()
    for step, size in counts.items():
        sizes[size] += 1
        totals[size] += sums[step]
    values = {key: list(value) for key, value in states[2].items() if not is_own(key)}
    assert values == {size: [sizes[size], totals[size]] for size in sizes}, f"seed {seed}"
    noted: dict[int, int] = {}
    for entry in run.history():
        if entry.what is What.WROTE:
            (size, times), _ = entry.detail
            noted[size] = times
    last = {size: times for size, times in noted.items() if times}
    assert last == sizes, f"seed {seed}: what the sink got last"


@seeds(30, first=1)
def test_the_last_rows_are_those_of_a_plain_program(seed: int) -> None:
    states = MemoryState(), MemoryState(), MemoryState()
    run = run_with_faults(seed, topology_of(seed, *states))
    assert run.snapshot().component("clicks").pending == 0
    check_last_values(seed, run, states)
