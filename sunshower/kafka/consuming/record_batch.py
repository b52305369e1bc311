"""Columns of a batch of messages, read with as few calls to the client's objects as possible.

Each method call on a message costs at least 30 ns. The client returns runs of messages of one
partition, mostly without gaps: then a run's offsets follow from its first and last.
Measured, in CPU time of the reading thread, from messages to records (100 bytes): with all fields
of each message in comprehensions 0.72 µs, in columns and runs 0.37 µs, and with only the one
field that is needed 0.19 µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sunshower.kafka.consuming.partition_progress import I64
from sunshower.kafka.partitions.ports import Partition

if TYPE_CHECKING:
    from confluent_kafka import Message

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
        """The offset of each message."""
        found = np.empty(len(self.messages), np.int64)
        for run in self.runs:
            whole, offsets = isinstance(run.offsets, range), run.offsets
            found[run.first : run.end] = (
                np.arange(offsets[0], offsets[-1] + 1) if whole else offsets
            )
        return found

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
    one, last = messages[first], messages[end - 1]
    begin: Any = one.offset()
    offsets: Sequence[Any] = range(begin, begin + end - first)
    if last.offset() != offsets[-1]:  # there are gaps
        offsets = [message.offset() for message in messages[first:end]]
    partition = Partition(topic or one.topic() or "", one.partition() or 0)
    return OffsetRun(partition, first, end, offsets)
