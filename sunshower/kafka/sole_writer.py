"""Out to Kafka by the only one who writes there: what had arrived before a death is not resent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sunshower.errors import KafkaError
from sunshower.kafka.bolt import KafkaBolt
from sunshower.kafka.messages import Headers, Message, Part, as_bytes, part_of
from sunshower.kafka.producing import TOO_LARGE, Settings
from sunshower.kafka.seen import Seen
from sunshower.kafka.tail import tails
from sunshower.records import Schema
from sunshower.topologies.components import Collector, Context, Tuple

ID_HEADER = "id"
_SILENCE_S = 5.0  # after brokers that did not answer, before they are asked again


class SoleWriterBolt(KafkaBolt):
    """As KafkaBolt, and each `id` is sent once: also when its record is replayed after a death.

    Each message carries its id (a field's name, or a function of the record) in the header `id`.
    At its start the bolt reads the last `memory` messages of each partition of the topic, and
    knows by their ids which of those that were on their way have arrived; then it remembers as many
    that it has sent. A record with such an id is acked and dropped. After a message that was not
    confirmed, in time or because its producer could not go on, it reads them again before it sends
    the next one: that message may have arrived all the same.

    That holds as long as nobody else writes to the topic, `memory` is more than what can be on its
    way (`spout_pending`) and what other tasks of the bolt write while one is away, and a repeat
    comes to the same task: group by the fields that the id is made of.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        id: Part,
        memory: int = 100_000,
        value: Part = None,
        key: Part = None,
        headers: Headers | Callable[[Any], Headers] | None = None,
        partition: Callable[[Any], int] | None = None,
    ) -> None:
        super().__init__(
            settings, topic, value=value, key=key, headers=headers, partition=partition
        )
        self._target, self._id, self._memory = topic, id, Seen(memory).memory

    def check_input(self, schema: Schema) -> None:
        """Refuse records without the fields that are to be sent, or that name them."""
        super().check_input(schema)
        if isinstance(self._id, str):
            schema.check_field(self._id, f"SoleWriterBolt({self.topic})")

    def prepare(self, context: Context) -> None:
        """Read what has arrived so far."""
        super().prepare(context)
        self.repeats = 0  # records that were dropped
        self._ids: dict[int, bytes] = {}  # of those on their way, by number
        self._repeated: dict[bytes, list[Tuple[Any]]] = {}  # more of these came meanwhile
        self._unsure = False  # what was not confirmed may have arrived
        self._silence: KafkaError | None = None  # why that cannot be found out
        self._ask_s = 0.0  # not before
        partitions = self._producer.check_topic(self._target)
        self._arrived = Seen(
            self._memory * partitions, _ids(self.settings, self._target, self._memory)
        )

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Send it, unless it is there."""
        if self._unsure:
            self._read_again()
        id = as_bytes(part_of(tuple.record, self._id)) or b""
        if id in self._arrived:
            self.repeats += 1
            out.ack(tuple)
        elif id in self._repeated:  # it fares as the one that is on its way
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
        """As KafkaBolt, and how many were dropped."""
        return super().figures() | {"repeats": self.repeats}

    def _compose(self, record: Any) -> Message:
        message = super()._compose(record)
        id = (ID_HEADER, as_bytes(part_of(record, self._id)) or b"")
        return message._replace(headers=[*(message.headers or ()), id])

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        self._unsure |= error is not None and error.name() not in TOO_LARGE
        super()._delivered(number, error, message)

    def _begin_anew(self, fatal: KafkaError) -> None:
        self._unsure = True
        super()._begin_anew(fatal)

    def _read_again(self) -> None:
        """Find out what has arrived. Raises KafkaError; then it does so for a while without asking,
        because that may take some seconds."""
        if self._silence is not None and self._clock.now() < self._ask_s:
            raise self._silence
        try:
            self._arrived.add(_ids(self.settings, self._target, self._memory))
        except KafkaError as error:
            self._silence, self._ask_s = error, self._clock.now() + _SILENCE_S
            raise
        self._unsure, self._silence = False, None

    def _settle(self, number: int, error: KafkaError | None) -> None:
        id = self._ids.pop(number)
        if error is None:
            self._arrived.add([id])
        super()._settle(number, error)
        for tuple in self._repeated.pop(id):
            self._tell(tuple, error)


def _ids(settings: Settings, topic: str, count: int) -> Iterator[bytes]:
    for message in tails(settings, topic, count):
        if (id := as_bytes(dict(message.headers() or ()).get(ID_HEADER))) is not None:
            yield id
