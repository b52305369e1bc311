"""KafkaBolt: writes each record to Kafka as a message, and acks it after delivery."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Unpack

from sunshower.arguments import COUNT, NAME, checked
from sunshower.errors import (
    KafkaError,
    KafkaUnreachable,
    StaleGeneration,
    Unavailable,
    UnknownTopic,
    user_errors,
)
from sunshower.kafka.exactly_once.deduplicate import KeyCache
from sunshower.kafka.formats import Format
from sunshower.kafka.partitions.topic_ends import tails
from sunshower.kafka.producing.producer import (
    TOO_LARGE,
    Composer,
    Delivered,
    Headers,
    Message,
    MessageParts,
    Producer,
    Settings,
    as_bytes,
    checked_settings,
)
from sunshower.records import Schema
from sunshower.texts import carried
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple
from sunshower.topologies.record_parts import Part
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

    writes_outside = True

    def __init__(
        self,
        settings: Settings,
        topic: str | Callable[[Any], str],
        *,
        value: Part | Format | None = None,
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
    record is sent as a JSON object, and with a format, such as `Avro(registry)`, in that format.
    `headers` are pairs, or a function of the record; `partition` is a function. `settings` are
    passed to librdkafka; by default the producer is idempotent.

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
        self._composer.prepare()

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


# ---- transactions --------------------------------------------------------------------------------

_WITHIN_S = 8.0  # less than the minute after which brokers abort a transaction
_APART_S = 8.0  # time to find the records of a batch that cannot be sent; then the rest fails
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


class Transactions(Producer):
    """A producer whose messages become visible with `commit`.

    A new producer of the same `id` aborts the transaction its predecessor left open, and fences
    the predecessor. If `fatal` is set, the outcome of the last commit may be unknown, and only a
    new producer of the same id can continue.
    """

    def __init__(self, settings: Settings, id: str) -> None:
        super().__init__({**settings, "transactional.id": id})
        self.id = id
        self._client.poll(0)
        self._do("starting", lambda: self._client.init_transactions(_WITHIN_S))

    def begin(self) -> None:
        self._do("beginning", self._client.begin_transaction)

    def produce(self, message: Message, delivered: Delivered | None = None) -> None:
        """Send a message in the transaction, `delivered` as in `send`. Waits while the queue is
        full.

        Raises KafkaError for messages that can never be sent, and if the brokers do not answer.
        """
        until_s = time.monotonic() + _WITHIN_S
        while not self.send(message, delivered):
            self.poll(0.1)
            if time.monotonic() > until_s:
                raise KafkaUnreachable(
                    f"the Kafka at {self.address} has taken no message for {_WITHIN_S:g} s"
                )

    def note(self, offset: Any, reader: Any) -> None:
        """Commit an offset of the reader's group in the transaction, a TopicPartition."""
        group = reader.consumer_group_metadata()
        self._do(
            "noting", lambda: self._client.send_offsets_to_transaction([offset], group, _WITHIN_S)
        )

    def commit(self) -> None:
        """Commit; readers see the messages soon after this returns, once the brokers have written
        the markers of the transaction. If it raises, readers never see them, unless `fatal`
        is set. Raises StaleGeneration, KafkaError."""
        self._do("committing", lambda: self._client.commit_transaction(_WITHIN_S))

    def abort(self) -> None:
        self._do("aborting", lambda: self._client.abort_transaction(_WITHIN_S))

    def _do(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except self._refusals as error:
            refusal = error.args[0]
            ours = self._ours(refusal, what)
            if isinstance(ours, Unavailable):
                self.fatal = ours  # the next producer of this id aborts the transaction
            elif refusal.txn_requires_abort() and what != "aborting":
                self.abort()
            else:
                self.fatal = ours
            raise ours from error

    def _ours(self, refusal: Any, what: str) -> KafkaError:
        if refusal.name() in _FENCED:
            return StaleGeneration(
                f"{what} a transaction of {self.id!r}: another process has that id now, or it was "
                f"open for too long ({refusal.str()})"
            )
        return self.ours(refusal, f"{what} a transaction of {self.id!r}")


class TransactionalKafkaBolt(SendingBolt):
    """A KafkaBolt that writes each batch of records in a transaction, and acks it after the commit.

    `transactional_id` and the task's index form the id of the producer, also after a restart: use
    another one for each bolt that writes to a Kafka. Of a refused batch each message is sent in a
    request of its own, then the halves of the batch, and so on: a record that cannot be sent fails
    alone. Records not sent after 8 s of this, or without an answer of a broker, fail with the cause
    `unavailable`, and are emitted again.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str | Callable[[Any], str],
        *,
        transactional_id: str,
        **message: Unpack[MessageParts],
    ) -> None:
        NAME.check("transactional_id", transactional_id)
        super().__init__(settings, topic, **message)
        self.transactional_id = transactional_id

    def prepare(self, context: Context) -> None:
        self._collector: Collector[Any]  # the same object in each call
        self._batch: list[tuple[Tuple[Any], Message]] = []
        self._id = f"{self.transactional_id}-{context.index}"
        self._producer, self._failed = Transactions(self.settings, self._id), False
        self._is_there = True
        self._alone = False  # each message is sent in a request of its own
        if isinstance(self.topic, str):
            self._producer.check_topic(self.topic)
        self._composer.prepare()

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Add the record to the batch. Raises KafkaUnreachable if no producer can be created."""
        self._collector = out
        if self._failed:
            self._renew()
        self._batch.append((tuple, self._composer.compose(tuple.record)))

    def flush(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        parts, until_s = [batch], time.monotonic() + _APART_S
        while parts:
            part = parts.pop()
            error = self._send(part)
            if error is None:
                self._settle(part, None)
            elif self._fails_all(error):
                self._settle(sum(parts, part), error)
                return
            elif len(part) == 1:
                self._settle(part, error)
                self._alone = False  # it was this record, and not the size of the batch
            elif time.monotonic() > until_s:
                late = f"not sent in {_APART_S:g} s: other records are refused ({error})"
                self._settle(sum(parts, part), KafkaUnreachable(late))
                return
            elif not self._alone:
                self._alone = True
                parts.append(part)
            else:
                half = len(part) // 2
                parts += [part[half:], part[:half]]

    def _send(self, batch: list[tuple[Tuple[Any], Message]]) -> KafkaError | None:
        """Send messages in one transaction. Returns the error if it was not committed."""
        try:
            self._renew()
            self._producer.begin()
            try:
                for _, message in batch:
                    self._producer.produce(message)
            except Unavailable:
                raise  # the next producer of this id aborts the transaction
            except KafkaError:
                self._producer.abort()
                raise
            self._producer.commit()
        except KafkaError as error:
            self._failed = True
            return error
        return None

    def _renew(self) -> None:
        """Create a new producer after a failure: the client would carry the sequence numbers of
        failed messages into the next transaction. If it raises KafkaError there is no producer.
        While all brokers are down the old one is kept, as its `check` raises without waiting."""
        if self._failed:
            if self._is_there:
                self._producer.poll(0.0)
                self._producer.check()
            self._producer.let_go()
            self._is_there = False
            single = {"batch.num.messages": 1} if self._alone else {}
            self._producer = Transactions({**self.settings, **single}, self._id)
            self._failed, self._is_there = False, True

    def _fails_all(self, error: KafkaError) -> bool:
        """Whether the error does not depend on the records, so that no other part can succeed."""
        return (
            not self._is_there or self._producer.fatal is not None or isinstance(error, Unavailable)
        )

    def _settle(self, batch: list[tuple[Tuple[Any], Message]], error: KafkaError | None) -> None:
        for tuple, _ in batch:
            self._finish(self._collector, tuple, error)


# ---- sole writer ---------------------------------------------------------------------------------

ID_HEADER = "id"
_READ_APART_S = 5.0  # after a failed attempt to read the topic, before the next one


class SoleWriterBolt(KafkaBolt):
    """A KafkaBolt that sends each `id` once, also if its record is replayed after a crash.

    Each message carries its id (a field's name, or a function of the record) in the header `id`. At
    its start, and after a message that was not confirmed, the bolt reads the last `memory` messages
    of each partition of the topic, so it knows by their ids which messages have arrived. A record
    with a known id is acked and dropped. Nothing else may write to the topic; `memory` must exceed
    the messages in delivery (`spout_pending`) plus those that other tasks write while one is down;
    group by the fields that the id is made of.
    """

    @checked(memory=COUNT)
    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        id: Part,
        memory: int = 100_000,
        **message: Unpack[MessageParts],
    ) -> None:
        super().__init__(settings, topic, **message)
        self._target, self._id, self._memory = topic, id, memory

    def check_input(self, schema: Schema) -> None:
        super().check_input(schema)
        self._composer.parts.check(schema, [self._id])

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.repeats = 0  # dropped records
        self._ids: dict[int, bytes] = {}  # of messages in delivery, by number
        self._repeated: dict[bytes, list[Tuple[Any]]] = {}  # repeats of messages in delivery
        self._is_unconfirmed = False  # unconfirmed messages may have arrived
        self._read_error: KafkaError | None = None  # of the last attempt to read the topic
        self._read_again_s = 0.0  # the time of the next attempt
        partitions = self._producer.check_topic(self._target)
        self._arrived = KeyCache(
            self._memory * partitions, _ids(self.settings, self._target, self._memory)
        )

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        if self._is_unconfirmed:
            self._read_again()
        id = self._id_of(tuple.record)
        if id in self._arrived:
            self.repeats += 1
            out.ack(tuple)
        elif id in self._repeated:  # settled together with the message in delivery
            self.repeats += 1
            self._repeated[id].append(tuple)
        else:
            self._ids[self._number], self._repeated[id] = id, []
            try:
                super().execute(tuple, out)
            except Exception:
                del self._repeated[self._ids.pop(self._number)]
                raise

    def figures(self) -> dict[str, float]:
        return super().figures() | {"repeats": self.repeats}

    def _compose(self, record: Any) -> Message:
        message = super()._compose(record)
        id = (ID_HEADER, self._id_of(record))
        return message._replace(headers=[*(message.headers or ()), id])

    def _id_of(self, record: Any) -> bytes:
        """Different ids are different bytes, also of texts that UTF-8 cannot encode."""
        id = self._get_id(record)
        return id.encode("utf-8", "surrogatepass") if isinstance(id, str) else as_bytes(id) or b""

    @cached_property
    def _get_id(self) -> Callable[[Any], Any]:
        return self._composer.parts.getter(self._id)

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        self._is_unconfirmed |= error is not None and error.name() not in TOO_LARGE
        super()._delivered(number, error, message)

    def _replace_producer(self, fatal: KafkaError) -> None:
        self._is_unconfirmed = True
        super()._replace_producer(fatal)

    def _read_again(self) -> None:
        """Read which messages have arrived. Raises KafkaError; after a failure it raises the same
        error for 5 s without a request, because a request may take seconds."""
        if self._read_error is not None and self._clock.now() < self._read_again_s:
            raise self._read_error
        try:
            self._arrived.add(_ids(self.settings, self._target, self._memory))
        except KafkaError as error:
            self._read_error, self._read_again_s = error, self._clock.now() + _READ_APART_S
            raise
        self._is_unconfirmed, self._read_error = False, None

    def _settle(self, number: int, error: KafkaError | None) -> None:
        id = self._ids.pop(number)
        if error is None:
            self._arrived.add([id])
        super()._settle(number, error)
        for tuple in self._repeated.pop(id):
            self._finish(self._collector, tuple, error)


def _ids(settings: Settings, topic: str, count: int) -> Iterator[bytes]:
    for message in tails(settings, topic, count):
        if (id := as_bytes(dict(message.headers() or ()).get(ID_HEADER))) is not None:
            yield id
