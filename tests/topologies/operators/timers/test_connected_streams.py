"""Several streams with one state of each key: typed records, timers, faults, and declarations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import pytest

from benchmarks.simulated.stage_chains import Row
from sunshower import KeyState, Records, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import RecordMismatch, TopologyError, UnknownField
from sunshower.simulation.cluster import SimRun
from sunshower.state import MemoryState
from sunshower.topologies.streams import Stream
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.event_time_swarm import (
    LATE,
    SETTINGS,
    Event,
    EventProgram,
    LogReader,
    run_program,
)
from tests.topologies.operators.windows.stage_swarm import Note, written


class Order(NamedTuple):
    order: int
    at: float
    item: str


@dataclass(frozen=True)
class Payment:
    id: int
    paid: float
    cents: int


class Refund(NamedTuple):
    order: int
    at: float
    parts: list[Payment]


class Bill(NamedTuple):
    order: int
    items: list[str]
    cents: int
    at: float


ORDERS = [Order(n, n * 10.0, "abc"[n % 3]) for n in range(20)]
PAYMENTS = [Payment(n, n * 10.0 + 3, 100 + n) for n in range(0, 20, 2)]
REFUNDS = [Refund(n, n * 10.0 + 5, [Payment(n, 0.0, 40)]) for n in range(0, 20, 4)]


def add(record: Order | Payment | Refund, state: KeyState[list[Any]]) -> Iterator[Bill]:
    items, cents = state.value or ([], 0)
    match record:
        case Order():
            items = [*items, record.item]
            state.timer = record.at + 6
        case Payment():
            cents += record.cents
        case Refund():
            cents -= sum(part.cents for part in record.parts)
    state.value = [items, cents]
    return iter(())


def bill(order: int, state: KeyState[list[Any]]) -> Iterator[Bill]:
    items, cents = state.value or ([], 0)
    yield Bill(order, items, cents, state.time)
    state.value = None


def rows(topology: Topology, stream: Stream[Any]) -> list[Any]:
    stream.shuffle().bolt("kept", Kept)
    (records,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    return sorted(records)


def sources(topology: Topology) -> tuple[Stream[Order], Stream[Payment], Stream[Refund]]:
    return (
        topology.spout("orders", Records(ORDERS, type=Order)),
        topology.spout("payments", Records(PAYMENTS, type=Payment)),
        topology.spout("refunds", Records(REFUNDS, type=Refund)),
    )


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("state", [None, MemoryState()])
def test_one_function_has_the_records_of_all_streams(tasks: int, state: Any) -> None:
    topology = Topology("bills")
    orders, payments, refunds = sources(topology)
    bills = (
        orders.group_by("order")
        .connect(payments.group_by("id"))
        .connect(refunds.group_by("order"))
        .process(
            add, on_timer=bill, event_time=["at", "paid", "at"], state=state, parallelism=tasks
        )
    )
    assert rows(topology, bills) == [
        (n, ["abc"[n % 3]], (n % 2 == 0) * (100 + n) - (n % 4 == 0) * 40, n * 10.0 + 6)
        for n in range(20)
    ]


def test_records_of_functions_and_several_fields_of_a_key() -> None:
    def paid(payment: Payment) -> Order:
        return Order(payment.id, payment.paid, "paid")

    def both(order: Order, seen: KeyState[int]) -> Iterator[tuple[int, str, int]]:
        seen.value = (seen.value or 0) + 1
        yield order.order, order.item, seen.value

    topology = Topology("orders")
    orders, payments, _ = sources(topology)
    grouped = orders.group_by("order", "item").connect(payments.map(paid).group_by("order", "item"))
    records = rows(topology, grouped.process(both, fields=("order", "item", "seen")))
    assert records == sorted(
        [(n, "abc"[n % 3], 1) for n in range(20)] + [(n, "paid", 1) for n in range(0, 20, 2)]
    )


# ---- faults --------------------------------------------------------------------------------------


class Even(NamedTuple):
    key: int
    at: Any
    number: int


@dataclass
class Odd:
    name: int
    when: Any
    numbers: list[int]


def even(event: Event) -> Even:
    return Even(event.number % 3, event.at, event.number)


def relay(event: Event) -> Odd:
    return Odd(event.number % 3, event.at, [event.number])


class Gather:
    """Gathers the numbers of each four seconds of both streams, until a timer at their end."""

    def __call__(self, record: Even | Odd, state: KeyState[Any]) -> Iterator[Row]:
        at = record.at if isinstance(record, Even) else record.when
        more = [record.number] if isinstance(record, Even) else record.numbers
        numbers, end = dict(state.value or ()), (at // 4 + 1) * 4
        numbers[end] = sorted({*numbers.get(end, ()), *more})
        state.value = [[*entry] for entry in numbers.items()]
        state.timers.add(end)
        return iter(())

    def on_timer(self, key: int, state: KeyState[Any]) -> Iterator[Row]:
        numbers = dict(state.value or ())
        if (ids := numbers.pop(state.time, None)) is not None:
            yield Row(key, state.time, tuple(ids))
        state.value = [[*entry] for entry in numbers.items()] or None


def other_number(run: SimRun, draw: Random) -> None:
    """Give the process another number of tasks."""
    run.rebalance(tasks={"gather": draw.randint(1, 3)}, wait_s=draw.choice((0.0, 5.0)))


class ConnectedProgram(EventProgram):
    """Records of two types, from one log each or from one log, whose timers fire together."""

    faults: Mapping[str, Any] = {"other number": other_number, **EventProgram.faults}

    def topology(self) -> Topology:
        draw, topology = self.draw, Topology("connected", spout_pending=64, **SETTINGS)
        spouts = [
            topology.spout(
                f"in-{n}",
                LogReader(log, draw.choice((1, 4, 50))),
                parallelism=tasks,
                event_time="at",
            )
            for n, (log, tasks) in enumerate(zip(self.logs, self.tasks, strict=True))
        ]
        evens, odds = spouts[0].map(even), spouts[-1].map(relay)
        if len(spouts) == 1:
            evens = spouts[0].filter(lambda event: event.number % 2 == 0).map(even)
            odds = spouts[0].filter(lambda event: event.number % 2 == 1).map(relay)
        gather = Gather()
        gathered = (
            evens.group_by("key")
            .connect(odds.group_by("name"))
            .process(
                gather,
                on_timer=gather.on_timer,
                event_time=["at", "when"],
                late=LATE,
                unit="s",
                state=MemoryState(),
                parallelism=draw.randint(1, 3),
                name="gather",
            )
        )
        gathered.shuffle().bolt("note", Note("row"))
        return topology

    def expected(self) -> dict[tuple[int, Any], set[int]]:
        ids: defaultdict[tuple[int, Any], set[int]] = defaultdict(set)
        for log in self.logs:
            for event in (event for part in log.partitions for event in part):
                if event.number in self.on_time:
                    ids[event.number % 3, (event.at // 4 + 1) * 4].add(event.number)
        return dict(ids)


@seeds(500, kinds=4)
def test_no_record_of_two_streams_is_missing_from_a_timer(seed: int) -> None:
    program = ConnectedProgram(seed)
    run = run_program(program)
    assert written(run, "row", program.too_old) == program.expected(), f"seed {seed}"


# ---- wrong declarations --------------------------------------------------------------------------


def of_orders(order: Order, state: KeyState[int]) -> None: ...


def of_both(record: Order | Payment, state: KeyState[int]) -> None: ...


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        (
            lambda o, p: o.group_by("order").connect(p.group_by("id")).process(of_orders),
            RecordMismatch,
            r"it reads Order, but the stream carries Order\(.*\) or Payment\(id, paid, cents\)",
        ),
        (
            lambda o, p: o.group_by("order").connect(p),
            TopologyError,
            "is no stream grouped by its key",
        ),
        (
            lambda o, p: o.group_by("order", "item").connect(p.group_by("id")).process(of_both),
            TopologyError,
            "not the same number of fields",
        ),
        (
            lambda o, p: o.group_by("item").connect(p.group_by("id")).process(of_both),
            RecordMismatch,
            "no value of one equals one of the other",
        ),
        (
            lambda o, p: (
                o.group_by("order").connect(p.project("id").group_by("id")).process(of_both)
            ),
            TopologyError,
            "carries plain tuples",
        ),
        (
            lambda o, p: (
                o.group_by("order")
                .connect(p.group_by("id"))
                .process(of_both, on_timer=bill, event_time="at")
            ),
            UnknownField,
            "no field 'at'",
        ),
        (
            lambda o, p: (
                o.group_by("order")
                .connect(p.group_by("id"))
                .process(of_both, on_timer=bill, event_time=["at"])
            ),
            TopologyError,
            "event_time has 1 fields for 2 streams",
        ),
    ],
)
def test_what_cannot_be_connected_is_refused(
    declare: Callable[..., Any], error: type[Exception], message: str
) -> None:
    orders, payments, _ = sources(Topology("orders"))
    with pytest.raises(error, match=message):
        declare(orders, payments)
