"""Queries of keyed states in a running topology: their values and their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Context,
    KeyState,
    KeyValueState,
    Records,
    Topology,
    average,
    collect,
    count,
    sum_,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import ClusterError, UnknownComponent
from sunshower.runtime.cluster import Run
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.streams import Stream
from sunshower.trident import FixedBatchSpout, InMemory, batches


class Sale(NamedTuple):
    shop: str
    day: int
    amount: int


SALES = [Sale("abcde"[n * n % 5], n % 3, n) for n in range(200)]
AMOUNTS = {shop: [sale.amount for sale in SALES if sale.shop == shop] for shop in "abe"}


def last(sale: Sale, state: KeyState[Sale]) -> None:
    state.value = sale


class Last(Bolt[Sale, None]):
    state: KeyValueState[str, Sale]

    def process(self, sale: Sale) -> None:
        self.state[sale.shop] = sale


def endless() -> Iterator[Sale | None]:
    yield from SALES
    while True:
        yield None


def ignore(sale: Sale) -> None: ...


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    with SimCluster(seed=1, latency_s=0.001) as cluster:
        yield cluster


def declare_sales() -> tuple[Topology, Stream[Sale]]:
    topology = Topology("sales", workers=3)
    return topology, topology.spout("sales", Records(endless, type=Sale))


def run_until_processed(cluster: SimCluster, topology: Topology) -> Run:
    """Submit, and wait until all sales are processed. The spout does not end."""
    run = cluster.submit(topology.graph())
    while run.snapshot().component("sales").acked < len(SALES):
        assert not run.wait(0.05)
    return run


@pytest.mark.parametrize("stored", [False, True])
def test_a_query_returns_the_value_of_its_key(
    cluster: SimCluster, tmp_path: Path, stored: bool
) -> None:
    state = SqliteState(tmp_path / "states.db") if stored else None
    topology, sales = declare_sales()
    three: Any = {"state": state, "parallelism": 3}
    shops = sales.group_by("shop")
    shops.aggregate(count(), name="one", **three)
    shops.aggregate(count(), average("amount"), sum_("amount", name="sum"), name="many", **three)
    shops.aggregate(collect("amount"), name="reduced", **three)
    sales.group_by("shop", "day").aggregate(count(), name="pairs", **three)
    sales.aggregate(count(), name="all", state=state)
    shops.process(last, **three)
    sales.fields("shop").bolt("bolt", Last, parallelism=3, state=state)
    sales.shuffle().bolt("chooses", Last, state=state)
    run = run_until_processed(cluster, topology)
    for shop, amounts in AMOUNTS.items():
        assert run.query("one", shop) == len(amounts)
        assert run.query("many", shop) == {
            "count": len(amounts),
            "amount_average": sum(amounts) / len(amounts),
            "sum": sum(amounts),
        }
        assert sorted(run.query("reduced", shop)) == amounts
        mondays = [sale for sale in SALES if (sale.shop, sale.day) == (shop, 0)]
        assert run.query("pairs", (shop, 0)) == (len(mondays) or None)
        for component in ("last", "bolt", "chooses"):
            assert run.query(component, shop).shop == shop
    assert run.query("all", ()) == len(SALES)
    assert run.entries("all") == [((), len(SALES))]
    assert run.query("one", "nowhere") is None
    assert run.query("last", "nowhere") is run.query("bolt", "nowhere") is None
    assert {shop for shop, _ in run.entries("bolt")} == {*"abcde"} & {sale.shop for sale in SALES}
    assert dict(run.entries("one")) == {shop: len(amounts) for shop, amounts in AMOUNTS.items()}
    assert len(run.entries("pairs", limit=2)) == 2


def test_a_query_sees_only_committed_values() -> None:
    for factory in (None, MemoryState()):
        store = KeyedStore(factory, "s", "here")
        store.open(Context("t", "s", 1, 0, 1, clock=ManualClock()))
        store.put("a", 1)
        store.commit()
        store.put("a", 2)
        store.put("b", 3)
        assert store.stored(["a", "b"]) == [1, None]
        assert list(store.stored_items()) == [("a", 1)]
        assert [store.get("a"), store.get("b")] == [2, 3]
        store.commit()
        assert store.stored(["a", "b"]) == [2, 3]


def test_after_a_kill_a_query_raises_until_it_returns_the_stored_value(
    cluster: SimCluster,
) -> None:
    topology, sales = declare_sales()
    sales.group_by("shop").aggregate(count(), state=MemoryState(), name="one", parallelism=3)
    run = run_until_processed(cluster, topology)
    answers = []
    for task in run.plan.tasks_of("one"):
        run.kill_worker(task.worker)
        for shop in AMOUNTS:
            with suppress(ClusterError):
                answers.append((shop, run.query("one", shop)))
    run.wait(5)
    answers += [(shop, run.query("one", shop)) for shop in AMOUNTS]
    assert all(value >= len(AMOUNTS[shop]) for shop, value in answers)


def test_wrong_queries_are_refused_with_the_valid_ones(cluster: SimCluster) -> None:
    topology, sales = declare_sales()
    sales.group_by("shop", "day").aggregate(count(), name="pairs", parallelism=2)
    sales.shuffle().bolt("ignore", ignore)
    run = run_until_processed(cluster, topology)
    for component, message in (("pears", "is not a component"), ("ignore", "no keyed state")):
        with pytest.raises(UnknownComponent, match=rf"{component}.*{message}.*are: pairs"):
            run.query(component, "a")
        with pytest.raises(UnknownComponent, match=message):
            run.entries(component)
    for key in ("a", ("a",), ("a", 0, 1)):
        with pytest.raises(ClusterError, match=r"'pairs' has 2 values \(shop, day\)"):
            run.query("pairs", key)


def test_wrong_keys_and_limits_are_refused(cluster: SimCluster) -> None:
    topology, sales = declare_sales()
    sales.group_by("shop").aggregate(count(), parallelism=2)
    run = run_until_processed(cluster, topology)
    for key in (["a"], {"a": 1}, {1}):
        assert run.query("count", key) is None
    with pytest.raises(ClusterError, match=r"'count' has 1 value \(shop\).*not \('a',\)"):
        run.query("count", ("a",))
    with pytest.raises(ClusterError, match="cannot be a key of 'count'"):
        run.query("count", object())
    assert len(run.entries("count", limit=10**15)) == len(AMOUNTS)
    for limit in (0, -1, 1.5):
        with pytest.raises(ClusterError, match=r"run\.entries: limit is"):
            run.entries("count", limit=limit)  # type: ignore[arg-type]


def test_the_entries_of_a_broadcast_table_are_those_of_one_task(cluster: SimCluster) -> None:
    topology, sales = declare_sales()
    table = sales.group_by("shop").table(broadcast=True, parallelism=3)
    sales.join(table, fields=("shop", "day", "amount", "table_day", "table_amount"))
    run = run_until_processed(cluster, topology)
    keys = [key for key, _ in run.entries("table")]
    assert sorted(keys) == sorted({sale.shop for sale in SALES})


def test_a_key_that_cannot_be_stored_is_refused(cluster: SimCluster, tmp_path: Path) -> None:
    topology, sales = declare_sales()
    sales.group_by("shop").process(last, state=SqliteState(tmp_path / "last.db"))
    run = run_until_processed(cluster, topology)
    with pytest.raises(ClusterError, match="cannot be a key of 'last'"):
        run.query("last", 1j)


def keep_row(sale: Sale, state: KeyState[int]) -> None:
    state.value = sale.amount


BATCH_STATES: dict[str, Callable[[Any], object]] = {
    "totals": lambda rows: rows.aggregate(count(), state=MemoryState(), name="kept"),
    "windows": lambda rows: rows.window(
        tumbling(count=5), count(), state=MemoryState(), name="kept"
    ),
    "processes": lambda rows: rows.process(keep_row, state=MemoryState(), name="kept"),
    "tables": lambda rows: rows.table(state=MemoryState(), name="kept"),
}


@pytest.mark.parametrize("declare", BATCH_STATES.values(), ids=BATCH_STATES)
def test_states_of_batches_are_read_elsewhere(declare: Callable[[Any], object]) -> None:
    topology = Topology("t")
    rows = batches(topology, "rows", FixedBatchSpout(SALES, 10, type=Sale), store=InMemory())
    declare(rows.group_by("shop"))
    run = SimCluster(1).submit(topology.graph())
    (id,) = (bolt.id for bolt in topology.graph().bolts if bolt.id not in ("rows", "$acker"))
    for ask in (lambda: run.query(id, "a"), lambda: run.entries(id)):
        with pytest.raises(
            UnknownComponent, match="`sunshower state get FILE kept KEY`, or by SQL"
        ):
            ask()
    with pytest.raises(UnknownComponent, match="'rows' has no keyed state"):
        run.query("rows", "a")
