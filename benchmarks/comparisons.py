"""The comparisons by name, and the servers and inputs they share, started when first needed."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, cached_property
from pathlib import Path

from benchmarks import (
    constants,
    history,
    idle,
    kafka,
    ledger,
    nexmark,
    nexmark_peers,
    peer_comparisons,
    pipeline,
    simulation,
    spark,
    spark_kafka,
    trident,
    word_count,
)
from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.corpus import write_lines
from benchmarks.measure import Comparison, Log
from benchmarks.names import NAMES
from benchmarks.sweeps import latency, load, memory, pending, ranges, recovery, requests, start_up
from sunshower.dev.kafka import Kafka
from sunshower.dev.servers import Upkeep
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.spark_integration.sessions.environment import java_for_executors


class SharedResources:
    """The Ray, Kafka, ZooKeeper, Spark and input of all comparisons; they end with `stack`."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack, log: Log) -> None:
        self.options, self.stack, self.log = options, stack, log
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sunshower-")))
        self.topic = cache(self._topic)

    @cached_property
    def cluster(self) -> BenchmarkCluster:
        self.log("starting Ray")
        java_for_executors()  # before Ray, which starts the executors of Spark
        return self.stack.enter_context(BenchmarkCluster(self.folder))

    @cached_property
    def lines(self) -> Path:
        self.log(f"drawing {self.options.words:,} words")
        return write_lines(self.folder, self.options.words)

    @cached_property
    def server(self) -> Kafka:
        self.log("starting a Kafka")
        return self.stack.enter_context(Kafka(1, Upkeep(short_lived=False)))

    @cached_property
    def zookeeper(self) -> ZooKeeper:
        self.log("starting a ZooKeeper")
        return self.stack.enter_context(ZooKeeper(Upkeep(short_lived=False), sync=True))

    @property
    def zookeeper_when_all(self) -> Callable[[], ZooKeeper] | None:
        """A function that starts the ZooKeeper; None in a run without all peers."""
        return (lambda: self.zookeeper) if self.options.all else None

    @cached_property
    def local_spark(self) -> spark.SparkBench:
        return spark.local_bench(self.stack)

    def _topic(self, name: str = "lines", share: int = 1) -> kafka.Topic:
        messages = self.options.messages // share
        self.log(f"filling a topic of Kafka with {messages:,} messages")
        return kafka.Topic(self.server, self.lines, messages, name)


def comparisons(shared: SharedResources) -> Iterator[tuple[str, Callable[[], Comparison]]]:
    """The selected names, each with the function that creates its comparison."""
    options, log = shared.options, shared.log
    makers: dict[str, Callable[[], Comparison]] = {
        "ledger": lambda: ledger.comparison(options.windows),
        "simulation": lambda: simulation.comparison(options.simulated),
        "word-count": lambda: word_count.rows_and_columns(
            shared.cluster, shared.lines, options.words, log
        ),
        "word-count-classes": lambda: word_count.classes(
            shared.cluster, shared.lines, options.words, log
        ),
        "constants": lambda: constants.comparison(shared.cluster, options.seconds),
        "word-count-peers": lambda: peer_comparisons.words(
            shared.cluster, shared.lines, options.words, log
        ),
        "constants-peers": lambda: peer_comparisons.constants(shared.cluster, options.seconds, log),
        "nexmark": lambda: nexmark.comparison(shared.cluster, 3 * options.messages),
        "nexmark-once": lambda: nexmark.once(shared.cluster, options.messages // 5),
        "nexmark-peers": lambda: nexmark_peers.comparison(
            shared.cluster, options.messages, 0.0 if options.quick else nexmark_peers.LEAST_S, log
        ),
        "history": lambda: history.comparison(shared.cluster, options.seconds),
        "idle": lambda: idle.comparison(shared.cluster, options.idle_seconds),
        "latency": lambda: latency.comparison(shared.cluster, options.seconds),
        "requests": lambda: requests.comparison(shared.cluster, options.seconds),
        "load": lambda: load.comparison(shared.cluster, options.seconds),
        "sweeps": lambda: ranges.comparison(shared.cluster, options.seconds),
        "pending": lambda: pending.comparison(shared.cluster, shared.lines, options.words),
        "memory": lambda: memory.comparison(shared.cluster, options.seconds),
        "start-up": lambda: start_up.comparison(shared.cluster),
        "recovery": lambda: recovery.comparison(shared.cluster),
        "kafka": lambda: kafka.null_comparison(shared.cluster, shared.topic()),
        "kafka-words": lambda: kafka.words(
            shared.cluster, shared.topic(), shared.topic("few", kafka.SHARE), log
        ),
        "spark": lambda: spark.comparison(
            shared.cluster, shared.local_spark, options.batches, shared.stack
        ),
        "spark-kafka": lambda: spark_kafka.comparison(shared.local_spark, shared.topic()),
        "pipeline": lambda: pipeline.comparison(
            shared.cluster, shared.server, options.messages // 10
        ),
        "exactly-once": lambda: trident.exactly_once(
            shared.cluster, shared.lines, options.words, shared.zookeeper_when_all, log
        ),
        "trident": lambda: trident.batches(
            shared.cluster, options.words, options.seconds, shared.zookeeper, log
        ),
        "trident-kafka": lambda: trident.kafka_words(
            shared.cluster, shared.topic(), shared.topic("few", kafka.SHARE), log
        ),
    }
    for name in NAMES:
        if name in options.only:
            yield name, makers[name]
