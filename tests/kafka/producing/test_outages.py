"""Outages of brokers, ZooKeeper and a schema registry: spouts and bolts wait, then continue."""

from __future__ import annotations

import struct
import threading
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError as ClientError

from sunshower.clock import ManualClock, SystemClock
from sunshower.dev.servers import Ports
from sunshower.errors import KafkaError, KafkaUnreachable, NotAuthorised, UnknownTopic
from sunshower.kafka.consuming import consumer
from sunshower.kafka.consuming.consumer import Connection
from sunshower.kafka.exactly_once.batch_spouts import KafkaOpaque
from sunshower.kafka.formats import Avro, Bytes
from sunshower.kafka.options import Guarantee
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory, as_ours
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.producing import kafka_bolt as bolts
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.producing.producer import Producer
from sunshower.kafka.spout import KafkaSpout
from sunshower.outages import KAFKA_CODES, is_unavailable
from sunshower.topologies.components import Context
from tests.kafka.fakes import NewSpoutRig, message
from tests.kafka.producing.rig import BoltRig

CONTEXT = Context("t", "in", 0, 0, 1, clock=SystemClock())


class Word(NamedTuple):
    word: str


# ---- which errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ClientError._TRANSPORT, KafkaUnreachable),
        (ClientError._ALL_BROKERS_DOWN, KafkaUnreachable),
        (ClientError.COORDINATOR_LOAD_IN_PROGRESS, KafkaUnreachable),
        (ClientError.LEADER_NOT_AVAILABLE, KafkaUnreachable),
        (ClientError.UNKNOWN_TOPIC_OR_PART, UnknownTopic),
        (ClientError.TOPIC_AUTHORIZATION_FAILED, NotAuthorised),
        (ClientError.INVALID_CONFIG, KafkaError),
        (ClientError.UNSUPPORTED_VERSION, KafkaError),
    ],
)
def test_only_errors_that_may_pass_are_outages(code: int, kind: type[KafkaError]) -> None:
    error = as_ours(ClientError(code), "topic 'a'", "host:1")
    assert type(error) is kind
    assert is_unavailable(error) == (kind in {KafkaUnreachable, NotAuthorised})
    assert "host:1" in str(error)


OF_MESSAGES = [
    *(ClientError.MSG_SIZE_TOO_LARGE, ClientError.INVALID_RECORD, ClientError.INVALID_TIMESTAMP),
    *(ClientError.INVALID_MSG, ClientError._UNKNOWN_PARTITION, ClientError._INVALID_ARG),
]
OF_ALL = [
    *(ClientError.TOPIC_AUTHORIZATION_FAILED, ClientError.CLUSTER_AUTHORIZATION_FAILED),
    *(ClientError._AUTHENTICATION, ClientError.SASL_AUTHENTICATION_FAILED, ClientError._SSL),
    *(ClientError.UNSUPPORTED_VERSION, ClientError.INVALID_REQUIRED_ACKS, ClientError._FATAL),
    *(ClientError.POLICY_VIOLATION, ClientError.UNKNOWN, ClientError.UNKNOWN_PRODUCER_ID),
    *(ClientError.OUT_OF_ORDER_SEQUENCE_NUMBER, ClientError._INVALID_DIFFERENT_RECORD),
    *(ClientError.UNSUPPORTED_COMPRESSION_TYPE, ClientError.INVALID_PRODUCER_EPOCH),
    *(ClientError.UNKNOWN_TOPIC_OR_PART, ClientError._UNKNOWN_TOPIC, ClientError._MSG_TIMED_OUT),
    *(ClientError.NOT_ENOUGH_REPLICAS, ClientError._PURGE_QUEUE),
]


@pytest.mark.parametrize("topic", ["a", lambda word: word.word])
def test_only_an_error_of_the_message_itself_is_charged_to_its_record(
    topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bolts, "Producer", RefusedProducer)
    driven = BoltRig(KafkaBolt({"bootstrap.servers": "127.0.0.1:1"}, topic), ManualClock())
    of_record = [*OF_MESSAGES]
    if callable(topic):  # the record has chosen the topic that is missing
        of_record += [ClientError.UNKNOWN_TOPIC_OR_PART, ClientError._UNKNOWN_TOPIC]
    for code in [*OF_MESSAGES, *OF_ALL]:
        monkeypatch.setattr(RefusedProducer, "code", code)
        driven.take(Word("a"))
        while not driven.out.failed:  # what is too large is sent once more, alone
            driven.take()
        _, error = driven.out.failed.pop()
        assert is_unavailable(error) == (code not in of_record), error


class RefusedProducer(Producer):
    """A producer for which each message is refused with a code."""

    code = 0

    def check_topic(self, topic: str) -> int:
        self._reports: list[Any] = []
        self._known[topic] = 1
        return 1

    def send(self, message: Any, delivered: Any = None, *, alone: bool = False) -> bool:
        del alone
        self._reports = [(delivered, message)]
        return True

    def poll(self, seconds: float = 0.0) -> None:
        del seconds
        reports, self._reports = self._reports, []
        for delivered, sent in reports:
            delivered(ClientError(self.code), sent)


def test_a_producer_that_cannot_go_on_is_replaced_and_charges_no_record() -> None:
    driven = BoltRig(KafkaBolt({"bootstrap.servers": "127.0.0.1:1"}, lambda _: "a"), ManualClock())
    with closing(driven.bolt._producer._connection):
        former = driven.bolt._producer
        former._known["a"] = 1
        driven.give(Word("a"))
        former._on_error(ClientError(ClientError._FATAL, "epoch", True))
        driven.bolt.tick()
    ((_, error),) = driven.out.failed
    assert isinstance(error, KafkaUnreachable)
    assert driven.bolt._producer is not former
    driven.bolt.cleanup()


def test_all_codes_of_an_outage_are_codes_of_the_client() -> None:
    assert not [name for name in KAFKA_CODES if not hasattr(ClientError, name)]


# ---- an address without a broker ----------------------------------------------------------------


@pytest.fixture
def unreachable() -> Any:
    ports = Ports()
    yield f"localhost:{ports.claim()}"
    ports.release()


def open_spout(settings: dict[str, Any]) -> None:
    KafkaSpout({**settings, "group.id": "g"}, topics=["a"]).open(CONTEXT)


def prepare_bolt(settings: dict[str, Any]) -> None:
    KafkaBolt(settings, "a").prepare(CONTEXT)


def ask_for_partitions(settings: dict[str, Any]) -> None:
    batches = KafkaOpaque({**settings, "group.id": "g"}, topics=["a"])
    batches.open(CONTEXT)
    with closing(batches):
        batches.partitions()


@pytest.mark.parametrize("ask", [open_spout, prepare_bolt, ask_for_partitions])
def test_an_address_without_a_broker_is_named_although_a_request_may_take_longer(
    ask: Any, unreachable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KafkaDirectory.__init__.__kwdefaults__, "answer_within_s", 3_600.0)
    with pytest.raises(KafkaUnreachable, match=unreachable):
        ask({"bootstrap.servers": unreachable})


# ---- all brokers are unavailable in the middle of a run -----------------------------------------


class Brokers:
    """A directory for another thread: two calls fail, the third waits for `may_answer`."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away, self.may_answer = threading.Event(), threading.Event()

    def __call__(self, _: object) -> Brokers:
        return self

    def topics(self) -> frozenset[str]:
        self.asked += 1
        if self.asked < 3:
            raise KafkaUnreachable("unavailable")
        self.is_away.set()
        assert self.may_answer.wait(60)
        return frozenset()

    def close(self) -> None: ...


def test_without_any_broker_the_metadata_are_requested_until_there_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, connection = Brokers(), Connection({"bootstrap.servers": "host:1"})
    monkeypatch.setattr(consumer, "KafkaDirectory", brokers)
    connection.check()
    connection.on_error(ClientError(ClientError._TRANSPORT, "one of three"))
    connection.check()
    assert brokers.asked == 0, "the other brokers are available"
    connection.on_error(ClientError(ClientError._ALL_BROKERS_DOWN))
    for _ in range(2):
        with pytest.raises(KafkaUnreachable, match=r"host:1.*one of three"):
            connection.check()
    assert brokers.is_away.wait(60)
    with pytest.raises(KafkaUnreachable):
        connection.check()
    brokers.may_answer.set()
    assert connection._thread is not None
    connection._thread.join(60)
    connection.check()
    assert brokers.asked == 3


@pytest.mark.parametrize("guarantee", [*Guarantee])
def test_a_spout_emits_fetched_messages_and_then_raises_until_the_brokers_are_back(
    guarantee: Guarantee, new_spout_rig: NewSpoutRig
) -> None:
    rig = new_spout_rig((0, 10), guarantee=guarantee)
    rig.open()
    rig.client.is_cut = True
    rig.client.waiting = [message(0), message(1)]
    assert rig.poll() == [(0, 0), (0, 1)]
    for _ in range(3):
        with pytest.raises(KafkaUnreachable):
            rig.poll()
        rig.spout.poll(0)  # with no room it does its other work, and does not raise
    rig.client.is_cut = False
    rig.client.waiting = [message(2)]
    assert rig.poll() == [(0, 2)]


def test_partitions_that_were_lost_are_reported_before_the_outage(
    new_spout_rig: NewSpoutRig,
) -> None:
    rig = new_spout_rig((0, 10))
    rig.open()
    rig.client.waiting = [message(0)]
    assert rig.poll() == [(0, 0)]
    rig.spout._reader.revoked([Partition("a", 0)], lost=True)
    rig.client.is_cut = True
    polled = rig.spout.poll(100)
    assert polled is not None
    assert len(polled.gone) == 1
    with pytest.raises(KafkaUnreachable):
        rig.poll()


class CutProducer:
    """A producer whose messages stay unconfirmed while the brokers are unavailable."""

    is_cut = False
    fatal = None

    def __init__(self, *_: Any) -> None:
        self.sent: list[Any] = []

    def check_topic(self, _: str) -> int:
        return 1

    def check(self) -> None:
        if CutProducer.is_cut:
            raise KafkaUnreachable("all brokers are unavailable")

    def send(self, message: Any, delivered: Any) -> bool:
        self.sent.append((message, delivered))
        return True

    def poll(self, _: float = 0.0) -> None:
        while self.sent and not CutProducer.is_cut:
            message, delivered = self.sent.pop(0)
            delivered(None, message)


def test_a_bolt_waits_for_the_brokers_and_keeps_its_unconfirmed_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bolts, "Producer", CutProducer)
    driven = BoltRig(KafkaBolt({"bootstrap.servers": "h:1"}, "a"), ManualClock())
    driven.give(Word("first"))
    with monkeypatch.context() as patch:
        patch.setattr(CutProducer, "is_cut", True)
        for _ in range(2):
            with pytest.raises(KafkaUnreachable):
                driven.bolt.tick()
            with pytest.raises(KafkaUnreachable):
                driven.give(Word("second"))
            driven.take()
        assert (driven.out.acked, driven.out.failed) == ([], [])
    driven.bolt.tick()
    driven.take(Word("second"))
    assert driven.out.acked == [Word("first"), Word("second")]


# ---- other dependencies -------------------------------------------------------------------------


def test_an_unavailable_schema_registry_is_an_outage_and_no_unreadable_message() -> None:
    ports = Ports()
    url = f"http://127.0.0.1:{ports.claim()}"
    read = Avro({"url": url, "max.retries": 0}).decoder("sales", "value")
    with pytest.raises(KafkaUnreachable, match=url):
        read(struct.pack(">bI", 0, 7) + b"x")
    ports.release()


def test_messages_whose_translation_met_an_outage_are_translated_again(
    new_spout_rig: NewSpoutRig,
) -> None:
    is_down = True

    def translate(received: Any) -> tuple[int]:
        if is_down and received.offset == 1:
            raise ConnectionError("the names are in a database that fails over")
        return (received.offset,)

    rig = new_spout_rig((0, 10))
    rig.spout.reads = (Bytes(), Bytes(), translate, ())
    rig.open()
    rig.client.waiting = [message(0), message(1), message(2)]
    for _ in range(2):
        with pytest.raises(ConnectionError):
            rig.poll()
    is_down = False
    assert rig.poll() == [(0,), (1,), (2,)]
    assert rig.spout.unreadable == 0
