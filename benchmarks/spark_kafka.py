"""Kafka to Spark: ranges that Spark reads itself, compared with rows that pass through Python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from benchmarks.figures import Key, Ratio
from benchmarks.kafka import BYTES, MILLION, PARTITIONS, Topic
from benchmarks.measure import BenchmarkError, Comparison, Entry, Sample
from benchmarks.spark import SparkBench
from sunshower.arrow.record_columns import RecordColumns
from sunshower.kafka.exactly_once.batch_spouts import OffsetRange
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkStep, Ticket
from sunshower.spark_integration.tables.kafka_rows import KafkaRows

_BATCH = 100_000  # messages in a batch that passes through Python
_VALUES = pa.schema({"value": pa.binary()})


class Size(NamedTuple):
    messages: int
    bytes: int


def sizes(df: Any, _: BatchInfo) -> Any:
    return df.selectExpr("count(*) messages", "coalesce(sum(length(value)), 0L) bytes")


def comparison(bench: SparkBench, topic: Topic) -> Comparison:
    """All messages of a topic, counted in Spark: one process of ours, and `local[*]`."""
    unit = "M messages/s"
    ranges = Entry(Key("spark_kafka", "sunshower", "ranges", unit), partial(_ranges, bench, topic))
    rows = Entry(Key("spark_kafka", "loop", "rows", unit), partial(_rows, bench, topic))
    return Comparison(
        "spark-kafka",
        [ranges, rows],
        [Ratio("spark_kafka/ranges/rows", ranges.key, rows.key)],
        rounds=2,
    )


def _ranges(bench: SparkBench, topic: Topic) -> Sample:
    """One batch of all messages, as KafkaRanges plans it, after a small batch as a warm-up."""
    step = SparkStep(sizes, Size, reads=KafkaRows(topic.address))
    gateway = bench.gateway
    gateway.submit(step, [_planned_ranges(topic, PARTITIONS)], BatchInfo("0", PARTITIONS)).result()
    begun_s = time.perf_counter()
    table = _planned_ranges(topic, topic.messages)
    return _sample([gateway.submit(step, [table], BatchInfo("1", PARTITIONS))], topic, begun_s)


def _planned_ranges(topic: Topic, messages: int) -> pa.Table:
    """The ranges of the first `messages` messages, spread over the partitions."""
    each, more = divmod(messages, PARTITIONS)
    return RecordColumns.of(OffsetRange).table(
        [OffsetRange(topic.name, number, 0, each + (number < more)) for number in range(PARTITIONS)]
    )


def _rows(bench: SparkBench, topic: Topic) -> Sample:
    """A bare loop of the client sends values only to Spark, two batches at a time."""
    step, gateway = SparkStep(sizes, Size), bench.gateway
    begun_s = time.perf_counter()
    tickets = list[Ticket]()
    for values in _batches(topic):
        if len(tickets) >= 2:
            tickets[-2].result()
        table = pa.Table.from_arrays([pa.array(values, pa.binary())], schema=_VALUES)
        tickets.append(gateway.submit(step, [table], BatchInfo(str(len(tickets)), len(values))))
    return _sample(tickets, topic, begun_s)


def _batches(topic: Topic) -> Iterator[list[bytes | None]]:
    consumer = Consumer({**topic.settings(), "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic.name, number, 0) for number in range(PARTITIONS)])
    done, values = 0, list[bytes | None]()
    while done < topic.messages:
        consumed = consumer.consume(10_000, 1.0)
        values += [message.value() for message in consumed if message.error() is None]
        if len(values) >= _BATCH or done + len(values) == topic.messages:
            done += len(values)
            yield values
            values = []
    consumer.close()


def _sample(tickets: list[Ticket], topic: Topic, begun_s: float) -> Sample:
    rows = [row for ticket in tickets if (table := ticket.result()) for row in table.to_pylist()]
    seconds = time.perf_counter() - begun_s
    read_size = Size(sum(row["messages"] for row in rows), sum(row["bytes"] for row in rows))
    if read_size != (topic.messages, topic.messages * BYTES):
        raise BenchmarkError(f"{read_size} arrived in Spark, not {topic.messages:,} messages")
    return Sample(topic.messages / seconds / MILLION)
