"""A compacted topic of a real broker as a table: the recipe in docs/STREAMS.md."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.formats import Json, Text
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.trident import SqliteState
from tests.kafka.consuming.test_spout import committed, settings
from tests.kafka.stage import Seen, running
from tests.kafka.topics import WITHIN_S, new_topic

NAMES = ("key", "value", "offset")
OPTIONS = KafkaOptions(first=StartPosition.EARLIEST, commit_s=0.1)


def change(kafka: Kafka, topic: str, changes: dict[str, Any]) -> None:
    """Write one message for each key; None is a tombstone."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for key, value in changes.items():
        text = None if value is None else json.dumps(value).encode()
        producer.produce(topic, text, key=key.encode())
    assert producer.flush(WITHIN_S) == 0


def pages(users: KafkaSpout, clicks: KafkaSpout, state: SqliteState | None) -> Topology:
    topology = Topology("pages", workers=1)
    table = topology.spout("users", users).group_by("key").table(field="offset", state=state)
    found = topology.spout("clicks", clicks).join(table, "key", how="left")
    found.shuffle().bolt("seen", Seen())
    return topology


def test_the_table_is_continued_by_the_next_run_and_a_tombstone_removes_its_key(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = new_topic(kafka.bootstrap, 2, cleanup_policy="compact")
    base, state = settings(kafka), SqliteState(tmp_path / "users.db")

    def joined(changes: int) -> dict[str, Any]:
        """Join clicks that are sent once the table has so many changes. Returns the joined rows."""
        clicks = new_topic(kafka.bootstrap)
        users = KafkaSpout(
            base, topics=[topic], key=Text(), value=Json(), fields=NAMES, options=OPTIONS
        )
        readers = KafkaSpout(
            settings(kafka), topics=[clicks], key=Text(), fields=("key",), options=OPTIONS
        )
        with running(pages(users, readers, state)) as run:
            offsets = partial(committed, kafka, base, topic)
            run.until(lambda: max(offsets(0), 0) + max(offsets(1), 0) == changes)
            change(kafka, clicks, {"ada": "/", "bob": "/", "cyd": "/"})
            run.until(lambda: len(run.records()) == 3)
            return {key: value for key, value, _ in run.records()}

    change(kafka, topic, {"ada": {"from": "London"}, "bob": {"from": "Bonn"}})
    change(kafka, topic, {"ada": {"from": "Rome"}})
    assert joined(3) == {"ada": {"from": "Rome"}, "bob": {"from": "Bonn"}, "cyd": None}
    change(kafka, topic, {"bob": None, "cyd": {"from": "Cork"}})
    assert joined(5) == {"ada": {"from": "Rome"}, "bob": None, "cyd": {"from": "Cork"}}


def test_clicks_wait_until_the_topic_is_read_to_the_end_that_it_had(kafka: Kafka) -> None:
    """Partitions that end with an aborted transaction, with a compacted message, or have none."""
    topic, clicks = (
        new_topic(kafka.bootstrap, 3, cleanup_policy="compact"),
        new_topic(kafka.bootstrap),
    )
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    writer.init_transactions(WITHIN_S)
    for end in (writer.commit_transaction, writer.abort_transaction):
        writer.begin_transaction()
        for number in range(2_000):
            text = json.dumps({"end": end.__name__, "n": number}).encode()
            writer.produce(topic, text, key=f"{number:04}".encode(), partition=number % 2)
        assert writer.flush(WITHIN_S) == 0
        end(WITHIN_S)
    change(kafka, clicks, {f"{number:04}": "/" for number in range(2_000)})
    users = KafkaSpout(
        settings(kafka), topics=[topic], key=Text(), value=Json(), fields=NAMES, options=OPTIONS
    )
    readers = KafkaSpout(
        settings(kafka), topics=[clicks], key=Text(), fields=("key",), options=OPTIONS
    )
    with running(pages(users, readers, None)) as run:
        run.until(lambda: len(run.records()) == 2_000)
        assert {value["n"] for _, value, _ in run.records()} == {*range(2_000)}
