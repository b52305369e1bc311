"""The word counts: A (plain tuples, no output), by columns, and B (classes, every total)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.baselines import bare_loop, plain_process
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.bytewax_flows import Setup, count_words
from benchmarks.corpus import write_lines
from benchmarks.figures import Key, Ratio
from benchmarks.measure import Comparison, Entry, Log, Sample
from benchmarks.processes import run_together
from benchmarks.topologies import word_count
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState

MILLION = 1e6
NAME = "word_count"
UNIT = "M words/s"
_PLACES = ((1, 1), (1, 2), (2, 1))  # processes, threads of each
_BATCHES = (100, 1_000, 10_000)  # lines; ten words each
_FINALISTS = 3


def rows_and_columns(cluster: BenchmarkCluster, path: Path, words: int, log: Log) -> Comparison:
    """Word count A and the columns, compared with Bytewax's count_final and a bare loop."""
    ours = partial(our_entry, cluster, path, words)
    rows, columns = ours("rows"), ours("columns")
    untracked, free = ours("rows", ackers=0), ours("operators", ackers=0)
    operators, by_kernels = ours("operators"), ours("operators-columns")
    as_list, chain = ours("operators-list"), ours("operators-chain")
    stored = sqlite_entry(
        cluster, path, words, Key(NAME, "sunshower", "operators-rows-sqlite", UNIT)
    )
    bytewax = _bytewax("count_final", cluster.folder, path, words, log)
    loop = bare_loop_entry(cluster.folder, path, words)
    return Comparison(
        "word-count",
        [
            *(rows, operators, bytewax, loop, columns, by_kernels, untracked, free, stored),
            *(as_list, chain),
        ],
        [
            _ratio(rows, "bytewax", bytewax),
            _ratio(rows, "loop", loop),
            _ratio(rows, "untracked", untracked),
            _ratio(operators, "loop", loop),
            _ratio(operators, "bytewax", bytewax),
            _ratio(operators, "untracked", free),
            _ratio(stored, "operators-rows", operators),
            _ratio(as_list, "operators-rows", operators),
            _ratio(chain, "operators-rows", operators),
            _ratio(columns, "loop", loop),
            _ratio(by_kernels, "loop", loop),
            _ratio(columns, "bytewax", bytewax),
        ],
    )


def sqlite_entry(cluster: BenchmarkCluster, path: Path, words: int, key: Key) -> Entry:
    """The operators over rows with their state in SQLite, in a new file for each run."""

    def run() -> Sample:
        with cluster.fresh_folder() as folder:
            signal, state = cluster.start_signal(), SqliteState(folder / "counts.db")
            topology = word_count("operators", path, signal, state)
            return cluster.run(topology, signal, Layout.PACK).expect(words).sample(MILLION)

    return Entry(key, run)


def classes(cluster: BenchmarkCluster, path: Path, words: int, log: Log) -> Comparison:
    """Word count B, compared with Bytewax's stateful_map and two processes without a runtime."""
    ours = our_entry(cluster, path, words, "classes")
    bytewax = _bytewax("stateful_map", cluster.folder, path, words, log)
    jobs = [partial(plain_process, path, index, 2) for index in range(2)]
    plain = Entry(
        Key(NAME, "two-processes", "classes", UNIT), partial(_peer, jobs, cluster.folder, words)
    )
    return Comparison(
        "word-count-classes",
        [ours, plain, bytewax],
        [_ratio(ours, "two-processes", plain), _ratio(ours, "bytewax", bytewax)],
    )


def _ratio(ours: Entry, peer: str, theirs: Entry) -> Ratio:
    return Ratio(f"{NAME}/{ours.key.variant}/{peer}", ours.key, theirs.key)


def our_entry(
    cluster: BenchmarkCluster, path: Path, words: int, variant: str, **settings: int
) -> Entry:
    """Our word count; `variant` as in topologies.word_count."""

    def run() -> Sample:
        signal = cluster.start_signal()
        topology = word_count(variant, path, signal, **settings)
        return cluster.run(topology, signal, Layout.PACK).expect(words).sample(MILLION)

    name = variant if variant.startswith("operators-") else f"pack-{variant}"
    name = "operators-rows" if variant == "operators" else name
    if settings.get("ackers") == 0:
        name += "-untracked"
    return Entry(Key(NAME, "sunshower", name, UNIT), run)


def bare_loop_entry(folder: Path, path: Path, words: int) -> Entry:
    """One bare loop that calls the same functions."""
    run = partial(_peer, [partial(bare_loop, path)], folder, words)
    return Entry(Key(NAME, "loop", "rows", UNIT), run)


def _peer(jobs: Sequence[partial], folder: Path, words: int) -> Sample:
    return run_together(jobs, folder).expect(words).sample(MILLION)


def _bytewax(operator: str, folder: Path, path: Path, words: int, log: Log) -> Entry:
    """Bytewax in its fastest configuration, found with half of the words, then with all of them."""

    def speed(setup: Setup, lines: Path, count: int) -> Sample:
        jobs = setup.jobs(partial(count_words, lines))
        outcome = run_together(jobs, folder, ready=setup.workers)
        return outcome.expect(count).sample(MILLION)

    def best(setups: Iterable[Setup], lines: Path, count: int) -> list[Setup]:
        counts = {}
        for setup in setups:
            counts[setup] = speed(setup, lines, count).value
            log(f"looking for the best set-up of bytewax: {setup.name}: {counts[setup]:.3g} {UNIT}")
        return sorted(counts, key=counts.__getitem__, reverse=True)

    half = max(words // 2_000, 1) * 1_000
    setups = [Setup(operator, *place, lines) for place, lines in product(_PLACES, _BATCHES)]
    finalists = best(setups, write_lines(folder, half), half)[:_FINALISTS]
    chosen = best(finalists, path, words)[0]
    key = Key(NAME, "bytewax", operator, UNIT)
    return Entry(key, partial(speed, chosen, path, words), chosen.name)
