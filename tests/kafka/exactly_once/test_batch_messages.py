"""KafkaMessages: the rows of committed batches are in a topic once, for readers of transactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Context, Records, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.dev.kafka import Kafka
from sunshower.errors import (
    ConfigError,
    KafkaError,
    StaleGeneration,
    StateMismatch,
    TopologyError,
    TopologyFailed,
    UnknownField,
    UnknownTopic,
)
from sunshower.kafka import Avro, KafkaMessages
from sunshower.kafka.exactly_once.batch_messages import _Topic
from sunshower.kafka.producing.producer import Composer
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import FixedBatchSpout, InMemory, InSqlite, StateKind, batches
from sunshower.trident.stages.outbox import Outbox
from tests.kafka.schema_registry import WritableRegistry, served
from tests.kafka.topics import admin, new_topic, read_all
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
    arguments: Any = {
        "state": state or SqliteState(folder / "states.db"),
        "transactional_id": topic,
    }
    sales.apply(KafkaMessages(settings, topic, **arguments, **message))
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
    with pytest.raises(StateMismatch, match=r"is that of another sink or program: .* is 8, w"):
        opened(kafka, topic, "batches of another store")
    former.close()
    later.close()


@pytest.mark.servers
def test_a_topic_that_is_missing_is_named(kafka: Kafka) -> None:
    with pytest.raises(UnknownTopic, match="no-topic"):
        opened(kafka, "no-topic")


PAIRS: Any = ["h", ("h", 5), (5, b"x"), ("h", "\ud800"), ("\ud800", None), ("h", b"", 1)]
REFUSED = [
    *({"partition": lambda _, at=at: at} for at in (2, -2, "0", None, True)),
    *({"headers": lambda _, pair=pair: [pair]} for pair in PAIRS),
    {"value": lambda _: b"x" * 873},
    {"value": lambda _: b"x" * 800, "key": lambda _: b"x" * 73},
    {"value": lambda _: b"", "headers": lambda _: [("h" * 400, b"x" * 400), ("a", b"x" * 52)]},
]
TAKEN: Any = [
    {"value": lambda _: b"x" * 872},
    {"partition": lambda _: -1},
    {"partition": lambda _: 1, "headers": lambda _: [("h", None), ("h", b"\xff"), ("ü", "ü")]},
]


class Directory:
    """A topic of two partitions, which takes 1,000 bytes."""

    def __init__(self, _: Any) -> None: ...
    def partitions(self, topic: str) -> tuple[int, ...]:
        return 0, 1

    def message_bytes(self, topic: str) -> int:
        return 1_000

    def close(self) -> None: ...


def test_what_the_topic_would_refuse_is_an_error_before_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sunshower.kafka.exactly_once.batch_messages.KafkaDirectory", Directory)
    for message in (*TAKEN, *REFUSED):
        delivery = _Topic(
            SETTINGS, "sales", "to", Composer("the sink", "sales", **{"value": "shop", **message})
        )
        delivery.prepare(Context("sales", "to", 0, 0, 1))
        if message in TAKEN:
            assert len([*delivery.packed(SALES[:1])]) == 1
        else:
            with pytest.raises(KafkaError, match=r"^the sink: "):
                list(delivery.packed(SALES[:1]))


@pytest.mark.servers
def test_a_topic_takes_what_is_packed_also_with_a_low_limit(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, max_message_bytes="1000")
    delivery, _ = opened(kafka, topic)
    sales = [Sale("a", 10**n, b"x" * 700) for n in range(9)]
    delivery.deliver(1, [*delivery.packed(sales)])  # several would be too large together
    assert in_topic(kafka, topic) == [sale.cents for sale in sales]
    with pytest.raises(KafkaError, match=r"than 1,000: raise message\.max\.bytes"):
        list(delivery.packed([Sale("a", 10**900)]))
    with pytest.raises(KafkaError, match=r"partition|a number from 0 to 0"):
        delivery._check_partition(1)
    delivery.close()


@pytest.mark.servers
def test_another_program_with_the_same_id_is_refused_and_an_end_in_order_needs_no_note(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic, folders = new_topic(kafka.bootstrap), [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()

    def run(folder: Path) -> None:
        run_inline(program(kafka, topic, folder, value="cents").graph(), clock=ManualClock())

    run(folders[0])
    for _ in range(2):
        with pytest.raises(
            TopologyFailed, match=rf"the note of group '{topic}' is that of another"
        ):
            run(folders[1])
        run(folders[0])
    admin(kafka.bootstrap).delete_consumer_groups([topic])[topic].result()
    run(folders[0])
    assert in_topic(kafka, topic) == [*range(40)]


@pytest.mark.servers
def test_a_schema_that_a_registry_refuses_ends_the_start(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka.bootstrap)
    with served(WritableRegistry) as url:
        about = Avro({"url": url}, register=False)
        with pytest.raises(TopologyFailed, match=r"Avro: .* does not have this schema"):
            run_inline(program(kafka, topic, tmp_path, value=about).graph(), clock=ManualClock())
    assert not (tmp_path / "states.db").exists() or in_topic(kafka, topic) == []


def test_a_wrong_declaration_is_refused() -> None:
    def sink(settings: Any = SETTINGS, topic: Any = "sales", **arguments: Any) -> None:
        stream = batches(
            Topology("sales"), "sales", FixedBatchSpout(SALES, 5, type=Sale), store=InMemory()
        )
        about: Any = {"state": MemoryState(), "transactional_id": "to", **arguments}
        stream.apply(KafkaMessages(settings, topic, **about))

    with pytest.raises(ConfigError, match=r"lack bootstrap\.servers"):
        sink({"acks": "all"})
    with pytest.raises(TopologyError, match="topic"):
        sink(topic=lambda sale: sale.shop)
    with pytest.raises(UnknownField, match="cent"):
        sink(value="cent")
    with pytest.raises(TopologyError, match="a state of kind transactional"):
        sink(state=MemoryState(StateKind.TRANSACTIONAL))
    with pytest.raises(TopologyError, match="KafkaMessages: state is None; give a StateFactory"):
        sink(state=None)
    with pytest.raises(
        UnknownField, match=r"topology 'sales', batches .*KafkaMessages\(sales\).*zz"
    ):
        sink(key="zz")
    with pytest.raises(
        TopologyError, match=r"KafkaMessages\(sales\): .*'vlaue'; did you mean 'value'"
    ):
        sink(vlaue="cents")
    for settings, message in (
        ({"message.max.bytes": "1MB"}, "message.max.bytes is '1MB'; it must be a number of bytes"),
        ({"transactional.id": "other"}, r"transactional.id of the settings is 'other'.*'to'"),
        ({"isolation.level": "read_uncommitted"}, "isolation.level of the settings"),
    ):
        with pytest.raises(ConfigError, match=rf"KafkaMessages\(sales\): {message}"):
            sink({**SETTINGS, **settings})
    with pytest.raises(TopologyError, match="KafkaBolt, or TransactionalKafkaBolt"):
        Topology("sales").spout("sales", Records(SALES, type=Sale)).apply(
            KafkaMessages(SETTINGS, "sales", transactional_id="to", state=MemoryState())
        )


def test_two_sinks_with_one_transactional_id_are_refused() -> None:
    topology = Topology("sales")
    spout = FixedBatchSpout(SALES, 5, type=Sale)
    stream = batches(topology, "sales", spout, store=InMemory())
    for topic in ("a", "b"):
        sink = KafkaMessages(
            SETTINGS, topic, transactional_id="to", state=MemoryState(), name=topic
        )
        if topic == "a":
            stream.apply(sink)
        else:
            with pytest.raises(
                TopologyError, match=r"KafkaMessages\(b\): transactional_id 'to' is"
            ):
                stream.apply(sink)
