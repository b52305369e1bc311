"""KafkaBolt on a real Kafka: a record is acked when the brokers have it, or fails with a cause."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from sunshower import Records, Topology
from sunshower.clock import ManualClock
from sunshower.dev.kafka import Kafka
from sunshower.errors import (
    ConfigError,
    KafkaError,
    KafkaUnreachable,
    RecordMismatch,
    UnknownField,
    UnknownTopic,
)
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.producing import producer as producing
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.producing.producer import Composer, Message
from sunshower.records import Schema
from sunshower.runtime.inline import run_inline
from tests.kafka.producing.rig import BoltRig, paused
from tests.kafka.topics import new_topic, read_all, values_of


class Total(NamedTuple):
    word: str
    count: int


def bolt(kafka: Kafka, topic: Any, **more: Any) -> KafkaBolt:
    settings = {"bootstrap.servers": kafka.bootstrap, **more.pop("settings", {})}
    return KafkaBolt(settings, topic, **more)


def run(topic_bolt: KafkaBolt, records: list[Any]) -> Any:
    topology = Topology("t")
    spout = topology.spout("source", Records(records, type=type(records[0])))
    spout.shuffle().bolt("out", topic_bolt)
    return run_inline(topology.graph()).snapshot


def test_each_record_arrives_once_with_key_and_headers(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, 3)
    records = [Total(f"w{number}", number) for number in range(2000)]
    out = bolt(kafka, topic, key="word", headers=lambda total: {"count": str(total.count)})
    snapshot = run(out, records)
    assert snapshot.component("source").acked == 2000
    assert snapshot.component("source").replayed == 0
    messages = read_all(kafka.bootstrap, topic)
    assert sorted(message.value() for message in messages) == sorted(
        f'{{"word": "w{number}", "count": {number}}}'.encode() for number in range(2000)
    )
    by_key = {message.key(): dict(message.headers() or []) for message in messages}
    assert by_key[b"w7"] == {"count": b"7"}
    assert len({message.partition() for message in messages}) == 3


def test_topic_value_and_partition_may_be_functions_of_the_record(kafka: Kafka) -> None:
    even, odd = new_topic(kafka.bootstrap, 2), new_topic(kafka.bootstrap, 2)
    out = bolt(
        kafka,
        lambda total: odd if total.count % 2 else even,
        value="word",
        partition=lambda total: total.count // 2 % 2,
    )
    run(out, [Total(f"w{number}", number) for number in range(8)])
    assert values_of(kafka.bootstrap, even) == ["w0", "w2", "w4", "w6"]
    assert values_of(kafka.bootstrap, odd) == ["w1", "w3", "w5", "w7"]
    by_partition = {m.value(): m.partition() for m in read_all(kafka.bootstrap, odd)}
    assert by_partition == {b"w1": 0, b"w3": 1, b"w5": 0, b"w7": 1}


def test_no_record_is_acked_before_the_broker_has_it(kafka: Kafka) -> None:
    clock = ManualClock()
    topic = new_topic(kafka.bootstrap)
    driven = BoltRig(bolt(kafka, topic, value="word"), clock)
    driven.take(Total("before", 1))
    driven.until(lambda out: out.acked)
    with paused(kafka):
        driven.take(Total("a", 1), Total("b", 2))
        driven.bolt._producer.poll(0.5)
        assert driven.out.acked == [Total("before", 1)]
        for _ in range(2):  # the timeout of unconfirmed inputs is reset from the second tick on
            clock.advance(2.1)
            driven.bolt.tick()
        assert driven.out.renewed == [Total("a", 1), Total("b", 2)]
    driven.until(lambda out: len(out.acked) == 3)
    assert values_of(kafka.bootstrap, topic) == ["a", "b", "before"]


def test_a_record_that_cannot_be_delivered_in_time_fails_with_the_cause(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    driven = BoltRig(bolt(kafka, topic, settings={"message.timeout.ms": 1000, "linger.ms": 0}))
    with paused(kafka):
        driven.take(Total("a", 1))
        driven.until(lambda out: out.failed)
    ((record, reason),) = driven.out.failed
    assert record == Total("a", 1)
    assert isinstance(reason, KafkaUnreachable)
    assert topic in str(reason)
    driven.deliver(Total("b", 2))


def test_a_full_queue_slows_the_bolt_down_and_loses_nothing(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    records = [Total(f"{number:04}", number) for number in range(500)]
    out = bolt(kafka, topic, value="word", settings={"queue.buffering.max.messages": 10})
    snapshot = run(out, records)
    assert snapshot.component("source").failed == 0
    messages = read_all(kafka.bootstrap, topic)
    assert [m.value() for m in messages] == [f"{number:04}".encode() for number in range(500)]


def test_a_record_that_is_too_large_fails_alone(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, max_message_bytes="1000")
    driven = BoltRig(bolt(kafka, topic, value="word", settings={"linger.ms": 0}))
    driven.take(Total("x" * 3000, 1))
    driven.until(lambda out: out.failed)
    assert "larger than" in str(driven.out.failed[0][1])
    with pytest.raises(KafkaError, match="larger than"):  # above the limit of the client itself
        driven.take(Total("x" * 2_000_000, 1))
    driven.take(Total("small", 2))
    driven.until(lambda out: out.acked)


def test_closing_waits_for_unconfirmed_messages(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    driven = BoltRig(bolt(kafka, topic, value="word", settings={"linger.ms": 500}))
    driven.take(*(Total(f"w{number}", 1) for number in range(5)))
    driven.bolt.cleanup()
    assert values_of(kafka.bootstrap, topic) == ["w0", "w1", "w2", "w3", "w4"]


def test_a_missing_topic_is_an_error_at_the_start_or_of_its_record(kafka: Kafka) -> None:
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        BoltRig(bolt(kafka, "no-such-topic"))
    driven = BoltRig(bolt(kafka, lambda total: total.word))
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        driven.take(Total("no-such-topic", 1))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "bootstrap.servers"), ({"bootstrap.servers": "h:1", "linger": 5}, "linger")],
)
def test_wrong_producer_settings_are_an_error(settings: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        BoltRig(KafkaBolt(settings, "words"))


class LateDirectory:
    """A directory that counts its calls; from the third call on it knows the topic."""

    asked = 0

    def __init__(self, _: Any) -> None: ...

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        LateDirectory.asked += 1
        if LateDirectory.asked < 3:
            raise UnknownTopic(f"there is no topic {topic!r}")
        return (Partition(topic, 0),)

    def close(self) -> None: ...


def test_brokers_are_not_asked_for_an_unknown_topic_with_each_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producing, "KafkaDirectory", LateDirectory)
    clock = ManualClock()
    producer = producing.Producer({"bootstrap.servers": "127.0.0.1:9"}, clock)
    for asked in (1, 2):
        for _ in range(3):
            with pytest.raises(UnknownTopic):
                producer.send(Message("later", b"x"))
        assert LateDirectory.asked == asked
        clock.advance(5.0)
    assert producer.check_topic("later") == 1
    assert producer.check_topic("later") == 1
    assert LateDirectory.asked == 3


def test_records_without_the_field_to_send_are_refused_at_the_declaration() -> None:
    words = Topology("t").spout("words", Records([Total("a", 1)], type=Total))
    with pytest.raises(UnknownField, match="weight"):
        words.shuffle().bolt("out", KafkaBolt({"bootstrap.servers": "h:1"}, "t", value="weight"))
    pairs = Topology("t").spout("pairs", Records([("a", 1)]), fields=("word", "count"))
    with pytest.raises(UnknownField, match="weight"):
        pairs.shuffle().bolt("out", KafkaBolt({"bootstrap.servers": "h:1"}, "t", key="weight"))


def test_plain_tuples_are_sent_with_the_field_names_of_their_stream() -> None:
    composer = Composer("here", "t", key="word")
    composer.check(Schema(("word", "count")))
    composer.check(Schema.of(Total))
    for record in (("a", 1), Total("a", 1)):
        sent = composer.compose(record)
        assert (sent.key, json.loads(sent.value or b"")) == (b"a", {"word": "a", "count": 1})


def test_plain_tuples_of_two_inputs_must_have_the_same_field_names() -> None:
    composer = Composer("here", "t")
    composer.check(Schema(("word", "count")))
    with pytest.raises(RecordMismatch, match=r"^here: .* tuples of different fields"):
        composer.check(Schema(("word", "weight")))


def test_functions_make_messages_of_plain_tuples_with_different_field_names() -> None:
    composer = Composer("here", "t", value=lambda record: record[1], key=lambda record: record[0])
    composer.check(Schema(("word", "count")))
    composer.check(Schema(("word", "weight")))
    assert composer.compose(("a", 1))[1:3] == (b"1", b"a")
