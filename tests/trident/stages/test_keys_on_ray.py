"""Any value as a key, between the processes of a real Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import make_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sunshower import Bolt, Context, Spout, Topology
from sunshower.records import key_of
from sunshower.state import SqliteState
from sunshower.trident import FixedBatchSpout, InSqlite, batches, count
from tests.trident.rigs.key_programs import ROWS, STORED, Group, expected

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


def test_groups_are_the_same_in_several_processes(ray_cluster: RayCluster, tmp_path: Path) -> None:
    topology, state = Topology("keys"), SqliteState(tmp_path / "counts.db")
    rows = [(key, number) for number, key in enumerate(STORED * ROWS)]
    spout = FixedBatchSpout(rows, 20, fields=("key", "n"))
    stream = batches(topology, "rows", spout, store=InSqlite(tmp_path / "batches.db"))
    stream = stream.shuffle(parallelism=2)
    stream.group_by("key").aggregate(count(), state=state, parallelism=2)
    stream.records("out").fields("key").bolt("group", Group, parallelism=2, fields=())
    run = ray_cluster.submit(topology.graph())
    try:
        assert run.wait(120.0)
        # key_of() leaves keys as they are, but replaces NaN by the NaN object of this process,
        # which is the only one that equals itself as a key.
        tasks = [Counter({key_of(k): n for k, n in pairs}) for pairs in run.results("group")]
    finally:
        run.stop()
    assert dict(state.items()) == expected(STORED)
    assert sum(tasks, Counter()) == expected(STORED)
    assert not tasks[0].keys() & tasks[1].keys()


def test_classes_defined_in_a_function_are_sent_between_processes(ray_cluster: RayCluster) -> None:
    class Color(Enum):
        RED = "red"

    fields = [("at", datetime), ("color", Color)]
    sale_type = make_dataclass("Sale", fields, frozen=True)

    class Sales(Spout[Any]):
        emits = sale_type

        def records(self) -> Iterator[Any]:
            yield from (
                sale_type(datetime(2026, 1, day, tzinfo=UTC), Color.RED) for day in range(1, 9)
            )

    class Seen(Bolt[Any, None]):
        def prepare(self, context: Context) -> None:
            self.days = set[int]()

        def process(self, sale: Any) -> None:
            assert type(sale) is sale_type
            assert sale.color is Color.RED
            self.days.add(sale.at.day)

        def result(self) -> set[int]:
            return self.days

    topology = Topology("sales")
    sales = topology.spout("sales", Sales())
    sales.fields("at", "color").bolt("seen", Seen, parallelism=2)
    run = ray_cluster.submit(topology.graph())
    try:
        assert run.wait(120.0)
        days = run.results("seen")
    finally:
        run.stop()
    assert sorted(day for task_days in days for day in task_days) == [*range(1, 9)]
