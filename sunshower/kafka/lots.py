"""Messages that came together, as columns: each is asked of the client's objects once, in C.

Measured beside the plain way, one comprehension for each question: a third of the spout's time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sunshower.kafka.progress import I64

if TYPE_CHECKING:
    from confluent_kafka import Message


class Run(NamedTuple):
    """Messages [first, end) of a lot that come from one partition, by ascending offsets."""

    topic: str
    partition: int
    first: int
    end: int


class Lot(NamedTuple):
    """n messages without an error."""

    messages: Sequence[Message]
    topics: Sequence[str]  # of each
    partitions: Sequence[int]
    offsets: Sequence[int]

    @classmethod
    def of(cls, messages: Sequence[Message], topic: str | None = None) -> Lot:
        """`topic`: the one that all of them come from, if that is known."""
        from confluent_kafka import Message

        partitions: Any = list(map(Message.partition, messages))
        offsets: Any = list(map(Message.offset, messages))
        topics: Any = [topic] * len(messages) if topic else list(map(Message.topic, messages))
        return cls(messages, topics, partitions, offsets)

    def runs(self) -> list[Run]:
        """The lot in runs: the client gives many messages of one partition after the other."""
        codes = {topic: code for code, topic in enumerate(sorted(set(self.topics)))}
        keys = np.array(self.partitions, np.int64)
        if len(codes) > 1:
            keys |= np.array([codes[topic] for topic in self.topics], np.int64) << 32
        breaks = (np.flatnonzero(np.diff(keys)) + 1).tolist()
        return [
            Run(self.topics[first], self.partitions[first], first, end)
            for first, end in pairwise([0, *breaks, len(keys)])
            if first < end
        ]

    def numbers(self) -> I64:
        """The offsets as an array."""
        return np.array(self.offsets, np.int64)

    def select(self, which: NDArray[np.bool_]) -> Lot:
        """Those where `which` is true."""
        columns: list[Any] = [list(compress(column, which)) for column in self]
        return Lot(*columns)

    def singly(self) -> Iterator[Lot]:
        """Each message as a lot of its own."""
        columns: Any = self
        for row in zip(*columns, strict=True):
            yield Lot(*([one] for one in row))


def values(messages: Sequence[Message]) -> list[Any]:
    """Their values, as bytes or None."""
    from confluent_kafka import Message

    return list(map(Message.value, messages))


def keys(messages: Sequence[Message]) -> list[Any]:
    """Their keys, as bytes or None."""
    from confluent_kafka import Message

    return list(map(Message.key, messages))


def told(messages: Sequence[Message]) -> list[Message]:
    """Those that are no records: the ends of partitions, and errors."""
    from confluent_kafka import Message

    if not any(map(Message.error, messages)):
        return []
    return [message for message in messages if message.error() is not None]
