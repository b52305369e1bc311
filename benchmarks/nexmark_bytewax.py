"""Queries of Nexmark with Bytewax, over CSV files.

The clock of each key of a window is its own, and the two partitions are not read evenly, so windows
wait for 60 s of event time; all others wait for 2 s. Clocks do not follow the system's, which is
years later. What is highest of a window of all keys is known at the end of the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from operator import add
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.operators import KeyedStream, StatefulBatchLogic, Stream
from bytewax.operators.windowing import (
    EventClock,
    SessionWindower,
    SlidingWindower,
    SystemClock,
    TumblingWindower,
    Windower,
    count_window,
    fold_window,
)

from benchmarks.bytewax_flows import CountingSink, Setup, Source, Tally
from benchmarks.nexmark import SOURCES
from benchmarks.nexmark_files import AUCTIONS, BIDS, VALUES, records_of
from benchmarks.processes import Starter
from examples.nexmark.events import Auction, Bid
from examples.nexmark.stateless import in_euros

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATE = timedelta(seconds=60)
TEN_S, TWO_S = timedelta(seconds=10), timedelta(seconds=2)
GAP = timedelta(milliseconds=9_999)  # of sessions: Bytewax merges those that are exactly it apart


def time_of(at: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at)


def at_of(bid: Bid) -> datetime:
    return time_of(bid.at)


def epoch() -> datetime:
    return EPOCH


def never(_: datetime) -> None:
    """No window ends by the system's clock."""


def q0(bids: Stream[Bid]) -> Stream[Any]:
    return op.flat_map_batch("project", bids, projected)


def projected(bids: list[Bid]) -> list[Any]:
    return [(bid.auction, bid.bidder, bid.price, bid.at, bid.extra) for bid in bids]


def q1(bids: Stream[Bid]) -> Stream[Any]:
    return op.flat_map_batch("in-euros", bids, partial(map, in_euros))


def q2(bids: Stream[Bid]) -> Stream[Any]:
    return op.flat_map_batch("chosen", bids, chosen)


def chosen(bids: list[Bid]) -> list[Any]:
    return [(bid.auction, bid.price) for bid in bids if bid.auction % 123 == 0]


def q5(bids: Stream[Bid]) -> Stream[Any]:
    windower = SlidingWindower(TEN_S, TWO_S, EPOCH)
    counts = counted(op.map("key", bids, lambda bid: (str(bid.auction), bid.at)), windower)
    by_window = op.map("by-window", counts, lambda row: (str(row[1][0]), (row[0], *row[1])))
    return best_of_all(by_window)


def q7(bids: Stream[Bid]) -> Stream[Any]:
    """The highest of each second auction, and then of both."""
    by_half = op.map("key", bids, lambda bid: (str(bid.auction % 2), bid))
    clock = EventClock(at_of, LATE, epoch, never)
    windower = TumblingWindower(TEN_S, EPOCH)
    best = fold_window("best", by_half, clock, windower, list, with_row, with_rows, ordered=False)
    by_window = op.flat_map(
        "by-window", best.down, lambda row: [(str(row[1][0]), bid) for bid in row[1][1]]
    )
    return best_of_all(by_window)


def q11(bids: Stream[Bid]) -> Stream[Any]:
    by_bidder = op.map("key", bids, lambda bid: (str(bid.bidder), bid.at))
    return op.map("row", counted(by_bidder, SessionWindower(GAP)), lambda row: row[1])


def q12(bids: Stream[Bid]) -> Stream[Any]:
    windower = TumblingWindower(TEN_S, EPOCH)
    counts = count_window("count", bids, SystemClock(), windower, lambda bid: str(bid.bidder))
    return op.map("row", counts.down, lambda row: row[1])


def q20(bids: Stream[Bid], auctions: Stream[Auction]) -> Stream[Any]:
    keyed = op.map("key", bids, lambda bid: (str(bid.auction), bid))
    of_category = op.flat_map_batch("category", auctions, of_category_10)
    both: KeyedStream[Any] = op.merge("both", keyed, of_category)
    return op.map("row", op.stateful_batch("join", both, Join), lambda row: row[1])


def of_category_10(auctions: list[Auction]) -> list[tuple[str, Auction]]:
    return [(str(auction.id), auction) for auction in auctions if auction.category == 10]


class Join(StatefulBatchLogic[Any, Any, None]):
    """Each bid with its auction: a bid that comes first waits. There is no recovery."""

    def __init__(self, _: None) -> None:
        self.auction: Auction | None = None
        self.waiting: list[Bid] = []

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
        for value in values:
            if type(value) is Auction:
                self.auction = value
            else:
                self.waiting.append(value)
        if self.auction is None:
            return (), StatefulBatchLogic.RETAIN
        rows = [(*bid, *self.auction[1:]) for bid in self.waiting]
        self.waiting.clear()
        return rows, StatefulBatchLogic.RETAIN

    def snapshot(self) -> None:
        return None


def counted(keyed: KeyedStream[int], windower: Windower[Any]) -> Stream[Any]:
    """(key, (number of the window, count)) of times by key."""
    clock = EventClock(time_of, LATE, epoch, never)
    counts = fold_window(
        "count", keyed, clock, windower, int, lambda count, _: count + 1, add, ordered=False
    )
    return counts.down


def best_of_all(by_window: KeyedStream[Any]) -> Stream[Any]:
    """The rows of each window whose third field is highest."""
    best = op.fold_final("best-of-all", by_window, list, with_row)
    return op.flat_map("row", best, lambda row: row[1])


def with_row(rows: list[Any], row: Any) -> list[Any]:
    if rows and row[2] > rows[0][2]:
        rows.clear()
    if not rows or row[2] == rows[0][2]:
        rows.append(row)
    return rows


def with_rows(rows: list[Any], others: list[Any]) -> list[Any]:
    for row in others:
        with_row(rows, row)
    return rows


FLOWS: dict[str, Any] = {flow.__name__: flow for flow in (q0, q1, q2, q5, q7, q11, q12, q20)}


def declare(query: str, folder: Path, setup: Setup, starter: Starter, tally: Tally) -> Dataflow:
    """The flow of a query. Its sink adds the numbers of the rows."""

    def batches(kind: str, index: int) -> Iterator[list[Any]]:
        records = records_of(folder, kind, index)
        return iter(lambda: list(islice(records, setup.lines)), [])

    flow = Dataflow(f"nexmark-{query}")
    inputs = [
        op.input(kind, flow, Source(SOURCES, partial(batches, kind), starter, tally))
        for kind in inputs_of(query)
    ]
    value = VALUES[query]
    op.output("out", FLOWS[query](*inputs), CountingSink(tally, lambda rows: sum(map(value, rows))))
    return flow


def inputs_of(query: str) -> tuple[str, ...]:
    return (BIDS, AUCTIONS) if query == "q20" else (BIDS,)
