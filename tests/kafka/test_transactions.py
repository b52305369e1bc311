"""Transactions on a real Kafka: all of a batch, or nothing; one bad record fails alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from sunshower import Records, Retry, Topology
from sunshower.dev.kafka import Kafka
from sunshower.errors import StaleGeneration
from sunshower.kafka.messages import Message
from sunshower.kafka.transactions import TransactionalKafkaBolt, Transactions
from sunshower.runtime.inline import run_inline
from tests.kafka.topics import new_topic, values_of


class Word(NamedTuple):
    word: str


def transactions(kafka: Kafka, id: str) -> Transactions:
    return Transactions({"bootstrap.servers": kafka.bootstrap}, id)


def test_only_what_was_committed_is_read(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    producer = transactions(kafka, topic)
    for word, goes_well in (("kept", True), ("dropped", False), ("kept, too", True)):
        producer.begin()
        producer.produce(Message(topic, word.encode()))
        (producer.commit if goes_well else producer.abort)()
    assert values_of(kafka.bootstrap, topic) == ["kept", "kept, too"]


def test_the_next_one_of_an_id_shuts_the_former_one_out(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    former = transactions(kafka, topic)
    former.begin()
    former.produce(Message(topic, b"from the dead"))
    assert former.flush(60) == 0
    with_same_id = transactions(kafka, topic)
    with pytest.raises(StaleGeneration, match=topic):
        former.commit()
    assert former.fatal
    with_same_id.begin()
    with_same_id.produce(Message(topic, b"from the living"))
    with_same_id.commit()
    assert values_of(kafka.bootstrap, topic) == ["from the living"]


def test_each_batch_is_committed_and_one_bad_record_fails_alone(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, max_message_bytes="1000")
    good = [Word(f"{number:03}") for number in range(300)]
    bad = Word("x" * 3000)
    topology = Topology("t")
    retry = Retry(attempts=2, initial_s=0.001, max_s=0.001, dead_letters=True)
    spout = topology.spout("source", Records([*good, bad], type=Word), retry=retry)
    settings = {"bootstrap.servers": kafka.bootstrap}
    out = TransactionalKafkaBolt(settings, topic, transactional_id=topic, value="word")
    spout.shuffle().bolt("out", out)
    dead: list[Any] = []

    def bury(letter: Any) -> None:
        dead.append(letter)

    spout.stream("dead_letters").shuffle().bolt("dead", bury)
    run_inline(topology.graph())
    assert values_of(kafka.bootstrap, topic) == [word.word for word in good]
    assert [letter.record for letter in dead] == [{"word": bad.word}]
    assert "too large" in dead[0].reason
