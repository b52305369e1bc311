"""From messages to records, many at a time; what cannot be read is told, and stops nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from sunshower.kafka import lots
from sunshower.kafka.formats import Decode, Format
from sunshower.kafka.lots import Lot

Headers = Sequence[tuple[str, bytes | None]]  # in order; a name may come twice


class KafkaRecord(NamedTuple):
    """What is emitted where nothing else is said. Storm: DefaultRecordTranslator."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any


class Received(NamedTuple):
    """What a translator of one's own is given: all that Kafka tells of a message."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp_ms: int  # -1: it has none
    headers: Headers


class Bad(NamedTuple):
    """A message that could not be read, or not translated."""

    reason: str
    exception: str


Translate = Callable[[Received], Any]  # a record, an OnStream, or None to pass the message over


class Translator:
    """`translate`: None emits the values themselves where `value` makes records, else KafkaRecords.
    A tombstone has the value None; where values are the records, it is passed over."""

    def __init__(self, value: Format, key: Format, translate: Translate | None) -> None:
        self._formats = {"key": key, "value": value}
        self._translate = translate
        self._typed = translate is None and value.record_type is not None
        self._decoders: dict[tuple[str, str], Decode | None] = {}

    def records(self, lot: Lot) -> tuple[list[Any], bool]:
        """For each message a record, an OnStream, None if it is passed over, or a Bad; and whether
        there may be any of the last two."""
        try:
            return self._all(lot), self._typed or self._translate is not None
        except Exception:  # one of them: which, is found out one by one
            return [self._one(one) for one in lot.singly()], True

    def decoder(self, topic: str, part: str) -> Decode | None:
        """What reads that part of a topic's messages. Raises ConfigError."""
        if (topic, part) not in self._decoders:
            self._decoders[topic, part] = self._formats[part].decoder(topic, part)
        return self._decoders[topic, part]

    def _one(self, lot: Lot) -> Any:
        try:
            return self._all(lot)[0]
        except Exception as error:
            return Bad(str(error), type(error).__qualname__)

    def _all(self, lot: Lot) -> list[Any]:
        values = self._decoded("value", lot.topics, lots.values(lot.messages))
        if self._typed:
            return values
        keys = self._decoded("key", lot.topics, lots.keys(lot.messages))
        columns: Any = (lot.topics, lot.partitions, lot.offsets, keys, values)
        if self._translate is None:
            rows = zip(*columns, strict=True)
            return list(map(tuple.__new__, repeat(KafkaRecord), rows))
        stamps = (message.timestamp()[1] for message in lot.messages)
        headers = (message.headers() or () for message in lot.messages)
        return list(map(self._translate, map(Received, *columns, stamps, headers)))

    def _decoded(self, part: str, topics: Sequence[str], parts: list[Any]) -> list[Any]:
        if len(kinds := set(topics)) == 1:
            decode = self.decoder(kinds.pop(), part)
            if decode is None:
                return parts
            return [None if data is None else decode(data) for data in parts]
        return [
            data if data is None or (decode := self.decoder(topic, part)) is None else decode(data)
            for topic, data in zip(topics, parts, strict=True)
        ]
