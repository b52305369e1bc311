"""Comparisons of word counts and constants with Storm, streamparse, Flink, PyFlink, Pathway, Spark.

Our own runs are rows of `word_count_peers`, `const_null_peers` and `const_id_null_peers`, because
they are compared only with the peers of the same rounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks import constants as passing
from benchmarks import trident, word_count
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.corpus import write_files, write_lines
from benchmarks.figures import Key, Ratio
from benchmarks.measure import BenchmarkError, Comparison, Entry, Log, Outcome, available
from benchmarks.peers import jvm, python_peers
from benchmarks.peers.python_peers import PATHWAY, PYFLINK, PYFLINK_MODES, PYSTORM
from benchmarks.processes import Starter, run_together
from benchmarks.spark_words import Setup
from benchmarks.topologies import word_count as word_topology
from sunshower.record_loops import PURE
from sunshower.runtime.plan import Layout

MILLION = 1e6
Chosen = TypeVar("Chosen", int, str)
_STORM = (1, 1, 500)  # tasks of each component, batch size, pending tuples: fastest on two cores
_COUNTS = 4  # of all words in one Java process: the last one is measured
_COUNTS_IN_PYTHON = 2  # likewise, by bolts in Python
_FEWER = 20  # PyFlink and streamparse, which are slower, count one word in this number
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
    uncompiled = _as_peer_row(_uncompiled(cluster.folder, lines, count))
    peers = available(
        {
            "storm": lambda: _storm("wc", lines, count, log),
            "storm, a total for each word": lambda: _storm("wcb", lines, count, log),
            "flink": lambda: _flink("wc", lines, count, log),
            "flink, a total for each word": lambda: _flink("wcb", lines, count, log),
            "pyflink": lambda: _pyflink(cluster.folder, count // _FEWER, log),
            "streamparse": lambda: _streamparse(cluster.folder, count // _FEWER, log),
            "pathway": lambda: _pathway(lines, count, log),
            "spark": lambda: _spark(cluster, Setup(trident.FILES), count),
            "spark-python": lambda: _spark(cluster, Setup(trident.FILES, in_python=True), count),
        },
        log,
    )
    ratios = [
        Ratio(f"{word_count.NAME}/{mine}/{peer.key.system}", ours[mine].key, peer.key)
        for peer in peers.values()
        for mine in compared_with(peer.key)
    ]
    rows = ours["operators-rows"].key
    ratios.append(
        Ratio(f"{word_count.NAME}/operators-rows-uncompiled/operators-rows", uncompiled.key, rows)
    )
    entries = [*ours.values(), loop, uncompiled, *peers.values()]
    return Comparison("word-count-peers", entries, ratios)


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
        "streamparse": ("pack-rows",),
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

    parallelism = _best("flink", run, _PARALLEL, count, log)
    setup = f"parallelism {parallelism}, exactly-once checkpoints every second"
    return _entry("flink", _variant(workload), setup, count, partial(run, parallelism))


def _pathway(lines: Path, count: int, log: Log) -> Entry:
    interpreter = python_peers.python(log, PATHWAY)

    def run(threads: int) -> Outcome:
        return python_peers.count_lines(interpreter, lines, threads)

    threads = _best("pathway", run, _PARALLEL, count, log)
    setup = f"Python connector, {threads} thread(s)"
    return _entry("pathway", "silent", setup, count, partial(run, threads))


def _pyflink(scratch: Path, count: int, log: Log) -> Entry:
    interpreter = python_peers.python(log, PYFLINK)
    folder = write_files(scratch, count, 2)

    def run(mode: str) -> Outcome:
        return python_peers.pyflink(interpreter, folder, "words", mode)

    mode = _best("pyflink", run, PYFLINK_MODES, count, log)
    setup = f"{mode} mode, parallelism 2, exactly-once checkpoints every second"
    return _entry("pyflink", "silent", setup, count, partial(run, mode))


def _streamparse(scratch: Path, count: int, log: Log) -> Entry:
    program, interpreter = jvm.storm(log), python_peers.python(log, PYSTORM)
    lines, bolts = write_lines(scratch, count), python_peers.PYSTORM_BOLTS

    def run() -> Outcome:
        result = program.run("wcp", lines, *_STORM, _COUNTS_IN_PYTHON, interpreter, bolts)
        return replace(result, cpu_s=None)  # it is that of Java alone

    tasks, _, pending = _STORM
    setup = f"{tasks} task each, {pending} pending, 1 acker"
    return _entry("streamparse", "silent", setup, count, run)


def _spark(cluster: BenchmarkCluster, setup: Setup, count: int) -> Entry:
    """As in `trident`: exactly once, into SQLite. All files in one batch, which is the fastest."""
    folder = write_files(cluster.folder, count, trident.FILES)
    return trident.spark_entry(cluster, setup, folder, count, word_count.NAME)


def _uncompiled(folder: Path, lines: Path, count: int) -> Entry:
    """`operators-rows` without the compiled loops, in a Ray of its own."""
    key = Key(word_count.NAME, "sunshower", "operators-rows-uncompiled", word_count.UNIT)
    job = partial(run_uncompiled, folder, lines)
    return Entry(key, lambda: run_together([job], folder).expect(count).sample(MILLION))


def run_uncompiled(folder: Path, lines: Path, starter: Starter) -> Outcome:
    os.environ[PURE] = "1"  # before Ray starts, whose processes have it then
    starter.wait()
    with BenchmarkCluster(folder) as cluster:
        signal = cluster.start_signal()
        return cluster.run(word_topology("operators", lines, signal), signal, Layout.PACK)


def _best(
    name: str, run: Callable[[Chosen], Outcome], setups: Sequence[Chosen], count: int, log: Log
) -> Chosen:
    """The fastest set-up: each runs once. A run that fails counts as the slowest."""
    results = {}
    for setup in setups:
        try:
            results[setup] = run(setup).expect(count).sample(MILLION).value
            text = f"{results[setup]:.3g} M words/s"
        except BenchmarkError as error:
            results[setup], text = 0.0, str(error)
        log(f"looking for the best set-up of {name}: {setup}: {text}")
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
