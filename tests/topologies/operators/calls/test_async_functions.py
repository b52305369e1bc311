"""`async def` functions as operators of streams and of batches, and as bolts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sunshower import (
    BatchBolt,
    Bolt,
    Cause,
    Context,
    KeyState,
    Records,
    Retry,
    Topology,
    asynchronous,
    batch,
    count,
    reduce,
    run_inline,
)
from sunshower.clock import ManualClock
from sunshower.errors import ConfigError, TopologyError, TopologyFailed
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from tests.seeds import seeds
from tests.topologies.operators.kinds import SALES, AnyStream, Kept, Run, Sale, Source

SLOW = Sale("a", 60)


async def doubled(sale: Sale) -> Sale:
    await asyncio.sleep(sale.amount % 7 / 100)
    return Sale(sale.shop, sale.amount * 2)


async def in_a_list(sale: Sale) -> list[Sale]:
    await asyncio.sleep(sale.amount % 5 / 100)
    return [sale, sale]


async def generated(sale: Sale) -> AsyncIterator[Sale]:
    for _ in range(2):
        await asyncio.sleep(0.001)
        yield sale


async def is_a(sale: Sale) -> bool:
    await asyncio.sleep(0.001)
    return sale.shop == "a"


TWICE = [sale for sale in SALES for _ in range(2)]


@pytest.mark.parametrize(
    ("assemble", "expected"),
    [
        (lambda s: s.map(doubled), [Sale(s, n * 2) for s, n in SALES]),
        (lambda s: s.flat_map(in_a_list), TWICE),
        (lambda s: s.flat_map(generated), TWICE),
        (lambda s: s.filter(is_a), [sale for sale in SALES if sale.shop == "a"]),
        (lambda s: s.flat_map(in_a_list).map(doubled), [Sale(s, n * 2) for s, n in TWICE]),
        (
            lambda s: s.map(lambda sale: sale, fields=Sale).filter(is_a).project("amount"),
            [(n,) for s, n in SALES if s == "a"],
        ),
    ],
)
def test_an_async_function_computes_what_a_plain_one_does_in_the_same_order(
    run: Run, assemble: Callable[[AnyStream], AnyStream], expected: list[Any]
) -> None:
    assert run(lambda sales: [assemble(sales)]) == [expected]


def test_async_functions_before_and_after_a_branch(run: Run) -> None:
    seen: list[Sale] = []

    async def look(sale: Sale) -> None:
        await asyncio.sleep(0)
        seen.append(sale)

    def assemble(sales: AnyStream) -> list[AnyStream]:
        few, _ = sales.map(doubled).branch(lambda sale: sale.amount < 100)
        return [few.peek(look)]

    (rows,) = run(assemble)
    assert sorted(rows) == sorted(seen) == sorted(Sale(s, n * 2) for s, n in SALES[:50])


def test_the_number_of_concurrent_calls_is_limited(run: Run) -> None:
    running, max_running = 0, 0

    @asynchronous(concurrency=20)
    async def call(sale: Sale) -> None:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        await asyncio.sleep(0.01)
        running -= 1

    (rows,) = run(lambda sales: [sales.peek(call)])
    assert (rows, running, max_running) == (SALES, 0, 20)


def test_calls_wait_concurrently(run: Run) -> None:
    clock = ManualClock()
    topology = Topology("calls")

    @asynchronous(concurrency=30)
    async def call(sale: Sale) -> None:
        await asyncio.sleep(0.01)

    topology.spout("sales", Records(SALES, type=Sale)).peek(call)
    run_inline(topology.graph(), clock=clock)
    assert 0.04 <= clock.now() < 0.1  # 120 calls of 0.01 s


class Client:
    """A callable object with a connection, which belongs to an event loop."""

    events: ClassVar[list[str]] = []

    async def prepare(self, context: Context) -> None:
        self.loop = asyncio.get_running_loop()
        self.left = asyncio.create_task(self.keep_alive())

    async def keep_alive(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append("cancelled")

    @asynchronous(concurrency=50)
    async def __call__(self, sale: Sale) -> Sale:
        assert asyncio.get_running_loop() is self.loop
        return sale

    async def cleanup(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.events.append("closed")


def test_prepare_calls_and_cleanup_share_an_event_loop(run: Run) -> None:
    Client.events.clear()
    (rows,) = run(lambda sales: [sales.map(Client(), fields=Sale).filter(is_a).map(doubled)])
    assert len(rows) == 40
    assert Client.events == ["closed", "cancelled"]


# ---- within a running event loop, as in a notebook -----------------------------------------------


async def tripled(sale: Sale) -> Sale:
    await asyncio.sleep(0)
    return Sale(sale.shop, sale.amount * 3)


class NoClient:
    async def prepare(self, context: Context) -> None:
        raise TopologyError("no client")

    async def __call__(self, sale: Sale) -> None:
        """Never called."""


async def within(call: Callable[[], Any]) -> Any:
    """Call a function while other coroutines wait, and let them go on afterwards."""
    async with asyncio.TaskGroup() as others:
        waiting = others.create_task(asyncio.sleep(0.001, "went on"))
        await asyncio.sleep(0)
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        result = call()
        assert (asyncio.current_task(), asyncio.get_running_loop()) == (task, loop)
    assert waiting.result() == "went on"
    async with asyncio.timeout(60):
        await asyncio.sleep(0)
    return result


def test_async_functions_run_within_a_running_loop(run: Run) -> None:
    Client.events.clear()

    def assemble(sales: AnyStream) -> list[AnyStream]:
        return [sales.map(Client(), fields=Sale).flat_map(generated).filter(is_a)]

    (rows,) = asyncio.run(within(lambda: run(assemble)))
    assert sorted(rows) == sorted(sale for sale in TWICE if sale.shop == "a")
    assert Client.events == ["closed", "cancelled"]


@pytest.mark.parametrize("function", [asynchronous(ordered=False)(tripled), tripled])
def test_async_bolts_run_within_a_running_loop(function: Any) -> None:
    topology = Topology("notebook")
    received: list[Sale] = []

    async def keep(sale: Sale) -> None:
        await asyncio.sleep(0)
        received.append(sale)

    sales = topology.spout("sales", Records(SALES, type=Sale))
    sales.map(function).shuffle().bolt("keep", keep)
    deployment = asyncio.run(within(lambda: run_inline(topology.graph())))
    assert deployment.snapshot.component("sales").acked == len(SALES)
    assert sorted(received) == sorted(Sale(shop, amount * 3) for shop, amount in SALES)


def test_an_error_leaves_the_running_loop_as_it_was() -> None:
    topology = Topology("notebook")
    topology.spout("sales", Records(SALES[:1], type=Sale)).peek(NoClient())

    def refused() -> None:
        with pytest.raises(TopologyFailed, match="no client"):
            run_inline(topology.graph())

    asyncio.run(within(refused))


def test_a_simulation_runs_within_a_running_loop() -> None:
    topology = Topology("notebook")
    topology.spout("sales", Records(SALES, type=Sale)).map(doubled).filter(is_a)

    def simulate() -> int:
        with SimCluster(1) as cluster:
            current = cluster.submit(topology.graph())
            assert current.wait(60)
            return current.snapshot().component("sales").acked

    assert asyncio.run(within(simulate)) == len(SALES)


# ---- failures of ordinary streams ---------------------------------------------------------------


@asynchronous(timeout_s=2)
async def hangs(sale: Sale) -> Sale:
    await asyncio.sleep(3600 if sale == SLOW else 0.001)
    return sale


async def raises(sale: Sale) -> Sale:
    await asyncio.sleep(0.001)
    if sale == SLOW:
        raise ValueError("poison")
    return sale


async def cancels_itself(sale: Sale) -> Sale:
    if sale == SLOW:
        raise asyncio.CancelledError
    return sale


async def into_a_list(sale: Sale) -> list[Sale]:
    return [await hangs(sale)]


@pytest.mark.parametrize("function", [hangs, raises, cancels_itself])
@pytest.mark.parametrize("as_bolt", [False, True])
def test_a_call_fails_its_own_record_alone(function: Any, as_bolt: bool, tmp_path: Path) -> None:
    calls: list[Sale] = []

    async def called(sale: Sale) -> list[Sale]:
        calls.append(sale)
        return [await function(sale)]

    topology = Topology("fails")
    limited = asynchronous(timeout_s=2)(called)
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    sales = topology.spout("sales", Records(SALES, type=Sale), retry=retry)
    outputs = sales.shuffle().bolt("it", limited) if as_bolt else sales.flat_map(limited)
    outputs.shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert sorted(done.results["kept"][0]) == sorted(sale for sale in SALES if sale != SLOW)
    assert (len(calls), calls.count(SLOW)) == (len(SALES) + 2, 3)
    assert done.snapshot.component("sales").causes == {Cause.EXCEPTION.value: 3}
    (line,) = (tmp_path / "dead.jsonl").read_text().splitlines()
    letter = json.loads(line)
    assert letter["record"] == SLOW._asdict()
    messages = {
        hangs: "TimeoutError: called has not returned after 2 s; @asynchronous(timeout_s=…)",
        raises: "ValueError: poison",
        cancels_itself: "asyncio.exceptions.CancelledError",
    }
    assert messages[function] in line


def test_a_bolt_is_an_async_generator_or_a_sink() -> None:
    stored: list[Sale] = []

    async def store(sale: Sale) -> None:
        await asyncio.sleep(0.001)
        stored.append(sale)

    topology = Topology("bolts")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    sales.shuffle().bolt("twice", generated, parallelism=2).shuffle().bolt("store", store)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert sorted(stored) == sorted(TWICE)
    assert done.snapshot.component("sales").acked == len(SALES)


def numbered(sale: Sale, seen: KeyState[int]) -> Iterator[Sale]:
    seen.value = (seen.value or 0) + 1
    yield Sale(sale.shop, seen.value)


def test_an_async_function_follows_a_keyed_process_in_one_stage() -> None:
    topology = Topology("keyed")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    state = MemoryState()
    outputs = sales.group_by("shop").process(numbered, state=state).map(doubled)
    outputs.shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert sorted(rows) == [(shop, n * 2) for shop in "abc" for n in range(1, 41)]


# ---- in the simulator ---------------------------------------------------------------------------


@seeds(20, kinds=2)
def test_time_is_virtual_in_the_simulator_and_nothing_is_lost(seed: int) -> None:
    state = MemoryState()
    topology = Topology("virtual", workers=2)

    async def fetch(sale: Sale) -> Sale:
        await asyncio.sleep(5)
        return sale

    sales = topology.spout("sales", Records(SALES, type=Sale))
    seen = sales.shuffle().stage("fetch", parallelism=2).map(fetch)
    seen.group_by("amount").aggregate(count(), state=state, name="seen")
    with SimCluster(seed, latency_s=0.005) as cluster:
        current = cluster.submit(topology.graph())
        if kills := not current.wait(2):
            current.kill_worker(seed % 2)
        assert current.wait(600)
    assert kills
    assert {key for key, _ in state.items()} == {sale.amount for sale in SALES}


@pytest.mark.parametrize(
    "wait",
    [
        lambda: asyncio.to_thread(len, ""),
        lambda: asyncio.open_connection("127.0.0.1", 9),
    ],
)
def test_waiting_for_threads_or_sockets_is_refused_in_virtual_time(
    wait: Any, tmp_path: Path
) -> None:
    async def call(sale: Sale) -> None:
        await wait()

    topology = Topology("outside")
    retry = Retry(attempts=1, dead_letters=tmp_path / "dead.jsonl")
    topology.spout("sales", Records(SALES[:1], type=Sale), retry=retry).peek(call)
    run_inline(topology.graph(), clock=ManualClock())
    assert "only asyncio.sleep and waiting for other" in (tmp_path / "dead.jsonl").read_text()


# ---- wrong declarations -------------------------------------------------------------------------


class AsyncMethod(Bolt[Sale, Sale]):
    async def process(self, record: Sale) -> list[Sale]:  # type: ignore[override]
        return [record]


class AsyncTableMethod(BatchBolt[Sale, Sale]):
    async def process(self, table: Any) -> None:  # type: ignore[override]
        """Do nothing."""


async def of_tables(table: Any) -> None:
    """Do nothing."""


async def with_state(state: Any, sales: list[Sale]) -> None:
    """Do nothing."""


def plain(sale: Sale) -> Iterator[Sale]:
    yield sale


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (lambda s: s.branch(is_a), TopologyError, "it is asynchronous; put it into a .map before"),
        (
            lambda s: s.flat_map(batch(of_tables), fields=Sale),  # type: ignore[arg-type]
            TopologyError,
            "a @batch function is a plain one",
        ),
        (
            lambda s: s.group_by("shop").aggregate(reduce(with_state, 0)),
            TopologyError,
            "the function is asynchronous; put it into a .map before",
        ),
        (lambda _: asynchronous(concurrency=0), ConfigError, "asynchronous: concurrency"),
        (lambda _: asynchronous(timeout_s=-1), ConfigError, "asynchronous: timeout_s"),
        (lambda _: asynchronous(ordered=2), ConfigError, "asynchronous: ordered"),
        (lambda _: asynchronous()(plain), ConfigError, "is no `async def` function"),
    ],
)
def test_wrong_declarations_are_refused(
    source: Source, assemble: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        assemble(source(Topology("wrong"), SALES))


@asynchronous(timeout_s=60)
async def may_take_a_minute(sale: Sale) -> list[Sale]:
    return [sale]


@pytest.mark.parametrize(
    "assemble",
    [
        lambda s: s.shuffle().bolt("it", may_take_a_minute),
        lambda s: s.shuffle().stage("it").flat_map(may_take_a_minute),
        lambda s: (
            s.group_by("shop")
            .aggregate(count(), fields=Sale, name="it")
            .flat_map(may_take_a_minute)
        ),
    ],
)
def test_an_ordered_call_that_may_block_its_task_for_too_long_is_refused(
    assemble: Any,
) -> None:
    topology = Topology("long")
    assemble(topology.spout("sales", Records(SALES, type=Sale))).shuffle().bolt("kept", Kept)
    with pytest.raises(TopologyError, match=r"bolt 'it': its task waits .* for up to 60 s"):
        topology.graph()


def test_a_batch_whose_calls_may_block_its_task_for_too_long_is_refused(
    source: Source,
) -> None:
    topology = Topology("long")
    source(topology, SALES).flat_map(may_take_a_minute).shuffle()
    with pytest.raises(TopologyError, match=r"its task waits for a call for up to 60 s"):
        topology.graph()


@pytest.mark.parametrize("bolt", [AsyncMethod, AsyncTableMethod])
def test_async_methods_of_bolts_are_refused(bolt: Any) -> None:
    sales = Topology("wrong").spout("sales", Records(SALES, type=Sale))
    with pytest.raises(TopologyError, match="process is asynchronous; give an `async def`"):
        sales.shuffle().bolt("it", bolt)
