"""Fills the topic `sales`, for the two programs with Kafka in README.md, and shows their results.

    sunshower dev up kafka
    python examples/sales.py fill 10000
    sunshower run minutes.py
    python examples/sales.py show sales-per-minute
    sunshower run revenue.py
    python examples/sales.py show revenue

`fill` creates the topics and adds this number of sales as JSON, ten a second until now. `show`
prints the messages of a topic, or the rows of a table in this folder. The address of the broker is
127.0.0.1:9092, or the value of KAFKA.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import parquet

KAFKA = {"bootstrap.servers": os.environ.get("KAFKA", "127.0.0.1:9092")}
TOPICS = ("sales", "sales-per-minute", "late-sales")
WITHIN_S = 60


def fill(count: int) -> None:
    """Create the topics that do not exist, and add sales."""
    admin = AdminClient(KAFKA)
    missing = set(TOPICS) - set(admin.list_topics(timeout=WITHIN_S).topics)
    new = [NewTopic(name, 2) for name in missing]
    for created in (admin.create_topics(new) if new else {}).values():
        created.result(WITHIN_S)
    producer, chance, end = Producer(KAFKA), Random(7), datetime.now(UTC)
    producer.list_topics("sales", WITHIN_S)  # otherwise the first messages would lose their order
    for number in range(count):
        at = end - timedelta(seconds=(count - number) / 10)
        shop, cents = chance.choice(("north", "south", "market")), chance.randrange(100, 10_000)
        producer.produce(
            "sales", json.dumps({"shop": shop, "at": at.isoformat(), "cents": cents}), shop
        )
        producer.poll(0)
    if left := producer.flush(WITHIN_S):
        raise SystemExit(f"{left} sales were not delivered")


def messages(topic: str) -> Iterator[str]:
    """The values of a topic, one partition after the other."""
    settings = {"group.id": "show", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**KAFKA, **settings})
    for partition in consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(WITHIN_S)) and not message.error():
            yield (message.value() or b"").decode()
    consumer.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case "fill", count:
            fill(int(count))
        case "show", name if Path(name).is_dir():
            print(*parquet.read_table(name).to_pylist(), sep="\n")
        case "show", name:
            print(*messages(name), sep="\n")
        case _:
            raise SystemExit("python examples/sales.py fill COUNT, or show NAME")
