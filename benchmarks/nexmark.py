"""Queries of the Nexmark benchmark, compared with plain loops over the same events in memory.

`once`: those with states, exactly once, compared with ordinary streams whose states are in SQLite,
too. Both are on the disk when a batch is committed, or a tuple is acked.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from benchmarks.trident_runs import commit_all
from benchmarks.trident_topologies import MAX_BATCHES, SOURCE, WaitingBatches
from examples.nexmark import events, inputs, joins, queries, stateless, totals, windows
from examples.nexmark.events import Bid, Event
from sunshower import Context, Stream, Topology
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.config import Internals
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState
from sunshower.trident import InSqlite, batches
from sunshower.trident.spouts.bounds import Room
from sunshower.trident.spouts.port import PartitionedSpout

NAME, ONCE = "nexmark", "nexmark_once"
QUERIES_ONCE = ("q0", "q4", "q5", "q7", "q9", "q11", "q20")
QUICK, LONGER = ("q0", "q7"), 5  # these have five times the events: else they end within 0.2 s
UNIT = "M events/s"
MILLION = 1e6
RATE = 1_000  # events a second of event time
TEN_S, TWO_S = 10_000, 2_000  # milliseconds
SOURCES = 2  # tasks of the source
Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Run:
    """A query over the `count` events in a file, which make so many rows; None: a running total
    has a row for each batch that changes it."""

    query: str
    file: Path
    count: int
    rows: int | None

    def sample(self, outcome: Outcome) -> Sample:
        """The speed. Raises BenchmarkError for another number of rows."""
        if self.rows is not None:
            outcome.expect(self.rows)
        return replace(outcome, done=self.count).sample(MILLION)


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


class BatchSource(PartitionedSpout):
    """The same events in batches: each task has a partition, whose events are read by `open`."""

    emits = Event
    _events: Sequence[Event] = ()

    def __init__(self, file: Path) -> None:
        self._file = file

    def open(self, context: Context) -> None:
        if context.component == SOURCE:  # not in the coordinator
            self._events = read(self._file, context.index)

    def partitions(self) -> Sequence[str]:
        return [*map(str, range(SOURCES))]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        first = last["end"] if last else 0
        part = self._events[first : first + room.records]
        room.emit(part)
        end = first + len(part)
        return {"first": first, "end": end, "last": end == len(self._events)}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        room.emit(self._events[metadata["first"] : metadata["end"]])

    def is_end(self, partition: str, metadata: Any) -> bool:
        return bool(metadata["last"])


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


def q0(bids: Iterable[Bid]) -> Rows:
    return [(bid.auction, bid.bidder, bid.price, bid.at, bid.extra) for bid in bids]


def q1(bids: Iterable[Bid]) -> Rows:
    return [stateless.in_euros(bid) for bid in bids]


def q2(bids: Iterable[Bid]) -> Rows:
    return [(bid.auction, bid.price) for bid in bids if bid.auction % 123 == 0]


def q5(bids: Iterable[Bid]) -> Rows:
    panes: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for bid in bids:
        panes[bid.at // TWO_S][bid.auction] += 1
    ends: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for pane, counts in panes.items():
        for end in range(pane + 1, pane + 1 + TEN_S // TWO_S):
            ends[end].update(counts)
    rows = []
    for end, counts in ends.items():
        most = max(counts.values())
        rows += [(auction, end * TWO_S, n) for auction, n in counts.items() if n == most]
    return rows


def q7(bids: Iterable[Bid]) -> Rows:
    highest: defaultdict[int, list[Bid]] = defaultdict(list)
    for bid in bids:
        best = highest[bid.at // TEN_S]
        if best and bid.price > best[0].price:
            best.clear()
        if not best or bid.price == best[0].price:
            best.append(bid)
    return [bid for best in highest.values() for bid in best]


def q11(bids: Iterable[Bid]) -> Rows:
    times: defaultdict[int, list[int]] = defaultdict(list)
    for bid in bids:
        times[bid.bidder].append(bid.at)
    rows = []
    for bidder, unsorted in times.items():
        ordered = sorted(unsorted)
        begun = 0
        for number, at in enumerate(ordered, start=1):
            if number == len(ordered) or ordered[number] - at >= TEN_S:
                rows.append((bidder, at + TEN_S, number - begun))
                begun = number
    return rows


def q12(bids: Iterable[Bid]) -> Rows:
    counts: Counter[tuple[int, float]] = Counter()
    for bid in bids:
        counts[bid.bidder, time.time() // 10] += 1
    return [(*group, n) for group, n in counts.items()]


def q20(made: Iterable[Event]) -> Rows:
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
    return rows


LOOPS: dict[str, Callable[[Iterable[Any]], Rows]] = {  # of bids; JOINS: of all events
    loop.__name__: loop for loop in (q0, q1, q2, q5, q7, q11, q12, q20)
}
JOINS = ("q20",)
ADDED = ("q11", "q12")  # how many rows these have depends on the clock, or is few


def count_rows(query: str, made: Sequence[Event]) -> int:
    """How many rows the loop makes of the events, or the sum of their last fields."""
    rows = LOOPS[query](made if query in JOINS else bids_of(made))
    return sum(row[-1] for row in rows) if query in ADDED else len(rows)


def comparison(cluster: BenchmarkCluster, count: int) -> Comparison:
    """Each query over `count` events, a multiple of SOURCES, and its loop."""
    ship([events, inputs, joins, stateless, totals, windows, queries])
    file = cluster.folder / "events"
    write(file, count)
    entries, ratios, made = [], [], read_all(file)
    for name in LOOPS:
        run = Run(name, file, count, count_rows(name, made))
        key, peer = Key(NAME, "sunshower", name, UNIT), Key(NAME, "loop", name, UNIT)
        entries += [
            Entry(key, partial(_ours, cluster, run)),
            Entry(peer, partial(_loop, cluster, run)),
        ]
        ratios.append(Ratio(f"{NAME}/{name}/loop", key, peer))
    return Comparison(NAME, entries, ratios)


def once(cluster: BenchmarkCluster, count: int) -> Comparison:
    """Each query over `count` events, a multiple of SOURCES, or LONGER times as many: in batches,
    and as an ordinary stream, whose states are in a store of the same kind."""
    ship([events, inputs, joins, stateless, totals, windows, queries])
    files = {n: cluster.folder / f"once-{n}" for n in (count, LONGER * count)}
    for n, file in files.items():
        write(file, n)
    entries, ratios = [], []
    for name in QUERIES_ONCE:
        of_query = LONGER * count if name in QUICK else count
        file = files[of_query]
        rows = count_rows(name, read_all(file)) if name in LOOPS else None
        run = Run(name, file, of_query, rows)
        key = Key(ONCE, "sunshower", name, UNIT)
        ordinary = Key(ONCE, "sunshower", f"{name}-ordinary", UNIT)
        entries += [
            Entry(key, partial(_once, cluster, run)),
            Entry(ordinary, partial(_stored, cluster, run)),
        ]
        ratios.append(Ratio(f"{ONCE}/{name}/ordinary", key, ordinary))
    return Comparison(ONCE, entries, ratios)


def declared(run: Run, signal: StartSignal, state: SqliteState | None = None) -> Topology:
    topology = _topology(run)
    source = topology.spout(SOURCE, Source(signal, run.file), parallelism=SOURCES)
    rows = queries.QUERIES[run.query](inputs.declare(topology, source, 2, state))
    return _counted(topology, rows, run)


def declared_once(run: Run, signal: StartSignal, folder: Path) -> Topology:
    topology = _topology(run)
    spout: Any = WaitingBatches(BatchSource(run.file), signal)
    store = InSqlite(folder / "batches.db")
    about: Any = {"parallelism": SOURCES, "store": store, "max_batches": MAX_BATCHES}
    source: Any = batches(topology, SOURCE, spout, **about)
    rows: Any = queries.QUERIES[run.query](
        inputs.declare(topology, source, 2, SqliteState(folder / "states.db"))
    )
    return _counted(topology, rows.records("rows", parallelism=2), run)


def _topology(run: Run) -> Topology:
    name = f"nexmark-{run.query}"
    return Topology(name, workers=2, internals=Internals(idle_poll_s=POLL_S))


def _counted(topology: Topology, rows: Stream[Any], run: Run) -> Topology:
    counter = CountRows(run.query in ADDED)
    rows.local_or_shuffle().bolt("sink", counter, parallelism=2, fields=())
    return topology


def _ours(cluster: BenchmarkCluster, run: Run) -> Sample:
    signal = cluster.start_signal()
    return run.sample(cluster.run(declared(run, signal), signal, Layout.PACK))


def _stored(cluster: BenchmarkCluster, run: Run) -> Sample:
    with cluster.fresh_folder() as folder:
        signal = cluster.start_signal()
        topology = declared(run, signal, SqliteState(folder / "states.db"))
        return run.sample(cluster.run(topology, signal, Layout.PACK))


def _once(cluster: BenchmarkCluster, run: Run) -> Sample:
    with cluster.fresh_folder() as folder:
        signal = cluster.start_signal()
        topology = declared_once(run, signal, folder)
        return run.sample(commit_all(cluster, topology, signal, _rows_of))


def _rows_of(run: RayRun) -> int:
    return sum(count for count, _ in run.results("sink"))


def _loop(cluster: BenchmarkCluster, run: Run) -> Sample:
    looping = partial(run_loop, run.query, run.file)
    return run.sample(run_together([looping], cluster.folder))


def run_loop(query: str, file: Path, starter: Starter) -> Outcome:
    """The loop in a process of its own."""
    made = read_all(file)
    begun_s, cpu_s = starter.wait(), time.process_time()
    rows = count_rows(query, made)
    return Outcome(begun_s, time.monotonic(), rows, time.process_time() - cpu_s)
