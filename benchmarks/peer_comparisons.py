"""Comparisons of word counts and constants with Storm, Flink, Pathway and Spark.

Our own runs are rows of `word_count_peers`, `const_null_peers` and `const_id_null_peers`, because
they are compared only with the peers of the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import constants as passing
from benchmarks import trident, word_count
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.corpus import write_files
from benchmarks.figures import Key, Ratio
from benchmarks.measure import BenchmarkError, Comparison, Entry, Log, Outcome, available
from benchmarks.peers import jvm, python_peers
from benchmarks.spark_words import Setup
from sunshower.runtime.plan import Layout

MILLION = 1e6
_STORM = (1, 1, 500)  # tasks of each component, batch size, pending tuples: fastest on two cores
_COUNTS = 4  # of all words in one Java process: the last one is measured
_PASSES = 3  # of numbers in one Java process: the last one is measured
_PARALLEL = (1, 2)  # tasks of Flink, threads of Pathway


def words(cluster: BenchmarkCluster, lines: Path, count: int, log: Log) -> Comparison:
    """Our word counts and the bare loop, compared with the peers that can run here."""
    ours = {
        name: _as_peer_row(word_count.our_entry(cluster, lines, count, variant))
        for name, variant in (
            ("operators-rows", "operators"),
            ("operators-columns", "operators-columns"),
            ("pack-rows", "rows"),
            ("pack-classes", "classes"),
        )
    }
    loop = _as_peer_row(word_count.bare_loop_entry(cluster.folder, lines, count))
    peers = available(
        {
            "storm": lambda: _storm("wc", lines, count, log),
            "storm, a total for each word": lambda: _storm("wcb", lines, count, log),
            "flink": lambda: _flink("wc", lines, count, log),
            "flink, a total for each word": lambda: _flink("wcb", lines, count, log),
            "pathway": lambda: _pathway(lines, count, log),
            "spark": lambda: _spark(cluster, count),
        },
        log,
    )
    ratios = [
        Ratio(f"{word_count.NAME}/{mine}/{peer.key.system}", ours[mine].key, peer.key)
        for peer in peers.values()
        for mine in compared_with(peer.key)
    ]
    return Comparison("word-count-peers", [*ours.values(), loop, *peers.values()], ratios)


def constants(cluster: BenchmarkCluster, seconds: float, log: Log) -> Comparison:
    """Our tracked constants in one worker, compared with Storm's."""
    workloads = {passing.NULL: "null", passing.THROUGH: "id"}
    ours = {
        workload: _as_peer_row(passing.our_entry(cluster, seconds, workload, Layout.PACK))
        for workload in workloads
    }
    peers = available(
        {
            f"storm, {workload}": partial(_constants, workload, name, seconds, log)
            for workload, name in workloads.items()
        },
        log,
    )
    ratios = [
        Ratio(f"{peer.key.workload}/pack-rows/storm", ours[peer.key.workload].key, peer.key)
        for peer in peers.values()
    ]
    return Comparison("constants-peers", [*ours.values(), *peers.values()], ratios)


def _as_peer_row(entry: Entry) -> Entry:
    """The same entry as a row of the workload `…_peers`."""
    return replace(entry, key=replace(entry.key, workload=f"{entry.key.workload}_peers"))


def compared_with(peer: Key) -> tuple[str, ...]:
    """The variants of ours that do the same as this peer."""
    if peer.variant == "totals":
        return ("pack-classes",)
    return {
        "storm": ("operators-rows", "pack-rows"),
        "flink": ("operators-rows", "operators-columns"),
    }.get(peer.system, ("operators-rows",))


def _storm(workload: str, lines: Path, count: int, log: Log) -> Entry:
    program = jvm.storm(log)
    tasks, batch, pending = _STORM

    def run() -> Outcome:
        return program.run(workload, lines, *_STORM, _COUNTS)

    setup = f"{tasks} task each, batch size {batch}, {pending} pending, 1 acker"
    return _entry("storm", _variant(workload), setup, count, run)


def _flink(workload: str, lines: Path, count: int, log: Log) -> Entry:
    program = jvm.flink(log)

    def run(parallelism: int) -> Outcome:
        return program.run(workload, lines, parallelism, _COUNTS)

    parallelism = _best("flink", run, count, log)
    setup = f"parallelism {parallelism}, exactly-once checkpoints every second"
    return _entry("flink", _variant(workload), setup, count, partial(run, parallelism))


def _pathway(lines: Path, count: int, log: Log) -> Entry:
    interpreter = python_peers.python(log, "requirements-pathway.txt")

    def run(threads: int) -> Outcome:
        return python_peers.count_lines(interpreter, lines, threads)

    threads = _best("pathway", run, count, log)
    setup = f"Python connector, {threads} thread(s)"
    return _entry("pathway", "silent", setup, count, partial(run, threads))


def _spark(cluster: BenchmarkCluster, count: int) -> Entry:
    """As in `trident`: exactly once, into SQLite. All files in one batch, which is the fastest."""
    folder = write_files(cluster.folder, count, trident.FILES)
    return trident.spark_entry(cluster, Setup(trident.FILES), folder, count, word_count.NAME)


def _best(name: str, run: Callable[[int], Outcome], count: int, log: Log) -> int:
    """The fastest of _PARALLEL: each runs once. A run that fails counts as the slowest."""
    results = {}
    for number in _PARALLEL:
        try:
            results[number] = run(number).expect(count).sample(MILLION).value
            text = f"{results[number]:.3g} M words/s"
        except BenchmarkError as error:
            results[number], text = 0.0, str(error)
        log(f"looking for the best set-up of {name}: {number}: {text}")
    return max(results, key=results.__getitem__)


def _variant(workload: str) -> str:
    return "totals" if workload == "wcb" else "silent"


def _entry(system: str, variant: str, setup: str, count: int, run: Callable[[], Outcome]) -> Entry:
    key = Key(word_count.NAME, system, variant, word_count.UNIT)
    return Entry(key, lambda: run().expect(count).sample(MILLION), setup)


def _constants(workload: str, name: str, seconds: float, log: Log) -> Entry:
    program = jvm.storm(log)
    key = Key(workload, "storm", "tracked", passing.UNIT)
    return Entry(key, lambda: program.run(name, seconds, *_STORM, _PASSES).sample(MILLION))
