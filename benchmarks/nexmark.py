"""Queries of the Nexmark benchmark, compared with plain loops over the same events in memory."""

from __future__ import annotations

import gc
import pickle
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.figures import Key, Ratio
from benchmarks.measure import Comparison, Entry, Outcome, Sample
from benchmarks.processes import Starter, run_together
from benchmarks.start_signal import POLL_S, StartSignal
from benchmarks.topologies import Sink, WaitingSpout
from examples.nexmark import events, inputs, joins, queries, stateless, totals, windows
from examples.nexmark.events import Bid, Event
from sunshower import Context, Topology
from sunshower.actors.shipping import ship
from sunshower.config import Internals
from sunshower.runtime.plan import Layout

NAME = "nexmark"
UNIT = "M events/s"
MILLION = 1e6
RATE = 1_000  # events a second of event time
TEN_S, TWO_S = 10_000, 2_000  # milliseconds
SOURCES = 2  # tasks of the source


@dataclass(frozen=True)
class Run:
    """A query over the `count` events in a file, which make so many rows."""

    query: str
    file: Path
    count: int
    rows: int


class Source(WaitingSpout):
    """Emits events that were made before the start."""

    emits = Event

    def __init__(self, signal: StartSignal, file: Path) -> None:
        super().__init__(signal)
        self._file = file

    def open(self, context: Context) -> None:
        self._events = read(self._file, context.index)
        super().open(context)

    def records(self) -> Iterator[Any]:
        yield from self.wait_for_start()
        yield from self._events


class CountRows(Sink):
    """Counts rows, or adds their last fields."""

    def __init__(self, adds: bool) -> None:
        self._adds, self._count = adds, 0

    def process(self, record: Any) -> None:
        self._count += record[-1] if self._adds else 1

    def result(self) -> tuple[int, float]:
        return self._count, self.last_s


def write(file: Path, count: int) -> None:
    """Write the events, a file for each task of the source: to make them takes much longer."""
    made = events.events(count, 1, RATE)
    for index in range(SOURCES):
        with file.with_suffix(f".{index}").open("wb") as part:
            pickle.dump(made[index::SOURCES], part)


def read(file: Path, index: int) -> Sequence[Event]:
    """The events of a task, which no garbage collection visits."""
    gc.disable()
    part: Sequence[Event] = pickle.loads(file.with_suffix(f".{index}").read_bytes())
    gc.freeze()
    gc.enable()
    return part


def read_all(file: Path) -> Sequence[Event]:
    """All events, in the order in which they were made."""
    parts = [read(file, index) for index in range(SOURCES)]
    return [event for together in zip(*parts, strict=True) for event in together]


def bids_of(made: Sequence[Event]) -> Iterator[Bid]:
    for event in made:
        yield from inputs.bids(event)


def q0(made: Sequence[Event]) -> int:
    rows = [(bid.auction, bid.bidder, bid.price, bid.at, bid.extra) for bid in bids_of(made)]
    return len(rows)


def q1(made: Sequence[Event]) -> int:
    return len([stateless.in_euros(bid) for bid in bids_of(made)])


def q2(made: Sequence[Event]) -> int:
    return len([(bid.auction, bid.price) for bid in bids_of(made) if bid.auction % 123 == 0])


def q5(made: Sequence[Event]) -> int:
    panes: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for bid in bids_of(made):
        panes[bid.at // TWO_S][bid.auction] += 1
    ends: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for pane, counts in panes.items():
        for end in range(pane + 1, pane + 1 + TEN_S // TWO_S):
            ends[end].update(counts)
    return sum([*counts.values()].count(max(counts.values())) for counts in ends.values())


def q7(made: Sequence[Event]) -> int:
    highest: defaultdict[int, list[Bid]] = defaultdict(list)
    for bid in bids_of(made):
        best = highest[bid.at // TEN_S]
        if best and bid.price > best[0].price:
            best.clear()
        if not best or bid.price == best[0].price:
            best.append(bid)
    return sum(map(len, highest.values()))


def q11(made: Sequence[Event]) -> int:
    times: defaultdict[int, list[int]] = defaultdict(list)
    for bid in bids_of(made):
        times[bid.bidder].append(bid.at)
    rows = []
    for bidder, unsorted in times.items():
        ordered = sorted(unsorted)
        begun = 0
        for number, at in enumerate(ordered, start=1):
            if number == len(ordered) or ordered[number] - at >= TEN_S:
                rows.append((bidder, at + TEN_S, number - begun))
                begun = number
    return sum(count for _, _, count in rows)


def q12(made: Sequence[Event]) -> int:
    counts: Counter[tuple[int, float]] = Counter()
    for bid in bids_of(made):
        counts[bid.bidder, time.time() // 10] += 1
    return sum(counts.values())


def q20(made: Sequence[Event]) -> int:
    auctions: dict[int, Any] = {}
    waiting: defaultdict[int, list[Bid]] = defaultdict(list)
    rows = []
    for event in made:
        if (bid := event.bid) is not None:
            waiting[bid.auction].append(bid)
            if bid.auction in auctions:
                rows.append((*bid, *auctions[bid.auction][1:]))
        elif (auction := event.auction) is not None and auction.category == 10:
            auctions[auction.id] = auction
            rows += [(*bid, *auction[1:]) for bid in waiting[auction.id]]
    return len(rows)


LOOPS: dict[str, Callable[[Sequence[Event]], int]] = {
    loop.__name__: loop for loop in (q0, q1, q2, q5, q7, q11, q12, q20)
}
ADDED = ("q11", "q12")  # how many rows these have depends on the clock, or is few


def comparison(cluster: BenchmarkCluster, count: int) -> Comparison:
    """Each query over `count` events, a multiple of SOURCES, and its loop."""
    ship([events, inputs, joins, stateless, totals, windows, queries])
    file = cluster.folder / "events"
    write(file, count)
    entries, ratios, made = [], [], read_all(file)
    for name, loop in LOOPS.items():
        run = Run(name, file, count, loop(made))
        key, peer = Key(NAME, "sunshower", name, UNIT), Key(NAME, "loop", name, UNIT)
        entries += [
            Entry(key, partial(_ours, cluster, run)),
            Entry(peer, partial(_loop, cluster, run)),
        ]
        ratios.append(Ratio(f"{NAME}/{name}/loop", key, peer))
    return Comparison(NAME, entries, ratios)


def declared(run: Run, signal: StartSignal) -> Topology:
    name = run.query
    topology = Topology(f"nexmark-{name}", workers=2, internals=Internals(idle_poll_s=POLL_S))
    source = topology.spout("source", Source(signal, run.file), parallelism=SOURCES)
    rows = queries.QUERIES[name](inputs.declare(topology, source, tasks=2))
    rows.local_or_shuffle().bolt("sink", CountRows(name in ADDED), parallelism=2, fields=())
    return topology


def _ours(cluster: BenchmarkCluster, run: Run) -> Sample:
    signal = cluster.start_signal()
    outcome = cluster.run(declared(run, signal), signal, Layout.PACK).expect(run.rows)
    return replace(outcome, done=run.count).sample(MILLION)


def _loop(cluster: BenchmarkCluster, run: Run) -> Sample:
    looping = partial(run_loop, run.query, run.file)
    outcome = run_together([looping], cluster.folder).expect(run.rows)
    return replace(outcome, done=run.count).sample(MILLION)


def run_loop(query: str, file: Path, starter: Starter) -> Outcome:
    """The loop in a process of its own."""
    made = read_all(file)
    begun_s, cpu_s = starter.wait(), time.process_time()
    rows = LOOPS[query](made)
    return Outcome(begun_s, time.monotonic(), rows, time.process_time() - cpu_s)
