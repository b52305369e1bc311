"""Tests of the number of entries of a state in the snapshot, `status`, its JSON and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from sunshower import Bolt, KeyState, KeyValueState, Records, Topology, count
from sunshower.cli.metrics import TopologyCollector
from sunshower.cli.statistics import status_fields, tasks_table
from sunshower.clock import ManualClock
from sunshower.errors import StoreUnreachable
from sunshower.runtime.control.measures import Observed
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.tasks.bolts.bolt_task import StateCount
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import FixedBatchSpout, InMemory, batches

KEYS = 23


class Sale(NamedTuple):
    shop: str
    at: float


def endless() -> Iterator[Sale | None]:
    yield from (Sale(f"shop-{n % KEYS}", float(n)) for n in range(5 * KEYS))
    while True:
        yield None


def last(sale: Sale, state: KeyState[Sale]) -> None:
    state.value = sale


class Last(Bolt[Sale, None]):
    state: KeyValueState[str, Sale]

    def process(self, sale: Sale) -> None:
        self.state[sale.shop] = sale


def totals(sales: Any, state: Any) -> None:
    sales.group_by("shop").aggregate(count(), state=state, parallelism=2, name="kept")


def processed(sales: Any, state: Any) -> None:
    sales.group_by("shop").process(last, state=state, parallelism=2, name="kept")


def bolt(sales: Any, state: Any) -> None:
    sales.fields("shop").bolt("kept", Last, 2, state=state)


def settled(topology: Topology, entries: int | None, spout: str = "sales") -> Overview:
    """The overview of a run once its 115 sales are acked and `kept` has `entries` entries."""
    with SimCluster(seed=1, latency_s=0.001) as cluster:
        run = cluster.submit(topology.graph())
        for _ in range(2_000):
            run.wait(0.05)
            overview = run.overview()
            is_acked = overview.snapshot.component(spout).acked >= 5 * KEYS
            if is_acked and overview.snapshot.state_entries("kept") == entries:
                return overview
        pytest.fail(f"{overview.snapshot.state_entries('kept')} entries, and not {entries}")


@pytest.mark.parametrize("keep", [totals, processed, bolt], ids=lambda declare: declare.__name__)
@pytest.mark.parametrize("place", ["in the task", "in memory", "in SQLite"])
def test_each_key_is_an_entry(keep: Callable[[Any, Any], None], place: str, tmp_path: Path) -> None:
    states = {"in memory": MemoryState(), "in SQLite": SqliteState(tmp_path / "kept.db")}
    topology = Topology("shops")
    keep(topology.spout("sales", Records(endless, type=Sale)), states.get(place))
    overview = settled(topology, KEYS)
    fields = status_fields(overview, 1.0)["components"]
    assert fields["kept"]["state_entries"] == KEYS
    assert sum(task["state_entries"] for task in fields["kept"]["tasks"]) == KEYS
    assert min(task["state_entries"] for task in fields["kept"]["tasks"]) > 0
    assert fields["sales"]["state_entries"] is None
    registry = CollectorRegistry()
    registry.register(TopologyCollector(lambda: [Observed("shops", overview)]))
    lines = generate_latest(registry).decode().splitlines()
    label = '{component="kept",topology="shops"}'
    assert f"sunshower_state_entries{label} {float(KEYS)}" in lines
    assert [line for line in lines if line.startswith("sunshower_state_entries{")] == [
        f"sunshower_state_entries{label} {float(KEYS)}"
    ]


@pytest.mark.parametrize("is_stored", [False, True])
def test_states_of_exactly_once_batches_have_entries(tmp_path: Path, is_stored: bool) -> None:
    state = SqliteState(tmp_path / "kept.db") if is_stored else MemoryState()
    sales = [Sale(f"shop-{n % KEYS}", float(n)) for n in range(5 * KEYS)]
    topology = Topology("shops")
    spout = FixedBatchSpout(sales, 10, type=Sale)
    sales_rows = batches(topology, "sales", spout, store=InMemory(), interval_s=0.2)
    sales_rows.group_by("shop").aggregate(count(), state=state, parallelism=2)
    largest = 0
    with SimCluster(seed=1, latency_s=0.001) as cluster:
        run = cluster.submit(topology.graph())
        while not run.wait(0.01):
            entries = (run.snapshot().state_entries(id) for id in topology.graph().components)
            largest = max(largest, sum(entry or 0 for entry in entries))
    assert largest == KEYS


def test_status_lists_the_entries_of_each_task_of_a_component_with_a_state() -> None:
    topology = Topology("shops")
    totals(topology.spout("sales", Records(endless, type=Sale)), None)
    overview = settled(topology, KEYS)
    screen = Console(width=160, record=True, file=StringIO())
    for id in ("kept", "sales"):
        component = overview.plan.graph.components[id]
        screen.print(tasks_table(overview.plan, overview.snapshot, component))
    text = screen.export_text()
    assert text.count("entries") == 1
    parts = [task.entries for task in overview.snapshot.tasks_of("kept")]
    assert all(f" {part}" in text for part in parts)


class SlowCount:
    """A bolt whose count takes `cost_s`."""

    def __init__(self, clock: ManualClock, cost_s: float) -> None:
        self.clock, self.cost_s, self.asked, self.is_unavailable = clock, cost_s, 0, False

    def __sunshower_state_entries__(self) -> int:
        self.asked += 1
        self.clock.advance(self.cost_s)
        if self.is_unavailable:
            raise StoreUnreachable("the file is away")
        return self.asked


def test_counting_takes_at_most_a_ten_thousandth_of_the_time() -> None:
    clock, count_of_state = ManualClock(), StateCount()
    bolt = SlowCount(clock, 0.01)
    assert count_of_state.of(bolt, clock) == 1
    clock.advance(99.0)
    assert count_of_state.of(bolt, clock) == 1
    clock.advance(1.1)
    assert count_of_state.of(bolt, clock) == 2
    free = SlowCount(clock, 0.0)
    assert [StateCount().of(free, clock) for _ in range(3)] == [1, 2, 3]


def test_while_the_store_is_unavailable_the_last_count_is_kept() -> None:
    clock, count_of_state = ManualClock(), StateCount()
    bolt = SlowCount(clock, 0.0)
    assert count_of_state.of(bolt, clock) == 1
    bolt.is_unavailable = True
    assert count_of_state.of(bolt, clock) == 1
    assert count_of_state.of(object(), clock) is None
