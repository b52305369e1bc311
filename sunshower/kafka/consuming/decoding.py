"""Decodes batches of messages into records; undecodable messages become `Undecodable` values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple, TypedDict

from sunshower.errors import user_errors
from sunshower.kafka.consuming.record_batch import MessageBatch
from sunshower.kafka.formats import Decode, Format
from sunshower.kafka.partitions.ports import Partition
from sunshower.outages import is_unavailable
from sunshower.texts import clip, message_of

Headers = Sequence[tuple[str, bytes | None]]  # in order; a name may come twice


class KafkaRecord(NamedTuple):
    """The default record type. Storm: DefaultRecordTranslator."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any


class Received(NamedTuple):
    """The argument of a custom translator: all fields of a message."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp_ms: int  #: -1: none
    headers: Headers
    topic_id: str = ""  #: differs if the topic is created again; "": the brokers give none


class Undecodable(NamedTuple):
    """A message that could not be decoded or translated."""

    reason: str
    exception: str


# Returns a record, an OnStream, a list of these, or None to skip the message.
Translate = Callable[[Received], Any]


class SourceOptions(TypedDict, total=False):
    """The options that KafkaSpout and the batch spouts share; see KafkaSpout."""

    topics: Collection[str]
    pattern: str | None
    partitions: Collection[Partition]
    value: Format | None
    key: Format | None
    translate: Translate | None
    fields: Sequence[str]
    emits: Any
    deployment: str | None


class Translator:
    """Emits values if `value` has a record type, else KafkaRecords; `translate` and `fields`
    override this: with `fields` it emits plain tuples of these fields of Received.

    A tombstone has the value None; where values are the records, it is skipped. A message for which
    `translate`, or a format with a record type, returns a list has several records, or none.
    """

    def __init__(
        self,
        value: Format,
        key: Format,
        translate: Translate | None = None,
        fields: Sequence[str] = (),
    ) -> None:
        self._formats = {"key": key, "value": value}
        self._translate = translate
        self._plain = bool(fields)
        self._typed = translate is None and not fields and value.record_type is not None
        self._fields = Received._fields if translate is not None else fields or KafkaRecord._fields
        self._decoded = {"value"} if self._typed else {*self._fields}
        self._decoders: dict[tuple[str, str], Decode | None] = {}
        self.topic_id: Callable[[Partition], str] = lambda _: ""

    def records(self, batch: MessageBatch) -> tuple[list[Any], bool]:
        """For each message a record, an OnStream, a list of several of these, None if it is
        skipped, or an Undecodable; and whether there may be one of the last three. Raises the
        errors of a dependency that is unavailable, such as a schema registry: no message is
        charged an attempt for these; and ConfigError for invalid settings of a format."""
        for name in self._formats.keys() & self._decoded:
            for run in batch.runs:
                self.decoder(run.partition.topic, name)
        try:
            return self._all(batch), self._typed or self._translate is not None
        except user_errors():  # decode one by one to find the messages that fail
            return [self._one(MessageBatch.of([message])) for message in batch.messages], True

    def decoder(self, topic: str, part: str) -> Decode | None:
        """The decoder of a topic's keys or values. Raises ConfigError."""
        if (topic, part) not in self._decoders:
            self._decoders[topic, part] = self._formats[part].decoder(topic, part)
        return self._decoders[topic, part]

    def _one(self, batch: MessageBatch) -> Any:
        try:
            return self._all(batch)[0]
        except user_errors() as error:
            if is_unavailable(error):
                raise
            kind = type(error).__qualname__
            return Undecodable(clip(message_of(error)) or kind, kind)

    def _all(self, batch: MessageBatch) -> list[Any]:
        if self._typed:
            return _plain(self._column("value", batch))
        rows = zip(*(self._column(name, batch) for name in self._fields), strict=True)
        if self._translate is not None:
            return _plain(list(map(self._translate, map(Received._make, rows))))
        return list(rows) if self._plain else list(map(tuple.__new__, repeat(KafkaRecord), rows))

    def _column(self, name: str, batch: MessageBatch) -> Any:
        if name == "topic_id":
            runs = ((self.topic_id(run.partition), run.end - run.first) for run in batch.runs)
            return chain.from_iterable(repeat(id, count) for id, count in runs)
        column: Any = batch.column(name)
        if name not in self._formats:
            return column
        for run in batch.runs:
            decode = self.decoder(run.partition.topic, name)
            if decode is not None:
                here = slice(run.first, run.end)
                column[here] = [None if data is None else decode(data) for data in column[here]]
        return column


def _plain(records: list[Any]) -> list[Any]:
    """Records, with None for an empty list, and its record for a list of one."""
    if list not in set(map(type, records)):
        return records
    return [
        one if type(one) is not list or len(one) > 1 else one[0] if one else None for one in records
    ]
