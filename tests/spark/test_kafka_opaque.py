"""Rows of a real Kafka go through an opaque spout and a Spark step into a table, each once."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset
import pytest
from confluent_kafka import TopicPartition

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.kafka.consuming.decoding import Received
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaOpaque
from sunshower.runtime.inline import run_inline
from sunshower.spark_integration.sessions.spark_port import BatchInfo, Gateway, SparkPlace
from sunshower.spark_integration.steps import spark
from sunshower.spark_integration.tables.tables import table
from sunshower.trident import InSqlite, batches
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.topics import admin, fill, new_topic


class Number(NamedTuple):
    number: int


def number(message: Received) -> Number:
    return Number(int(message.value or b""))


@dataclass(frozen=True)
class FailsOnce:
    """A transform that fails the first attempt with rows, and deletes most of them from Kafka."""

    servers: str
    topic: str
    seen: Path

    def __call__(self, numbers: Any, batch: BatchInfo) -> Any:
        rows = [row.number for row in numbers.collect()]
        if rows and not self.seen.exists():
            self.seen.write_text(" ".join(map(str, rows)))
            kept = TopicPartition(self.topic, 0, max(rows) - 20)
            admin(self.servers).delete_records([kept])[kept].result(60)
            raise ValueError("not this time")
        return numbers


@pytest.mark.parametrize("place", ["local"], indirect=True)  # the batches are the same on both
def test_a_repeated_batch_has_other_rows_and_each_row_is_in_the_table_once(
    kafka: Kafka, place: SparkPlace, gateway: Gateway, tmp_path: Path
) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b"%d" % number for number in range(600)])
    spout = KafkaOpaque(
        {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex},
        topics=[topic],
        translate=number,
        emits=Number,
        options=BatchOptions(bounds=Bounds(records=200), until_end=True),
    )
    topology, seen = Topology("opaque", message_timeout_s=300), tmp_path / "seen"
    step = spark(FailsOnce(kafka.bootstrap, topic, seen), where=place)
    read = batches(topology, "in", spout, store=InSqlite(tmp_path / "store.db"))
    read.apply(step.write(table(tmp_path / "table")))
    run_inline(topology.graph())
    assert [int(one) for one in seen.read_text().split()] == [*range(200)]
    found = pyarrow.dataset.dataset(tmp_path / "table", partitioning="hive").to_table()
    assert sorted(found["number"].to_pylist()) == [*range(179, 600)]
