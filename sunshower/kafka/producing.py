"""A producer of Kafka: idempotent, never blocking for long, with errors of our own tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from sunshower.clock import Clock, SystemClock
from sunshower.errors import ConfigError, KafkaError, KafkaUnreachable
from sunshower.kafka.connection import Connection
from sunshower.kafka.messages import Header, Message
from sunshower.kafka.metadata import SETTINGS, KafkaDirectory, as_ours, need_client

if TYPE_CHECKING:
    from confluent_kafka import KafkaError as Refusal
    from confluent_kafka import Message as Sent
    from confluent_kafka import Producer as Client

Settings: TypeAlias = Mapping[str, Any]  # librdkafka's, such as bootstrap.servers
Delivered: TypeAlias = Callable[["Refusal | None", "Sent"], None]

# Enough messages for what a spout keeps open, so that bytes are what fills it. With idempotence the
# client sends again what was not confirmed, in order and once, until message.timeout.ms is over.
_USUAL = {
    "enable.idempotence": True,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 128 << 10,
    "topic.metadata.propagation.max.ms": 5_000,
    "log_level": 0,  # what matters is raised, or told of the message that it concerns
}
TOO_LARGE = {"MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE"}
_NOT_DELIVERED = {"_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT"}
_UNKNOWN_S = 5.0  # a question that fails may take longer than that: not one for each record
_NO_HEADERS: list[Header] = []


class Producer:
    """Sends messages, and says of each what has become of it.

    Raises ConfigError for settings that make no producer, KafkaError without its package.
    """

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = dict(settings)
        self.address = str(settings.get("bootstrap.servers", "(no bootstrap.servers)"))
        self.fatal: KafkaError | None = None  # from then on nothing can be sent any more
        self._connection = Connection(self.settings)
        self._known: dict[str, int] = {}  # topics, and how many partitions they have
        self._clock = clock or SystemClock()
        self._unknown: dict[str, tuple[float, KafkaError]] = {}  # until when not to ask, and why
        self._client, self._refusals = make_client(self.settings, self._hear_error)
        self._produce: Callable[..., None] = self._client.produce

    def check_topic(self, topic: str) -> int:
        """How many partitions a topic had when it was first asked for. Raises UnknownTopic,
        NotAuthorised, KafkaUnreachable, within 10 s; and the same at once for some seconds more."""
        if topic in self._known:
            return self._known[topic]
        now = self._clock.now()
        self._unknown = {name: one for name, one in self._unknown.items() if now < one[0]}
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
        """Raise KafkaUnreachable if all brokers are away."""
        self._connection.check()

    def send(self, message: Message, delivered: Delivered | None = None) -> bool:
        """Take a message in; False if there is no room for it now.

        `delivered` is called once, by a later `poll`, `flush` or `abandon`: with None when all
        in-sync replicas have it, else with an error for `ours`. Raises KafkaError for what can
        never go.
        """
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
        """Tell of deliveries, waiting for the first one for so long at most."""
        self._client.poll(seconds)

    def flush(self, seconds: float) -> int:
        """Wait until all is delivered, or given up; returns how many are not by then."""
        return self._client.flush(seconds)

    def __len__(self) -> int:
        return len(self._client)

    def abandon(self) -> None:
        """Give up all that is not delivered: it is told at once."""
        self._connection.close()
        self._client.purge()
        self._client.flush(1.0)

    def let_go(self) -> None:
        """Use it no more: its threads, buffers and connections go, with all that is in them."""
        self._connection.close()
        self._client = self._produce = None  # type: ignore[assignment]  # it refers to this object

    def ours(self, error: Refusal, about: Message | Sent | str) -> KafkaError:
        """An error of the client's as one of ours; `about` a message, or something else."""
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
        return as_ours(error, f"topic {topic!r}", self.address)

    def _hear_error(self, error: Refusal) -> None:
        self._connection.hear(error)
        if error.fatal():
            self.fatal = KafkaError(
                f"the producer for the Kafka at {self.address} cannot go on: {error.str()}"
            )


def _of(message: Message | Sent) -> tuple[str | None, bytes | None]:
    if isinstance(message, Message):
        return message.topic, message.value
    return message.topic(), message.value()


def checked(settings: Settings) -> dict[str, Any]:
    """The same. Raises ConfigError for what makes no producer, whatever brokers there are."""
    SETTINGS.check("settings", settings)
    if not settings.get("bootstrap.servers"):
        raise ConfigError(
            'the settings lack bootstrap.servers, such as {"bootstrap.servers": "127.0.0.1:9092"}'
        )
    return dict(settings)


def make_client(
    settings: Settings, hear_error: Callable[[Any], None]
) -> tuple[Client, type[Exception]]:
    """A client with settings that suit us, unless they are given, and what it raises.

    Raises as Producer.
    """
    need_client()
    checked(settings)
    from confluent_kafka import KafkaException
    from confluent_kafka import Producer as Client

    try:
        client = Client({**_USUAL, **settings, "error_cb": hear_error})
    except KafkaException as error:
        raise ConfigError(f"these settings make no producer: {error.args[0].str()}") from error
    return client, KafkaException
