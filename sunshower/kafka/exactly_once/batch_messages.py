"""KafkaMessages: the rows of committed batches in a topic, each once, for readers of transactions.

The rows wait in a state until their batch is committed (`trident/stages/outbox.py`). Then they are
sent in one transaction, which also commits an offset of the group `transactional_id`: the number of
the batch, as the offset of partition 0 of the topic. A task that starts ends the transactions of
former lives, and reads the offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from sunshower.arguments import COUNT, NAME, check_names, checked
from sunshower.errors import ConfigError, KafkaError, StateMismatch, TopologyError
from sunshower.kafka.consuming.consumer import ANSWER_S
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory, client_errors, new_client
from sunshower.kafka.producing.kafka_bolt import Transactions
from sunshower.kafka.producing.producer import (
    Composer,
    Message,
    MessageParts,
    Settings,
    as_bytes,
    checked_settings,
)
from sunshower.topologies.components import Context
from sunshower.topologies.operators.states import StateFactory
from sunshower.trident.declaration.keyed_batches import delivered
from sunshower.trident.declaration.streams import BatchStream

_CLIENT_BYTES = 1_000_000  # librdkafka's message.max.bytes, and batch.size
_RECORD_BYTES, _HEADER_BYTES = 128, 10  # besides value and key; besides its name and value
_BYTES = replace(COUNT, what="a number of bytes")
_OF_READER = {"enable.auto.commit": False, "isolation.level": "read_committed"}


class KafkaMessages:
    """What `stream.apply(KafkaMessages(settings, "totals", state=…, transactional_id="totals"))`
    writes: the rows of each committed batch as messages of `topic`, once, in one transaction, soon
    after its commit. Readers need `isolation.level=read_committed`.

    `value`, `key`, `headers` and `partition` make a message as in KafkaBolt. What the topic would
    refuse fails its batch: a partition that it does not have, a header, a size. `transactional_id`
    is that of the producer, and a group whose offset notes the last batch: no two sinks have the
    same. `state` is opaque; the rows of a batch wait there, under `name`. One task writes. Raises
    TopologyError for a state that is not opaque and a stream that is not one of batches,
    ConfigError for settings; and UnknownTopic, NotAuthorised or KafkaUnreachable when it starts.
    """

    @checked(TopologyError, settings=None, transactional_id=NAME)
    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        transactional_id: str,
        state: StateFactory,
        name: str = "messages",
        **message: Unpack[MessageParts],
    ) -> None:
        self._where, self._message = f"KafkaMessages({topic})", message
        check_names(message, MessageParts.__annotations__, self._where, TopologyError)
        self._settings, self._topic, self._id = checked_settings(settings), topic, transactional_id
        fixed = {"transactional.id": self._id, "isolation.level": "read_committed"}
        for setting, value in fixed.items():
            if self._settings.get(setting, value) != value:
                raise ConfigError(
                    f"{self._where}: {setting} of the settings is {self._settings[setting]!r}, and "
                    f"the sink needs {value!r}: leave it out"
                )
        for setting in ("message.max.bytes", "batch.size"):
            _BYTES.check(f"{self._where}: {setting}", _bytes_of(self._settings, setting))
        self._state, self._name = state, name
        Composer(self._where, topic, **message)

    def __call__(self, stream: BatchStream[Any]) -> BatchStream[Any]:
        if not isinstance(stream, BatchStream):
            raise TopologyError(
                f"{self._where}: {stream!r:.200} is not a stream of batches. An ordinary stream is "
                "written by a bolt: KafkaBolt, or TransactionalKafkaBolt"
            )
        where = stream.stage.where(self._where)
        composer = Composer(where, self._topic, **self._message)
        composer.check(stream.schema)
        stream.program.keep_place(f"transactional_id {self._id!r}", where)
        delivery = _Topic(self._settings, self._topic, self._id, composer)
        return BatchStream(delivered(stream, delivery, self._state, self._name, where))


def _bytes_of(settings: Settings, name: str) -> Any:
    """A limit of the client, in bytes; what is no number is unchanged."""
    value = settings.get(name, _CLIENT_BYTES)
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class _Topic:
    """The delivery of an outbox: to a topic, with a note of the batch in the same transaction."""

    notes = True
    anew = "the sink another name= and another transactional_id="

    def __init__(self, settings: Settings, topic: str, id: str, composer: Composer) -> None:
        self.note = f"the offset of group {id!r} for partition 0 of topic {topic!r}"
        self._settings, self._topic, self._id, self._composer = settings, topic, id, composer
        self._where, self._client_bytes = composer.where, _bytes_of(settings, "message.max.bytes")

    def prepare(self, context: Context) -> None:
        """Raises UnknownTopic, NotAuthorised, KafkaUnreachable, and ConfigError for a schema that a
        registry refuses."""
        self._batches = ""
        self._producer: Transactions | None = None
        self._reader: Any = None
        self._composer.prepare()
        self._look()

    def _look(self) -> None:
        """Ask for the partitions of the topic, and for the largest message that it takes."""
        directory = KafkaDirectory(self._settings)
        with closing(directory):
            self._partitions = len(directory.partitions(self._topic))
            of_topic = directory.message_bytes(self._topic)
        self._bytes_max = min(self._client_bytes, of_topic or self._client_bytes)

    def packed(self, rows: Sequence[Any]) -> Iterator[list[Any]]:
        """The messages as values of a state. Raises KafkaError for one that would be refused."""
        for row in rows:
            _, value, key, headers, partition = self._composer.compose(row)
            self._check_partition(partition)
            sizes = [len(value or b""), len(key or b"")]
            for header in headers or ():
                name, part = self._pair(header)
                sizes.append(_HEADER_BYTES + len(name) + len(part))
            size = _RECORD_BYTES + sum(sizes)
            if size > self._bytes_max:
                raise KafkaError(
                    f"{self._where}: a message of {size:,} bytes for topic {self._topic!r} is "
                    f"larger than {self._bytes_max:,}: raise message.max.bytes in the settings, "
                    "and max.message.bytes of the topic"
                )
            yield [_text(value), _text(key), headers, partition]

    def _check_partition(self, partition: Any) -> None:
        if type(partition) is int and partition >= self._partitions:
            self._look()  # it may have got more
        if type(partition) is not int or not -1 <= partition < self._partitions:
            raise KafkaError(
                f"{self._where}: partition is {partition!r:.100}; it is a number from 0 to "
                f"{self._partitions - 1}, those of topic {self._topic!r}, or -1: by the key"
            )

    def _pair(self, header: Any) -> tuple[bytes, bytes]:
        """A header as it is sent. Raises KafkaError."""
        with suppress(ValueError, TypeError, AttributeError):
            name, part = header
            if part is None or isinstance(part, str | bytes):
                return name.encode(), part.encode() if isinstance(part, str) else part or b""
        raise KafkaError(
            f"{self._where}: {header!r:.100} is no header; return pairs of a text, and bytes, None "
            "or a text, which UTF-8 can encode"
        )

    def open(self, batches: str) -> int:
        """Raises StaleGeneration, UnknownTopic, NotAuthorised, KafkaUnreachable, StateMismatch."""
        self.close()
        self._batches = batches
        # The topic takes no larger batches of messages either.
        size = min(_bytes_of(self._settings, "batch.size"), self._bytes_max)
        self._producer = Transactions({**self._settings, "batch.size": size}, self._id)
        self._producer.check_topic(self._topic)
        about = {"log_level": 0, **self._settings, **_OF_READER, "group.id": self._id}
        self._reader = new_client("Consumer", about)
        address = str(self._settings["bootstrap.servers"])
        with client_errors(f"the offset of group {self._id!r}", address):
            (note,) = self._reader.committed([self._offset(0)], ANSWER_S)
        if note.offset > 0 and note.metadata != batches:
            raise StateMismatch(
                f"the note of group {self._id!r} is that of another sink or program: {self.note} "
                f"is {note.offset}, with the metadata {note.metadata!r} instead of {batches!r}"
            )
        last: int = max(note.offset, 0)
        return last

    def deliver(self, txid: int, packed: Sequence[Any]) -> None:
        """Raises KafkaError; then it must be opened again, which ends the transaction."""
        producer = self._producer
        assert producer is not None
        failed: list[KafkaError] = []
        producer.begin()
        for value, key, headers, partition in packed:
            pairs = None if headers is None else [(name, part) for name, part in headers]
            message = Message(self._topic, as_bytes(value), as_bytes(key), pairs, partition)
            producer.produce(message, partial(_note_failure, producer, failed))
        producer.note(self._offset(txid), self._reader)
        try:
            producer.commit()
        except KafkaError as error:
            raise failed[0] if failed else error from error

    def close(self) -> None:
        producer, reader = self.__dict__.get("_producer"), self.__dict__.get("_reader")
        self._producer = self._reader = None
        if producer is not None:
            producer.let_go()
        if reader is not None:
            with suppress(RuntimeError):
                reader.close()

    def _offset(self, txid: int) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._topic, 0, txid, self._batches)


def _note_failure(producer: Transactions, failed: list[KafkaError], error: Any, sent: Any) -> None:
    if error is not None:
        failed.append(producer.ours(error, sent))


def _text(data: bytes | None) -> str | bytes | None:
    """As a state stores it: text where it is text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
