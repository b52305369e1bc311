"""A batch group on a real Ray: workers are killed, and each row counts exactly once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import Context
from sunshower.stores.sqlite_tree import SqliteTree
from sunshower.trident.attempts import Attempt
from sunshower.trident.nodes import put
from sunshower.trident.places import InSqlite
from tests.trident.group_rig import Database, Hook, Numbers, Rig, Row

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.run import RayRun

TOTAL, SIZE = 1200, 20


class Pause(Hook):
    """Each batch takes a while, so that a kill hits one."""

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        if step == "in the middle" and context is not None:
            context.clock.sleep(0.005)


class InFile(Database):
    """Transactional values by key, in a file that all processes see: [txid, count by number]."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def write(self, index: int, attempt: Attempt, rows: Sequence[Row]) -> None:
        tree = SqliteTree(self.file)
        for key in {row.key for row in rows}:
            path = f"/{key}"
            node = tree.get(path)
            txid, numbers = json.loads(node.value) if node is not None else (0, {})
            if txid == attempt.txid:
                continue  # the very same rows were written by an earlier attempt
            for row in rows:
                if row.key == key:
                    numbers[str(row.number)] = numbers.get(str(row.number), 0) + 1
            put(tree, path, json.dumps([attempt.txid, numbers]).encode())
        tree.close()

    @property
    def counts(self) -> Counter[int]:
        tree = SqliteTree(self.file)
        found = Counter[int]()
        for name in tree.children("/"):
            node = tree.get(f"/{name}")
            assert node is not None
            found.update({int(n): count for n, count in json.loads(node.value)[1].items()})
        tree.close()
        return found


def figure(run: RayRun, name: str) -> float:
    tasks = [one for one in run.snapshot().tasks() if one.component == "$mastercoord-g"]
    return tasks[0].figures.get(name, 0.0) if tasks else 0.0


def test_workers_are_killed_and_every_row_counts_once(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    rig = Rig(
        Numbers(TOTAL, SIZE),
        Pause(),
        InSqlite(tmp_path / "batches.db"),
        max_batches=2,
        database=InFile(tmp_path / "state.db"),
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
