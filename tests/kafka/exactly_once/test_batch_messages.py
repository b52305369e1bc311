"""KafkaMessages: the rows of committed batches are in a topic once, for readers of transactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Context, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.dev.kafka import Kafka
from sunshower.errors import (
    ConfigError,
    KafkaError,
    StaleGeneration,
    TopologyError,
    UnknownField,
    UnknownTopic,
)
from sunshower.kafka import KafkaMessages
from sunshower.kafka.exactly_once.batch_messages import _Topic
from sunshower.kafka.producing.producer import Composer
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, StateKind, batches
from sunshower.trident.stages.outbox import Outbox
from tests.kafka.topics import new_topic, read_all
from tests.trident.rigs.moving_states import Life, MortalState, ProcessEnded

SETTINGS = {"bootstrap.servers": "127.0.0.1:1"}


class Sale(NamedTuple):
    shop: str
    cents: int
    note: bytes = b"\xff"


SALES = [Sale("ab"[number % 2], number) for number in range(40)]


def header(sale: Sale) -> list[tuple[str, bytes]]:
    return [("note", sale.note)]


def program(kafka: Kafka, topic: str, folder: Path, state: Any = None, **message: Any) -> Topology:
    topology, settings = Topology("sales"), {"bootstrap.servers": kafka.bootstrap}
    spout, store = FixedBatchSpout(SALES, 5, type=Sale), InSqlite(folder / "batches.db")
    sales = batches(topology, "sales", spout, store=store)
    given: Any = {"state": state or SqliteState(folder / "states.db"), "transactional_id": topic}
    sales.apply(KafkaMessages(settings, topic, **given, **message))
    return topology


def in_topic(kafka: Kafka, topic: str) -> list[int]:
    return sorted(int(message.value() or b"") for message in read_all(kafka.bootstrap, topic))


@pytest.mark.servers
def test_messages_are_made_of_rows_as_kafka_bolt_makes_them(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka.bootstrap)
    run_inline(
        program(kafka, topic, tmp_path, value="note", key="shop", headers=header).graph(),
        clock=ManualClock(),
    )
    messages = read_all(kafka.bootstrap, topic)
    assert Counter(message.key() for message in messages) == {b"a": 20, b"b": 20}
    assert {message.value() for message in messages} == {b"\xff"}
    assert [message.headers() for message in messages] == [[("note", b"\xff")]] * 40


@pytest.mark.servers
@pytest.mark.parametrize("is_after", [False, True])
def test_each_message_is_there_once_when_the_process_ends_at_any_write(
    kafka: Kafka, tmp_path: Path, *, is_after: bool
) -> None:
    """Also between the commit in Kafka and what follows."""
    for last in range(1, 20, 3):
        topic, life = new_topic(kafka.bootstrap), Life(last, is_after)
        folder = tmp_path / str(last)
        folder.mkdir()
        inner = SqliteState(folder / "states.db", name="messages")

        def run(life: Life, topic: str = topic, folder: Path = folder, inner: Any = inner) -> None:
            state = MortalState(inner, life, inner.kind, "messages")
            graph = program(kafka, topic, folder, state, value="cents").graph()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Outbox, "cleanup", lambda _: None)  # as in a process that is killed
                run_inline(graph, clock=ManualClock())

        if last < 9:
            with pytest.raises(ProcessEnded):
                run(life)
        run(Life())
        run_inline(program(kafka, topic, folder, inner, value="cents").graph(), clock=ManualClock())
        assert in_topic(kafka, topic) == [*range(40)], last


def opened(kafka: Kafka, topic: str, batches: str = "now") -> tuple[_Topic, int]:
    settings = {"bootstrap.servers": kafka.bootstrap}
    delivery = _Topic(settings, topic, f"to {topic}", Composer("here", topic, "cents"))
    delivery.prepare(Context("sales", "to", 0, 0, 1))
    return delivery, delivery.open(batches)


@pytest.mark.servers
def test_only_the_last_life_sends_and_it_knows_the_last_batch(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    former, last = opened(kafka, topic)
    assert last == 0
    former.deliver(7, [*former.packed(SALES[:2])])
    later, last = opened(kafka, topic)
    assert last == 7
    with pytest.raises(StaleGeneration):
        former.deliver(8, [*former.packed(SALES[2:4])])
    later.deliver(8, [*later.packed(SALES[4:5])])
    assert in_topic(kafka, topic) == [0, 1, 4]
    assert former.open("now") == 8
    assert opened(kafka, topic, "batches of another store")[1] == 0
    former.close()
    later.close()


@pytest.mark.servers
def test_a_topic_that_is_missing_and_a_message_that_is_too_large_are_named(kafka: Kafka) -> None:
    with pytest.raises(UnknownTopic, match="no-topic"):
        opened(kafka, "no-topic")
    delivery = _Topic(
        {**SETTINGS, "message.max.bytes": 1_000}, "sales", "to", Composer("here", "sales", "shop")
    )
    with pytest.raises(KafkaError, match=r"a message of 2,000 bytes for topic 'sales' is larger"):
        list(delivery.packed([Sale("x" * 2_000, 1)]))


def test_a_wrong_declaration_is_refused() -> None:
    def sink(settings: Any = SETTINGS, topic: Any = "sales", **given: Any) -> None:
        stream = batches(
            Topology("sales"), "sales", FixedBatchSpout(SALES, 5, type=Sale), store=InMemory()
        )
        about: Any = {"state": MemoryState(), "transactional_id": "to", **given}
        stream.apply(KafkaMessages(settings, topic, **about))

    with pytest.raises(ConfigError, match=r"lack bootstrap\.servers"):
        sink({"acks": "all"})
    with pytest.raises(TopologyError, match="topic"):
        sink(topic=lambda sale: sale.shop)
    with pytest.raises(UnknownField, match="cent"):
        sink(value="cent")
    with pytest.raises(TopologyError, match="a state of kind transactional"):
        sink(state=MemoryState(StateKind.TRANSACTIONAL))
    with pytest.raises(TopologyError, match=r"KafkaMessages\(sales\): None is not a state"):
        sink(state=None)
