"""A compacted topic of a real broker as a table: the recipe in docs/TABLES.md."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.errors import TopologyError
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.formats import Json, Text
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.runtime.control.events import DesiredState
from sunshower.runtime.control.overview import Conditions
from sunshower.state import MemoryState, SqliteState
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


def pages(
    users: KafkaSpout, clicks: KafkaSpout, state: SqliteState | MemoryState | None
) -> Topology:
    topology = Topology("pages", workers=1)
    table = topology.spout("users", users).group_by("key").table(field="offset", state=state)
    joined = topology.spout("clicks", clicks).join(table, "key", how="left")
    joined.shuffle().bolt("seen", Seen())
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


def test_a_table_in_memory_is_filled_again_although_its_group_has_committed_all(
    kafka: Kafka,
) -> None:
    """The second process of the worker begins at the committed offsets."""
    topic, clicks = new_topic(kafka.bootstrap, 2), new_topic(kafka.bootstrap)
    base = settings(kafka)
    users = KafkaSpout(
        base, topics=[topic], key=Text(), value=Json(), fields=NAMES, options=OPTIONS
    )
    readers = KafkaSpout(
        settings(kafka), topics=[clicks], key=Text(), fields=("key",), options=OPTIONS
    )
    topology = pages(users, readers, None)
    change(kafka, topic, {f"{n}": n for n in range(100)})
    change(kafka, topic, {"7": None, "8": "new"})
    offsets = partial(committed, kafka, base, topic)
    with running(topology) as run:
        run.until(lambda: max(offsets(0), 0) + max(offsets(1), 0) == 102)
    change(kafka, clicks, {f"{n}": "/" for n in range(100)})
    with running(topology, life=2) as run:
        drawn = Conditions(drawn={(0, 2): {run.core.plan.spouts[0].id: (0, 0)}})
        run.core.desired_state(DesiredState(conditions=drawn))
        run.until(lambda: len(run.records()) == 100)
        values = {key: value for key, value, _ in run.records()}
        assert offsets(0) + offsets(1) == 102
    assert values == {f"{n}": n for n in range(100)} | {"7": None, "8": "new"}


@pytest.mark.parametrize("first", [StartPosition.LATEST, StartPosition.NONE, StartPosition.STORM])
def test_a_topic_that_is_not_read_from_its_start_fills_no_table_in_memory(
    first: StartPosition,
) -> None:
    base = {"bootstrap.servers": "localhost:1", "group.id": "users"}
    options = KafkaOptions(first=first)
    users = KafkaSpout(base, topics=["users"], key=Text(), fields=NAMES, options=options)
    clicks = KafkaSpout(base, topics=["clicks"], key=Text(), fields=("key",), options=OPTIONS)
    with pytest.raises(TopologyError, match="spout 'users' cannot be read again from its start"):
        pages(users, clicks, None).graph()
    graph = pages(users, clicks, MemoryState()).graph()
    assert not graph.refilled


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
