"""Joins on a real Ray: workers are killed, and no joined record is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sunshower import Counter, JsonLines, Number, Topology
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from tests.actors.programs.evidence import Held, finish_with_kills, submitted

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

TOTAL, USERS = 3_000, 10


class Numbers(Held):
    """Numbers that are their own event time."""

    def event_time(self, number: Number) -> float:
        return number.value


class Order(NamedTuple):
    order: int
    at: int
    user: int


class Named(NamedTuple):
    user: int
    order: int
    at: int
    paid: int | None
    name: str | None


def order_of(number: Number) -> Order:
    return Order(number.value, number.value, number.value % USERS)


def name_of(number: Number) -> tuple[int, str]:
    return number.value, f"user {number.value}"


@pytest.mark.long
def test_no_pair_is_missing_although_workers_die(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """Every second order has a payment. A user's name is None until the table has it."""
    topology, path = Topology("joins", workers=3), tmp_path / "named.jsonl"
    gate = tmp_path / "gate"
    orders = topology.spout("orders", Numbers(TOTAL, gate)).map(order_of)
    paid = topology.spout("payments", Numbers(TOTAL, gate)).filter(
        lambda number: number.value % 2 == 0
    )
    found = orders.join(
        paid.map(lambda number: (number.value, number.value), fields=("order", "at")),
        "order",
        within=0,
        field="at",
        how="left",
        fields=("order", "at", "user", "paid"),
        state=SqliteState(tmp_path / "join.db"),
        parallelism=2,
    )
    users = topology.spout("users", Counter(USERS)).map(name_of, fields=("user", "name"))
    names = users.group_by("user").table(state=SqliteState(tmp_path / "users.db"), broadcast=True)
    found.join(names, how="left", fields=Named).shuffle().bolt("store", JsonLines(path))
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        finish_with_kills(run, "orders", TOTAL, run.plan.tasks_of("join"), gate)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    expected = {(n, n if n % 2 == 0 else None) for n in range(TOTAL)}
    assert {(row["order"], row["paid"]) for row in rows} == expected
    assert {row["name"] for row in rows} <= {None, *(f"user {n}" for n in range(USERS))}
    assert dict(SqliteState(tmp_path / "users.db").items()).keys() >= {*range(USERS)}


@pytest.mark.long
def test_a_table_in_memory_is_filled_again_when_its_workers_are_killed(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology, path = Topology("refill", workers=4), tmp_path / "named.jsonl"
    gate = tmp_path / "gate"
    orders = topology.spout("orders", Numbers(TOTAL, gate)).map(order_of)
    users = topology.spout("users", Counter(USERS)).map(name_of, fields=("user", "name"))
    names = users.group_by("user").table(parallelism=2)
    named = orders.join(names, how="left", fields=("user", "order", "at", "name"))
    named.shuffle().bolt("store", JsonLines(path))
    with submitted(ray_cluster, topology, layout=Layout.ISOLATE) as run:
        tasks = [*run.plan.tasks_of("table"), *run.plan.tasks_of("users")]
        finish_with_kills(run, "orders", TOTAL, tasks, gate)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(row["order"], row["name"]) for row in rows} == {
        (n, f"user {n % USERS}") for n in range(TOTAL)
    }


def price_of(number: Number) -> tuple[int, int, int]:
    return number.value // 10 % 3, number.value, number.value


@pytest.mark.long
def test_each_order_gets_the_price_of_its_time_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    """Each of three items has a new price after thirty orders."""
    topology, path = Topology("prices", workers=3), tmp_path / "priced.jsonl"
    gate = tmp_path / "gate"
    orders = topology.spout("orders", Numbers(TOTAL, gate)).map(
        lambda number: (number.value % 3, number.value), fields=("item", "at")
    )
    changes = topology.spout("changes", Numbers(TOTAL, gate)).filter(
        lambda number: number.value % 10 == 0
    )
    prices = (
        changes.map(price_of, fields=("item", "changed", "price"))
        .group_by("item")
        .table(field="changed", state=SqliteState(tmp_path / "prices.db"), parallelism=2)
    )
    priced = orders.join(prices, as_of="at", how="left")
    priced.shuffle().bolt("store", JsonLines(path))
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        finish_with_kills(run, "orders", TOTAL, run.plan.tasks_of("table-as-of"), gate)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    times = [(number // 10 % 3, number) for number in range(0, TOTAL, 10)]
    expected = {
        (n, max((time for item, time in times if item == n % 3 and time <= n), default=None))
        for n in range(TOTAL)
    }
    assert {(row["at"], row["price"]) for row in rows} == expected
