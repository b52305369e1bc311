"""Exactly once: word counts compared with at least once, Spark and Quix; empty batches; memory.

Counts and progress are in SQLite, on the disk when a batch is committed. In `…-zookeeper` the
progress is in a ZooKeeper of one server, also on the disk. At least once (`pack-plain`,
`kafka-plain`) has the same operators and states, without `batches`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import kafka, word_count
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.corpus import write_files
from benchmarks.figures import Key, Ratio
from benchmarks.measure import Comparison, Entry, Log, Sample
from benchmarks.peers import python_peers
from benchmarks.processes import run_together
from benchmarks.spark_words import Setup
from benchmarks.trident_runs import commit_all, empty_batches, growth, words_counted
from benchmarks.trident_topologies import without_rows, words_in_files, words_in_kafka
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.topologies.operators.states import StateKind
from sunshower.trident import InZooKeeper

RECORDS = 10_000  # lines in each of the two shares of a batch
MESSAGES = 20_000  # likewise, messages of Kafka
FILES = 40
LONGER = 10  # times as many words, for the memory
_EMPTY_S = 3.0  # at least: there are five empty batches a second, fewer on a busy machine
_NAME, _UNIT, _MILLION = "trident", "M words/s", 1e6


def exactly_once(
    cluster: BenchmarkCluster,
    lines: Path,
    count: int,
    with_peers: Callable[[], ZooKeeper] | None,
    log: Log,
) -> Comparison:
    """Words in files, exactly once, compared with the same operators at least once.

    `with_peers`: also compared with Spark, and with progress in the ZooKeeper that it returns.
    """
    log(f"writing the words into {FILES} files")
    folder = write_files(cluster.folder, count, FILES)
    kinds = (StateKind.OPAQUE, StateKind.TRANSACTIONAL)
    opaque, transactional = (_files(cluster, folder, count, kind) for kind in kinds)
    plain = word_count.sqlite_entry(
        cluster, lines, count, Key(_NAME, "sunshower", "pack-plain", _UNIT)
    )
    entries = [opaque, plain, transactional]
    ratios = [
        _ratio("pack-opaque", "at-least-once", opaque, plain),
        _ratio("pack-transactional", "at-least-once", transactional, plain),
    ]
    if with_peers is not None:
        stored = _files(cluster, folder, count, kinds[0], with_peers())
        sparks = [spark_entry(cluster, Setup(files), folder, count) for files in (4, FILES)]
        entries += [stored, *sparks]
        ratios += [
            _ratio("pack-opaque-zookeeper", "sqlite", stored, opaque),
            _ratio("pack-opaque", "spark", opaque, sparks[0]),
            _ratio("pack-opaque", "spark-one-batch", opaque, sparks[1]),
        ]
    return Comparison("exactly-once", entries, ratios)


def batches(
    cluster: BenchmarkCluster, count: int, seconds: float, zookeeper: ZooKeeper, log: Log
) -> Comparison:
    """Empty batches, and the memory growth with ten times as many words."""
    log(f"writing {LONGER} times the words into {FILES * LONGER} files")
    longer = write_files(cluster.folder, count, FILES, LONGER)
    kinds = (StateKind.OPAQUE, StateKind.TRANSACTIONAL)
    stored = _empty(cluster, kinds[0], "wall", seconds, zookeeper=zookeeper)
    empty = [_empty(cluster, kind, what, seconds) for kind in kinds for what in ("wall", "cpu")]
    alone = [_empty(cluster, kinds[0], what, seconds, workers=1) for what in ("wall", "cpu")]
    memory = Entry(
        Key(_NAME, "sunshower", "memory-growth", "MiB"),
        partial(_growth, cluster, longer, count * LONGER),
    )
    return Comparison(
        "trident",
        [stored, *empty, *alone, memory],
        [_ratio("empty-opaque-zookeeper-wall", "sqlite", stored, empty[0])],
        rounds=2,
    )


def kafka_words(
    cluster: BenchmarkCluster, topic: kafka.Topic, few: kafka.Topic, log: Log
) -> Comparison:
    """Words in a topic; Quix, which is slower, counts those of the smaller topic `few`."""
    interpreter = python_peers.python(log)
    ours = Entry(Key(_NAME, "sunshower", "kafka-opaque", _UNIT), partial(_kafka, cluster, topic))
    plain = kafka.count_entry(
        cluster, topic, "operators", Key(_NAME, "sunshower", "kafka-plain", _UNIT)
    )
    peers = [
        Entry(Key(_NAME, "quix", how, _UNIT), partial(_quix, interpreter, how, few))
        for how in ("group-by", "by-partition")
    ]
    return Comparison(
        "trident-kafka",
        [ours, plain, *peers],
        [
            _ratio("kafka-opaque", "at-least-once", ours, plain),
            _ratio("kafka-opaque", "quix", ours, peers[0]),
            _ratio("kafka-opaque", "quix-by-partition", ours, peers[1]),
        ],
        rounds=2,
    )


def _ratio(variant: str, peer: str, ours: Entry, theirs: Entry) -> Ratio:
    return Ratio(f"{_NAME}/{variant}/{peer}", ours.key, theirs.key)


def _files(
    cluster: BenchmarkCluster,
    lines: Path,
    count: int,
    kind: StateKind,
    zookeeper: ZooKeeper | None = None,
) -> Entry:
    def run() -> Sample:
        with cluster.fresh_folder() as folder:
            signal, store = cluster.start_signal(), _store(zookeeper, folder)
            topology = words_in_files(signal, lines, folder, RECORDS, kind, store)
            done = partial(words_counted, folder, kind)
            return commit_all(cluster, topology, signal, done).expect(count).sample(_MILLION)

    return Entry(Key(_NAME, "sunshower", f"pack-{kind.value}{_suffix(zookeeper)}", _UNIT), run)


def _store(zookeeper: ZooKeeper | None, folder: Path) -> InZooKeeper | None:
    """A store for one run; None: the default store in the folder."""
    return InZooKeeper(f"{zookeeper.connect}/{folder.name}") if zookeeper else None


def _suffix(zookeeper: ZooKeeper | None) -> str:
    return "-zookeeper" if zookeeper else ""


def _kafka(cluster: BenchmarkCluster, topic: kafka.Topic) -> Sample:
    with cluster.fresh_folder() as folder:
        signal = cluster.start_signal()
        topology = words_in_kafka(signal, topic.settings(), topic.name, folder, MESSAGES)
        done = partial(words_counted, folder, StateKind.OPAQUE)
        return commit_all(cluster, topology, signal, done).expect(topic.words).sample(_MILLION)


def _empty(
    cluster: BenchmarkCluster,
    kind: StateKind,
    what: str,
    seconds: float,
    workers: int = 2,
    zookeeper: ZooKeeper | None = None,
) -> Entry:
    def run() -> Sample:
        with cluster.fresh_folder() as folder:
            signal, store = cluster.start_signal(), _store(zookeeper, folder)
            topology = without_rows(signal, folder, kind, workers, store)
            return Sample(empty_batches(cluster, topology, signal, max(seconds, _EMPTY_S))[what])

    where = "-one-worker" if workers == 1 else _suffix(zookeeper)
    return Entry(Key(_NAME, "sunshower", f"empty-{kind.value}{where}-{what}", "ms"), run)


def _growth(cluster: BenchmarkCluster, lines: Path, count: int) -> Sample:
    with cluster.fresh_folder() as folder:
        signal = cluster.start_signal()
        topology = words_in_files(signal, lines, folder, RECORDS)
        return growth(cluster, topology, signal, folder, count)


def spark_entry(
    cluster: BenchmarkCluster, setup: Setup, lines: Path, count: int, workload: str = _NAME
) -> Entry:
    """Structured Streaming counts the words of a folder of files."""

    def run() -> Sample:
        with cluster.fresh_folder() as folder:
            job = partial(setup.count_words, lines, folder)
            return run_together([job], folder).expect(count).sample(_MILLION)

    return Entry(Key(workload, setup.system, setup.name, _UNIT), run)


def _quix(interpreter: Path, how: str, topic: kafka.Topic) -> Sample:
    return kafka.count_in_state(interpreter, f"{how}:exactly-once", topic).sample(_MILLION)
