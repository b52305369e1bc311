"""Fills a topic with sales, and checks the table with a plain program.

    python examples/kafka_to_spark/sales.py fill 20000
    python examples/kafka_to_spark/sales.py check

`fill` adds this number of sales as JSON, of which 1 % are broken and 2 % are late. `check` reads
the topic with a plain consumer, and compares the messages with the table and the topic of dead
letters. The address of the broker is 127.0.0.1:9092, or the value of KAFKA; the table is in the
folder `sales`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
TOPIC, PARTITIONS, FOLDER = "sales", 4, Path("sales")
CATEGORIES = ("books", "games", "music", "tools")
CATEGORY = {f"p{number}": CATEGORIES[number % 4] for number in range(40)}
PAGES = pa.table({"page": [*CATEGORY], "category": [*CATEGORY.values()]})
RATES = {"EUR": 1.0, "GBP": 1.17, "USD": 0.92}
HOUR_MS, LATE_MS = 3_600_000, 600_000
FIRST_MS, EVERY_MS = 1_767_225_600_000, 4_000  # the first sale: 2026-01-01, 00:00 UTC
BROKEN = ('{"id": 1, "at_', '{"id": 1}', '{"id": 1, "at_ms": 1, "page": "p1", "cents": "free"}')
COLUMNS = ("id", "hour", "page", "category", "euro_cents", "late")
WITHIN_S = 60


def dead(topic: str) -> str:
    """The topic of the dead letters of a topic."""
    return f"dead-{topic}"


def fill(count: int, kafka: str = KAFKA, topic: str = TOPIC) -> None:
    """Create the topics if they do not exist, and add sales. They are the same in each run."""
    admin = AdminClient({"bootstrap.servers": kafka})
    missing = {topic, dead(topic)} - set(admin.list_topics(timeout=WITHIN_S).topics)
    config = {"retention.ms": "-1"}  # the timestamps of the sales are in the past
    new = [NewTopic(name, PARTITIONS, config=config) for name in missing]
    for created in (admin.create_topics(new) if new else {}).values():
        created.result(WITHIN_S)
    first = 0 if topic in missing else sum(end for _, end in bounds(reader(kafka), topic))
    producer, chance = Producer({"bootstrap.servers": kafka}), Random(first)
    for id in range(first, first + count):
        now_ms, kind = FIRST_MS + id * EVERY_MS, chance.random()
        at_ms = now_ms - chance.randrange(2, 6) * LATE_MS if kind < 0.02 else now_ms
        page, cents = f"p{chance.randrange(40)}", chance.randrange(100, 10_000)
        sale = {"id": id, "at_ms": at_ms, "page": page, "cents": cents}
        text = json.dumps(sale | {"currency": chance.choice([*RATES])})
        value = chance.choice(BROKEN) if kind > 0.99 else text
        producer.produce(topic, value, str(id), timestamp=now_ms)
        producer.poll(0)
    if left := producer.flush(WITHIN_S):
        raise SystemExit(f"{left} sales were not delivered")


def reader(kafka: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": kafka, "group.id": "plain", "isolation.level": "read_committed"}
    )


def bounds(consumer: Consumer, topic: str) -> list[tuple[int, int]]:
    """The first and the next offset of each partition."""
    partitions = consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
    return [
        consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WITHIN_S)
        for number in sorted(partitions)
    ]


def messages(kafka: str, topic: str) -> Iterator[Message]:
    """All messages of a topic that has no transactions."""
    consumer = reader(kafka)
    places = bounds(consumer, topic)
    starts = [TopicPartition(topic, number, first) for number, (first, _) in enumerate(places)]
    consumer.assign(starts)
    for _ in range(sum(end - first for first, end in places)):
        message = consumer.poll(WITHIN_S)
        if message is None or message.error():
            raise SystemExit(f"{topic} cannot be read: {message and message.error()}")
        yield message
    consumer.close()


def plain(kafka: str, topic: str) -> tuple[Counter[tuple[Any, ...]], set[str]]:
    """The rows that the table must have, and the places of invalid messages."""
    rows, broken = Counter[tuple[Any, ...]](), set[str]()
    for message in messages(kafka, topic):
        try:
            sale = json.loads(message.value() or b"")
            late = message.timestamp()[1] - sale["at_ms"] > LATE_MS
            hour, page = sale["at_ms"] // HOUR_MS % 24, sale["page"]
            cents = round(sale["cents"] * RATES[sale["currency"]])
            rows[sale["id"], hour, page, CATEGORY[page], cents, late] += 1
        except (ValueError, KeyError, TypeError):
            broken.add(f"{message.partition()}-{message.offset()}")
    return rows, broken


def wrong_ranks(table: list[dict[str, Any]]) -> Counter[Any]:
    """The sales with a wrong rank: they are ranked in each batch, by category and hour."""
    before, place, wrong = None, 0, Counter[Any]()
    for row in sorted(table, key=lambda row: (*window_of(row), -row["euro_cents"], row["id"])):
        place = place + 1 if window_of(row) == before else 1
        before = window_of(row)
        wrong[row["id"]] += row["rank"] != place
    return +wrong


def window_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["batch"], row["category"], row["hour"]


def differences(table: list[dict[str, Any]], kafka: str, topic: str) -> list[str]:
    """Descriptions of the errors in the rows of the table and in the dead letters."""
    wanted, broken = plain(kafka, topic)
    written = Counter(tuple(row[name] for name in COLUMNS) for row in table)
    letters = {(message.key() or b"").decode() for message in messages(kafka, dead(topic))}
    return [
        f"{len(few)} {what}, such as {min(few)}"
        for what, few in (
            ("sales are missing", wanted - written),
            ("sales are duplicated, or not in the topic", written - wanted),
            ("sales have a wrong rank", wrong_ranks(table)),
            ("dead letters are missing", broken - letters),
            ("dead letters are not of broken messages", letters - broken),
        )
        if few
    ]


def rows_of(table: Path) -> list[dict[str, Any]]:
    """The rows of the committed batches, also of a Delta Lake table."""
    logs = "".join(file.read_text() for file in table.glob("_delta_log/*.json"))
    entries = map(json.loads, logs.splitlines())
    added = [entry["add"]["path"] for entry in entries if "add" in entry]
    files = [*table.glob("txid=*/*.parquet"), *(table / path for path in added)]
    return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]


def check(within_s: float) -> None:
    """Compare until no sale is missing. Exits with 1 after a timeout, or if there are errors."""
    end_s = time.monotonic() + within_s
    while True:
        table = rows_of(FOLDER / "table")
        wrong = differences(table, KAFKA, TOPIC)
        if table and not wrong:
            print(f"The table is correct: {len(table):,} sales, each once.")
            return
        if time.monotonic() > end_s or not all(" missing" in sentence for sentence in wrong):
            raise SystemExit("; ".join(wrong) or "There are no sales.")
        time.sleep(2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the topic `sales`, or check the table.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fill").add_argument("count", type=int)
    within = commands.add_parser("check").add_argument
    within("--within", type=float, default=300.0, metavar="SECONDS", help="for missing sales")
    given = parser.parse_args()
    if given.command == "check":
        check(given.within)
    else:
        fill(given.count)
        print(f"{given.count:,} messages were added to the topic {TOPIC!r}.")
