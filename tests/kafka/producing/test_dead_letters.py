"""Dead letters in a Kafka topic: whole, and with headers that tell the cause."""

from __future__ import annotations

import json
from typing import NamedTuple

from sunshower import Records, Retry, Topology
from sunshower.dev.kafka import Kafka
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.runtime.inline import run_inline
from tests.kafka.topics import new_topic, read_all


class ReadPartition(NamedTuple):
    topic: str
    offset: int
    text: str


def refuse(place: ReadPartition) -> None:
    if place.text == "poison":
        raise ValueError("no such word")


def test_a_dead_letter_is_a_message_with_all_that_is_known(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    topology = Topology("t")
    records = [ReadPartition("words", 7, "fine"), ReadPartition("words", 8, "poison")]
    retry = Retry(attempts=2, initial_s=0.001, max_s=0.001, dead_letters=True)
    words = topology.spout("words", Records(records, type=ReadPartition), retry=retry)
    words.shuffle().bolt("refuse", refuse)
    bury = KafkaBolt.dead_letters({"bootstrap.servers": kafka.bootstrap}, topic)
    words.stream("dead_letters").shuffle().bolt("bury", bury)
    run_inline(topology.graph())
    (message,) = read_all(kafka.bootstrap, topic)
    letter = json.loads(message.value() or b"")
    assert letter["record"] == {"topic": "words", "offset": 8, "text": "poison"}
    assert "no such word" in letter["traceback"]
    assert message.key() == b"1"
    assert dict(message.headers() or ()) == {
        "spout": b"words",
        "cause": b"exception",
        "component": b"refuse",
        "reason": b"ValueError: no such word",
        "exception": b"ValueError",
        "attempts": b"2",
    }
