"""Partitions of files on a real Ray: workers are killed, and no complete one lacks a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sunshower import Spout, Topology, tumbling
from sunshower.connectors import PartitionedFiles
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from tests.actors.programs.evidence import Held, finish_with_kills, submitted

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, LENGTH = 3_000, 500


@pytest.mark.long
def test_no_complete_partition_lacks_a_record_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology, gate, place = Topology("files", workers=3), tmp_path / "gate", tmp_path / "files"
    source: Spout[Any] = Held(TOTAL, gate)
    numbers = topology.spout("numbers", source)
    files = PartitionedFiles(
        place,
        tumbling(seconds=LENGTH, field="value"),
        state=SqliteState(tmp_path / "files.db"),
        by=lambda number: f"odd={number.value % 2}",
        parallelism=2,
    )
    numbers.apply(files)
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        victims = [task for id in ("files", "files-complete") for task in run.plan.tasks_of(id)]
        finish_with_kills(run, "numbers", TOTAL, victims, gate)
    folders = {marker.parent for marker in place.rglob("_SUCCESS")}
    assert len(folders) == 2 * TOTAL // LENGTH
    for folder in folders:
        begin, odd = (int(part.partition("=")[2]) for part in folder.parts[-2:])
        lines = [line for file in folder.glob("part-*") for line in file.read_text().splitlines()]
        found = {json.loads(line)["value"] for line in lines}
        assert found == {*range(begin + odd, begin + LENGTH, 2)}, folder
    assert not [*place.rglob("late-*")]
