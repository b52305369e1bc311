"""SoleWriterBolt, and the tails of partitions that it reads, with fake clients."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message as ClientMessage

from sunshower.clock import ManualClock
from sunshower.errors import KafkaError, KafkaUnreachable
from sunshower.kafka.partitions import topic_ends as tail
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.producing import kafka_bolt
from sunshower.kafka.producing import kafka_bolt as bolt
from sunshower.kafka.producing.kafka_bolt import SoleWriterBolt
from sunshower.kafka.producing.producer import Message
from tests.kafka.fakes import EOF, message
from tests.kafka.producing.rig import BoltRig


class Consumer:
    """Returns the given batches of messages, one for each call."""

    def __init__(self, *batches: list[ClientMessage]) -> None:
        self._batches = list(batches)

    def assign(self, starts: list[Any]) -> None: ...

    def consume(self, limit: int, timeout: float) -> list[ClientMessage]:
        return self._batches.pop(0)


def test_an_end_that_is_reported_twice_counts_for_its_own_partition_only() -> None:
    client: Any = Consumer(
        [message(0), message(1, error=EOF)],
        [message(1), message(2, error=EOF)],  # a message has arrived meanwhile
        [message(0, 1), message(1, 1, error=EOF)],
    )
    both = (Partition("a", 0), Partition("a", 1))
    positions = [(taken.partition(), taken.offset()) for taken in tail._read(client, both, 10)]
    assert positions == [(0, 0), (0, 1), (1, 0)]


# ---- unconfirmed messages -----------------------------------------------------------------------


class Sale(NamedTuple):
    id: Any


class Topic:
    """The ids that have arrived in a topic, and whether its brokers answer."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self.answers = True
        self.asked = 0

    def tails(self, *_: Any) -> Any:
        self.asked += 1
        if not self.answers:
            raise KafkaUnreachable("no answer")
        return [Arrived(id) for id in self.ids]


class Arrived(NamedTuple):
    id: bytes

    def headers(self) -> list[tuple[str, bytes]]:
        return [("id", self.id)]


class Client:
    """A producer whose messages are confirmed or failed by the test."""

    def __init__(self, *_: Any) -> None:
        self.fatal: KafkaError | None = None
        self.sent: list[tuple[Message, Any]] = []

    def check_topic(self, _: str) -> int:
        return 1

    def send(self, message: Message, delivered: Any, *, alone: bool = False) -> bool:
        self.sent.append((message, delivered))
        return True

    def poll(self, _: float = 0.0) -> None: ...
    def check(self) -> None: ...
    def abandon(self) -> None: ...

    def ours(self, error: ClientError, _: Any) -> KafkaError:
        return KafkaError(error.name())


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    new_topic = Topic()
    monkeypatch.setattr(kafka_bolt, "tails", new_topic.tails)
    monkeypatch.setattr(bolt, "Producer", Client)
    return new_topic


def driven(clock: ManualClock | None = None) -> BoltRig:
    return BoltRig(
        SoleWriterBolt({"bootstrap.servers": "h:1"}, "sales", id="id", memory=50),
        clock or ManualClock(),
    )


def ids(rig: BoltRig) -> list[bytes]:
    """The ids of the messages that were given to the current producer."""
    client: Any = rig.bolt._producer
    return [message.headers[-1][1] for message, _ in client.sent]


def deliver(rig: BoltRig, number: int, error: int) -> None:
    client: Any = rig.bolt._producer
    sent, delivered = client.sent[number]
    delivered(ClientError(error), sent)


def test_an_unconfirmed_message_that_has_arrived_is_not_sent_again(topic: Topic) -> None:
    rig = driven()
    rig.take(Sale(1), Sale(2))
    topic.ids = [b"1"]
    for number in (0, 1):
        deliver(rig, number, ClientError._MSG_TIMED_OUT)
    assert len(rig.out.failed) == 2
    rig.take(Sale(1), Sale(2))
    assert rig.out.acked == [Sale(1)]
    assert ids(rig) == [b"1", b"2", b"2"]
    assert topic.asked == 2, "once at the start, and once after the errors"


def test_after_a_fatal_error_a_message_that_has_arrived_is_not_sent_again(
    topic: Topic,
) -> None:
    rig = driven()
    rig.take(Sale(1), Sale(2))
    topic.ids = [b"2"]
    rig.bolt._producer.fatal = KafkaError("it cannot go on")
    rig.bolt.tick()
    assert len(rig.out.failed) == 2
    rig.take(Sale(1), Sale(2))
    assert rig.out.acked == [Sale(2)]
    assert ids(rig) == [b"1"]


def test_a_message_that_is_too_large_is_not_looked_for_in_the_topic(topic: Topic) -> None:
    rig = driven()
    rig.take(Sale(1))
    deliver(rig, 0, ClientError.MSG_SIZE_TOO_LARGE)
    rig.take(Sale(1))  # settled together with the first one
    deliver(rig, 1, ClientError.MSG_SIZE_TOO_LARGE)
    assert [record for record, _ in rig.out.failed] == [Sale(1), Sale(1)]
    rig.take(Sale(2))
    assert ids(rig) == [b"1", b"1", b"2"]
    assert topic.asked == 1


def test_different_ids_have_different_encodings() -> None:
    writer = SoleWriterBolt({"bootstrap.servers": "h:1"}, "sales", id="id")
    encodings = [writer._id_of(Sale(id)) for id in ("\ud800", "\\ud800", "?", b"b", None, 1)]
    assert len({*encodings}) == 6


def test_nothing_is_sent_while_it_is_unknown_what_has_arrived(topic: Topic) -> None:
    clock = ManualClock()
    rig = driven(clock)
    rig.take(Sale(1))
    deliver(rig, 0, ClientError._MSG_TIMED_OUT)
    topic.answers = False
    for _ in range(3):
        with pytest.raises(KafkaUnreachable):
            rig.take(Sale(1))
    assert topic.asked == 2, "the topic is not read for each record: that takes seconds"
    topic.answers = True
    clock.advance(5.0)
    rig.take(Sale(1))
    assert ids(rig) == [b"1", b"1"]
