"""Queries of Nexmark on a real Ray: workers are killed, and no row is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.nexmark.events import Event, Nexmark, events
from examples.nexmark.inputs import declare
from examples.nexmark.queries import QUERIES
from sunshower import JsonLines, Topology
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from tests.actors.programs.evidence import finish_with_kills, submitted
from tests.examples.plain_nexmark import PLAIN, Sorted

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

COUNT, RATE = 3_000, 10
# Of each row of these, a repeated one is the same; a count or a sum would have it twice.
NAMES = ("q7", "q8", "q9", "q18", "q20", "q21")


class Held(Nexmark):
    """The events, half of them only when the file `gate` is there."""

    def __init__(self, gate: Path) -> None:
        super().__init__(COUNT, rate=RATE)
        self.gate = gate

    def records(self) -> Iterator[Event | None]:  # type: ignore[override]
        for number, event in enumerate(super().records()):
            while number * self.step >= COUNT // 2 and not self.gate.exists():
                yield None
            yield event


@pytest.mark.long
def test_no_row_is_missing_although_workers_die(ray_cluster: RayCluster, tmp_path: Path) -> None:
    topology, gate = Topology("nexmark", workers=3), tmp_path / "gate"
    state = SqliteState(tmp_path / "states.db")
    inputs = declare(topology, topology.spout("events", Held(gate), parallelism=2), 2, state)
    for name in NAMES:
        rows = QUERIES[name](inputs)
        rows.shuffle().bolt(f"store-{name}", JsonLines(tmp_path / f"{name}.jsonl"))
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        tasks = [run.plan.tasks_of(id)[0] for id in ("winning", "selling", "events")]
        finish_with_kills(run, "events", COUNT, tasks, gate)
    for name in NAMES:
        lines = (tmp_path / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = {json.dumps([*json.loads(line).values()]) for line in lines}
        assert {json.dumps(row) for row in PLAIN[name](Sorted(events(COUNT, rate=RATE)))} <= rows
