"""With `asynchronous(ordered=False)` a slow call delays no other record, and none is lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sunshower import (
    Cause,
    Context,
    KeyState,
    Records,
    Retry,
    Topology,
    Unavailable,
    asynchronous,
    count,
    run_inline,
)
from sunshower.clock import ManualClock
from sunshower.errors import TopologyError
from sunshower.runtime.events.metrics import Snapshot
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from tests.seeds import seeds
from tests.topologies.operators.kinds import SALES, Kept, Sale

SLOW, SLOW_S = Sale("a", 60), 5
REST = [sale for sale in SALES if sale != SLOW]


@asynchronous(ordered=False, timeout_s=60)
async def slow_once(sale: Sale) -> Sale:
    await asyncio.sleep(SLOW_S if sale == SLOW else 0.01)
    return sale


@asynchronous(ordered=True, timeout_s=50)
async def in_order(sale: Sale) -> Sale:
    return await slow_once(sale)


async def listed(sale: Sale) -> list[Sale]:
    return [await slow_once(sale)]


class Times:
    """Stores when each record arrives, for all tasks together."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.seen: list[tuple[Sale, float]] = []

    def __deepcopy__(self, memo: object) -> Times:
        return self

    def __call__(self, sale: Sale) -> None:
        self.seen.append((sale, self.clock.now()))


def arrivals(function: Any, *, as_bolt: bool = False) -> list[tuple[Sale, float]]:
    clock = ManualClock()
    times, topology = Times(clock), Topology("calls")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    outputs = sales.shuffle().bolt("it", function) if as_bolt else sales.map(function)
    outputs.shuffle().bolt("seen", times)
    done = run_inline(topology.graph(), clock=clock)
    assert done.snapshot.component("sales").acked == len(SALES)
    return times.seen


@pytest.mark.parametrize("as_bolt", [False, True])
def test_a_slow_call_delays_no_other_record(as_bolt: bool) -> None:
    function = asynchronous(ordered=False, timeout_s=60)(listed) if as_bolt else slow_once
    *others, (last, at_s) = arrivals(function, as_bolt=as_bolt)
    assert (last, sorted(sale for sale, _ in others)) == (SLOW, sorted(REST))
    assert max(time for _, time in others) < 2
    assert SLOW_S <= at_s < SLOW_S + 2


def test_an_ordered_slow_call_delays_the_records_behind_it() -> None:
    seen = arrivals(in_order)
    assert [sale for sale, _ in seen] == SALES
    assert all(time >= SLOW_S for _, time in seen[60:])


def test_the_number_of_concurrent_calls_is_limited() -> None:
    running, max_running = 0, 0

    @asynchronous(ordered=False, concurrency=7)
    async def call(sale: Sale) -> Sale:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        await asyncio.sleep(sale.amount % 3 / 4)
        running -= 1
        return sale

    assert len(arrivals(call)) == len(SALES)
    assert (running, max_running) == (0, 7)


def test_a_call_fails_its_own_record_alone(tmp_path: Path) -> None:
    calls: list[Sale] = []

    @asynchronous(ordered=False, timeout_s=2)
    async def call(sale: Sale) -> Sale:
        calls.append(sale)
        await asyncio.sleep(3600 if sale == SLOW else 0.01)
        if sale.amount == 61:
            raise ValueError("poison")
        return sale

    topology = Topology("fails")
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    sales = topology.spout("sales", Records(SALES, type=Sale), retry=retry)
    sales.map(call).shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert sorted(done.results["kept"][0]) == sorted(s for s in REST if s.amount != 61)
    assert len(calls) == len(SALES) + 2 * 2
    assert done.snapshot.component("sales").causes == {Cause.EXCEPTION.value: 6}
    letters = map(json.loads, (tmp_path / "dead.jsonl").read_text().splitlines())
    assert {letter["record"]["amount"]: letter["reason"] for letter in letters}.keys() == {60, 61}


def test_an_outage_of_the_service_pauses_the_task_and_charges_no_attempt() -> None:
    clock = ManualClock()

    @asynchronous(ordered=False)
    async def call(sale: Sale) -> Sale:
        await asyncio.sleep(0.01)
        if 0.02 < clock.now() < 5:
            raise Unavailable("the service")
        return sale

    topology = Topology("outage")
    sales = topology.spout("sales", Records(SALES, type=Sale), retry=Retry(attempts=1))
    sales.map(call).shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=clock)
    assert {*done.results["kept"][0]} == {*SALES}
    assert {*done.snapshot.component("sales").causes} == {Cause.UNAVAILABLE.value}


def run_with_outage(call: Any, **settings: Any) -> Snapshot:
    """Run while a service is unavailable for some seconds. Assert that no attempt is charged."""
    topology = Topology("outage", **settings)
    sales = topology.spout("sales", Records(SALES, type=Sale), retry=Retry(attempts=1))
    sales.map(call, fields=Sale).shuffle().bolt("kept", Kept)
    with SimCluster(1) as cluster:
        current = cluster.submit(topology.graph())
        assert current.wait(600)
        snapshot = current.snapshot()
    assert snapshot.component("sales").acked == len(SALES)
    assert {*snapshot.component("sales").causes} == {Cause.UNAVAILABLE.value}
    return snapshot


def test_a_call_that_ends_an_outage_may_take_longer_than_a_plain_call() -> None:
    """While the task tries one input at a time, it does not block in the call."""
    begun: list[float] = []

    @asynchronous(ordered=False)
    async def call(sale: Sale) -> Sale:
        begun.append(asyncio.get_running_loop().time())
        since_s = begun[-1] - begun[0]
        if 0.2 < since_s < 2:
            raise Unavailable("the service")
        await asyncio.sleep(5 if 2 <= since_s < 7 else 0.1)
        return sale

    assert run_with_outage(call, block_max_s=2).restarts == 0


def test_an_object_whose_connection_stays_broken_is_created_again() -> None:
    instances: list[Call] = []
    ends: list[int] = []

    class Call:
        async def prepare(self, context: Context) -> None:
            self.number, self.broken = len(instances), False
            self.since_s = asyncio.get_running_loop().time()
            instances.append(self)

        @asynchronous(ordered=False)
        async def __call__(self, sale: Sale) -> Sale:
            await asyncio.sleep(0.1)
            now = asyncio.get_running_loop().time()
            self.broken |= 0.2 < now - instances[0].since_s < 4
            if self.broken:
                raise Unavailable("the service")
            return sale

        async def cleanup(self) -> None:
            ends.append(self.number)

    snapshot = run_with_outage(Call())
    assert "was created again" in str(
        next(t for t in snapshot.tasks() if t.health.last).health.last[-1]
    )
    assert sorted(ends) == list(range(len(instances)))


def test_records_of_a_shared_batch_are_acked_together() -> None:
    topology = Topology("shared")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    totals = sales.group_by("shop").aggregate(count(), fields=Sale)
    totals.local_or_shuffle().stage("calls").map(slow_once).shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    (rows,) = done.results["kept"]
    assert {("a", 40), ("b", 40), ("c", 40)} <= {*rows}
    assert done.snapshot.component("sales").acked == len(SALES)


# ---- in the simulator ---------------------------------------------------------------------------


def counted(topology: Topology, fetch: Any) -> MemoryState:
    """The state that counts what two tasks have fetched."""
    state = MemoryState()
    sales = topology.spout("sales", Records(SALES, type=Sale))
    seen = sales.shuffle().stage("fetch", parallelism=2).map(fetch)
    seen.group_by("amount").aggregate(count(), state=state, name="seen")
    return state


def slow_for_some(seconds: float, digit: int) -> Any:
    @asynchronous(ordered=False, concurrency=10)
    async def fetch(sale: Sale) -> Sale:
        await asyncio.sleep(seconds if sale.amount % 10 == digit else 0.1)
        return sale

    return fetch


@seeds(8, kinds=2)
def test_a_kill_loses_nothing(seed: int) -> None:
    topology = Topology("kills", workers=2)
    state = counted(topology, slow_for_some(5, seed % 10))
    with SimCluster(seed, latency_s=0.005) as cluster:
        current = cluster.submit(topology.graph())
        if kills := not current.wait(0.5 + seed / 4):
            current.kill_worker(seed % 2)
        assert current.wait(600)
    assert kills
    assert {key for key, _ in state.items()} == {sale.amount for sale in SALES}


@seeds(4, kinds=2)
def test_a_rebalance_loses_nothing(seed: int) -> None:
    topology = Topology("moves", workers=2)
    state = counted(topology, slow_for_some(2, seed))
    with SimCluster(seed, latency_s=0.005) as cluster:
        current = cluster.submit(topology.graph())
        assert not current.wait(1)
        current.rebalance(workers=3 - seed % 2 * 2)
        assert current.wait(600)
    assert {key for key, _ in state.items()} == {sale.amount for sale in SALES}


# ---- wrong declarations -------------------------------------------------------------------------


def is_any(sale: Sale) -> bool:
    return True


def numbered(sale: Sale, seen: KeyState[int]) -> list[Sale]:
    return [sale]


@pytest.mark.parametrize(
    "assemble",
    [
        lambda s: s.group_by("shop").aggregate(count(), fields=Sale).map(slow_once),
        lambda s: s.group_by("shop").process(numbered).map(slow_once),
        lambda s: s.shuffle().stage("two").branch(is_any)[0].map(slow_once),
    ],
)
def test_a_stage_whose_calls_would_wait_for_each_other_is_refused(assemble: Any) -> None:
    topology = Topology("wrong")
    assemble(topology.spout("sales", Records(SALES, type=Sale))).shuffle().bolt("kept", Kept)
    with pytest.raises(TopologyError, match=r"slow_once is asynchronous\(ordered=False\), so it"):
        topology.graph()
