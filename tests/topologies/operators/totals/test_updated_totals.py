"""Aggregates of running totals: of the last row of each group, whatever comes between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import (
    Records,
    Spout,
    Topology,
    average,
    batch,
    collect,
    count,
    max_,
    min_,
    reduce,
    run_inline,
    sum_,
    top,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.components import Context
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import StateSlot
from sunshower.topologies.operators.states import is_own
from sunshower.topologies.operators.updates import (
    PartsOfUpdates,
    UpdatedTotals,
    moved_origins,
    totals_lineage,
)
from sunshower.topologies.streams import Stream
from tests.topologies.operators.kinds import Kept


class Bid(NamedTuple):
    item: str
    shop: str
    price: int


class Best(NamedTuple):
    item: str
    shop: str
    price: int


def bids_of(seed: int, size: int = 200) -> list[Bid]:
    draw = Random(seed)
    return [
        Bid(f"{draw.randrange(20)}", "abc"[draw.randrange(3)], draw.randrange(100))
        for _ in range(size)
    ]


BIDS = bids_of(1)
Rows = Sequence[tuple[Any, ...]]


def run(
    assemble: Callable[[Stream[Any]], Any],
    bids: Sequence[Bid] = BIDS,
    seed: int = 0,
    spouts: int = 1,
) -> list[tuple[Any, ...]]:
    """All rows that a stream of the bids emits."""
    topology = Topology("bids")
    source = topology.spout("bids", Records(bids, type=Bid), parallelism=spouts)
    assemble(source).global_().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), seed=seed).results["kept"]
    return list(map(tuple, rows))


def last(rows: Rows, width: int = 1) -> dict[Any, Any]:
    """The last row of each group."""
    latest = {row[:width]: row[width:] for row in rows}
    return {key[0] if width == 1 else key: row for key, row in latest.items()}


def best(bids: Sequence[Bid] = BIDS) -> list[Best]:
    """The last rows of the first aggregate."""
    prices: dict[tuple[str, str], int] = {}
    for item, shop, price in bids:
        prices[item, shop] = max(price, prices.get((item, shop), price))
    return [Best(*key, price) for key, price in prices.items()]


def totals(source: Stream[Any], p: int = 1) -> Stream[Any]:
    return source.group_by("item", "shop").aggregate(max_("price"), fields=Best, parallelism=p)


def by_shop(rows: Sequence[Best], value: Callable[[list[int]], Any]) -> dict[str, Any]:
    shops: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        shops[row.shop].append(row.price)
    return {shop: (value(prices),) for shop, prices in shops.items()}


def later(value: int, row: Best) -> int:
    return value + row.price


def best_three(prices: list[int]) -> list[int]:
    return sorted(prices, reverse=True)[:3]


AGGREGATORS: dict[str, tuple[Callable[[], AnyAggregator], Callable[[list[int]], Any]]] = {
    "count": (count, len),
    "sum": (lambda: sum_("price"), sum),
    "min": (lambda: min_("price"), min),
    "max": (lambda: max_("price"), max),
    "average": (lambda: average("price"), lambda prices: sum(prices) / len(prices)),
    "collect": (lambda: collect("price"), sorted),
    "top": (lambda: top(3, by="price"), best_three),
    "reduce": (lambda: reduce(later, 0), sum),
}


def plain(name: str, value: Any) -> Any:
    if name == "collect":
        return (sorted(value[0]),)
    return ([row[2] for row in value[0]],) if name == "top" else value


@pytest.mark.parametrize("name", AGGREGATORS)
@pytest.mark.parametrize("p", [1, 3])
def test_every_aggregate_of_totals_is_that_of_the_last_rows(name: str, p: int) -> None:
    aggregator, expected = AGGREGATORS[name]
    rows = run(lambda s: totals(s, p).group_by("shop").aggregate(aggregator(), parallelism=p))
    values = {shop: plain(name, value) for shop, value in last(rows).items()}
    assert values == by_shop(best(), expected)


def test_several_aggregates_and_one_without_groups() -> None:
    rows = run(lambda s: totals(s, 2).aggregate(count(), sum_("price"), max_("price", "most")))
    prices = [row.price for row in best()]
    assert rows[-1] == (len(prices), sum(prices), max(prices))


def cheap(row: Best) -> bool:
    return row.price < 60


def coarse(row: Best) -> Best:
    return Best(row.item, str(row.price // 25), row.price)


def twice(row: Best) -> Iterator[Best]:
    """Rows of several groups, and sometimes none."""
    for number in range(row.price % 3):
        yield Best(row.item, f"{row.shop}{number}", row.price)


async def later_coarse(row: Best) -> Best:
    return coarse(row)


@batch
def columns(table: Any) -> Any:
    return table


BETWEEN: dict[str, tuple[Callable[[Stream[Any]], Stream[Any]], Callable[[Best], list[Best]]]] = {
    "filter": (lambda s: s.filter(cheap), lambda row: [row] * cheap(row)),
    "map": (lambda s: s.map(coarse), lambda row: [coarse(row)]),
    "async": (lambda s: s.map(later_coarse), lambda row: [coarse(row)]),
    "flat_map": (lambda s: s.flat_map(twice), lambda row: [*twice(row)]),
    "tables": (lambda s: s.flat_map(columns, fields=Best), lambda row: [row]),
    "project": (
        lambda s: s.filter(cheap).project("shop", "price"),
        lambda row: [row] * cheap(row),
    ),
    "stages": (
        lambda s: s.shuffle().stage("first", 3).map(coarse).fields("item").stage("second", 2),
        lambda row: [coarse(row)],
    ),
    "branch": (lambda s: s.branch(cheap)[0], lambda row: [row] * cheap(row)),
    "merge": (
        lambda s: s.branch(cheap)[1].merge(s.map(coarse), s.filter(cheap).peek(print)),
        lambda row: [coarse(row), row],
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("p", [1, 2])
def test_functions_between_two_aggregates_replace_and_remove_rows(name: str, p: int) -> None:
    between, expand = BETWEEN[name]

    def assemble(source: Stream[Any]) -> Stream[Any]:
        between_rows = between(totals(source, p))
        return between_rows.group_by("shop").aggregate(count(), sum_("price"), parallelism=p)

    rows = run(assemble, spouts=p, seed=p)
    expected = by_shop(
        [result for row in best() for result in expand(row)], lambda v: (len(v), sum(v))
    )
    values = {shop: (value,) for shop, value in last(rows).items() if value[0]}
    assert values == expected


@pytest.mark.parametrize("p", [1, 2])
def test_three_aggregates(p: int) -> None:
    """How many groups have how many items of which price, at most."""

    def assemble(source: Stream[Any]) -> Stream[Any]:
        counts = totals(source, p).group_by("shop", "price").aggregate(count(), parallelism=p)
        sizes = counts.group_by("count").aggregate(count(name="times"), parallelism=p)
        return sizes.map(lambda row: row, fields=("count", "times"))

    counts: dict[Any, int] = defaultdict(int)
    for row in best():
        counts[row.shop, row.price] += 1
    sizes: dict[int, int] = defaultdict(int)
    for size in counts.values():
        sizes[size] += 1
    numbers = {size: row[0] for size, row in last(run(assemble)).items() if row[0]}
    assert numbers == sizes


def test_the_best_totals_are_in_a_list_once_also_when_they_become_worse() -> None:
    def negative(bid: Bid) -> Bid:
        return bid._replace(price=bid.price - 60)

    def assemble(source: Stream[Any]) -> Stream[Any]:
        sums = source.map(negative).group_by("item").aggregate(sum_("price", name="sum"))
        return sums.aggregate(top(3, by="sum", each="item"))

    sums: dict[str, int] = defaultdict(int)
    for item, _, price in BIDS:
        sums[item] += price - 60
    ((ranking,),) = run(assemble)[-1:]
    assert [total for _, total in ranking] == sorted(sums.values(), reverse=True)[:3]
    assert all(sums[item] == total for item, total in ranking)


def test_other_readers_get_each_row_of_the_totals() -> None:
    """A sink and a function see what they saw before; peek is called once for each row."""
    seen: list[Any] = []
    topology = Topology("bids")
    rows = totals(topology.spout("bids", Records(BIDS, type=Bid)))
    peeked = rows.peek(seen.append)
    rows.shuffle().bolt("all", Kept)
    peeked.filter(cheap).shuffle().bolt("cheap", Kept)
    peeked.group_by("shop").aggregate(count()).shuffle().bolt("counts", Kept)
    done = run_inline(topology.graph())
    every = [Best(*row) for row in done.results["all"][0]]
    assert every == seen
    assert len(every) > len(best())
    assert [*map(tuple, filter(cheap, every))] == done.results["cheap"][0]
    assert last(done.results["counts"][0]) == by_shop(best(), len)


def test_a_program_without_a_second_aggregate_has_no_updates() -> None:
    topology = Topology("bids")
    rows = totals(topology.spout("bids", Records(BIDS, type=Bid)))
    rows.filter(cheap).shuffle().bolt("kept", Kept)
    streams = [id for component in topology.graph().components.values() for id in component.streams]
    assert not [id for id in streams if "updates" in id]


def test_totals_of_totals_continue_in_the_next_run(tmp_path: Path) -> None:
    """With stored states of another number of tasks each time."""
    for number, p in enumerate((1, 3, 2)):
        first = SqliteState(tmp_path / "first.db", name="first")
        second = SqliteState(tmp_path / "second.db", name="second")
        topology = Topology("bids")
        source = topology.spout("bids", Records(BIDS[number * 60 : number * 60 + 60], type=Bid))
        rows = source.group_by("item", "shop").aggregate(
            max_("price"), fields=Best, state=first, name="best", parallelism=p
        )
        rows.map(coarse).group_by("shop").aggregate(
            count(), sum_("price"), state=second, name="shops", parallelism=p
        ).shuffle().bolt("kept", Kept)
        run_inline(topology.graph(), clock=ManualClock(number))
        expected = by_shop(
            [*map(coarse, best(BIDS[: number * 60 + 60]))], lambda v: [len(v), sum(v)]
        )
        values = {key: (value,) for key, value in second.items() if not is_own(key)}
        assert values == expected


class Kind(Enum):
    ODD = "odd"
    EVEN = "even"


class OfKind(NamedTuple):
    kind: Kind
    shop: str
    price: int


def of_kind(bid: Bid) -> OfKind:
    return OfKind(Kind.ODD if bid.price % 2 else Kind.EVEN, bid.shop, bid.price)


def test_stored_totals_of_totals_that_are_grouped_by_an_enum() -> None:
    """A state has no Enums in its keys, but the totals before it may be in memory."""

    def assemble(source: Stream[Any]) -> Stream[Any]:
        rows = source.map(of_kind).group_by("kind", "shop").aggregate(max_("price"), fields=OfKind)
        return rows.group_by("shop").aggregate(count(), state=MemoryState())

    assert last(run(assemble)) == dict.fromkeys("abc", (2,))


# ---- tables -------------------------------------------------------------------------------------


class Shop(NamedTuple):
    shop: str
    town: str


SHOPS = [Shop("a", "x"), Shop("b", "y"), Shop("c", "x")]


class AfterShops(Spout[Bid]):
    """Emits the bids when the table has its records: a while later, by the clock."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Bid | None]:
        begun = self.clock.now()
        while self.clock.now() < begun + 5:
            yield None
        yield from BIDS


def in_the_simulator(topology: Topology, seed: int) -> list[tuple[Any, ...]]:
    with SimCluster(seed) as cluster:
        done = cluster.submit(topology.graph())
        done.wait()
        (rows,) = done.results("kept")
    return list(map(tuple, rows))


@pytest.mark.parametrize("broadcast", [False, True])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_totals_that_are_joined_with_a_table_replace_their_earlier_rows(
    broadcast: bool, how: Any
) -> None:
    topology = Topology("bids", workers=2)
    shops = topology.spout("shops", Records(SHOPS[:2], type=Shop))
    table = shops.group_by("shop").table(parallelism=2, broadcast=broadcast)
    rows = totals(topology.spout("bids", AfterShops), 2).filter(cheap)
    joined = rows.join(table, how=how, fields=("shop", "item", "price", "town"))
    joined.group_by("town").aggregate(count(), sum_("price"), parallelism=2).global_().bolt(
        "kept", Kept
    )
    towns = {**dict(SHOPS[:2]), "c": None}
    expected: dict[Any, list[int]] = defaultdict(list)
    for row in filter(cheap, best()):
        if how == "left" or towns[row.shop]:
            expected[towns[row.shop]].append(row.price)
    last_rows = last(in_the_simulator(topology, 1))
    assert {town: row for town, row in last_rows.items() if row[0]} == {
        town: (len(prices), sum(prices)) for town, prices in expected.items()
    }


class Ask(NamedTuple):
    item: str
    shop: str


class AfterBids(Spout[Ask]):
    """Asks for each group when all totals are there."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Ask | None]:
        begun = self.clock.now()
        while self.clock.now() < begun + 20:
            yield None
        yield from (Ask(row.item, row.shop) for row in best())


@pytest.mark.parametrize("between", [lambda s: s, lambda s: s.shuffle().stage("far", 3)])
def test_a_table_of_totals_has_their_last_rows_and_forgets_those_that_a_filter_drops(
    between: Callable[[Stream[Any]], Stream[Any]],
) -> None:
    topology = Topology("bids", workers=2)
    rows = between(totals(topology.spout("bids", AfterShops), 2)).filter(cheap)
    table = rows.group_by("item", "shop").table(parallelism=2, state=MemoryState())
    topology.spout("asks", AfterBids).join(table).global_().bolt("kept", Kept)
    joined = in_the_simulator(topology, 2)
    assert sorted(joined) == sorted(map(tuple, filter(cheap, best())))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("name", ["directly", "behind a function", "in another stage", "joined"])
def test_a_sink_learns_of_a_group_without_rows_also_if_a_further_aggregate_reads_the_same(
    name: str, p: int
) -> None:
    """The function in front of the further aggregate alone sees no record of such a group."""
    seen: list[Any] = []
    topology = Topology("bids")
    bids = topology.spout("bids", Records(BIDS, type=Bid), parallelism=p)
    mosts = totals(bids, p).filter(cheap).group_by("shop", "item")
    rows = mosts.aggregate(max_("price"), parallelism=p, name="mosts")
    if name == "behind a function":
        rows = rows.peek(print)
    elif name == "in another stage":
        rows = rows.shuffle().stage("other", 2).peek(print)
    elif name == "joined":
        shops = topology.spout("shops", Records(SHOPS, type=Shop)).group_by("shop").table()
        rows = rows.join(shops, "shop", fields=("shop", "item", "price_max", "town"))
    rows.fields("shop").bolt("kept", Kept)
    rows.peek(lambda row: seen.append(row[2])).group_by("item").aggregate(
        count(), parallelism=p
    ).fields("item").bolt("sizes", Kept)
    done = run_inline(topology.graph(), clock=ManualClock()).results
    prices = last([row[:3] for task in done["kept"] for row in map(tuple, task)], 2)
    expected = {(row.shop, row.item): row.price if cheap(row) else None for row in best()}
    assert prices == {key: (price,) for key, price in expected.items() if key in prices}
    assert {key for key, price in expected.items() if price is not None} <= prices.keys()
    assert None in {price for (price,) in prices.values()}
    assert None not in seen


def test_a_table_by_another_key_than_that_of_the_groups_is_refused() -> None:
    topology = Topology("bids")
    rows = totals(topology.spout("bids", Records(BIDS, type=Bid)))
    with pytest.raises(TopologyError, match=r"replaces the earlier one.*call \.map behind"):
        rows.map(coarse).group_by("shop").table()
    table = topology.spout("shops", Records(SHOPS, type=Shop)).group_by("shop").table()
    joined = rows.map(coarse).join(table)  # each row is joined, and nothing counts them
    with pytest.raises(TopologyError, match="a join with a table by shop, which may change"):
        joined.group_by("town").aggregate(count())


# ---- the operator -------------------------------------------------------------------------------

SCHEMA = Schema(("item", "shop", "price"))
OUT = Schema(("shop", "count", "sum"))
GROUPS = "abcde"


def ignore(rows: Any) -> None: ...


class Tasks:
    """The tasks of the second aggregate, each with a state of its own."""

    def __init__(self, number: int, factory: Any = None, epoch: float = 0.0) -> None:
        from sunshower.topologies.operators.totals import Several

        several = Several(
            [aggregator.bind(SCHEMA, "here") for aggregator in (count(), sum_("price"))]
        )
        lineage = totals_lineage(("item",))
        self.divide = PartsOfUpdates(SCHEMA, ("shop",), several, lineage)
        self.tasks = []
        for index in range(number):
            slot = StateSlot(factory, "totals", "here", moved_origins)
            task = UpdatedTotals(slot, 1, several, OUT)
            task.prepare(Context("t", "c", index, index, number, clock=ManualClock(epoch)))
            self.tasks.append(task)

    def give(self, updates: Sequence[Any]) -> None:
        for kind, part in (pair for update in updates for pair in self.divide.expand(update)):
            chosen = self.tasks
            if kind == 0:
                chosen = [self.tasks[GROUPS.index(part[0]) % len(self.tasks)]]
            for task in chosen:
                batch = task.start(Attempt(0, 0, 0))
                task.process(batch, 0, [part], print)
                task.finish(batch, Attempt(0, 0, 0), ignore)

    def totals(self) -> dict[str, Any]:
        return {
            key: tuple(value.values()) for task in self.tasks for key, value in task.stored_items()
        }


def expected_of(updates: Sequence[Any]) -> dict[str, Any]:
    newest = {
        origin: rows for origin, number, rows in sorted(updates, key=lambda update: update[1])
    }
    shops: dict[str, list[int]] = defaultdict(list)
    for rows in newest.values():
        for _, shop, price in rows:
            shops[shop].append(price)
    return {shop: (len(prices), sum(prices)) for shop, prices in shops.items()}


def updates_of(draw: Random, origins: int, times: int) -> list[Any]:
    """Updates with numbers that grow; each has up to two rows, in any groups."""
    updates = []
    for number in range(times):
        item = draw.randrange(origins)
        shops = [draw.choice(GROUPS) for _ in range(draw.randrange(3))]
        rows = [(item, shop, draw.randrange(100)) for shop in shops]
        updates.append((("best", item), number, rows))
    return updates


@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(1, 6))
def test_updates_in_any_order_with_repetitions_make_the_same_totals(
    draw: Any, tasks: int, origins: int
) -> None:
    updates = updates_of(draw, origins, 12)
    disordered = [*updates, *draw.sample(updates, 4)]
    draw.shuffle(disordered)
    rig = Tasks(tasks)
    rig.give(disordered)
    assert {k: v for k, v in rig.totals().items() if v[0]} == expected_of(updates)


def test_a_group_of_many_origins_has_a_tree_of_three_levels_that_reuses_its_slots() -> None:
    draw = Random(3)
    updates = [
        (origin, number, [(item, "a", price) for item, _, price in rows])
        for origin, number, rows in updates_of(draw, 700, 3_000)
    ]
    rig = Tasks(1)
    for first in range(0, len(updates), 500):
        rig.give(updates[first : first + 500])
        assert rig.totals() == expected_of(updates[: first + 500])
    memory = rig.tasks[0].slot.memory
    assert memory is not None
    nodes = [key for key in memory.values if is_own(key) and key[0].endswith("node")]
    assert max(key[2] for key in nodes) == 2
    rig.give([(("best", item), 3_000, []) for item in range(700)])
    assert rig.totals() == {}


def test_an_update_of_a_group_of_many_origins_combines_few_values() -> None:
    class Counting(sum_):
        calls = 0

        def combine(self, first: Any, second: Any) -> Any:  # type: ignore[override]
            Counting.calls += 1
            return first + second

    aggregator = Counting("price").bind(SCHEMA, "here")
    task = UpdatedTotals(StateSlot(None, "totals", "here"), 0, aggregator, Schema(("sum",)))
    task.prepare(Context("t", "c", 0, 0, 1, clock=ManualClock(0)))

    def give(item: int, number: int, price: int) -> None:
        batch = task.start(Attempt(0, 0, 0))
        batch.append(("all", ("best", item), number, [price], None))
        task.finish(batch, Attempt(0, 0, 0), ignore)

    for item in range(5_000):
        give(item, 1, 1)
    Counting.calls = 0
    give(17, 2, 11)
    assert Counting.calls <= 4 * 15
    assert task.stored(["all"]) == [5_010]


def test_a_moved_group_is_emitted_again_with_the_next_update() -> None:
    """Its removal may have been lost behind the task; the record is emitted again, and counts."""
    rig = Tasks(1)
    (task,) = rig.tasks
    task.emits_updates = True
    emitted: list[Any] = []

    def give(number: int, shop: str) -> None:
        emitted.clear()
        batch = task.start(Attempt(0, 0, 0))
        batch += [part for _, part in rig.divide.expand((("best", 1), number, [(1, shop, 7)]))]
        task.finish(batch, Attempt(0, 0, 0), emitted.extend)

    give(1, "a")
    give(2, "b")
    assert [(origin[1], rows) for origin, _, rows in emitted] == [("b", [("b", 1, 7)]), ("a", [])]
    numbers = {number for _, number, _ in emitted}
    give(3, "b")
    assert [(origin[1], rows) for origin, _, rows in emitted] == [("b", [("b", 1, 7)]), ("a", [])]
    assert min(number for _, number, _ in emitted) > max(numbers)


def test_the_numbers_of_totals_grow_in_a_rebalance_to_a_process_with_an_earlier_clock() -> None:
    def task_at(time: float) -> UpdatedTotals:
        (task,) = Tasks(1, epoch=time).tasks
        task.emits_updates = True
        return task

    emitted: list[Any] = []
    former, later = task_at(5.0), task_at(1.0)
    for number, task in enumerate((former, later)):
        if task is later:
            task.restore(former.snapshot())
        batch = task.start(Attempt(0, 0, 0))
        batch.append(("a", ("best", number), 1, [[1, 7]], None))
        task.finish(batch, Attempt(0, 0, 0), emitted.extend)
    assert [rows for _, _, rows in emitted] == [[("a", 1, 7)], [("a", 2, 14)]]
    assert emitted[1][1] > emitted[0][1]


def test_totals_in_memory_of_an_earlier_version_are_restored() -> None:
    (task,) = Tasks(1).tasks
    task.restore({"a": [1, 7]})
    assert task.result() == {"a": [1, 7]}


def test_stored_totals_of_totals_move_to_other_numbers_of_tasks() -> None:
    factory, draw, updates = MemoryState(), Random(5), list[Any]()
    for number, tasks in enumerate((1, 3, 2)):
        rig = Rescaled(tasks, factory, float(number))
        more = [(a, b + 100 * number, c) for a, b, c in updates_of(draw, 40, 80)]
        updates += more
        rig.give(more)
        assert {k: v for k, v in rig.totals().items() if v[0]} == expected_of(updates)


class Rescaled(Tasks):
    """Sends parts to the tasks of their groups as a fields grouping does."""

    def give(self, updates: Sequence[Any]) -> None:
        from sunshower.runtime.transport.routing import task_index

        for kind, part in (pair for update in updates for pair in self.divide.expand(update)):
            index = task_index(part[0], len(self.tasks)) if kind == 0 else -1
            for task in self.tasks if kind else [self.tasks[index]]:
                batch = task.start(Attempt(0, 0, 0))
                task.process(batch, 0, [part], print)
                task.finish(batch, Attempt(0, 0, 0), ignore)


# ---- declarations that are refused ---------------------------------------------------------------


def once(row: Any, state: Any) -> None: ...


REFUSED: dict[str, tuple[Callable[[Stream[Any]], Any], str]] = {
    "window": (lambda s: s.group_by("shop").window(tumbling(count=3), count()), "A window"),
    "process": (lambda s: s.map(coarse).group_by("shop").process(once), "process"),
    "join": (
        lambda s: s.join(s.filter(cheap), "shop", within=1, field="price", fields=tuple("abcdef")),
        "A join of two streams",
    ),
    "merge": (
        lambda s: s.merge(s.topology.spout("more", Records([], type=Best))).aggregate(count()),
        "a merge with a stream of other records",
    ),
    "all": (lambda s: s.all().stage("all", 2).aggregate(count()), "the grouping all"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_count_every_update_is_refused(name: str) -> None:
    assemble, word = REFUSED[name]
    topology = Topology("bids")
    rows = totals(topology.spout("bids", Records(BIDS, type=Bid)))
    with pytest.raises(TopologyError, match="replaces the earlier one of its group") as caught:
        assemble(rows)
    assert word in str(caught.value)


# ---- on the simulator ---------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_mean_of_maxima_does_not_depend_on_the_number_of_tasks(p: int) -> None:
    topology = Topology("bids", workers=2)
    source = topology.spout("bids", Records(BIDS, type=Bid), parallelism=p)
    rows = totals(source, p).group_by("shop").aggregate(average("price"), parallelism=p)
    rows.global_().bolt("kept", Kept)
    with SimCluster(p) as cluster:
        done = cluster.submit(topology.graph())
        done.wait()
        (means,) = done.results("kept")
    assert last(means) == by_shop(best(), lambda prices: sum(prices) / len(prices))
