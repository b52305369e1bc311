"""A batch group on a real Ray: workers are killed, and each row counts exactly once."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.declaration.store_places import InSqlite
from sunshower.trident.states.factories import SqliteState
from tests.trident.rigs.group_rig import Hook, OpaqueNumbers, Rig
from tests.trident.rigs.real_states import InState

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.run import RayRun

TOTAL, SIZE = 1200, 20


class Pause(Hook):
    """Makes each batch take a while, so that a kill hits one."""

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if step == "in the middle" and context is not None:
            context.clock.sleep(0.005)


def figure(run: RayRun, name: str) -> float:
    tasks = [one for one in run.snapshot().tasks() if one.component == "$mastercoord-g"]
    return tasks[0].figures.get(name, 0.0) if tasks else 0.0


def test_workers_are_killed_and_every_row_counts_once(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    rig = Rig(
        OpaqueNumbers(TOTAL, SIZE, Hook()),
        Pause(),
        InSqlite(tmp_path / "batches.db"),
        max_batches=2,
        database=InState(SqliteState(tmp_path / "state.db")),
    )
    run = ray_cluster.submit(rig.topology("exactly-once").graph())
    try:
        killed = 0
        end_s = time.monotonic() + 120
        while time.monotonic() < end_s and not run.wait(0.1):
            if killed < 2 and figure(run, "txid") >= 10 * (killed + 1):
                run.kill_worker(run.plan.workers[killed])
                killed += 1
        assert run.finished(), run.snapshot()
        assert killed == 2
        assert run.snapshot().restarts == 2
        assert figure(run, "attempts failed") + run.snapshot().restarts > 2
    finally:
        run.stop()
    assert rig.database.counts == Counter(range(TOTAL))
