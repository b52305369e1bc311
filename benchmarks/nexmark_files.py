"""Bids and auctions of Nexmark in CSV files, which each compared system reads and parses.

    <folder>/bids/0.csv, 1.csv        each second bid, with the fields of Bid; no names of columns
    <folder>/auctions/0.csv, 1.csv    likewise

The answer of a query is the sum of one number of each row, see VALUES.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks.measure import Outcome
from benchmarks.nexmark import JOINS, LOOPS, RATE, SOURCES, TEN_S, Rows
from benchmarks.processes import Starter
from benchmarks.start_signal import POLL_S, StartSignal
from benchmarks.topologies import Sink, WaitingSpout
from examples.nexmark import inputs, queries
from examples.nexmark.events import Auction, Bid, Event, arrivals
from sunshower import Context, Stream, Topology
from sunshower.config import Internals

BIDS, AUCTIONS = "bids", "auctions"
OF_FIRST = "of_first"


def write(folder: Path, events: int) -> int:
    """Write the bids and auctions of so many events. Returns the number of bids."""
    counts = {BIDS: 0, AUCTIONS: 0}
    with ExitStack() as stack:
        files = {}
        for kind in counts:
            (folder / kind).mkdir(parents=True)
            paths = [folder / kind / f"{index}.csv" for index in range(SOURCES)]
            files[kind] = [stack.enter_context(path.open("w", encoding="ascii")) for path in paths]
        for event in arrivals(events, 1, RATE):
            record = event.bid or event.auction
            if record is not None:
                kind = BIDS if event.bid else AUCTIONS
                files[kind][counts[kind] % SOURCES].write(",".join(map(str, record)) + "\n")
                counts[kind] += 1
    return counts[BIDS]


def bid_of(line: str) -> Bid:
    auction, bidder, price, channel, url, at, extra = line[:-1].split(",")
    return Bid(int(auction), int(bidder), int(price), channel, url, int(at), extra)


def auction_of(line: str) -> Auction:
    id_, item, description, initial, reserve, at, expires, seller, category, extra = line[
        :-1
    ].split(",")
    return Auction(
        *(int(id_), item, description, int(initial), int(reserve), int(at), int(expires)),
        *(int(seller), int(category), extra),
    )


READERS: dict[str, Callable[[str], Any]] = {BIDS: bid_of, AUCTIONS: auction_of}


def records_of(folder: Path, kind: str, index: int) -> Iterator[Any]:
    """The records of a file, parsed when they are asked for."""
    with (folder / kind / f"{index}.csv").open(encoding="ascii") as lines:
        yield from map(READERS[kind], lines)


# ---- answers ------------------------------------------------------------------------------------


def thousandths(row: Any) -> int:
    return round(row[2] * 1_000)


def square(row: Any) -> int:
    """Of the bids of a session, so that a wrong end of it changes the sum."""
    count: int = row[-1]
    return count * count


VALUES: dict[str, Callable[[Any], int]] = {
    "q0": itemgetter(2),  # the price
    "q1": thousandths,  # of a price in euros
    "q2": itemgetter(1),  # the price
    "q5": itemgetter(2),  # the bids for the auction
    "q7": itemgetter(2),  # the price
    "q11": square,
    "q12": itemgetter(-1),  # the bids of a bidder: their sum does not depend on the clock
    "q20": itemgetter(2),  # the price
}
WINDOWS: dict[str, Callable[[Any], int]] = {  # the window of a row, where ties make several rows
    "q5": itemgetter(1),
    "q7": lambda bid: bid.at // TEN_S,
}


def answers(query: str, rows: Rows) -> tuple[int, int]:
    """The answer, and that of a system that has one row of each window."""
    value = VALUES[query]
    total = sum(map(value, rows))
    if query not in WINDOWS:
        return total, total
    return total, sum({WINDOWS[query](row): value(row) for row in rows}.values())


# ---- the plain loop -----------------------------------------------------------------------------


def all_of(folder: Path, kind: str) -> Iterator[Any]:
    """The records of all files of a kind, in the order in which they were written."""
    files = [records_of(folder, kind, index) for index in range(SOURCES)]
    return filter(None, chain.from_iterable(zip_longest(*files)))


def events_of(folder: Path) -> Iterator[Event]:
    """All auctions, and then all bids."""
    for auction in all_of(folder, AUCTIONS):
        yield Event(auction.at, None, auction)
    for bid in all_of(folder, BIDS):
        yield Event(bid.at, None, None, bid)


def run_loop(query: str, folder: Path, starter: Starter) -> Outcome:
    """The plain loop in a process. `done` is the answer; `more` has that with one row a window."""
    begun_s, cpu_s = starter.wait(), time.process_time()
    records: Iterable[Any] = events_of(folder) if query in JOINS else all_of(folder, BIDS)
    rows = LOOPS[query](records)
    ended_s, cpu_s = time.monotonic(), time.process_time() - cpu_s
    answer, of_first = answers(query, rows)
    return Outcome(begun_s, ended_s, answer, cpu_s, {OF_FIRST: of_first})


# ---- our topology -------------------------------------------------------------------------------


class FileSource(WaitingSpout):
    """Reads and parses a file for each of its tasks, after the start signal."""

    def __init__(self, signal: StartSignal, folder: Path, kind: str, emits: type[Any]) -> None:
        super().__init__(signal)
        self._folder, self._kind, self.emits = folder, kind, emits

    def open(self, context: Context) -> None:
        self._index = context.index
        super().open(context)

    def records(self) -> Iterator[Any]:
        yield from self.wait_for_start()
        yield from records_of(self._folder, self._kind, self._index)


class Answer(Sink):
    """Adds the numbers of the rows of a query."""

    def __init__(self, query: str) -> None:
        self._query, self._sum = query, 0

    def prepare(self, context: Context) -> None:
        self._value = VALUES[self._query]

    def process(self, record: Any) -> None:
        self._sum += self._value(record)

    def result(self) -> tuple[int, float]:
        return self._sum, self.last_s


@dataclass(frozen=True, kw_only=True)
class FileInputs(inputs.Inputs):
    """Streams of files: `events` is that of the bids."""

    auction_source: FileSource

    @cached_property
    def bids(self) -> Stream[Any]:
        return self.events

    @cached_property
    def auctions(self) -> Stream[Any]:
        return self.topology.spout(AUCTIONS, self.auction_source, parallelism=SOURCES)


def declared(query: str, folder: Path, signal: StartSignal) -> Topology:
    topology = Topology(f"nexmark-{query}", workers=2, internals=Internals(idle_poll_s=POLL_S))
    bids = topology.spout("source", FileSource(signal, folder, BIDS, Bid), parallelism=SOURCES)
    streams = FileInputs(
        topology,
        bids,
        {"parallelism": 2, "state": None},
        auction_source=FileSource(signal, folder, AUCTIONS, Auction),
    )
    rows = queries.QUERIES[query](streams)
    rows.local_or_shuffle().bolt("sink", Answer(query), parallelism=2, fields=())
    return topology
