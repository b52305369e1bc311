"""KafkaBolt: writes each record to Kafka as a message, and acks it after delivery."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from sunshower.errors import KafkaError, KafkaUnreachable, UnknownTopic, user_errors
from sunshower.kafka.producing.producer import (
    TOO_LARGE,
    Composer,
    Headers,
    Message,
    Producer,
    Settings,
    as_bytes,
    checked_settings,
)
from sunshower.records import Part, Schema
from sunshower.texts import carried
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple
from sunshower.topologies.retry import DeadLetter, LetterStore, fitted

_ROOM_S = 0.05  # how long `flush` waits for space in the producer's queue
_RENEW_S = 2.0  # interval of resetting the timeouts of tuples that are being delivered
_CLOSE_S = 10.0
_CLIENT_BYTES = 1_000_000  # librdkafka's message.max.bytes
_OVERHEAD_BYTES = 512  # of a message, besides its value, key and headers
_LETTER_BYTES_MIN = 512
_HEADER_BYTES = 256  # of the value of a dead letter's header
_PLACE = ("topic", "partition", "offset", "topic_id")  # see `KafkaSpout.message_id`
_OF_READERS = ("bootstrap.", "security.", "ssl.", "sasl.", "enable.ssl.", "socket.", "broker.")


class SendingBolt(Stateless, Bolt[Any, None]):
    """What the bolts that send to Kafka share: messages made from records, and no state."""

    def __init__(
        self,
        settings: Settings,
        topic: str | Callable[[Any], str],
        *,
        value: Part | None = None,
        key: Part | None = None,
        headers: Headers | Callable[[Any], Headers] | None = None,
        partition: Callable[[Any], int] | None = None,
    ) -> None:
        self.settings, self.topic = checked_settings(settings), topic
        name = topic if isinstance(topic, str) else "a topic by record"
        where = f"{type(self).__name__}({name})"
        self._composer = Composer(where, topic, value, key, headers, partition)

    def check_input(self, schema: Schema) -> None:
        self._composer.check(schema)

    def _finish(self, out: Collector[Any], tuple: Tuple[Any], error: KafkaError | None) -> None:
        if error is None:
            out.ack(tuple)
        else:
            out.fail(tuple, error)


class KafkaBolt(SendingBolt):
    """Writes each record as a message to `topic` (a name, or a function of the record), at least
    once.

    `value` and `key` are a field's name, or a function of the record; without `value` the whole
    record is sent as a JSON object. `headers` are pairs, or a function of the record; `partition`
    is a function. `settings` are passed to librdkafka; by default the producer is idempotent.

    A record is acked when all in-sync replicas have its message. A message that is refused fails
    its tuple with the cause; one that is not delivered within `message.timeout.ms` (5 minutes), or
    is refused because of a right, a missing topic or the client, with the cause `unavailable`.
    While all brokers are down the task waits. Raises UnknownTopic, NotAuthorised, KafkaUnreachable,
    or ConfigError when it starts.
    """

    tick_s = 0.02  # polls for delivery reports while no tuples arrive

    @staticmethod
    def dead_letters(settings: Settings, topic: str) -> KafkaBolt:
        """A bolt for the stream `dead_letters` of a spout whose Retry has `dead_letters=True`.

        The value is the DeadLetter as JSON, the key its message id. Headers contain the cause, and
        for records from Kafka also `topic`, `partition`, `offset`, and `topic_id` if the brokers
        have one. A letter that is larger than the topic, or `message.max.bytes`, takes is clipped,
        with a marker.
        """
        return _DeadLetterBolt(settings, topic, key="message_id", headers=_causes)

    def prepare(self, context: Context) -> None:
        self._clock = context.clock
        self._collector: Collector[Any]  # the same object in each call
        self._open: dict[int, Tuple[Any]] = {}  # unsettled tuples, by number, the oldest first
        self._number = self._renewed = 0  # the next number; timeouts are reset below `_renewed`
        self._renew_at_s = self._clock.now() + _RENEW_S
        self._waiting: deque[tuple[int, Message]] = deque()  # the producer's queue was full
        self._alone: set[int] = set()  # numbers of messages that are sent alone, see `_delivered`
        self._is_closed = False
        self._producer = Producer(self.settings, self._clock)
        if isinstance(self.topic, str):
            self._producer.check_topic(self.topic)

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Send the record; a later `flush` or `tick` settles it. Raises KafkaUnreachable."""
        self._collector = out
        self._producer.check()
        message = self._compose(tuple.record)
        if self._waiting or not self._sent(self._number, message):
            self._waiting.append((self._number, message))
        self._open[self._number] = tuple
        self._number += 1

    def tick(self) -> None:
        """Reset the timeouts of tuples in delivery; replace a producer after a fatal error. Raises
        KafkaUnreachable while all brokers are down and tuples are open."""
        if self._producer.fatal is not None:
            self._replace_producer(self._producer.fatal)
        if self._open:
            self._producer.poll(0.0)
            self._send_waiting()
            self._producer.check()
        now = self._clock.now()
        if now >= self._renew_at_s:
            for number, tuple in self._open.items():
                if number >= self._renewed:
                    break
                self._collector.reset_timeout(tuple)
            self._renewed, self._renew_at_s = self._number, now + _RENEW_S

    def flush(self) -> None:
        """Process delivery reports, which ack and fail tuples. While the queue is full, wait up to
        0.05 s: this slows down the senders."""
        self._producer.poll(0.0)
        self._send_waiting()
        if self._waiting:
            self._producer.poll(_ROOM_S)
            self._send_waiting()

    def figures(self) -> dict[str, float]:
        return {"on their way": len(self._open), "without room": len(self._waiting)}

    def cleanup(self) -> None:
        """Wait until all messages are delivered, 10 s at most, and discard the rest: its tuples are
        emitted again. A client with messages would keep this object, and its threads."""
        self._producer.flush(_CLOSE_S)
        if self._waiting:
            self._send_waiting()
            self._producer.flush(_CLOSE_S)
        self._is_closed = True
        self._producer.abandon()

    def _compose(self, record: Any) -> Message:
        return self._composer.compose(record)

    def _sent(self, number: int, message: Message) -> bool:
        delivered = partial(self._delivered, number)
        if number in self._alone:
            return self._producer.send(message, delivered, alone=True)
        return self._producer.send(message, delivered)

    def _send_waiting(self) -> None:
        while self._waiting:
            number, message = self._waiting[0]
            try:
                if not self._sent(number, message):
                    return
            except KafkaError as error:
                self._settle(number, error)
            self._waiting.popleft()

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        """Process the client's delivery report; called within `poll`."""
        if self._is_closed:
            return
        if error is None:
            self._settle(number, None)
        elif error.name() not in TOO_LARGE or not self._send_again(number):
            self._settle(number, self._producer.ours(error, message))

    def _send_again(self, number: int) -> bool:
        """Send a message alone whose batch was too large for its topic. Returns whether to wait
        for its delivery; false if it was alone already."""
        if number in self._alone:
            return False
        self._alone.add(number)
        return self._compose_again(number)

    def _compose_again(self, number: int) -> bool:
        try:
            message = self._compose(self._open[number].record)
        except user_errors():  # of a user's function, which has succeeded once
            return False
        self._waiting.append((number, message))
        return True

    def _settle(self, number: int, error: KafkaError | None) -> None:
        self._alone.discard(number)
        if isinstance(error, UnknownTopic) and isinstance(self.topic, str):
            error = KafkaUnreachable(str(error))  # it was deleted: no record chooses the topic
        self._finish(self._collector, self._open.pop(number), error)

    def _replace_producer(self, fatal: KafkaError) -> None:
        """After a fatal error: fail all open tuples, and create a new producer."""
        self._producer.abandon()
        self._waiting.clear()
        for number in list(self._open):
            self._settle(number, fatal)
        self._producer = Producer(self.settings, self._clock)


class _DeadLetterBolt(KafkaBolt):
    """A KafkaBolt whose messages are DeadLetters, and are clipped to what the topic takes.

    The limit is that of the client (`message.max.bytes`), and is halved whenever the brokers refuse
    a letter that was sent alone: their limits are not for every client to read.
    """

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        client_bytes = int(self.settings.get("message.max.bytes", _CLIENT_BYTES))
        self._letter_bytes = client_bytes - _OVERHEAD_BYTES

    def __sunshower_letter_store__(self, parallelism: int) -> LetterStore:
        """The topic, and the settings with which a reader connects, without secrets."""
        settings = {
            name: value
            for name, value in self.settings.items()
            if name.startswith(_OF_READERS) and isinstance(value, str | int | float | bool)
        }
        return LetterStore(topic=str(self.topic), settings=settings)

    def _compose(self, record: DeadLetter) -> Message:
        return super()._compose(fitted(record, self._letter_bytes, self._size))

    def _size(self, letter: DeadLetter) -> int:
        _, value, key, headers, _ = super()._compose(letter)
        pairs = [(value, key), *(headers or ())]
        return sum(len(part or b"") for pair in pairs for part in pair)

    def _send_again(self, number: int) -> bool:
        if super()._send_again(number):
            return True
        if self._letter_bytes < _LETTER_BYTES_MIN:
            return False
        letter = self._open[number].record
        self._letter_bytes = min(self._letter_bytes, self._size(letter)) // 2
        return self._compose_again(number)


def _causes(letter: DeadLetter) -> Headers:
    names = ("spout", "cause", "component", "reason", "exception", "attempts")
    pairs = [(name, getattr(letter, name)) for name in names]
    name = letter.message_id
    if isinstance(name, tuple | list) and len(name) in (len(_PLACE) - 1, len(_PLACE)):
        pairs += zip(_PLACE, name, strict=False)
    return [(name, as_bytes(carried(value, _HEADER_BYTES))) for name, value in pairs]
