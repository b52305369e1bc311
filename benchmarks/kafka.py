"""Kafka: messages that are discarded, and word counts compared with Faust and Quix.

One broker has a topic of four partitions, with messages of 100 bytes and about 13 words. Each run
reads it from the beginning, in its own consumer group. Our spouts and the bare loop prefetch at
most 8 MB, so that the reading is measured, and not what was fetched before the start.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.benchmark_cluster import BenchmarkCluster
from benchmarks.figures import Key, Ratio
from benchmarks.kafka_topologies import kafka_null, kafka_words
from benchmarks.measure import BenchmarkError, Comparison, Entry, Log, Outcome, Sample
from benchmarks.peers import python_peers
from benchmarks.processes import Starter, run_together
from sunshower.dev.kafka import Kafka
from sunshower.kafka.options import Guarantee
from sunshower.runtime.plan import Layout

PARTITIONS = 4
SHARE = 100  # Quix counts the words of one message in this number, where it has a state
BYTES = 100
MILLION = 1e6
_PREFETCH = {"queued.max.messages.kbytes": 8 << 10, "fetch.queue.backoff.ms": 2}
_NEVER_S = 1e9
_NAME = "kafka"


class Topic:
    """A topic of lines. `words`: the number of words in all messages. The key of a message is its
    partition."""

    def __init__(self, server: Kafka, lines: Path, messages: int, name: str = "lines") -> None:
        self.address = server.bootstrap
        self.name, self.messages = name, messages
        texts = [line[:BYTES].ljust(BYTES) for line in lines.read_text().splitlines()]
        values = list(islice(cycle(texts), messages))
        self.words = sum(len(value.split()) for value in values)
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(self.name, PARTITIONS)])[self.name].result(60)
        producer = Producer(
            {"bootstrap.servers": self.address, "queue.buffering.max.messages": 1_000_000}
        )
        for index, value in enumerate(values):
            partition = index % PARTITIONS
            producer.produce(self.name, value, str(partition), partition)
            if index % 1000 == 0:
                producer.poll(0)
        if producer.flush(120):
            raise BenchmarkError("the topic could not be filled")

    def settings(self) -> dict[str, object]:
        """The settings of a consumer in a new group."""
        return {
            "bootstrap.servers": self.address,
            "group.id": f"bench-{uuid.uuid4().hex}",
            **_PREFETCH,
        }


def null_comparison(cluster: BenchmarkCluster, topic: Topic) -> Comparison:
    """KafkaSpout → null, with values only: with a commit every second, without commits, and
    without a guarantee; and with whole records."""

    def ours(variant: str, fields: Sequence[str] = ("value",), **options: object) -> Entry:
        key = Key(_NAME, "sunshower", f"pack-null-{variant}", "M messages/s")
        return Entry(key, partial(_null, cluster, topic, fields, options))

    committing = ours("at-least-once")
    whole = ours("whole-records", ())
    uncommitted = ours("never-committed", commit_s=_NEVER_S)
    unguaranteed = ours("no-guarantee", guarantee=Guarantee.NONE)
    loop = Entry(Key(_NAME, "loop", "consume", "M messages/s"), partial(_bare, cluster, topic))
    return Comparison(
        "kafka",
        [committing, loop, uncommitted, unguaranteed, whole],
        [
            Ratio(f"{_NAME}/at-least-once/loop", committing.key, loop.key),
            Ratio(f"{_NAME}/whole-records/loop", whole.key, loop.key),
            Ratio(f"{_NAME}/at-least-once/never-committed", committing.key, uncommitted.key),
        ],
    )


def count_entry(
    cluster: BenchmarkCluster, topic: Topic, variant: str = "rows", key: Key | None = None
) -> Entry:
    """Our count of the words of all messages, by `rows`, `columns` or `operators`.

    `key`: the key of a count by operators whose state is in SQLite.
    """
    durable = key is not None
    name = variant if variant == "operators" else f"pack-{variant}"
    key = key or Key("kafka_words", "sunshower", name, "M words/s")
    return Entry(key, partial(_words, cluster, topic, variant, durable))


def words(cluster: BenchmarkCluster, topic: Topic, few: Topic, log: Log) -> Comparison:
    """Word counts from the topic. The peers, which are slower, count a tenth of the messages; with
    a state on the disk, all of `few`."""
    interpreter = python_peers.python(log)
    unit = "M words/s"
    ours = [count_entry(cluster, topic, variant) for variant in ("operators", "rows", "columns")]
    peers = [
        Entry(Key("kafka_words", peer, how, unit), partial(_peer, interpreter, peer, how, topic))
        for peer, how in (("faust", "agent"), ("quix", "expand"), ("quix", "one-function"))
    ]
    durable = count_entry(
        cluster, topic, "operators", Key("kafka_words", "sunshower", "operators-sqlite", unit)
    )
    stored = [
        Entry(
            Key("kafka_words", "quix", f"rocksdb-{how}", unit),
            partial(_in_state, interpreter, f"{how}:at-least-once", few),
        )
        for how in ("group-by", "by-partition")
    ]
    names = ("faust", "quix", "quix-one-function")
    ratios = [
        Ratio(f"kafka_words/{variant.key.variant}/{name}", variant.key, peer.key)
        for variant in ours
        for name, peer in zip(names, peers, strict=True)
    ]
    ratios += [
        Ratio("kafka_words/operators-sqlite/quix-rocksdb", durable.key, stored[0].key),
        Ratio("kafka_words/operators-sqlite/quix-rocksdb-by-partition", durable.key, stored[1].key),
    ]
    return Comparison("kafka-words", [*ours, *peers, durable, *stored], ratios)


def _null(
    cluster: BenchmarkCluster, topic: Topic, fields: Sequence[str], options: dict[str, object]
) -> Sample:
    signal = cluster.start_signal()
    topology = kafka_null(signal, topic.settings(), topic.name, topic.messages, fields, options)
    return cluster.run(topology, signal, Layout.PACK).expect(topic.messages).sample(MILLION)


def _words(cluster: BenchmarkCluster, topic: Topic, variant: str, durable: bool) -> Sample:
    with cluster.fresh_folder() as folder:
        signal, file = cluster.start_signal(), folder / "counts.db" if durable else None
        topology = kafka_words(signal, topic.settings(), topic.name, topic.messages, variant, file)
        return cluster.run(topology, signal, Layout.PACK).expect(topic.words).sample(MILLION)


def _peer(interpreter: Path, peer: str, how: str, topic: Topic) -> Sample:
    messages = max(topic.messages // 10, 1000)
    share = topic.words * messages // topic.messages
    source = (topic.address, topic.name)
    result = python_peers.count_words(interpreter, peer, how, *source, messages, share)
    return result.sample(MILLION)


def count_in_state(interpreter: Path, how: str, topic: Topic) -> Outcome:
    """Quix counts the words of all messages in its state; `how` as in peers/quix_state_words.py."""
    return python_peers.count_words(
        interpreter, "quix_state", how, topic.address, topic.name, topic.messages, topic.words
    )


def _in_state(interpreter: Path, how: str, topic: Topic) -> Sample:
    return count_in_state(interpreter, how, topic).sample(MILLION)


def _bare(cluster: BenchmarkCluster, topic: Topic) -> Sample:
    job = partial(consume_all, topic.settings(), topic.name, topic.messages)
    return run_together([job], cluster.folder).expect(topic.messages).sample(MILLION)


def consume_all(
    settings: dict[str, object], topic: str, messages: int, starter: Starter
) -> Outcome:
    """A bare loop of the client: up to 10,000 messages in each call."""
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    starter.wait()
    done, begun_s, cpu_s = 0, 0.0, time.process_time()
    while done < messages:
        consumed = consumer.consume(10_000, 1.0)
        if consumed and not begun_s:
            begun_s = time.monotonic()
        done += sum(message.error() is None for message in consumed)
    ended_s = time.monotonic()
    consumer.close()
    return Outcome(begun_s, ended_s, done, time.process_time() - cpu_s)
