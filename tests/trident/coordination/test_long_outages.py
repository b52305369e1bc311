"""A state, store or source that is unavailable for ten minutes only delays the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Context,
    KeyState,
    Records,
    Topology,
    run_inline,
    sessions,
    sum_,
    tumbling,
)
from sunshower.errors import StoreUnreachable
from sunshower.failures import Cause
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.port import Attempt
from sunshower.trident import InMemory, PlainSpout, batches
from sunshower.trident.stages.plan import Skip
from tests.trident.rigs.group_rig import Hook, Numbers, Rig
from tests.trident.rigs.group_steps import Watched
from tests.trident.rigs.moving_states import keep_rows
from tests.trident.rigs.unsure import Troubles, UnsureState

OUTAGE_S = 600.0
RECOVERY_S = 30.0
STEPS = {
    "the coordinator of a source": "before metadata",
    "an operator": "in the middle",
    "a state": "before the commit",
    "the store, of attempts": "before currattempts",
    "the store, of the current batch": "before currtx",
    "the store, of metadata": "before meta/…",
}


class Outage(Hook):
    """After a step has succeeded twice, it is unavailable for `outage_s`."""

    def __init__(self, step: str, outage_s: float) -> None:
        self.step, self.outage_s = step, outage_s
        self.done = self.refused = 0
        self.since_s: float | None = None
        self.now: Callable[[], float] = float

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if step != self.step:
            return
        self.done += 1
        if self.done > 2 and self.since_s is None:
            self.since_s = self.now()
        if self.since_s is not None and self.now() < self.since_s + self.outage_s:
            self.refused += 1
            raise StoreUnreachable("no answer")


SHORT = "the store, of the current batch"  # the others are polled more often


@pytest.mark.parametrize(
    ("step", "outage_s"),
    [
        pytest.param("before the commit", 120.0, id="a state, for two minutes"),
        *(
            pytest.param(step, OUTAGE_S, id=name, marks=[] if name == SHORT else pytest.mark.long)
            for name, step in STEPS.items()
        ),
    ],
)
def test_an_outage_counts_no_attempt_and_causes_no_skip_quarantine_or_end(
    step: str, outage_s: float
) -> None:
    hook = Outage(step, outage_s)
    store, skip = Watched(hook), Skip(attempts=1)
    rig = Rig(Numbers(60, 3, hook), hook, store, skip=skip, max_batches=3)
    sim = SimCluster(4).submit(rig.topology().graph())
    hook.now = sim.now
    assert not sim.wait(outage_s / 2)
    during = sim.snapshot()
    waits_s = [task.health.wait.for_s for task in during.waiting() if task.health.wait]
    waits_s.append(during.figures("$mastercoord-g").get("seconds unavailable", 0.0))
    assert max(waits_s) > outage_s / 4
    assert sim.wait(outage_s), sim._describe()
    assert hook.since_s is not None
    assert sim.now() < hook.since_s + outage_s + RECOVERY_S
    assert hook.refused > outage_s / 15, "it is tried again at least every 15 s"
    rig.check()
    snapshot = sim.snapshot()
    assert not snapshot.degraded
    assert set(snapshot.component("$mastercoord-g").causes) <= {Cause.UNAVAILABLE, Cause.FAILED}
    assert not snapshot.figures("$mastercoord-g")["batches skipped"]


# ---- behind a slow bolt --------------------------------------------------------------------------

ROWS, ROW_S = 1_500, 0.02
STATES = ("totals", "tens", "visits", "gaps", "pairs")


class Click(NamedTuple):
    user: str
    number: int
    at: int


CLICKS = [Click("a" if n % 2 else f"u{n % 40}", n, n // 10) for n in range(ROWS)]


class Slow:
    """A filter that accepts every row, after a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def prepare(self, context: Context) -> None:
        self._clock = context.clock

    def __call__(self, click: Click) -> bool:
        self._clock.sleep(self._seconds)
        return True


class Gap(NamedTuple):
    user: str
    at: int
    gap: int


def gap(click: Click, state: KeyState[int]) -> Iterator[Gap]:
    """To the click of the user before, which is in order."""
    if state.value is not None:
        yield Gap(click.user, click.at, click.at - state.value)
    state.value = click.at


def is_tenth(click: Click) -> bool:
    return click.number % 10 == 1


def declared(state: Callable[[str], Any], row_s: float) -> Topology:
    """Totals, windows, sessions, rows in order, and a join; the rows are in states, too."""
    topology = Topology("clicks")
    source = PlainSpout(Records(CLICKS, type=Click), repeats=True)
    clicks = batches(topology, "clicks", source, store=InMemory(), skip=Skip(attempts=1))
    slow = clicks.filter(Slow(row_s)).partition_by("number", parallelism=2)
    by_user = slow.group_by("user")
    by_user.aggregate(sum_("number"), state=state("totals"), name="totals", parallelism=2)
    numbers = sum_("number", name="sum")
    settings: Any = {
        name: {"state": state(name), "name": name, "parallelism": 2} for name in STATES
    }
    outputs = {
        "tens": by_user.window(tumbling(seconds=10, field="at"), numbers, **settings["tens"]),
        "visits": by_user.window(sessions(gap=3, field="at"), numbers, **settings["visits"]),
        "gaps": by_user.in_order("at").process(gap, **settings["gaps"]),
        "pairs": slow.join(
            slow.filter(is_tenth),
            "user",
            within=1,
            field="at",
            fields=(*Click._fields, "other", "other_at"),
            **settings["pairs"],
        ),
    }
    for name, rows in outputs.items():
        rows.global_().partition_persist(state(f"{name}-rows"), keep_rows, name=f"{name}-rows")
    return topology


def outcome(states: dict[str, Any]) -> dict[str, Any]:
    rows = {name: dict(states[f"{name}-rows"].items())["rows"] for name in STATES[1:]}
    return {**rows, "totals": dict(states["totals"].items("totals"))}


@pytest.mark.parametrize(("at_s", "away_s"), [(3.0, 60.0), (8.0, OUTAGE_S)])
def test_a_slow_bolt_and_a_key_with_half_of_the_rows_only_delay_batches(
    at_s: float, away_s: float
) -> None:
    """The store of all states is away meanwhile. No attempt is charged, and none times out."""
    plain, states = dict[str, Any](), dict[str, Any]()
    run_inline(declared(lambda name: plain.setdefault(name, MemoryState(name=name)), 0.0).graph())
    troubles = Troubles(Random(0), 0.0)

    def state(name: str) -> UnsureState:
        return states.setdefault(name, UnsureState(MemoryState(name=name), troubles))

    sim = SimCluster(1).submit(declared(state, ROW_S).graph())
    assert not sim.wait(at_s)
    troubles.is_away = True
    assert not sim.wait(away_s)
    troubles.is_away = False
    assert sim.wait(2 * ROWS * ROW_S + RECOVERY_S), sim._describe()
    assert outcome(states) == outcome(plain)
    snapshot = sim.snapshot()
    master = snapshot.component("$mastercoord-clicks")
    assert set(master.causes) <= {Cause.UNAVAILABLE, Cause.FAILED}
    assert not snapshot.figures("$mastercoord-clicks")["batches skipped"]
    assert not snapshot.degraded
    assert not snapshot.restarts
