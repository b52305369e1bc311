"""Aggregates of running totals on a real Ray: workers are killed, and the last rows are right."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from sunshower import Number, Topology, count, max_, sum_
from sunshower.runtime.plan import Layout
from sunshower.topologies.operators.keyed.moved_parts import is_own
from sunshower.trident import SqliteState
from tests.actors.programs.evidence import Held, finish_with_kills, submitted

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, GROUPS = 4_000, 50


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Best:
    group: int
    size: Size
    value: int


@dataclass
class Step:
    step: int
    size: Size
    value: int


def best_of(number: Number) -> Best:
    size = Size.SMALL if number.value % 3 else Size.LARGE
    return Best(number.value % GROUPS, size, number.value * 31 % 4_001)


def step_of(best: Best) -> Step:
    """Changes as the maximum grows."""
    return Step(best.value // 20, best.size, best.value)


def is_even(best: Best) -> bool:
    return best.value % 2 == 0


def test_the_last_rows_are_right_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology = Topology("updates", workers=2)
    first, second = (SqliteState(tmp_path / f"{name}.db") for name in ("first", "second"))
    gate = tmp_path / "gate"
    numbers = topology.spout("numbers", Held(TOTAL, gate))
    best = numbers.map(best_of).group_by("group", "size")
    totals = best.aggregate(max_("value"), fields=Best, state=first, name="best", parallelism=2)
    steps = totals.filter(is_even).shuffle().stage("steps", 2).map(step_of)
    steps.group_by("step").aggregate(
        count(), sum_("value"), state=second, name="counts", parallelism=2
    )
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        tasks = [run.plan.tasks_of("best")[0], run.plan.tasks_of("counts")[1]]
        finish_with_kills(run, "numbers", TOTAL, tasks, gate)
    greatest: dict[tuple[int, Size], int] = {}
    for one in map(best_of, map(Number, range(TOTAL))):
        key = one.group, one.size
        greatest[key] = max(one.value, greatest.get(key, one.value))
    counts, sums = Counter[int](), Counter[int]()
    for value in (value for value in greatest.values() if value % 2 == 0):
        counts[value // 20] += 1
        sums[value // 20] += value
    found = {key: list(value) for key, value in second.items() if not is_own(key)}
    assert found == {step: [counts[step], sums[step]] for step in counts}
