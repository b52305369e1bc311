"""Kafka straight into Spark: ranges are decided and tracked by us, records are read by Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.errors import RangeGone
from sunshower.kafka.batches import BatchOptions
from sunshower.kafka.ranges import KafkaRanges, OffsetRange
from sunshower.runtime.inline import run_inline
from sunshower.spark_integration.kafka_rows import KafkaRows
from sunshower.spark_integration.port import BatchInfo, Gateway, Place, Step
from sunshower.spark_integration.schema import Columns
from sunshower.spark_integration.steps import spark
from sunshower.trident import InMemory, MemoryState, batches, sum_
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.topics import admin, fill, new_topic, read_all

RANGES = Columns.of(OffsetRange)


class Sum(NamedTuple):
    key: str
    total: int


def sums(records: Any, batch: BatchInfo) -> Any:
    found = records.selectExpr("string(partition) key", "int(string(value)) number")
    return found.groupBy("key").agg({"number": "sum"}).withColumnRenamed("sum(number)", "total")


@pytest.fixture
def topic(kafka: Kafka, place: Any) -> Iterator[str]:
    if not place.jars:
        pytest.skip("no jars of Spark for Kafka here")
    name = new_topic(kafka.bootstrap, 3)
    for partition in range(2):  # one has nothing
        numbers = range(partition * 1000, partition * 1000 + 700)
        fill(kafka.bootstrap, name, [str(number).encode() for number in numbers], partition)
    return name


@pytest.mark.parametrize("place", ["local"], indirect=True)  # the others are the place's
def test_all_records_are_in_one_batch_as_a_plain_consumer_reads_them(
    kafka: Kafka, topic: str, place: Place, gateway: Gateway
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
    read.group_by("key").persistent_aggregate(state, sum_("total"))
    run_inline(topology.graph())
    assert dict(state.items()) == expected


def test_a_range_that_is_gone_is_an_error_that_names_it(
    kafka: Kafka, topic: str, gateway: Gateway
) -> None:
    place = TopicPartition(topic, 0, 10)
    admin(kafka.bootstrap).delete_records([place])[place].result(60)
    step = Step(sums, Sum, reads=KafkaRows(kafka.bootstrap))
    there = RANGES.table([OffsetRange(topic, 0, 10, 700), OffsetRange(topic, 1, 0, 1)])
    (first, second) = _run(gateway, step, there)
    assert (first.key, second.key, second.total) == ("0", "1", 1000)
    with pytest.raises(RangeGone, match=rf"Cannot fetch .*{topic}-0.*keep records until"):
        _run(gateway, step, RANGES.table([OffsetRange(topic, 0, 5, 700)]))


def test_batches_without_a_range_and_several_ranges_of_a_partition_are_read_too(
    kafka: Kafka, topic: str, gateway: Gateway
) -> None:
    step = Step(sums, Sum, reads=KafkaRows(kafka.bootstrap))
    assert _run(gateway, step, RANGES.table([])) == []
    pieces = [OffsetRange(topic, 1, first, first + 5) for first in (0, 5, 10)]
    assert _run(gateway, step, RANGES.table(pieces)) == [Sum("1", sum(range(1000, 1015)))]


def _run(gateway: Gateway, step: Step, ranges: pa.Table) -> list[Any]:
    result = gateway.submit(step, [ranges], BatchInfo("1", ranges.num_rows)).result()
    return sorted(Columns.of(Sum).records(result))
