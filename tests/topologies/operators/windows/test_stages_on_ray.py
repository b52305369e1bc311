"""Windows behind a join and a window on a real Ray: workers are killed, and no row is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sunshower import JsonLines, Number, Spout, Topology, collect, tumbling
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from tests.actors.programs.evidence import Held, finish_with_kills, submitted

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, SHOPS, MINUTE, HOUR = 3_000, 3, 60, 600
ROWS = ("shop", "window", "numbers")


def order_of(number: Number) -> tuple[int, int]:
    return number.value % SHOPS, number.value


def flat(row: Any) -> tuple[int, int, list[int]]:
    shop, window, lists = row
    return shop, window, sorted({number for some in lists for number in some})


@pytest.mark.long
def test_no_row_is_missing_behind_a_join_and_a_window_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    """Every order has a payment, in a minute, and in ten of them."""
    topology, path, gate = Topology("stages", workers=3), tmp_path / "tens.jsonl", tmp_path / "gate"

    def source(name: str) -> Any:
        spout: Spout[Number] = Held(TOTAL, gate)
        numbers = topology.spout(name, spout, event_time="value")
        return numbers.map(order_of, fields=("shop", "at"))

    def stored(name: str) -> dict[str, Any]:
        return {"name": name, "parallelism": 2, "state": SqliteState(tmp_path / f"{name}.db")}

    paid = source("orders").join(
        source("payments"),
        "shop",
        within=0,
        field="at",
        fields=("shop", "at", "paid"),
        **stored("join"),
    )
    minutes = paid.group_by("shop").window(
        tumbling(seconds=MINUTE, field="at"), collect("at"), fields=ROWS, **stored("minutes")
    )
    tens = minutes.group_by("shop").window(
        tumbling(seconds=HOUR, field="window"), collect("numbers"), fields=ROWS, **stored("tens")
    )
    tens.map(flat, fields=ROWS).shuffle().bolt("store", JsonLines(path))
    tens.late.map(flat, fields=ROWS).shuffle().bolt("late", JsonLines(tmp_path / "late.jsonl"))
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        victims = [task for id in ("join", "minutes", "tens") for task in run.plan.tasks_of(id)]
        finish_with_kills(run, "orders", TOTAL, victims, gate)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found: dict[tuple[int, int], set[int]] = {}
    for row in rows:
        found.setdefault((row["shop"], row["window"]), set()).update(row["numbers"])
    expected: dict[tuple[int, int], set[int]] = {}
    for number in range(TOTAL):
        place = number % SHOPS, (number // HOUR + 1) * HOUR
        expected.setdefault(place, set()).add(number)
    assert found == expected
