"""A batch that a topic refuses is sent singly; only a record that is too large fails."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError as ClientError
from hypothesis import given

from sunshower import Bolt, DeadLetter, Records, Retry, Topology, run_inline
from sunshower.dev.kafka import Kafka
from sunshower.errors import KafkaError
from sunshower.failures import Cause, Failure
from sunshower.kafka.formats import Json
from sunshower.kafka.producing import kafka_bolt
from sunshower.kafka.producing.kafka_bolt import KafkaBolt, TransactionalKafkaBolt
from sunshower.kafka.producing.producer import Message, as_bytes
from sunshower.kafka.spout import KafkaSpout
from sunshower.runtime.tasks.bolts.dead_letters import dead_letter
from sunshower.topologies.streams import Stream
from tests.kafka.producing.rig import BoltRig
from tests.kafka.stage import running
from tests.kafka.topics import fill, new_topic, read_all, values_of
from tests.texts.hostile import odd_values, texts, values

SETTINGS = {"bootstrap.servers": "h:1"}


class Word(NamedTuple):
    word: Any


class Broker:
    """A fake Producer: `poll` sends its batches, and refuses those above `bytes_max`."""

    bytes_max = 1000

    def __init__(self, *_: Any) -> None:
        self.fatal = None
        self.singles: list[list[tuple[Message, Callable[..., None]]]] = []
        self.batch: list[tuple[Message, Callable[..., None]]] = []
        self.arrived: list[bytes] = []
        self.refused = 0

    def check_topic(self, _: str) -> int:
        return 1

    def send(self, message: Message, delivered: Any, *, alone: bool = False) -> bool:
        if alone:
            self.singles.append([(message, delivered)])
        else:
            self.batch.append((message, delivered))
        return True

    def poll(self, _: float = 0.0) -> None:
        batches = [*self.singles, self.batch]
        self.singles, self.batch = [], []
        for batch in batches:
            size = sum(len(message.value or b"") for message, _ in batch)
            error = ClientError(ClientError.MSG_SIZE_TOO_LARGE) if size > self.bytes_max else None
            self.refused += error is not None
            for message, delivered in batch:
                if error is None:
                    self.arrived.append(message.value or b"")
                delivered(error, message)

    def flush(self, _: float) -> int:
        self.poll()
        return 0

    def abandon(self) -> None: ...
    def check(self) -> None: ...
    def ours(self, error: ClientError, _: Any) -> KafkaError:
        return KafkaError(error.name())


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> BoltRig:
    monkeypatch.setattr(kafka_bolt, "Producer", Broker)
    return BoltRig(KafkaBolt(SETTINGS, "t", value="word"))


def test_batch_that_is_too_large_in_all_fails_no_record(driven: BoltRig) -> None:
    words = [Word(f"{number:0100}") for number in range(100)]
    driven.take(*words)
    driven.bolt.tick()
    driven.bolt.tick()
    assert driven.out.failed == []
    assert sorted(driven.out.acked) == words


def test_record_that_is_too_large_fails_alone(driven: BoltRig) -> None:
    driven.take(Word("a"), Word("x" * 1001), Word("b"))
    driven.bolt.tick()
    driven.bolt.tick()
    ((record, error),) = driven.out.failed
    assert (record, str(error)) == (Word("x" * 1001), "MSG_SIZE_TOO_LARGE")
    assert driven.out.acked == [Word("a"), Word("b")]
    driven.take(Word("c"))
    assert driven.bolt._producer.refused == 2, "the next record is sent in a batch again"


def test_closing_delivers_the_records_of_a_refused_batch(driven: BoltRig) -> None:
    words = [Word(f"{number:0100}") for number in range(20)]
    driven.give(*words)
    driven.bolt.cleanup()
    assert len(driven.out.acked) == 20


# ---- dead letters -------------------------------------------------------------------------------


def letters(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> BoltRig:
    monkeypatch.setattr(kafka_bolt, "Producer", Broker)
    return BoltRig(KafkaBolt.dead_letters({**SETTINGS, **settings}, "dead"))


def letter_of(value: Any, failure: Failure | None = None) -> DeadLetter:
    record = {"topic": "sales", "offset": 7, "value": value}
    why = failure or Failure(Cause.EXCEPTION, "out", 0, "no \ud800", "E", "trace")
    return dead_letter("sales", ("sales", 0, 7), record, why, 5, time=0.0)


@pytest.mark.parametrize("value", odd_values(), ids=lambda value: type(value).__name__)
def test_letter_of_any_record_is_sent(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    driven = letters(monkeypatch)
    driven.bolt._producer.bytes_max = 1_000_000
    driven.take(letter_of(value))
    assert len(driven.out.acked) == 1
    sent_letter = json.loads(driven.bolt._producer.arrived[0])  # `Json` refuses lone surrogates
    assert sent_letter["record"]["offset"] == 7


@given(texts, values)
def test_any_letter_can_be_composed(text: str, value: Any) -> None:
    bolt = KafkaBolt.dead_letters({**SETTINGS, "message.max.bytes": 10_000}, "dead")
    bolt._letter_bytes = 9_000
    message = bolt._compose(letter_of(value, Failure(Cause.FAILED, reason=text, traceback=text)))
    assert len(message.value or b"") <= 9_000
    for name, header in message.headers or ():
        assert len(header or b"") <= 300, name


def test_letter_is_clipped_to_what_the_topic_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = letters(monkeypatch)
    driven.bolt._producer.bytes_max = 2_000
    driven.take(letter_of(os.urandom(400_000)), letter_of("short"))
    for _ in range(20):
        driven.bolt.tick()
    assert (len(driven.out.acked), driven.out.failed) == (2, [])
    large, short = sorted(driven.bolt._producer.arrived, key=len, reverse=True)
    assert b"clipped to" in large
    assert b"clipped to" not in short
    refused = driven.bolt._producer.refused
    driven.take(letter_of(os.urandom(400_000)))
    assert driven.bolt._producer.refused == refused, "the bolt knows the limit by now"


def test_letter_that_is_refused_even_when_clipped_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = letters(monkeypatch)
    driven.bolt._producer.bytes_max = 100
    driven.take(letter_of("x"))
    for _ in range(20):
        driven.bolt.tick()
    assert [str(error) for _, error in driven.out.failed] == ["MSG_SIZE_TOO_LARGE"]


@given(values)
def test_parts_of_a_message_are_encoded_or_fail_their_record(value: Any) -> None:
    try:
        as_bytes(value)
    except (TypeError, ValueError, RecursionError):
        assert not isinstance(value, str | bytes)


# ---- on a real Kafka ----------------------------------------------------------------------------


def settings_of(kafka: Kafka) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap}


@pytest.mark.parametrize("transactional", [False, True])
def test_topic_with_a_small_limit_takes_every_record(kafka: Kafka, transactional: bool) -> None:
    topic = new_topic(kafka.bootstrap, max_message_bytes="2000")
    words = [Word(f"{number:0100}") for number in range(3000)]
    topology = Topology("t")
    spout = topology.spout("source", Records(words, type=Word), retry=Retry(attempts=1))
    bolt: Any = KafkaBolt(settings_of(kafka), topic, value="word")
    if transactional:
        settings = settings_of(kafka)
        bolt = TransactionalKafkaBolt(settings, topic, transactional_id=topic, value="word")
    spout.shuffle().bolt("out", bolt)
    snapshot = run_inline(topology.graph()).snapshot
    assert snapshot.component("source").failed == 0
    assert values_of(kafka.bootstrap, topic) == [word.word for word in words]


def test_oversize_record_does_not_fail_its_neighbours(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, max_message_bytes="5000")
    driven = BoltRig(KafkaBolt(settings_of(kafka), topic, value="word"))
    words = [Word(f"{number:03}") for number in range(100)]
    driven.take(*words[:50], Word("x" * 6000), *words[50:])
    driven.until(lambda out: len(out.acked) + len(out.failed) == 101)
    assert [record.word[0] for record, _ in driven.out.failed] == ["x"]
    assert sorted(values_of(kafka.bootstrap, topic)) == [word.word for word in words]


class Sale(NamedTuple):
    id: int
    item: str
    price: float


def write_letters(sales: Stream[Any], bolt: Bolt[Any, Any]) -> None:
    sales.stream("dead_letters").shuffle().bolt("letters", bolt)


def test_message_that_cannot_be_read_and_one_that_cannot_be_sent_end_as_dead_letters(
    kafka: Kafka,
) -> None:
    topics = [new_topic(kafka.bootstrap, max_message_bytes=size) for size in ("1000000",) * 3]
    source, sink, dead = topics
    messages = [b'{"id":1,"item":"\\u00e4","price":200}', os.urandom(400_000)]
    fill(kafka.bootstrap, source, messages)
    topology = Topology("shop", workers=1)
    settings = settings_of(kafka)
    spout = KafkaSpout({**settings, "group.id": source}, topics=[source], value=Json(Sale))
    sales = topology.spout("sales", spout, retry=Retry(attempts=1, dead_letters=True))
    sales.shuffle().bolt("out", KafkaBolt(settings, sink, key="item"))
    write_letters(sales, KafkaBolt.dead_letters(settings, dead))
    with running(topology) as run:
        run.until(lambda: run.contiguous() == {f"{source}[0]": 2})
        assert not run.core.finished, "a KafkaSpout never finishes"
    (sent,) = read_all(kafka.bootstrap, sink)
    assert json.loads(sent.value() or b"")["item"] == "ä"
    (letter,) = read_all(kafka.bootstrap, dead)
    assert b"clipped to" in (letter.value() or b"")
