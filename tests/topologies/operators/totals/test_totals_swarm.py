"""Totals under random faults: each record counts at least once, and at most once for each emit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sunshower import Topology, count, sum_
from sunshower.config import Internals
from sunshower.runtime.events.event_log import What
from sunshower.state import MemoryState
from tests.seeds import seeds
from tests.topologies.operators.windows.window_swarm import (
    Click,
    Clicks,
    Note,
    clicks_of,
    run_with_faults,
)

TIMES = 3


def several(click: Click) -> Iterator[Click]:
    yield from [click] * TIMES


def totals_of(seed: int, state: MemoryState) -> Topology:
    """Counts and sums of each user, combined before they are sent. `Note` fails some rows."""
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    clicks = topology.spout("clicks", Clicks(seed), parallelism=2).flat_map(several)
    totals = clicks.group_by("user").aggregate(count(), sum_("at"), state=state, parallelism=2)
    totals.shuffle().bolt("note", Note)
    return topology


@seeds(300)
def test_each_click_is_in_the_totals_and_at_most_once_for_each_emit(seed: int) -> None:
    state = MemoryState()
    clicks = [click for task in range(2) for click in clicks_of(seed, task)]
    counts, sums = Counter[str](), Counter[str]()
    for click in clicks:
        counts[click.user] += TIMES
        sums[click.user] += TIMES * click.at
    run = run_with_faults(seed, totals_of(seed, state))
    assert run.snapshot().component("clicks").pending == 0
    totals = dict(state.items())
    assert totals.keys() == counts.keys(), f"seed {seed}"
    less = {u: f for u, f in totals.items() if f[0] < counts[u] or f[1] < sums[u]}
    assert not less, f"seed {seed}"
    emits = sum(len(entry.roots) for entry in run.history() if entry.what is What.EMITTED)
    counted = sum(count for count, _ in totals.values())
    assert counted <= TIMES * emits, (
        f"seed {seed}: clicks are counted more often than they were emitted"
    )
