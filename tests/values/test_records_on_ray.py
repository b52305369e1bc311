"""Records whose constructor converts, on a real Ray with a killed worker: as in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import JsonLines, KeyState, Number, Topology, run_inline
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from sunshower.trident import FixedBatchSpout, InSqlite, batches
from tests.actors.programs.evidence import Held, finish_with_kills, submitted

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL = 400


@dataclass
class Reading:
    """Sensors send °F."""

    number: int
    degrees: float
    label: str = field(init=False)

    def __post_init__(self) -> None:
        self.degrees = round((self.degrees - 32) * 5 / 9, 2)
        self.label = f"{self.degrees} °C"


def read(number: Number) -> Reading:
    return Reading(number.value, 212.0 + number.value)


def same(reading: Reading) -> Reading:
    return reading


def keep(reading: Reading, state: KeyState[Reading]) -> Iterator[Reading]:
    """The record that was stored first, so the value has been in the store."""
    state.value = state.value or reading
    yield state.value


def program(folder: Path) -> Topology:
    """A hop between workers, a keyed state, and exactly-once batches whose rows leave them."""
    topology = Topology("readings", workers=3, ackers=1)
    numbers = topology.spout("numbers", Held(TOTAL, folder / "gate"))
    moved = numbers.map(read).shuffle().stage("moved", parallelism=2).map(same)
    state = SqliteState(folder / "kept.db")
    stored = moved.group_by("number").process(keep, state=state, parallelism=2, name="kept")
    stored.shuffle().bolt("stored", JsonLines(folder / "stored.jsonl"))
    spout = FixedBatchSpout([read(Number(n)) for n in range(40)], 9, type=Reading)
    rows = batches(topology, "rows", spout, store=InSqlite(folder / "batches.db"))
    rows_state = SqliteState(folder / "rows.db")
    rows = rows.group_by("number").process(keep, state=rows_state, parallelism=2)
    rows.records("rows-back").shuffle().bolt("back", JsonLines(folder / "back.jsonl"))
    return topology


def lines(folder: Path, name: str) -> set[str]:
    return {
        json.dumps(json.loads(line), sort_keys=True)
        for path in folder.glob(f"{name}*.jsonl")
        for line in path.read_text().splitlines()
    }


def test_records_are_as_in_one_process_although_a_worker_dies(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    inline_folder, ray_folder = tmp_path / "here", tmp_path / "there"
    inline_folder.mkdir()
    ray_folder.mkdir()
    (inline_folder / "gate").touch()
    run_inline(program(inline_folder).graph())
    assert len(lines(inline_folder, "stored")) == TOTAL
    assert len(lines(inline_folder, "back")) == 40
    with submitted(ray_cluster, program(ray_folder), layout=Layout.PACK) as run:
        kept_task = run.plan.tasks_of("kept")[0]
        finish_with_kills(run, "numbers", TOTAL, [kept_task], ray_folder / "gate")
    for name in ("stored", "back"):
        assert lines(ray_folder, name) == lines(inline_folder, name)
