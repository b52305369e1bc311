"""The comparisons by name, and the servers and inputs they share, started when first needed."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, cached_property
from pathlib import Path

from benchmarks import (
    beside_peers,
    constants,
    history,
    idle,
    kafka,
    ledger,
    pipeline,
    simulation,
    spark,
    spark_kafka,
    trident,
    word_count,
)
from benchmarks.clusters import Arena
from benchmarks.corpus import write_lines
from benchmarks.measure import Match, Tell
from benchmarks.names import NAMES
from benchmarks.sweeps import latency, load, memory, pending, ranges, recovery, start_up
from sunshower.dev.kafka import Kafka
from sunshower.dev.servers import Upkeep
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.spark_integration.sessions.environment import java_for_executors


class Shared:
    """The Ray, Kafka, ZooKeeper, Spark and input of all comparisons; they end with `stack`."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack, tell: Tell) -> None:
        self.options, self.stack, self.tell = options, stack, tell
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sunshower-")))
        self.topic = cache(self._topic)

    @cached_property
    def arena(self) -> Arena:
        self.tell("starting Ray")
        java_for_executors()  # before Ray, which starts the executors of Spark
        return self.stack.enter_context(Arena(self.folder))

    @cached_property
    def lines(self) -> Path:
        self.tell(f"drawing {self.options.words:,} words")
        return write_lines(self.folder, self.options.words)

    @cached_property
    def server(self) -> Kafka:
        self.tell("starting a Kafka")
        return self.stack.enter_context(Kafka(1, Upkeep(short_lived=False)))

    @cached_property
    def zookeeper(self) -> ZooKeeper:
        self.tell("starting a ZooKeeper")
        return self.stack.enter_context(ZooKeeper(Upkeep(short_lived=False), sync=True))

    @property
    def zookeeper_when_all(self) -> Callable[[], ZooKeeper] | None:
        """Starts the ZooKeeper; None in a run without all peers."""
        return (lambda: self.zookeeper) if self.options.all else None

    @cached_property
    def local_spark(self) -> spark.Bench:
        return spark.local(self.stack)

    def _topic(self, name: str = "lines", share: int = 1) -> kafka.Topic:
        messages = self.options.messages // share
        self.tell(f"filling a topic of Kafka with {messages:,} messages")
        return kafka.Topic(self.server, self.lines, messages, name)


def matches(shared: Shared) -> Iterator[tuple[str, Callable[[], Match]]]:
    """The selected names, each with the function that creates its comparison."""
    options, tell = shared.options, shared.tell
    makers: dict[str, Callable[[], Match]] = {
        "ledger": lambda: ledger.match(options.windows),
        "simulation": lambda: simulation.match(options.simulated),
        "word-count": lambda: word_count.rows_and_columns(
            shared.arena, shared.lines, options.words, tell
        ),
        "word-count-classes": lambda: word_count.classes(
            shared.arena, shared.lines, options.words, tell
        ),
        "constants": lambda: constants.match(shared.arena, options.seconds),
        "word-count-peers": lambda: beside_peers.words(
            shared.arena, shared.lines, options.words, tell
        ),
        "constants-peers": lambda: beside_peers.constants(shared.arena, options.seconds, tell),
        "history": lambda: history.match(shared.arena, options.seconds),
        "idle": lambda: idle.match(shared.arena, options.idle_seconds),
        "latency": lambda: latency.match(shared.arena, options.seconds),
        "load": lambda: load.match(shared.arena, options.seconds),
        "sweeps": lambda: ranges.match(shared.arena, options.seconds),
        "pending": lambda: pending.match(shared.arena, shared.lines, options.words),
        "memory": lambda: memory.match(shared.arena, options.seconds),
        "start-up": lambda: start_up.match(shared.arena),
        "recovery": lambda: recovery.match(shared.arena),
        "kafka": lambda: kafka.reading(shared.arena, shared.topic()),
        "kafka-words": lambda: kafka.words(shared.arena, shared.topic(), tell),
        "spark": lambda: spark.match(
            shared.arena, shared.local_spark, options.batches, shared.stack
        ),
        "spark-kafka": lambda: spark_kafka.match(shared.local_spark, shared.topic()),
        "pipeline": lambda: pipeline.match(shared.arena, shared.server, options.messages // 10),
        "exactly-once": lambda: trident.exactly_once(
            shared.arena, shared.lines, options.words, shared.zookeeper_when_all, tell
        ),
        "trident": lambda: trident.batches(
            shared.arena, options.words, options.seconds, shared.zookeeper, tell
        ),
        "trident-kafka": lambda: trident.kafka_words(
            shared.arena, shared.topic(), shared.topic("few", trident.SHARE), tell
        ),
    }
    for name in NAMES:
        if name in options.only:
            yield name, makers[name]
