"""Decodes batches of messages into records; undecodable messages become `Undecodable` values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from sunshower.errors import user_errors
from sunshower.kafka.formats import Decode, Format
from sunshower.kafka.partitions.ports import Partition
from sunshower.outages import is_unavailable
from sunshower.state.log_progress import I64
from sunshower.texts import clip, message_of

if TYPE_CHECKING:
    from confluent_kafka import Message

Headers = Sequence[tuple[str, bytes | None]]  # in order; a name may come twice


# ---- record batch --------------------------------------------------------------------------------
# Columns of a batch of messages, read with as few calls to the client's objects as possible.
#
# Each method call on a message costs at least 30 ns. The client returns runs of messages of one
# partition, mostly without gaps: then a run's offsets follow from its first and last. Measured, in
# CPU time of the reading thread, from messages to records (100 bytes): with all fields of each
# message in comprehensions 0.72 µs, in columns and runs 0.37 µs, and with only the one field that
# is needed 0.19 µs.

_RUNS_MAX = 32  # with more runs, messages are sorted by partition first, to have fewer


class OffsetRun(NamedTuple):
    """Messages [first, end) of a batch, all of one partition, by ascending offset."""

    partition: Partition
    first: int
    end: int
    offsets: Sequence[int]


class MessageBatch(NamedTuple):
    """Messages without an error, in runs; those of one partition are in order."""

    messages: Sequence[Message]
    runs: Sequence[OffsetRun]

    @classmethod
    def of(cls, messages: Sequence[Message], topic: str | None = None) -> MessageBatch:
        """`topic`: the topic of all messages, if it is known."""
        if not messages:
            return cls((), ())
        keys = _keys(messages, topic)
        breaks = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        if len(breaks) >= _RUNS_MAX:
            order = np.argsort(keys, kind="stable")
            messages, keys = [messages[at] for at in order.tolist()], keys[order]
            breaks = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        ends = pairwise([0, *breaks.tolist(), len(messages)])
        return cls(messages, [_run(messages, first, end, topic) for first, end in ends])

    def offsets(self) -> I64:
        all_offsets = np.empty(len(self.messages), np.int64)
        for run in self.runs:
            whole, offsets = isinstance(run.offsets, range), run.offsets
            all_offsets[run.first : run.end] = (
                np.arange(offsets[0], offsets[-1] + 1) if whole else offsets
            )
        return all_offsets

    def column(self, name: str) -> Iterable[Any]:
        """A column by its name in Received; keys and values are a list of bytes or None."""
        from confluent_kafka import Message

        runs, messages = self.runs, self.messages
        match name:
            case "key":
                return list(map(Message.key, messages))
            case "value":
                return list(map(Message.value, messages))
            case "topic":
                topics = (repeat(run.partition.topic, run.end - run.first) for run in runs)
                return chain.from_iterable(topics)
            case "partition":
                numbers = (repeat(run.partition.number, run.end - run.first) for run in runs)
                return chain.from_iterable(numbers)
            case "offset":
                return chain.from_iterable(run.offsets for run in runs)
            case "timestamp_ms":
                return (message.timestamp()[1] for message in messages)
        return (message.headers() or () for message in messages)


def _keys(messages: Sequence[Message], topic: str | None) -> Any:
    """An integer per message that identifies its partition."""
    from confluent_kafka import Message

    numbers: Any = list(map(Message.partition, messages))
    try:
        keys: Any = np.frombuffer(bytes(numbers), np.uint8)  # a third of the time of np.array
    except ValueError:
        keys = np.array(numbers, np.int64)
    if topic is None:
        topics: Any = list(map(Message.topic, messages))
        codes = {name: code << 32 for code, name in enumerate(sorted(set(topics)))}
        keys = keys | np.array([codes[name] for name in topics], np.int64)
    return keys


def _run(messages: Sequence[Message], first: int, end: int, topic: str | None) -> OffsetRun:
    first_message, last = messages[first], messages[end - 1]
    begin: Any = first_message.offset()
    offsets: Sequence[Any] = range(begin, begin + end - first)
    if last.offset() != offsets[-1]:  # there are gaps
        offsets = [message.offset() for message in messages[first:end]]
    partition = Partition(topic or first_message.topic() or "", first_message.partition() or 0)
    return OffsetRun(partition, first, end, offsets)


# ---- decoding ------------------------------------------------------------------------------------


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
        record if type(record) is not list or len(record) > 1 else record[0] if record else None
        for record in records
    ]
