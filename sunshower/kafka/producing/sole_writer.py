"""SoleWriterBolt: the only writer of a topic, which repeats no message that has arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Unpack

from sunshower.arguments import COUNT, checked
from sunshower.errors import KafkaError
from sunshower.kafka.exactly_once.deduplicate import KeyCache
from sunshower.kafka.partitions.topic_ends import tails
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.producing.producer import TOO_LARGE, Message, MessageParts, Settings, as_bytes
from sunshower.records import Part, Schema
from sunshower.topologies.components import Collector, Context, Tuple

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
