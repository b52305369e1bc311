"""Queries of Nexmark over CSV files, compared with plain loops, Flink SQL, PyFlink and Bytewax.

Every system reads and parses the same files, and has a number of events by which its run takes ten
seconds: the smallest of some numbers that is enough, which is found by trials. The speed is that of
the bids. Every answer is compared with that of the plain loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from benchmarks import nexmark_bytewax, nexmark_files
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.bytewax_flows import Setup
from benchmarks.figures import Key, Ratio
from benchmarks.measure import (
    BenchmarkError,
    Comparison,
    Entry,
    Log,
    MissingRequirement,
    Outcome,
    Sample,
)
from benchmarks.nexmark import LOOPS, SOURCES
from benchmarks.peers import jvm, python_peers
from benchmarks.peers.python_peers import PYFLINK, PYFLINK_MODES
from benchmarks.processes import run_together
from examples.nexmark import events, inputs, joins, queries, stateless, totals, windows
from sunshower.actors.shipping import ship
from sunshower.runtime.plan import Layout

NAME = "nexmark_files"
UNIT = "M bids/s"
MILLION = 1e6
PARALLELISM = 2
LEAST_S = 10.0  # seconds of a run
_STEPS = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # numbers of events, as multiples of one
_SLOW, _FAST = 0, 2  # the step of the first trial; Flink needs files that take a while to read
_BATCH = 1_000  # bids, of Bytewax
_PLACES = ((1, 1), (1, 2), (2, 1))  # of Bytewax: processes, threads of each

_HOP = "HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
_TUMBLE = "TUMBLE(TABLE bid, DESCRIPTOR(`at`), INTERVAL '10' SECOND)"
# Flink merges sessions that are exactly the gap apart.
_SESSION = "SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`at`), INTERVAL '9.999' SECOND)"
_FIRST = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY {} DESC) AS place"
SQL: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, tally(price), ms, extra FROM bid",
    "q1": "SELECT auction, bidder, tally(0.908E0 * price), ms, extra FROM bid",
    "q2": "SELECT auction, tally(price) FROM bid WHERE MOD(auction, 123) = 0",
    # Flink has no RANK of windows: of auctions with equally many bids it finds one.
    "q5": (
        "SELECT auction, tally(bids), window_end FROM ("
        f"SELECT auction, bids, window_end, {_FIRST.format('bids')} FROM ("
        "SELECT auction, COUNT(*) AS bids, window_start, window_end "
        f"FROM TABLE({_HOP}) GROUP BY auction, window_start, window_end)) WHERE place <= 1"
    ),
    "q7": (
        "SELECT auction, bidder, tally(price), ms FROM ("
        f"SELECT auction, bidder, price, ms, {_FIRST.format('price')} FROM TABLE({_TUMBLE})) "
        "WHERE place <= 1"
    ),
    "q11": (
        "SELECT bidder, tally(bids * bids), window_end FROM ("
        "SELECT bidder, COUNT(*) AS bids, window_start, window_end "
        f"FROM TABLE({_SESSION}) GROUP BY bidder, window_start, window_end)"
    ),
    # By event time: when the input ends, Flink ends no windows of the clock.
    "q12": (
        "SELECT bidder, tally(bids), window_end FROM ("
        "SELECT bidder, COUNT(*) AS bids, window_start, window_end "
        f"FROM TABLE({_TUMBLE}) GROUP BY bidder, window_start, window_end)"
    ),
    "q20": (
        "SELECT bid.auction, bid.bidder, tally(bid.price), bid.channel, bid.url, bid.ms, "
        "bid.extra, item, description, first_price, least_price, auction.ms, expires, seller, "
        "category, auction.extra FROM bid JOIN auction ON bid.auction = auction.id "
        "WHERE category = 10"
    ),
}


@dataclass(frozen=True)
class Input:
    """Files of so many bids."""

    folder: Path
    bids: int


class Inputs:
    """The files and the answers, which are made when they are first needed."""

    def __init__(self, folder: Path, events: int, log: Log) -> None:
        self._folder, self._log = folder, log
        self.sizes = [round(events * step) // SOURCES * SOURCES for step in _STEPS]
        self.of = cache(self._written)
        self.answers = cache(self._answers)

    def _written(self, size: int) -> Input:
        self._log(f"writing {size:,} events of Nexmark")
        folder = self._folder / f"nexmark-{size}"
        return Input(folder, nexmark_files.write(folder, size))

    def _answers(self, query: str, size: int) -> tuple[int, int]:
        """The answer, and that with one row of each window."""
        loop = partial(nexmark_files.run_loop, query, self.of(size).folder)
        outcome = run_together([loop], self._folder)
        return outcome.done, round(outcome.more[nexmark_files.OF_FIRST])


Run = Callable[[Path], Outcome]  # of a folder; `done` is the answer


@dataclass(frozen=True)
class System:
    """`setups`: each way to run a query, by its name. `has_ties`: whether the highest of a window
    are all that are equal. `first`: the step of the first trial."""

    setups: Callable[[str], Mapping[str, Run]]
    has_ties: bool = True
    first: int = _FAST


def comparison(cluster: BenchmarkCluster, count: int, least_s: float, log: Log) -> Comparison:
    """All queries. A run has a fiftieth to eight times `count` events, and takes `least_s`."""
    ship([events, inputs, joins, stateless, totals, windows, queries, nexmark_files])
    files = Inputs(cluster.folder, count, log)
    systems = available_systems(cluster, files, log)
    entries, ratios = [], []
    for query in LOOPS:
        keys = {name: Key(NAME, name, query, UNIT) for name in systems}
        for name, key in keys.items():
            try:
                entries.append(_chosen(key, systems[name], files, least_s, log))
            except Exception as error:  # the others can be measured
                log(f"{key.name} has failed: {error}")
                entries.append(Entry(key, partial(_fail, error)))
        ours = keys.pop("sunshower")
        ratios += [Ratio(f"{NAME}/{query}/{name}", ours, key) for name, key in keys.items()]
    return Comparison("nexmark-peers", entries, ratios)


def _fail(error: Exception) -> Sample:
    raise error


def available_systems(cluster: BenchmarkCluster, files: Inputs, log: Log) -> dict[str, System]:
    """Ours, the loop, and the peers that can run here."""
    makers: dict[str, Callable[[], System]] = {
        "sunshower": lambda: System(lambda query: {"": partial(_ours, cluster, query)}),
        "loop": lambda: System(lambda query: {"": partial(_loop, cluster.folder, query)}),
        "flink-sql": lambda: _flink_sql(files, log),
        "pyflink": lambda: _pyflink(log),
        "bytewax": lambda: System(partial(_bytewax, cluster.folder)),
    }
    systems = {}
    for name, make in makers.items():
        try:
            systems[name] = make()
        except MissingRequirement as error:
            log(f"{name} is skipped: {error}")
    return systems


def _chosen(key: Key, system: System, files: Inputs, least_s: float, log: Log) -> Entry:
    """The fastest way to run a query, over so many events that it takes `least_s`.

    Raises BenchmarkError if none of the ways has a result.
    """
    query, (smallest, *larger_ones) = key.variant, files.sizes[system.first :]
    speeds: dict[str, tuple[float, float]] = {}  # (M bids/s, seconds)
    setups, errors = system.setups(query), []
    for name, run in setups.items():
        try:
            speeds[name] = _speed(run, query, smallest, files, system.has_ties)
        except BenchmarkError as error:
            errors.append(str(error))
            continue
        log(f"{key.name} {name}: {speeds[name][0]:.3g} {UNIT} of {smallest:,} events")
    if not speeds:
        raise BenchmarkError("; ".join(errors))
    best = max(speeds, key=lambda name: speeds[name][0])
    size, seconds = smallest, speeds[best][1]
    for larger in larger_ones:
        if seconds >= least_s:
            break
        if seconds * larger / size < least_s and larger != files.sizes[-1]:
            continue
        size = larger
        speed, seconds = _speed(setups[best], query, size, files, system.has_ties)
        log(f"{key.name} {best}: {speed:.3g} {UNIT} of {size:,} events")
    text = f"{best}, " if best else ""
    sample = partial(_sample, setups[best], query, size, files, system.has_ties)
    return Entry(key, sample, f"{text}{size / MILLION:g} M events")


def _speed(run: Run, query: str, size: int, files: Inputs, has_ties: bool) -> tuple[float, float]:
    """(M bids a second, seconds)."""
    speed = _sample(run, query, size, files, has_ties).value
    return speed, files.of(size).bids / MILLION / speed


def _sample(run: Run, query: str, size: int, files: Inputs, has_ties: bool) -> Sample:
    expected, of_first = files.answers(query, size)
    outcome = run(files.of(size).folder).expect(expected if has_ties else of_first)
    return replace(outcome, done=files.of(size).bids, more={}).sample(MILLION)


def _ours(cluster: BenchmarkCluster, query: str, folder: Path) -> Outcome:
    signal = cluster.start_signal()
    return cluster.run(nexmark_files.declared(query, folder, signal), signal, Layout.PACK)


def _loop(scratch: Path, query: str, folder: Path) -> Outcome:
    return run_together([partial(nexmark_files.run_loop, query, folder)], scratch)


def _bytewax(scratch: Path, query: str) -> Mapping[str, Run]:
    ready = SOURCES * len(nexmark_bytewax.inputs_of(query))

    def run(setup: Setup, folder: Path) -> Outcome:
        jobs = setup.jobs(partial(nexmark_bytewax.declare, query, folder))
        return run_together(jobs, scratch, ready)

    setups = [Setup(query, *place, _BATCH) for place in _PLACES]
    return {setup.name: partial(run, setup) for setup in setups}


def _flink_sql(files: Inputs, log: Log) -> System:
    program = jvm.flink_sql(log)

    def run(query: str, folder: Path) -> Outcome:
        shorter = files.of(files.sizes[_FAST]).folder
        return program.run(folder, shorter, PARALLELISM, SQL[query])

    return System(lambda query: {"": partial(run, query)}, has_ties=False)


def _pyflink(log: Log) -> System:
    interpreter = python_peers.python(log, PYFLINK)

    def run(query: str, mode: str, folder: Path) -> Outcome:
        return python_peers.pyflink(interpreter, folder, query, mode)

    def setups(query: str) -> Mapping[str, Run]:
        return {f"{mode} mode": partial(run, query, mode) for mode in PYFLINK_MODES}

    return System(setups, first=_SLOW)
