"""A state, a store or a source that is away for ten minutes costs batches time and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sunshower import Context
from sunshower.errors import StoreUnreachable
from sunshower.failures import Cause
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.stages.plan import Skip
from tests.trident.rigs.group_rig import Hook, Numbers, Rig
from tests.trident.rigs.group_steps import Watched

AWAY_S = 600.0
RECOVERY_S = 30.0
STEPS = {
    "the coordinator of a source": "before metadata",
    "an operator": "in the middle",
    "a state": "before the commit",
    "the store, of attempts": "before currattempts",
    "the store, of the current batch": "before currtx",
    "the store, of metadata": "before meta/…",
}


class Away(Hook):
    """One step is not possible for ten minutes, from when it has been done twice."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.done = self.refused = 0
        self.since_s: float | None = None
        self.now: Callable[[], float] = float

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if step != self.step:
            return
        self.done += 1
        if self.done > 2 and self.since_s is None:
            self.since_s = self.now()
        if self.since_s is not None and self.now() < self.since_s + AWAY_S:
            self.refused += 1
            raise StoreUnreachable("it is away")


SHORT = {"a state", "the store, of the current batch"}


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=away, marks=[] if away in SHORT else pytest.mark.long)
        for away, step in STEPS.items()
    ],
)
def test_no_attempt_no_skip_no_quarantine_and_no_end(step: str) -> None:
    hook = Away(step)
    store, skip = Watched(hook), Skip(attempts=1)
    rig = Rig(Numbers(60, 3, hook), hook, store, skip=skip, max_batches=3)
    sim = SimCluster(4).submit(rig.topology().graph())
    hook.now = sim.now
    assert not sim.wait(AWAY_S / 2)
    during = sim.snapshot()
    waits_s = [task.health.wait.for_s for task in during.waiting() if task.health.wait]
    waits_s.append(during.figures("$mastercoord-g").get("seconds unavailable", 0.0))
    assert max(waits_s) > AWAY_S / 4
    assert sim.wait(AWAY_S), sim._describe()
    assert hook.since_s is not None
    assert sim.now() < hook.since_s + AWAY_S + RECOVERY_S
    assert hook.refused > AWAY_S / 15, "it is looked for at least every 10 s or so"
    rig.check()
    snapshot = sim.snapshot()
    assert not snapshot.degraded
    assert set(snapshot.component("$mastercoord-g").causes) <= {Cause.UNAVAILABLE, Cause.FAILED}
    assert not snapshot.figures("$mastercoord-g")["batches skipped"]
