"""A state, store or source that is unavailable for ten minutes only delays the batches."""

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
