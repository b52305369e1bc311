"""Tests of changed numbers of tasks on a real Ray under load: no record is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sunshower import Bolt, Context, KeyState, Number, Topology
from sunshower.runtime.plan import ACKER
from sunshower.state import SqliteState
from tests.actors.programs.evidence import Held
from tests.guarantee.deaths import RECOVERY_S, until

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, KEYS = 6_000, 50


def key_of(number: Number) -> tuple[int, int]:
    return number.value % KEYS, number.value


def gather(record: tuple[int, int], state: KeyState[tuple[int, set[int]]]) -> None:
    times, numbers = state.value or (0, set())
    state.value = (times + 1, numbers | {record[1]})


@pytest.mark.long
def test_a_state_has_each_record_once_after_its_tasks_have_changed(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    state, gate = SqliteState(tmp_path / "gathered.db"), tmp_path / "gate"
    topology = Topology("scaled", workers=2)
    pairs = topology.spout("numbers", Held(TOTAL, gate)).map(key_of, fields=["key", "number"])
    pairs.group_by("key").process(gather, state=state, name="gather", parallelism=2)
    run = ray_cluster.submit(topology.graph())
    try:
        for counts in ({"gather": 5, ACKER: 3}, {"gather": 3, ACKER: 1}):
            until(lambda: run.snapshot().component("gather").executed > 0)
            run.rebalance(workers=3, tasks=counts)
            assert {name: len(run.plan.tasks_of(name)) for name in counts} == counts
        run.kill_worker(run.plan.workers[-1])
        gate.touch()
        assert run.wait(RECOVERY_S)
    finally:
        run.stop()
    entries = dict(state.items())
    for key in range(KEYS):
        times, numbers = entries[key]
        assert numbers == {*range(key, TOTAL, KEYS)}
        assert times >= len(numbers)


def test_attributes_of_classes_are_kept_in_a_process(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    """A process does not load the code again when the number of tasks changes."""

    class Opened(Bolt[Number, None]):  # shipped by value: loaded again, it would be another class
        opened = 0

        def prepare(self, context: Context) -> None:
            type(self).opened += 1

        def process(self, number: Number) -> None: ...

        def snapshot(self) -> None: ...

        def restore(self, state: None) -> None: ...

        def result(self) -> int:
            return self.opened

    topology = Topology("opened", workers=1)
    topology.spout("numbers", Held(10, tmp_path / "gate")).shuffle().bolt("opened", Opened, 2)
    run = ray_cluster.submit(topology.graph())
    try:
        until(lambda: run.snapshot().component("opened").executed >= 5)
        run.rebalance(tasks={"opened": 3})
        assert run.results("opened") == [2 + 3] * 3
    finally:
        run.stop()
