"""Aggregates of running totals on a real Ray: workers are killed, and the last rows are right."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sunshower import Number, Topology, count, max_, sum_
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from sunshower.topologies.operators.states import is_own
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
    value: int


@dataclass
class Step:
    step: int
    size: Size
    value: int


def best_of(number: Number) -> Best:
    return Best(number.value % GROUPS, number.value * 31 % 4_001)


def step_of(best: Best) -> Step:
    """Changes as the maximum grows."""
    return Step(best.value // 20, Size.SMALL if best.value < 3_990 else Size.LARGE, best.value)


def is_small(step: Step) -> bool:
    return step.size is Size.SMALL


@pytest.mark.long
def test_the_last_rows_are_right_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology = Topology("updates", workers=2)
    first, second = (SqliteState(tmp_path / f"{name}.db") for name in ("first", "second"))
    gate = tmp_path / "gate"
    numbers = topology.spout("numbers", Held(TOTAL, gate))
    best = numbers.map(best_of).group_by("group")
    totals = best.aggregate(max_("value"), fields=Best, state=first, name="best", parallelism=2)
    steps = totals.map(step_of).shuffle().stage("steps", 2).filter(is_small)
    steps.group_by("step").aggregate(
        count(), sum_("value"), state=second, name="counts", parallelism=2
    )
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        tasks = [run.plan.tasks_of("best")[0], run.plan.tasks_of("counts")[1]]
        finish_with_kills(run, "numbers", TOTAL, tasks, gate)
    greatest: dict[int, int] = {}
    for one in map(best_of, map(Number, range(TOTAL))):
        greatest[one.group] = max(one.value, greatest.get(one.group, one.value))
    counts, sums = Counter[int](), Counter[int]()
    for value in (value for value in greatest.values() if value < 3_990):
        counts[value // 20] += 1
        sums[value // 20] += value
    found = {key: list(value) for key, value in second.items() if not is_own(key)}
    assert found == {step: [counts[step], sums[step]] for step in counts}
