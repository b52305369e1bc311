"""Aggregates of running totals in batches: whatever is repeated, they are of the last rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from sunshower import Topology, average, count, max_, run_inline, sum_, tumbling
from sunshower.errors import TopologyError
from sunshower.state import MemoryState
from sunshower.topologies.operators.states import StateKind, is_own
from sunshower.trident import FixedBatchSpout, InMemory, batches
from sunshower.trident.declaration.streams import BatchStream
from tests.topologies.operators.totals.test_updated_totals import BETWEEN as ORDINARY
from tests.topologies.operators.totals.test_updated_totals import (
    Best,
    Bid,
    best,
    cheap,
    coarse,
    once,
)
from tests.trident.rigs.one_process import Runner, StateStub, collected, stub_stream


def bids_of(draw: Random, size: int) -> list[Bid]:
    return [
        Bid(f"{draw.randrange(9)}", "abc"[draw.randrange(3)], draw.randrange(100))
        for _ in range(size)
    ]


BETWEEN: dict[str, Any] = {  # name → (what is declared, the rows of a row)
    "nothing": (lambda s: s, lambda row: [row]),
    **{name: ORDINARY[name] for name in ("filter", "map", "flat_map", "project")},
    "stages": (
        lambda s: s.shuffle(parallelism=3).map(coarse).partition_by("item", parallelism=2),
        lambda row: [coarse(row)],
    ),
    "merge": (
        lambda s: s.branch(cheap)[1].merge(s.map(coarse), s.filter(cheap).shuffle()),
        lambda row: [coarse(row), row],
    ),
}


def shops_of(rows: Sequence[Best]) -> dict[str, tuple[int, int]]:
    shops: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        shops[row.shop].append(row.price)
    return {shop: (len(prices), sum(prices)) for shop, prices in shops.items()}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, StateKind.OPAQUE) for name in BETWEEN),
        # a shuffle before a transactional state is refused
        *((name, StateKind.TRANSACTIONAL) for name in BETWEEN if name not in ("stages", "merge")),
    ],
)
def test_repeated_batches_make_the_totals_of_the_last_rows(name: str, kind: StateKind) -> None:
    between, rows_of = BETWEEN[name]
    first, second, third = (MemoryState(kind) for _ in range(3))
    _, stream = stub_stream(Bid)
    rows = stream.group_by("item", "shop").aggregate(
        max_("price"), fields=Best, state=first, parallelism=2
    )
    plain = collected(rows)
    counts = (
        between(rows)
        .group_by("shop")
        .aggregate(count(), sum_("price"), state=second, name="shops", parallelism=2)
    )
    emitted = collected(counts)
    sizes = counts.group_by("count").aggregate(count(name="times"), state=third, parallelism=2)
    collected(sizes)
    runner, draw, bids = Runner(stream.stage.group.program.topology), Random(name), list[Bid]()
    for _ in range(12):
        batch = bids_of(draw, draw.randrange(8))
        runner.batch(batch)
        for _ in range(draw.randrange(3)):
            if kind is StateKind.OPAQUE and draw.random() < 0.5:
                batch = bids_of(draw, draw.randrange(8))
            if draw.random() < 0.5:
                runner.restart()
            runner.again(batch)
        bids += batch
        expected = shops_of([derived for row in best(bids) for derived in rows_of(row)])
        totals = {key: tuple(v) for key, v in second.items() if v and not is_own(key)}
        assert totals == expected
        histogram: dict[int, int] = defaultdict(int)
        for size, _ in expected.values():
            histogram[size] += 1
        assert {k: v for k, v in third.items() if v and not is_own(k)} == histogram
    assert {row[:2]: row[2] for row in plain}.keys() >= {row[:2] for row in best(bids)}
    last = {row[0]: row[1:] for row in emitted}
    if kind is StateKind.TRANSACTIONAL:  # otherwise a group may have changed in one attempt alone
        assert {shop: row for shop, row in last.items() if row[0]} == expected


def test_a_query_of_the_second_state_finds_its_totals() -> None:
    topology = Topology("bids")
    bids = bids_of(Random(2), 60)
    stream = batches(topology, "bids", FixedBatchSpout(bids, 7, type=Bid), store=InMemory())
    rows = stream.group_by("item", "shop").aggregate(
        max_("price"), fields=Best, state=MemoryState(), name="best", parallelism=2
    )
    shops = rows.group_by("shop").aggregate(
        average("price"), state=(state := MemoryState()), name="shops", parallelism=2
    )
    asked = stream.project("shop").group_by("shop").state_query(shops, fields="mean")
    answers = collected(asked)
    run_inline(topology.graph())
    means = {shop: total / size for shop, (size, total) in shops_of(best(bids)).items()}
    assert {key: v[0] / v[1] for key, v in state.items() if not is_own(key)} == means
    assert {row[0]: row[1] for row in answers} == means


def test_aggregates_of_one_batch_still_count_its_rows() -> None:
    _, stream = stub_stream(Bid)
    rows = stream.group_by("item", "shop").aggregate(max_("price"), fields=Best, state=StateStub())
    changed = collected(rows.aggregate(count()))
    runner = Runner(stream.stage.group.program.topology)
    runner.batch([Bid("x", "a", 1), Bid("y", "a", 1)])
    runner.batch([Bid("x", "a", 2)])
    assert changed == [(2,), (1,)]


REFUSED: dict[str, Callable[[BatchStream[Any]], Any]] = {
    "window": lambda s: s.group_by("shop").window(tumbling(count=3), count(), state=StateStub()),
    "process": lambda s: s.group_by("shop").process(once, state=StateStub()),
    "batch": lambda s: s.aggregate(count()).aggregate(sum_("count"), state=StateStub()),
    "max_by": lambda s: s.max_by("price").aggregate(count(), state=StateStub()),
    "records": lambda s: s.records("out").group_by("shop").aggregate(count()),
    "broadcast": lambda s: s.broadcast().aggregate(count(), state=StateStub()),
    "join": lambda s: s.join(s.map(coarse), "item", fields=("item", *"abcd")).aggregate(
        count(), state=StateStub()
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_count_every_update_is_refused(name: str) -> None:
    _, stream = stub_stream(Bid)
    rows = stream.group_by("item", "shop").aggregate(max_("price"), fields=Best, state=StateStub())
    with pytest.raises(TopologyError, match="replaces the earlier one of its group"):
        REFUSED[name](rows)
