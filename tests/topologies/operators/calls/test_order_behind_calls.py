"""Steps behind an `async` step of their stage are called for one record at a time, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sunshower import Records, Retry, Topology, asynchronous, run_inline
from sunshower.clock import ManualClock
from tests.topologies.operators.kinds import SALES, AnyStream, Kept, Run, Sale

NUMBERS = [sale.amount for sale in SALES]
Make = Callable[[AnyStream, Callable[[Any], None]], AnyStream]


async def wait(sale: Sale) -> None:
    """Later records may end before earlier ones."""
    await asyncio.sleep(sale.amount * 37 % 11 / 100)


async def ask(sale: Sale) -> Sale:
    await wait(sale)
    return sale


async def twice(sale: Sale) -> list[Sale]:
    await wait(sale)
    return [sale, sale]


async def each(sale: Sale) -> AsyncIterator[Sale]:
    await wait(sale)
    yield sale
    await asyncio.sleep(sale.amount * 17 % 7 / 100)
    yield sale


async def is_even(sale: Sale) -> bool:
    await wait(sale)
    return sale.amount % 2 == 0


async def look(sale: Sale) -> None:
    await wait(sale)


def split(sale: Sale) -> list[Sale]:
    return [sale] * (sale.amount % 3)


class Notes:
    """A plain step of any kind: notes the numbers of its records, by the order of its calls."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def same(self, sale: Sale) -> Sale:
        self.numbers.append(sale.amount)
        return sale

    def flat(self, sale: Sale) -> list[Sale]:
        return [self.same(sale)]

    def is_kept(self, sale: Sale) -> bool:
        return bool(self.same(sale))

    def see(self, sale: Sale) -> None:
        self.same(sale)

    async def begin(self, sale: Sale) -> Sale:
        """An async step: its call begins here."""
        self.same(sale)
        await wait(sale)
        return sale


TWICE = [number for number in NUMBERS for _ in range(2)]
EVEN = [number for number in NUMBERS if not number % 2]
SPLIT = [number for number in NUMBERS for _ in range(number % 3)]


@pytest.mark.parametrize(
    ("assemble", "expected"),
    [
        (lambda s, n: s.map(ask).map(n.same), NUMBERS),
        (lambda s, n: s.map(ask).flat_map(n.flat), NUMBERS),
        (lambda s, n: s.map(ask).filter(n.is_kept), NUMBERS),
        (lambda s, n: s.map(ask).peek(n.see), NUMBERS),
        (lambda s, n: s.peek(look).map(n.same), NUMBERS),
        (lambda s, n: s.filter(is_even).map(n.same), EVEN),
        (lambda s, n: s.flat_map(twice).map(n.same), TWICE),
        (lambda s, n: s.flat_map(each).map(n.same), TWICE),
        (lambda s, n: s.flat_map(split).map(ask).map(n.same), SPLIT),
        (lambda s, n: s.flat_map(split).map(n.begin), SPLIT),
        (lambda s, n: s.map(ask).map(n.begin), NUMBERS),
        (lambda s, n: s.map(ask).flat_map(split).map(n.begin), SPLIT),
        (lambda s, n: s.flat_map(twice).filter(is_even).map(n.same).map(ask), sorted(EVEN * 2)),
        (lambda s, n: s.map(ask).map(lambda x: x, fields=Sale).map(ask).peek(n.see), NUMBERS),
    ],
)
def test_steps_behind_calls_are_called_in_the_order_of_the_inputs(
    run: Run, assemble: Any, expected: list[int]
) -> None:
    notes = Notes()
    (rows,) = run(lambda sales: [assemble(sales, notes)])
    assert notes.numbers == [row[1] for row in rows] == expected


class Delta:
    """The difference to the record before."""

    def __init__(self) -> None:
        self.last = -1

    def __call__(self, sale: Sale) -> Sale:
        before, self.last = self.last, sale.amount
        return Sale(sale.shop, sale.amount - before)


def test_an_object_with_a_state_gets_the_records_in_order(run: Run) -> None:
    (rows,) = run(lambda sales: [sales.map(ask).map(Delta()).filter(is_even).map(Delta())])
    assert rows == []  # all differences are 1, an odd number
    (rows,) = run(lambda sales: [sales.map(ask).map(Delta())])
    assert [row[1] for row in rows] == [1] * len(SALES)


def fails_at(*numbers: int) -> Callable[[Sale], Any]:
    """An async step that fails for the first record with each of these numbers."""
    left = {*numbers}

    async def fails(sale: Sale) -> Sale:
        await wait(sale)
        if sale.amount in left:
            left.remove(sale.amount)
            raise ValueError(f"no {sale.amount}")
        return sale

    return fails


@pytest.mark.parametrize("at", ["first call", "step between", "second call"])
def test_records_that_fail_delay_no_other_and_come_later(at: str, tmp_path: Path) -> None:
    failing, notes, left = [0, 1, 40, 119], Notes(), {0, 1, 40, 119}

    def between(sale: Sale) -> Sale:
        if at == "step between" and sale.amount in left:
            left.remove(sale.amount)
            raise ValueError("no")
        return sale

    topology = Topology("fails")
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    sales = topology.spout("sales", Records(SALES, type=Sale), retry=retry)
    first = sales.map(fails_at(*failing) if at == "first call" else ask)
    second = fails_at(*failing) if at == "second call" else ask
    first.map(between).map(second).map(notes.same).shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    good = [number for number in NUMBERS if number not in failing]
    assert [number for number in notes.numbers if number not in failing] == good
    assert sorted(notes.numbers) == NUMBERS, "each one once"
    assert sorted(row[1] for row in done.results["kept"][0]) == NUMBERS


def test_calls_of_two_steps_overlap() -> None:
    """A record's second call does not wait for the first calls of the records behind it."""
    running, overlaps = 0, 0

    async def first(sale: Sale) -> Sale:
        nonlocal running
        running += 1
        await asyncio.sleep(sale.amount / 100)
        running -= 1
        return sale

    async def second(sale: Sale) -> Sale:
        nonlocal overlaps
        overlaps += running > 0
        return sale

    topology = Topology("overlap")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    sales.map(first).map(second).shuffle().bolt("kept", Kept)
    run_inline(topology.graph(), clock=ManualClock())
    assert overlaps > len(SALES) / 2


def test_without_order_a_step_is_called_as_soon_as_the_call_before_it_has_ended() -> None:
    notes, ended = Notes(), list[int]()

    @asynchronous(ordered=False)
    async def later_first(sale: Sale) -> Sale:
        await asyncio.sleep((len(SALES) - sale.amount) / 100)
        ended.append(sale.amount)
        return sale

    topology = Topology("unordered")
    sales = topology.spout("sales", Records(SALES, type=Sale))
    sales.map(later_first).map(notes.same).shuffle().bolt("kept", Kept)
    run_inline(topology.graph(), clock=ManualClock())
    assert notes.numbers == ended != NUMBERS
