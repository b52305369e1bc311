"""KafkaRanges on a real Kafka: a range ends before messages of open transactions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaRanges
from sunshower.trident.spouts.bounds import Bounds
from tests.kafka.topics import fill, new_topic
from tests.trident.rigs.emitting import Drive


@contextmanager
def open_drive(kafka: Kafka, topic: str, **options: Any) -> Iterator[Drive]:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex}
    chosen = BatchOptions(bounds=Bounds(records=20, seconds=0.3), **options)
    drive = Drive(KafkaRanges(settings, topics=[topic], options=chosen), clock=SystemClock())
    try:
        yield drive
    finally:
        drive.close()


def first_rows(drive: Drive) -> list[Any]:
    """The rows of the first batch that is not empty: a new broker has no coordinator at first."""
    return next(rows for txid in range(1, 100) if (rows := drive.batch(txid)))


def test_a_range_ends_before_the_messages_of_an_open_transaction(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b"1", b"2"])
    name = uuid.uuid4().hex
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"3")
    assert producer.flush(60) == 0
    fill(kafka.bootstrap, topic, [b"4"])
    with open_drive(kafka, topic) as drive:
        ((*first, topic_id),) = first_rows(drive)
        assert first == [topic, 0, 0, 2]
        producer.commit_transaction(60)
        txid = max(drive.metadata)
        later = next(
            rows for number in range(txid + 1, txid + 100) if (rows := drive.batch(number))
        )
        assert later == [(topic, 0, 2, 5, topic_id)], "it contains the marker of the commit"
