"""A table in memory on a real Ray: it is filled again when its workers are killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sunshower import Counter, JsonLines, Topology
from sunshower.runtime.plan import Layout
from tests.actors.programs.evidence import Held, finish_with_kills, submitted

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, USERS = 3_000, 10


@pytest.mark.long
def test_a_table_in_memory_is_filled_again_when_its_workers_are_killed(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology, path = Topology("refill", workers=4), tmp_path / "named.jsonl"
    gate = tmp_path / "gate"
    orders = topology.spout("orders", Held(TOTAL, gate)).map(
        lambda number: (number.value, number.value % USERS), fields=("order", "user")
    )
    users = topology.spout("users", Counter(USERS)).map(
        lambda number: (number.value, f"user {number.value}"), fields=("user", "name")
    )
    names = users.group_by("user").table(parallelism=2)
    named = orders.join(names, how="left", fields=("order", "user", "name"))
    named.shuffle().bolt("store", JsonLines(path))
    with submitted(ray_cluster, topology, layout=Layout.ISOLATE) as run:
        tasks = [*run.plan.tasks_of("table"), *run.plan.tasks_of("users")]
        finish_with_kills(run, "orders", TOTAL, tasks, gate)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(row["order"], row["name"]) for row in rows} == {
        (n, f"user {n % USERS}") for n in range(TOTAL)
    }
