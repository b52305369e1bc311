"""Lists topics, partitions and leaders from the brokers' metadata; converts librdkafka errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from sunshower.arguments import Instance
from sunshower.errors import (
    ConfigError,
    KafkaError,
    KafkaUnreachable,
    NotAuthorised,
    UnknownTopic,
)
from sunshower.installed import check_packages
from sunshower.kafka.partitions.ports import INTERNAL_TOPICS, Partition
from sunshower.outages import KAFKA_CODES
from sunshower.secret import protected, revealed, without_secrets

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata

WITHIN_S = 8.0  # the time limit of a request
# More than a request takes. A client that is closed meanwhile never answers, and a thread that
# waits for it would keep its process from ending.
_MARGIN_S = 2.0
_STEP_S = 0.5  # how often a request checks whether the client was refused meanwhile
# Brokers that all refuse connections, or cannot be resolved, for this long count as down.
_REFUSED_S = 2.0
_QUIET = {"log_level": 0, "topic.metadata.refresh.interval.ms": -1}  # requests on demand only
_NOT_AUTHORISED = {
    "_AUTHENTICATION",
    "_SSL",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
}
_NO_ID = "A" * 22  # of brokers before Kafka 2.8: the UUID zero, in base64
_AS_KAFKA_PRINTS = str.maketrans("+/", "-_")  # also in ZooKeeper; librdkafka has the other base64
UNKNOWN = {  # errors of a topic or partition that does not exist, or not any more
    *("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION"),
    *("UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID"),
}


class KafkaDirectory:
    """Implements the port `Directory`.

    `settings` are librdkafka's: `bootstrap.servers`, and credentials where they are needed.
    Each call answers or raises KafkaUnreachable within `answer_within_s`, which may be changed.
    """

    def __init__(self, settings: Mapping[str, object], *, answer_within_s: float = WITHIN_S):
        self._address = str(settings.get("bootstrap.servers", "(no bootstrap.servers)"))
        self.answer_within_s = answer_within_s
        self._reports: list[Any] = []
        reporting = {"error_cb": self._reports.append}
        self._client: AdminClient = new_client("AdminClient", {**_QUIET, **settings, **reporting})

    def topics(self) -> frozenset[str]:
        return frozenset(self._ask().topics) - INTERNAL_TOPICS

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return tuple(Partition(topic, number) for number in sorted(self._of(topic).partitions))

    def everything(self) -> set[Partition]:
        """The partitions of all topics visible to this client, in one request."""
        return {
            Partition(name, number)
            for name, topic in self._ask().topics.items()
            if name not in INTERNAL_TOPICS
            for number in topic.partitions
        }

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        partitions = self._of(topic).partitions.items()
        brokers = self._ask().brokers
        address = {id: f"{broker.host}:{broker.port}" for id, broker in brokers.items()}
        return {
            Partition(topic, number): address.get(metadata.leader)
            for number, metadata in sorted(partitions)
        }

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        from confluent_kafka import TopicCollection

        if not topics:
            return {}
        within_s = self.answer_within_s
        asked = self._client.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=within_s
        )
        ids = {}
        for topic, answer in asked.items():
            with suppress(UnknownTopic), client_errors(f"topic {topic!r}", self._address):
                id = str(answer.result(within_s + _MARGIN_S).topic_id)
                ids[topic] = "" if id == _NO_ID else id.translate(_AS_KAFKA_PRINTS)
        return ids

    def message_bytes(self, topic: str) -> int | None:
        """The largest batch of messages that a topic takes, in bytes; None: this client may not
        read that."""
        from confluent_kafka.admin._config import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        within_s = self.answer_within_s
        asked = self._client.describe_configs([resource], request_timeout=within_s)
        try:
            with client_errors(f"the settings of topic {topic!r}", self._address):
                entry = asked[resource].result(within_s + _MARGIN_S).get("max.message.bytes")
        except NotAuthorised:
            return None
        return None if entry is None else int(entry.value)

    def bootstrap(self) -> str:
        return self._address

    def close(self) -> None:
        del self._client

    def _of(self, topic: str) -> TopicMetadata:
        metadata = self._ask().topics.get(topic)
        if metadata is None:
            raise self._why_not(topic)
        if metadata.error:
            raise as_ours(metadata.error, f"topic {topic!r}", self._address)
        return metadata

    def _ask(self) -> ClusterMetadata:
        """Metadata of all topics: a request for one would create it if brokers auto-create."""
        from confluent_kafka import KafkaException

        self._reports.clear()
        left_s = self.answer_within_s
        refused_s = left_s - _REFUSED_S  # time left when refusing brokers count as down
        while True:
            step_s = min(_STEP_S, left_s)
            left_s -= step_s
            try:
                return self._client.list_topics(timeout=step_s)
            except KafkaException as error:
                self._client.poll(0)  # reported errors are more specific than the timeout
                refusal, reason, all_away = _reported(self._reports, error.args[0])
                if refusal or left_s <= 0 or (all_away and left_s <= refused_s):
                    what = "the list of topics"
                    raise as_ours(refusal or reason, what, self._address) from error

    def _why_not(self, topic: str) -> KafkaError:
        """The error for an unlisted topic: unknown, or hidden by missing authorisation."""
        from confluent_kafka import TopicCollection

        within_s = self.answer_within_s
        asked = self._client.describe_topics(TopicCollection([topic]), request_timeout=within_s)
        what = f"topic {topic!r}"
        try:
            with client_errors(what, self._address):
                asked[topic].result(within_s + _MARGIN_S)
        except KafkaError as error:
            return error
        return as_ours(None, what, self._address)  # created after it was listed


SETTINGS = Instance(
    (Mapping,),
    'what librdkafka calls so, such as {"bootstrap.servers": "127.0.0.1:9092"}',
    is_secret=True,
)


def new_client(
    kind: Literal["Consumer", "Producer", "AdminClient"], settings: Mapping[str, Any]
) -> Any:
    """A Consumer, a Producer or an AdminClient of confluent_kafka.

    Raises ConfigError for settings that it rejects, and KafkaError (not retriable) without it.
    """
    check_packages("kafka", "the client of Kafka", "confluent_kafka", error=KafkaError)
    from confluent_kafka import Consumer, KafkaException, Producer
    from confluent_kafka.admin import AdminClient

    kinds = {"Consumer": Consumer, "Producer": Producer, "AdminClient": AdminClient}
    try:
        return kinds[kind](revealed(protected(settings)))
    except (KafkaException, TypeError) as error:
        reason = error.args[0]
        text = without_secrets(str(reason.str() if hasattr(reason, "str") else reason))
        raise ConfigError(f"invalid Kafka client settings: {text}") from None


def _reported(reports: Collection[Any], late: object) -> tuple[object, object, bool]:
    """Evaluate the errors the client reported: an authorisation error if there is one, the best
    other reason, and whether all brokers are down."""
    names = [report.name() for report in reports]
    refusal = next((report for report in reports if report.name() in _NOT_AUTHORISED), None)
    reason = next(
        (report for report in reports if report.name() in ("_TRANSPORT", "_RESOLVE")), late
    )
    return refusal, reason, "_ALL_BROKERS_DOWN" in names


@contextmanager
def client_errors(what: str, address: str) -> Iterator[None]:
    """Convert the exceptions of a client's call, and TimeoutError; see `as_ours`."""
    from confluent_kafka import KafkaException

    try:
        yield
    except TimeoutError as error:
        raise as_ours(error, what, address) from error
    except KafkaException as error:
        raise as_ours(error.args[0], what, address) from error


def as_ours(error: Any, what: str, address: str) -> KafkaError:
    """Convert an error of the client, adding what was requested and the address.

    None means that the thing does not exist. Only retriable errors become KafkaUnreachable.
    """
    name = error.name() if hasattr(error, "name") else ""
    why = f" ({error.str()})" if hasattr(error, "str") else ""
    if name in UNKNOWN or error is None:
        return UnknownTopic(
            f"there is no {what} in the Kafka at {address}{why}: create it, or correct its name"
        )
    if name in _NOT_AUTHORISED:
        return NotAuthorised(
            f"the Kafka at {address} does not let this client have {what}{why}: it wants another "
            "credential (sasl.…, ssl.…), or a right for this one"
        )
    if name and name not in KAFKA_CODES and not error.retriable():
        return KafkaError(f"the Kafka at {address} refuses {what}: {error.str()}")
    return KafkaUnreachable(
        f"the Kafka at {address} does not answer for {what}{why}. Is it running, and is that its "
        "address (bootstrap.servers)?"
    )
