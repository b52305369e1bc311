"""KafkaMessages: the rows of committed batches in a topic, each once, for readers of transactions.

The rows wait in a state until their batch is committed (`trident/stages/outbox.py`). Then they are
sent in one transaction, which also commits an offset of the group `transactional_id`: the number of
the batch, as the offset of partition 0 of the topic. A task that starts ends the transactions of
former lives, and reads the offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

from sunshower.arguments import checked
from sunshower.errors import KafkaError, TopologyError
from sunshower.kafka.consuming.consumer import ANSWER_S
from sunshower.kafka.partitions.broker_metadata import client_errors, new_client
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

_CLIENT_BYTES = 1_000_000  # librdkafka's message.max.bytes
_OF_READER = {"enable.auto.commit": False, "isolation.level": "read_committed"}


class KafkaMessages:
    """What `stream.apply(KafkaMessages(settings, "totals", state=…, transactional_id="totals"))`
    writes: the rows of each committed batch as messages of `topic`, once, in one transaction, soon
    after its commit. Readers need `isolation.level=read_committed`.

    `value`, `key`, `headers` and `partition` make a message as in KafkaBolt. `transactional_id` is
    that of the producer, and a group whose offset notes the last batch: no two sinks have the same.
    `state` is opaque; the rows of a batch wait there, under `name`. One task writes. Raises
    TopologyError for a state that is not opaque, ConfigError for settings.
    """

    @checked(TopologyError, settings=None, state=None)
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
        self._settings, self._topic, self._id = checked_settings(settings), topic, transactional_id
        self._state, self._name = state, name
        self._where = f"KafkaMessages({topic})"
        self._composer = Composer(self._where, topic, **message)

    def __call__(self, stream: BatchStream[Any]) -> BatchStream[Any]:
        self._composer.check(stream.schema)
        delivery = _Topic(self._settings, self._topic, self._id, self._composer)
        where = stream.stage.where(self._where)
        return BatchStream(delivered(stream, delivery, self._state, self._name, where))


class _Topic:
    """The delivery of an outbox: to a topic, with a note of the batch in the same transaction."""

    notes = True

    def __init__(self, settings: Settings, topic: str, id: str, composer: Composer) -> None:
        self._settings, self._topic, self._id, self._composer = settings, topic, id, composer
        self._bytes_max = int(settings.get("message.max.bytes", _CLIENT_BYTES))

    def prepare(self, context: Context) -> None:
        self._batches = ""
        self._producer: Transactions | None = None
        self._reader: Any = None

    def packed(self, rows: Sequence[Any]) -> Iterator[list[Any]]:
        """The messages as values of a state. Raises KafkaError for one that is too large."""
        for row in rows:
            _, value, key, headers, partition = self._composer.compose(row)
            size = len(value or b"") + len(key or b"")
            if size > self._bytes_max:
                raise KafkaError(
                    f"{self._id}: a message of {size:,} bytes for topic {self._topic!r} is larger "
                    "than message.max.bytes: raise that in the settings, and max.message.bytes of "
                    "the topic"
                )
            yield [_text(value), _text(key), headers, partition]

    def open(self, batches: str) -> int:
        """Raises StaleGeneration, UnknownTopic, NotAuthorised, KafkaUnreachable."""
        self.close()
        self._batches = batches
        self._producer = Transactions(self._settings, self._id)
        self._producer.check_topic(self._topic)
        about = {"log_level": 0, **self._settings, **_OF_READER, "group.id": self._id}
        self._reader = new_client("Consumer", about)
        address = str(self._settings["bootstrap.servers"])
        with client_errors(f"the offset of group {self._id!r}", address):
            (note,) = self._reader.committed([self._offset(0)], ANSWER_S)
        return note.offset if note.offset > 0 and note.metadata == batches else 0

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
