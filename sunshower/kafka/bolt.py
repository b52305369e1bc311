"""Out to Kafka: each record is a message, and acked when the brokers have it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from sunshower.errors import KafkaError
from sunshower.kafka.messages import Composer, Headers, Message, Part, as_bytes
from sunshower.kafka.producing import Producer, Settings, checked
from sunshower.records import Schema
from sunshower.topologies.components import Bolt, Collector, Context, Tuple
from sunshower.topologies.retry import DeadLetter

_ROOM_S = 0.05  # how long a batch waits for room in the queue before the next one is taken in
_RENEW_S = 2.0  # what is on its way for longer has its timeout reset
_CLOSE_S = 10.0
_PLACE = ("topic", "partition", "offset")


class KafkaBolt(Bolt[Any, None]):
    """Each record as a message to `topic` (a name, or a function of the record).

    `value` and `key`: a field's name, or a function of the record; without `value` all of the
    record is sent as a JSON object. `headers`: pairs, or a function of the record; so `partition`.
    `settings` are librdkafka's, passed on unchanged: `bootstrap.servers`, `security.…`,
    `linger.ms`, `compression.type`, and so on. The producer is idempotent unless they forbid it.

    A record is acked when all in-sync replicas have its message, and not before. If it is refused,
    it fails with the cause; while it is on its way its tree does not time out. While all brokers
    are away the task waits, and the client keeps what it has. A record that it could not deliver
    within `message.timeout.ms` (5 minutes) fails with the cause `unavailable`, which uses up no
    attempt. A full queue slows down whoever sends to this bolt.
    What is replayed may be sent twice: at least once.

    Raises at its start UnknownTopic, NotAuthorised, KafkaUnreachable, or ConfigError.
    """

    tick_s = 0.02  # deliveries are heard of, also while no records come

    def __init__(
        self,
        settings: Settings,
        topic: str | Callable[[Any], str],
        *,
        value: Part = None,
        key: Part = None,
        headers: Headers | Callable[[Any], Headers] | None = None,
        partition: Callable[[Any], int] | None = None,
    ) -> None:
        self.settings, self.topic = checked(settings), topic
        self._composer = Composer(topic, value, key, headers, partition)

    @staticmethod
    def dead_letters(settings: Settings, topic: str) -> KafkaBolt:
        """A bolt for the stream `dead_letters` of a spout whose Retry has `dead_letters=True`.

            lines.stream("dead_letters").shuffle().bolt("bury", KafkaBolt.dead_letters(…, "dead"))

        The value is the whole DeadLetter as JSON, the key its message id. The headers tell the
        cause without opening it, and, of what came out of Kafka, `topic`, `partition`, `offset`.
        """
        return KafkaBolt(settings, topic, key="message_id", headers=_causes)

    def check_input(self, schema: Schema) -> None:
        """Refuse records without the fields that are to be sent."""
        self._composer.check(schema, f"KafkaBolt({self._name})")

    def prepare(self, context: Context) -> None:
        """Find the brokers, and the topic if it is one."""
        self._clock = context.clock
        self._hands: Collector[Any]  # the same one in each call
        self._open: dict[int, Tuple[Any]] = {}  # not settled, by number, the oldest first
        self._number = self._renewed = 0  # of the next one; below this they may be reset
        self._renew_at_s = self._clock.now() + _RENEW_S
        self._waiting: deque[tuple[int, Message]] = deque()  # there was no room for these
        self._producer = Producer(self.settings, self._clock)
        if isinstance(self.topic, str):
            self._producer.check_topic(self.topic)

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Send it; it is settled by a later `flush`. Raises KafkaUnreachable."""
        self._hands = out
        self._producer.check()
        message = self._compose(tuple.record)
        if self._waiting or not self._sent(self._number, message):
            self._waiting.append((self._number, message))
        self._open[self._number] = tuple
        self._number += 1

    def tick(self) -> None:
        """Give those that are long on their way more time; replace a producer that cannot go on.
        Raises KafkaUnreachable while all brokers are away and something is on its way."""
        if self._producer.fatal is not None:
            self._begin_anew(self._producer.fatal)
        if self._open:
            self._producer.poll(0.0)
            self._producer.check()
        now = self._clock.now()
        if now >= self._renew_at_s:
            for number, tuple in self._open.items():
                if number >= self._renewed:
                    break
                self._hands.reset_timeout(tuple)
            self._renewed, self._renew_at_s = self._number, now + _RENEW_S

    def flush(self) -> None:
        """Hear of deliveries: they ack and fail. Where there is no room, wait a little: who is slow
        is handed less."""
        self._producer.poll(0.0)
        self._send_waiting()
        if self._waiting:
            self._producer.poll(_ROOM_S)
            self._send_waiting()

    def figures(self) -> dict[str, float]:
        """How many are not delivered yet, and how many of these found no room in the queue."""
        return {"on their way": len(self._open), "without room": len(self._waiting)}

    def snapshot(self) -> None:
        """Nothing: what was not delivered is emitted again."""

    def restore(self, state: Any) -> None:
        """Nothing, likewise."""

    def cleanup(self) -> None:
        """Wait until all is delivered, 10 s at most."""
        self._producer.flush(_CLOSE_S)

    def _compose(self, record: Any) -> Message:
        return self._composer.compose(record)

    def _sent(self, number: int, message: Message) -> bool:
        return self._producer.send(message, partial(self._delivered, number))

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
        """What the client says of a message, in the middle of `poll`."""
        if error is None:
            self._settle(number, None)
        else:
            self._settle(number, self._producer.ours(error, message))

    def _settle(self, number: int, error: KafkaError | None) -> None:
        self._tell(self._open.pop(number), error)

    def _tell(self, tuple: Tuple[Any], error: KafkaError | None) -> None:
        if error is None:
            self._hands.ack(tuple)
        else:
            self._hands.fail(tuple, error)

    def _begin_anew(self, fatal: KafkaError) -> None:
        """The client has given up for good: what is open fails, and is emitted again."""
        self._producer.abandon()
        self._waiting.clear()
        for number in list(self._open):
            self._settle(number, fatal)
        self._producer = Producer(self.settings, self._clock)

    @property
    def _name(self) -> str:
        return self.topic if isinstance(self.topic, str) else "a topic by record"


def _causes(letter: DeadLetter) -> Headers:
    told = ("spout", "cause", "component", "reason", "exception", "attempts")
    pairs = [(name, getattr(letter, name)) for name in told]
    if isinstance(letter.message_id, tuple | list) and len(letter.message_id) == len(_PLACE):
        pairs += zip(_PLACE, letter.message_id, strict=True)  # a KafkaSpout's
    return [(name, as_bytes(value)) for name, value in pairs]
