"""Any value as a key, between the processes of a real Ray."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import Topology
from sunshower.records import key_of
from sunshower.runtime.plan import Layout
from sunshower.trident import FixedBatchSpout, InSqlite, SqliteState, batches, count
from tests.trident.rigs.key_programs import ROWS, STORED, Group, expected

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


def test_groups_are_the_same_in_several_processes(ray_cluster: RayCluster, tmp_path: Path) -> None:
    topology, state = Topology("keys"), SqliteState(tmp_path / "counts.db")
    rows = [(key, number) for number, key in enumerate(STORED * ROWS)]
    spout = FixedBatchSpout(rows, 20, fields=("key", "n"))
    stream = batches(topology, "rows", spout, store=InSqlite(tmp_path / "batches.db"))
    stream = stream.shuffle(parallelism=2)
    stream.group_by("key").persistent_aggregate(state, count(), parallelism=2)
    stream.records("out").fields("key").bolt("group", Group, parallelism=2, fields=())
    run = ray_cluster.submit(topology.graph(), Layout.ISOLATE)
    try:
        assert run.wait(120.0)
        # The key of a key is itself, with the NaN of this process: only that one equals itself.
        tasks = [Counter({key_of(k): n for k, n in found}) for found in run.results("group")]
    finally:
        run.stop()
    assert dict(state.items()) == expected(STORED)
    assert sum(tasks, Counter()) == expected(STORED)
    assert not tasks[0].keys() & tasks[1].keys()
