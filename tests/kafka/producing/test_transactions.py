"""Transactional writes to a real Kafka: batches arrive whole or not, a bad record fails alone."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import pytest

from sunshower import Records, Retry, Topology
from sunshower.dev.kafka import Kafka
from sunshower.errors import KafkaError, KafkaUnreachable, StaleGeneration
from sunshower.kafka.producing.kafka_bolt import TransactionalKafkaBolt, Transactions
from sunshower.kafka.producing.producer import Message
from sunshower.outages import is_unavailable
from sunshower.runtime.inline import run_inline
from tests.kafka.producing.rig import BoltRig
from tests.kafka.topics import new_topic, values_of


class Word(NamedTuple):
    word: str


def transactions(kafka: Kafka, id: str) -> Transactions:
    return Transactions({"bootstrap.servers": kafka.bootstrap}, id)


def test_only_committed_messages_are_read(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    producer = transactions(kafka, topic)
    for word, goes_well in (("kept", True), ("dropped", False), ("kept, too", True)):
        producer.begin()
        producer.produce(Message(topic, word.encode()))
        (producer.commit if goes_well else producer.abort)()
    assert values_of(kafka.bootstrap, topic) == ["kept", "kept, too"]


def test_a_producer_fences_the_earlier_one_of_its_id(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    earlier = transactions(kafka, topic)
    earlier.begin()
    earlier.produce(Message(topic, b"stale"))
    assert earlier.flush(60) == 0
    with_same_id = transactions(kafka, topic)
    with pytest.raises(StaleGeneration, match=topic):
        earlier.commit()
    assert earlier.fatal
    with_same_id.begin()
    with_same_id.produce(Message(topic, b"current"))
    with_same_id.commit()
    assert values_of(kafka.bootstrap, topic) == ["current"]


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

    def keep_letter(letter: Any) -> None:
        dead.append(letter)

    spout.stream("dead_letters").shuffle().bolt("dead", keep_letter)
    run_inline(topology.graph())
    assert values_of(kafka.bootstrap, topic) == [word.word for word in good]
    assert [letter.record for letter in dead] == [{"word": bad.word}]
    assert "too large" in dead[0].reason


class Client:
    """A fake of Transactions: it refuses to commit one of the `bad` words."""

    clients: ClassVar[list[Client]] = []
    bad: ClassVar[set[bytes]] = set()
    is_down: ClassVar[bool] = False
    request_max: ClassVar[float] = math.inf  # messages of one request
    fatal = None

    def __init__(self, settings: Any, _id: str) -> None:
        self.check()
        self.batch = settings.get("batch.num.messages", math.inf)
        assert all(earlier.gone for earlier in self.clients), "an id has one producer at a time"
        self.clients.append(self)
        self.sent: list[bytes] = []
        self.committed: list[list[bytes]] = []
        self.gone = False

    def check_topic(self, topic: str) -> None: ...
    def begin(self) -> None:
        self.sent = []

    def produce(self, message: Message) -> None:
        self.sent.append(message.value or b"")

    def commit(self) -> None:
        self.check()
        if self.bad & {*self.sent} or min(len(self.sent), self.batch) > self.request_max:
            raise KafkaError("one of them is too large")
        self.committed.append(self.sent)

    def abort(self) -> None:
        assert not self.is_down, "the next producer of this id aborts the open transaction"

    def poll(self, _: float) -> None: ...
    def check(self) -> None:
        if Client.is_down:
            raise KafkaUnreachable("no answer")

    def let_go(self) -> None:
        self.gone = True


WORDS = [Word(str(number)) for number in range(256)]


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> BoltRig:
    monkeypatch.setattr("sunshower.kafka.producing.kafka_bolt.Transactions", Client)
    monkeypatch.setattr(Client, "clients", [])
    settings = {"bootstrap.servers": "b:1"}
    return BoltRig(TransactionalKafkaBolt(settings, "t", transactional_id="id", value="word"))


def test_a_bad_record_is_found_by_halving_the_batch(
    driven: BoltRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "bad", {b"77"})
    driven.take(*WORDS)
    assert [word for word, _ in driven.out.failed] == [Word("77")]
    assert driven.out.acked == [word for word in WORDS if word.word != "77"], "in their order"
    # 256 records are refused twice, then the half with the bad record, down to 1: 10 refusals.
    assert len(Client.clients) == 11, "one producer for each refusal, and one for the other records"
    assert sum(len(client.committed) for client in Client.clients) == 8


def test_batch_above_the_limit_of_the_topic_is_sent_in_one_transaction(
    driven: BoltRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "request_max", 18)
    driven.take(*WORDS)
    driven.take(*WORDS)
    assert (driven.out.acked, driven.out.failed) == ([*WORDS, *WORDS], [])
    assert [len(client.committed) for client in Client.clients] == [0, 2]


def test_records_that_were_not_tried_in_time_are_charged_no_attempt(
    driven: BoltRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "bad", {b"77"})
    monkeypatch.setattr("sunshower.kafka.producing.kafka_bolt._APART_S", -1.0)
    driven.take(*WORDS)
    assert len(driven.out.failed) == 256
    assert all(is_unavailable(error) for _, error in driven.out.failed)


def test_in_an_outage_a_batch_fails_as_a_whole_and_the_next_record_waits(
    driven: BoltRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Client, "is_down", True)
        driven.take(*WORDS)
        assert [type(error) for _, error in driven.out.failed] == [KafkaUnreachable] * 256
        assert len(Client.clients) == 1, "no search for a bad record has begun"
        with pytest.raises(KafkaUnreachable):
            driven.give(Word("next"))
        driven.take()
    driven.take(*WORDS)
    assert driven.out.acked == WORDS
    assert len(driven.out.failed) == 256
