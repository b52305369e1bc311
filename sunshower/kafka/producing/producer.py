"""Wraps the confluent_kafka producer: idempotent, with bounded blocking and our own errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict

from sunshower.arguments import NONE, PART, AnyOf, Each, Instance
from sunshower.clock import Clock, SystemClock
from sunshower.errors import ConfigError, KafkaError, KafkaUnreachable, RecordMismatch
from sunshower.json_values import json_text
from sunshower.kafka.consuming.consumer import Connection, weakly
from sunshower.kafka.formats import Format
from sunshower.kafka.partitions.broker_metadata import SETTINGS, KafkaDirectory, as_ours, new_client
from sunshower.kafka.producing.record_writers import Encode
from sunshower.records import Schema
from sunshower.secret import protected
from sunshower.texts import utf8
from sunshower.topologies.record_parts import Part, RecordParts

if TYPE_CHECKING:
    from confluent_kafka import KafkaError as Refusal
    from confluent_kafka import Message as Sent
    from confluent_kafka import Producer as Client

Settings: TypeAlias = Mapping[str, Any]  # librdkafka's, such as bootstrap.servers
Delivered: TypeAlias = Callable[["Refusal | None", "Sent"], None]

# The message limit exceeds what a spout keeps open, so that bytes are the effective limit. With
# idempotence the client retries in order and without duplicates until message.timeout.ms expires.
_USUAL = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # the partition of a key is that of Java's producer
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 128 << 10,
    "topic.metadata.propagation.max.ms": 5_000,
    "log_level": 0,  # errors are raised, or reported for the message that they concern
}
TOO_LARGE = {"MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE"}
# Other errors that a message causes. What is left concerns all messages of a topic or a client.
_OF_MESSAGES = {
    *("INVALID_MSG", "INVALID_RECORD", "INVALID_TIMESTAMP", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    "_INVALID_ARG",
}
_NOT_DELIVERED = {"_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT"}
_UNKNOWN_S = 5.0  # how long a failed topic lookup is not repeated: a lookup may take longer


# ---- messages ------------------------------------------------------------------------------------

Header: TypeAlias = tuple[str, bytes | str | None]
Headers: TypeAlias = Mapping[str, bytes | str | None] | Iterable[Header]


class MessageParts(TypedDict, total=False):
    """How the bolts make a message from a record; see Composer."""

    value: Part | Format | None
    key: Part | None
    headers: Headers | Callable[[Any], Headers] | None
    partition: Callable[[Any], int] | None


_TOPIC = replace(PART, instead="a name, or a function of the record")
_PART = AnyOf((PART, NONE))
_VALUE = AnyOf((PART, NONE, Instance((Format,), "a format, such as Avro(registry)")))
_PAIRS = Each(Instance((tuple,), "a pair"), 'pairs, as in [("source", b"shop")]')
_HEADERS = AnyOf((_PAIRS, Instance((Mapping, Callable, NoneType), "a function of the record")))
_PARTITION = Instance((Callable, NoneType), "a function of the record")


class Message(NamedTuple):
    """A message to send; `partition` −1: the client chooses by the key, or any without one."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: list[Header] | None = None
    partition: int = -1


class Composer:
    r"""Makes messages of records.

    `value` and `key` are a field's name, or a function of the record; without a `value` the whole
    record is sent as a JSON object, and with a format, such as Avro, in that format. Otherwise
    bytes are sent unchanged, text as UTF-8, None as null (a tombstone in a compacted topic),
    anything else as JSON, with dates, decimals, UUIDs and Enums as docs/RECORDS.md says.
    `topic`, `headers` and `partition` may be functions of the record, too. In texts a lone
    surrogate, which UTF-8 cannot encode, becomes its escape, such as \udc80: in JSON this is the
    same value.
    """

    def __init__(
        self,
        where: str,
        topic: str | Callable[[Any], str],
        value: Part | Format | None = None,
        key: Part | None = None,
        headers: Headers | Callable[[Any], Headers] | None = None,
        partition: Callable[[Any], int] | None = None,
    ) -> None:
        """`where`: the bolt, for messages."""
        _TOPIC.check("topic", topic)
        _VALUE.check("value", value)
        _PART.check("key", key)
        _HEADERS.check("headers", headers)
        _PARTITION.check("partition", partition)
        self.where, self.parts = where, RecordParts(where)
        self._topic, self._format = topic, None
        if isinstance(value, Format):
            self._format, value = value, None
        self._value, self._key = value, key
        self._schema: Schema | None = None  # of the records that the format writes
        self._encoders: dict[str, Encode] = {}  # by topic
        self._headers = headers if callable(headers) else _listed(headers)
        self._partition = partition

    def check(self, schema: Schema) -> None:
        """Check that records have the fields. Raises UnknownField, RecordMismatch; and ConfigError
        for a format that cannot write them."""
        if self._format is not None:
            self._format.check_input(schema)
            if self._schema not in (None, schema):
                raise RecordMismatch(
                    f"{self.where}: its inputs are of different types, and the format has one "
                    "schema: add a sink, or merge the streams"
                )
            self._schema = schema
        self.parts.check(schema, [self._value, *([] if self._key is None else [self._key])])

    def compose(self, record: Any) -> Message:
        """The message of a record. Raises what the functions raise, and TypeError or ValueError
        for a value that JSON cannot represent."""
        topic = self._topic if isinstance(self._topic, str) else self._topic(record)
        encode = None if self._format is None else self.encoder(topic)
        value = self._get_value(record) if encode is None else encode(record)
        headers = _listed(self._headers(record)) if callable(self._headers) else self._headers
        partition = -1 if self._partition is None else self._partition(record)
        key = None if self._get_key is None else as_bytes(self._get_key(record))
        return Message(topic, as_bytes(value), key, headers, partition)

    def prepare(self) -> None:
        """Ask a registry for the id of the schema. Raises ConfigError for a schema that it refuses,
        KafkaUnreachable while it does not answer."""
        if self._format is not None and isinstance(self._topic, str):
            self.encoder(self._topic)

    def encoder(self, topic: str) -> Encode:
        """The function that writes the records for a topic by the format. Raises as `prepare`."""
        if topic not in self._encoders:
            assert self._format is not None
            assert self._schema is not None, "an input was checked"
            self._encoders[topic] = self._format.encoder(topic, "value", self._schema)
        return self._encoders[topic]

    @cached_property  # prepared for the first message: all inputs have been checked by then
    def _get_value(self) -> Callable[[Any], Any]:
        return self.parts.getter(self._value)

    @cached_property
    def _get_key(self) -> Callable[[Any], Any] | None:
        return None if self._key is None else self.parts.getter(self._key)


def as_bytes(value: Any) -> bytes | None:
    """Encode a key, value or header."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return utf8(value)
    return utf8(json_text(value))


def _listed(headers: Headers | None) -> list[Header] | None:
    if headers is None:
        return None
    return list(headers.items() if isinstance(headers, Mapping) else headers)


# ---- producer ------------------------------------------------------------------------------------

_NO_HEADERS: list[Header] = []


class Producer:
    """Sends messages and reports their delivery.

    Raises ConfigError for invalid settings, KafkaError if confluent_kafka is missing.
    """

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = checked_settings(settings)
        self.address = str(settings.get("bootstrap.servers", "(no bootstrap.servers)"))
        self.fatal: KafkaError | None = None  # if set, this producer can send nothing any more
        self._connection = Connection(self.settings)
        self._known: dict[str, int] = {}  # the partition counts of topics
        self._clock = clock or SystemClock()
        self._unknown: dict[str, tuple[float, KafkaError]] = {}  # when to retry, and the error
        reporting = {"error_cb": weakly(self._on_error)}
        self._client: Client = new_client("Producer", {**_USUAL, **settings, **reporting})
        self._single: Producer | None = None  # see `send`
        self._produce: Callable[..., None] = self._client.produce
        from confluent_kafka import KafkaException

        self._refusals = KafkaException

    def check_topic(self, topic: str) -> int:
        """The number of partitions of a topic at the first lookup. Raises UnknownTopic,
        NotAuthorised, KafkaUnreachable within 10 s, then for 5 s the same error at once."""
        if topic in self._known:
            return self._known[topic]
        now = self._clock.now()
        self._unknown = {
            name: failure for name, failure in self._unknown.items() if now < failure[0]
        }
        if topic in self._unknown:
            raise self._unknown[topic][1]
        directory = KafkaDirectory(self.settings)
        try:
            self._known[topic] = len(directory.partitions(topic))
        except KafkaError as error:
            self._unknown[topic] = self._clock.now() + _UNKNOWN_S, error
            raise
        finally:
            directory.close()
        return self._known[topic]

    def check(self) -> None:
        self._connection.check()

    def send(
        self, message: Message, delivered: Delivered | None = None, *, alone: bool = False
    ) -> bool:
        """Queue a message; False if the queue is full.

        Brokers refuse a batch that is larger than its topic takes as a whole, whichever of its
        messages is to blame. A message sent `alone` is a batch of its own.

        `delivered` is called once, within a later `poll`, `flush` or `abandon`: with None when all
        in-sync replicas have the message, else with an error for `ours`. Raises KafkaError for
        messages that can never be sent.
        """
        if alone:
            if self._single is None:
                single = {**self.settings, "batch.num.messages": 1}
                self._single = Producer(single, self._clock)
                self._single._known = self._known
            return self._single.send(message, delivered)
        topic, value, key, headers, partition = message
        if topic not in self._known:
            self.check_topic(topic)
        try:
            self._produce(
                topic, value, key, partition, on_delivery=delivered, headers=headers or _NO_HEADERS
            )
        except BufferError:
            return False
        except self._refusals as error:
            raise self.ours(error.args[0], message) from error
        return True

    def poll(self, seconds: float = 0.0) -> None:
        """Process delivery reports, waiting up to `seconds` for the first one."""
        if self._single is not None:
            self._single.poll(0.0 if len(self._client) else seconds)
            self.fatal = self.fatal or self._single.fatal
        self._client.poll(seconds)

    def flush(self, seconds: float) -> int:
        """Wait until all messages are delivered or failed; returns how many are left."""
        left = self._client.flush(seconds)
        return left if self._single is None else left + self._single.flush(seconds)

    def __len__(self) -> int:
        return len(self._client) + (0 if self._single is None else len(self._single))

    def abandon(self) -> None:
        """Discard all undelivered messages and report them as failed."""
        if self._single is not None:
            self._single.abandon()
        self._connection.close()
        self._client.purge()
        self._client.flush(1.0)

    def let_go(self) -> None:
        """Drop the client with its threads, connections and all queued messages."""
        if self._single is not None:
            self._single.let_go()
        self._connection.close()
        self._client = self._produce = None  # type: ignore[assignment]

    def ours(self, error: Refusal, about: Message | Sent | str) -> KafkaError:
        """Convert an error of the client; `about` is the message or the operation it concerns."""
        if isinstance(about, str):
            return as_ours(error, about, self.address)
        topic, value = _of(about)
        if error.name() in TOO_LARGE:
            return KafkaError(
                f"a message of {len(value or b''):,} bytes for topic {topic!r} is larger than the "
                f"Kafka at {self.address} takes, or this client ({error.str()}): raise "
                "message.max.bytes here, max.message.bytes there"
            )
        if error.name() in _NOT_DELIVERED:
            return KafkaUnreachable(
                f"a message for topic {topic!r} was not delivered in time by the Kafka at "
                f"{self.address} ({error.str()}): no broker that leads its partition has answered"
            )
        if error.name() == "_UNKNOWN_PARTITION":
            return KafkaError(
                f"a message for topic {topic!r} of the Kafka at {self.address} has a partition "
                f"that the topic does not have ({error.str()}): correct `partition`"
            )
        converted = as_ours(error, f"topic {topic!r}", self.address)
        if type(converted) is KafkaError and error.name() not in _OF_MESSAGES:
            return KafkaUnreachable(str(converted))
        return converted

    def _on_error(self, error: Refusal) -> None:
        self._connection.on_error(error)
        if error.fatal():
            self.fatal = KafkaUnreachable(
                f"the producer for the Kafka at {self.address} cannot go on: {error.str()}"
            )


def _of(message: Message | Sent) -> tuple[str | None, bytes | None]:
    if isinstance(message, Message):
        return message.topic, message.value
    return message.topic(), message.value()


def checked_settings(settings: Settings) -> dict[str, Any]:
    """A copy of the settings. Raises ConfigError if they are invalid for any broker."""
    SETTINGS.check("settings", settings)
    if not settings.get("bootstrap.servers"):
        raise ConfigError(
            'the settings lack bootstrap.servers, such as {"bootstrap.servers": "127.0.0.1:9092"}'
        )
    return protected(settings)
