"""A batch group on a real Ray: workers are killed, and each row counts exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.declaration.stage_builder import InSqlite
from sunshower.trident.states.factories import SqliteState
from tests.guarantee.deaths import until
from tests.trident.rigs.group_rig import Hook, OpaqueNumbers, Rig
from tests.trident.rigs.real_states import InState

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.run import RayRun

TOTAL, SIZE = 1200, 20
HELD_AT = 10, 20  # txids


class Held(Hook):
    """Holds these batches, each until a file exists, so that a kill hits one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if step != "in the middle" or context is None:
            return
        for txid in HELD_AT:
            while attempt.txid >= txid and not self.go(txid).exists():
                self.begun(txid).touch()
                context.clock.sleep(0.01)

    def begun(self, txid: int) -> Path:
        return self.folder / f"begun-{txid}"

    def go(self, txid: int) -> Path:
        return self.folder / f"go-{txid}"


def figure(run: RayRun, name: str) -> float:
    tasks = [task for task in run.snapshot().tasks() if task.component == "$mastercoord-g"]
    return tasks[0].figures.get(name, 0.0) if tasks else 0.0


def test_workers_are_killed_and_every_row_counts_once(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    held = Held(tmp_path)
    rig = Rig(
        OpaqueNumbers(TOTAL, SIZE, Hook()),
        held,
        InSqlite(tmp_path / "batches.db"),
        max_batches=2,
        database=InState(SqliteState(tmp_path / "state.db")),
    )
    run = ray_cluster.submit(rig.topology("exactly-once").graph())
    try:
        for txid, worker in zip(HELD_AT, run.plan.workers, strict=True):
            until(held.begun(txid).exists)
            run.kill_worker(worker)
            held.go(txid).touch()
        assert run.wait(200), run.snapshot()
        assert run.snapshot().restarts == 2
        assert figure(run, "attempts failed") + run.snapshot().restarts > 2
    finally:
        run.stop()
    assert rig.database.counts == Counter(range(TOTAL))
