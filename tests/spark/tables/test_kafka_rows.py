"""Kafka directly into Spark: Sunshower chooses and tracks offset ranges, and Spark reads them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition

from sunshower import Topology
from sunshower.arrow.record_columns import RecordColumns
from sunshower.dev.kafka import Kafka
from sunshower.errors import RangeGone
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaRanges, OffsetRange
from sunshower.runtime.inline import run_inline
from sunshower.spark_integration.sessions.spark_port import (
    BatchInfo,
    Gateway,
    SparkPlace,
    SparkStep,
)
from sunshower.spark_integration.steps import spark
from sunshower.spark_integration.tables.kafka_rows import KafkaRows
from sunshower.state import MemoryState
from sunshower.trident import InMemory, batches, sum_
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.topics import admin, fill, new_topic, read_all
from tests.spark.conftest import jars
from tests.spark.sales import run

RANGES = RecordColumns.of(OffsetRange)


class Sum(NamedTuple):
    key: str
    total: int


def sums(records: Any, batch: BatchInfo) -> Any:
    numbers = records.selectExpr("string(partition) key", "int(string(value)) number")
    return numbers.groupBy("key").agg({"number": "sum"}).withColumnRenamed("sum(number)", "total")


@dataclass(frozen=True)
class Subscribed:
    """Code that a user would write to subscribe to a topic in the session of a step."""

    servers: str
    topic: str

    @property
    def options(self) -> dict[str, str]:
        named = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic}
        return {**named, "startingOffsets": "earliest"}

    def __call__(self, session: Any) -> Any:
        return session.read.format("kafka").options(**self.options).load()

    def follow(self, session: Any, into: Path) -> Any:
        """Run a stream of Spark to the end of the topic, and read all that it has written."""
        stream = session.readStream.format("kafka").options(**self.options).load().writeStream
        stream = stream.format("parquet").option("checkpointLocation", f"{into}-checkpoint")
        stream.trigger(availableNow=True).start(str(into)).awaitTermination()
        return session.read.parquet(str(into))


@dataclass(frozen=True)
class BothWays:
    """A transform that sums a static table of a topic, and a stream of the same topic."""

    subscribed: Subscribed
    into: Path

    def __call__(self, df: Any, batch: BatchInfo) -> Any:
        followed = self.subscribed.follow(df.sparkSession, self.into)
        frames = {"table": batch.tables["topic"], "stream": followed}
        sums = [
            frame.selectExpr(f"'{name}' key", "sum(int(string(value))) total")
            for name, frame in frames.items()
        ]
        return sums[0].unionAll(sums[1])


@pytest.fixture
def topic(kafka: Kafka) -> str:
    if not jars():
        pytest.skip("no jars of Spark for Kafka here")
    name = new_topic(kafka.bootstrap, 3)
    for partition in range(2):  # the third partition stays empty
        numbers = range(partition * 1000, partition * 1000 + 700)
        fill(kafka.bootstrap, name, [str(number).encode() for number in numbers], partition)
    return name


@pytest.mark.parametrize("place", ["local"], indirect=True)  # other tests cover the other place
def test_all_records_are_in_one_batch_as_a_plain_consumer_reads_them(
    kafka: Kafka, topic: str, place: SparkPlace, gateway: Gateway
) -> None:
    expected: dict[str, int] = {}
    for message in read_all(kafka.bootstrap, topic):
        key = str(message.partition())
        expected[key] = expected.get(key, 0) + int(message.value() or b"")
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex}
    options = BatchOptions(bounds=Bounds(records=500), until_end=True)
    step = spark(sums, out=Sum, reads=KafkaRows(kafka.bootstrap), where=place)
    state, topology = MemoryState(), Topology("ranges", message_timeout_s=300)
    ranges = KafkaRanges(settings, topics=[topic], options=options)
    read = batches(topology, "in", ranges, store=InMemory()).apply(step)
    read.group_by("key").aggregate(sum_("total"), state=state)
    run_inline(topology.graph())
    assert dict(state.items()) == expected


def test_the_error_for_a_deleted_range_names_it(kafka: Kafka, topic: str, gateway: Gateway) -> None:
    place = TopicPartition(topic, 0, 10)
    admin(kafka.bootstrap).delete_records([place])[place].result(60)
    step = SparkStep(sums, Sum, reads=KafkaRows(kafka.bootstrap))
    ranges = RANGES.table([OffsetRange(topic, 0, 10, 700), OffsetRange(topic, 1, 0, 1)])
    (first, second) = sorted(run(gateway, step, ranges))
    assert (first.key, second.key, second.total) == ("0", "1", 1000)
    with pytest.raises(RangeGone, match=rf"Cannot fetch .*{topic}-0.*keep records until"):
        run(gateway, step, RANGES.table([OffsetRange(topic, 0, 5, 700)]))


def test_batches_without_a_range_and_several_ranges_of_a_partition_are_read_too(
    kafka: Kafka, topic: str, gateway: Gateway
) -> None:
    step = SparkStep(sums, Sum, reads=KafkaRows(kafka.bootstrap))
    assert sorted(run(gateway, step, RANGES.table([]))) == []
    pieces = [OffsetRange(topic, 1, first, first + 5) for first in (0, 5, 10)]
    assert run(gateway, step, RANGES.table(pieces)) == [Sum("1", sum(range(1000, 1015)))]


@pytest.mark.parametrize("place", ["local"], indirect=True)  # it is the same code elsewhere
def test_later_ranges_are_those_of_a_topic_that_was_created_again(
    kafka: Kafka, topic: str, gateway: Gateway
) -> None:
    """Spark's clients have fetched the rest of the former topic in the first job."""
    step = SparkStep(sums, Sum, reads=KafkaRows(kafka.bootstrap))
    for first, end in ((0, 10), (10, 20)):
        ranges = RANGES.table([OffsetRange(topic, 0, first, end, "former")])
        assert run(gateway, step, ranges) == [Sum("0", sum(range(first, end)))]
    admin(kafka.bootstrap).delete_topics([topic])[topic].result(60)
    new_topic(kafka.bootstrap, 3, name=topic)
    fill(kafka.bootstrap, topic, [b"7"] * 100, 0)
    for first, topic_id in ((20, "new"), (30, "")):
        ranges = RANGES.table([OffsetRange(topic, 0, first, first + 10, topic_id)])
        assert run(gateway, step, ranges) == [Sum("0", 70)]


@pytest.mark.parametrize("place", ["local"], indirect=True)  # all of it is code of Spark
def test_a_subscription_in_the_session_of_a_step_reads_all_records_too(
    kafka: Kafka, topic: str, gateway: Gateway, tmp_path: Path
) -> None:
    subscribed = Subscribed(kafka.bootstrap, topic)
    step = SparkStep(BothWays(subscribed, tmp_path / "followed"), Sum, tables={"topic": subscribed})
    for more in ([], [b"5", b"6"]):  # a static table is read when its batch runs
        fill(kafka.bootstrap, topic, more)
        total = sum(int(message.value() or b"") for message in read_all(kafka.bootstrap, topic))
        rows = sorted(run(gateway, step, RANGES.table([])))
        assert rows == [Sum("stream", total), Sum("table", total)]
