"""Reads failed messages again, for a spout that keeps no record until it is acked.

A second client reads them: it does not move the spout's position, and fetches nothing while no
message is wanted. It seeks to the first wanted offset of each partition, and reads on as long as
the next wanted one is near. (20,000 messages, 1 % fail once: 0.3 s more than from memory, mostly
for the start of the client; if all fail once, the same time as from memory.)
Storm: org.apache.storm.kafka.spout.KafkaSpout (doSeekRetriableTopicPartitions), which seeks its
only consumer back, and so reads all later messages again, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sunshower.errors import KafkaUnreachable
from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.consuming.partition_progress import I64
from sunshower.kafka.consuming.partition_reader import EVENTS, OUT_OF_RANGE
from sunshower.kafka.consuming.record_batch import MessageBatch, OffsetRun, events_of
from sunshower.kafka.partitions.broker_metadata import as_ours
from sunshower.kafka.partitions.ports import Partition

if TYPE_CHECKING:
    from confluent_kafka import Message

_LEAP = 1000  # offsets to read through; a seek is faster beyond that
_FETCH = {  # a small prefetch, refilled soon
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 10,
}


class Gone(NamedTuple):
    """A message that is no longer in the topic."""

    partition: Partition
    offset: int
    why: str


class Refetcher:
    """`settings` are those of the spout's client."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **_FETCH}
        self._consumer: Consumer | None = None  # created at the first `find`
        self._at: dict[Partition, int] = {}  # the next offset of each assigned partition

    def find(self, wanted: Mapping[Partition, I64], limit: int) -> tuple[list[Message], list[Gone]]:
        """The wanted messages that have arrived, up to `limit`, and those that no longer exist.

        `wanted` has ascending offsets. This does not wait: call it again for the others.
        Raises KafkaError for permanent errors.
        """
        consumer = self._consumer = self._consumer or Consumer(self._settings)
        self._leave(self._at.keys() - wanted.keys())
        for partition, offsets in wanted.items():
            self._go_to(partition, int(offsets[0]))
        taken = consumer.consume(limit, 0.0)
        events = events_of(taken)
        found: list[Message] = []
        gone: list[Gone] = []
        batch = MessageBatch.of([one for one in taken if one.error() is None] if events else taken)
        for run in batch.runs:
            partition = Partition(run.topic, run.partition)
            if partition in self._at:
                found += self._found(partition, run, batch.messages, wanted[partition], gone)
        for message in events:
            self._hear(message, wanted, gone)
        self._leave(one for one in [*self._at] if wanted[one][-1] < self._at[one])
        return found, gone

    def stop(self) -> None:
        """Stop reading: no message is wanted."""
        self._leave([*self._at])

    def close(self) -> None:
        """Close the client, if there is one."""
        if self._consumer is not None:
            self._consumer.close()

    def _go_to(self, partition: Partition, first: int) -> None:
        """Read from `first`, unless the current position is shortly before it."""
        at = self._at.get(partition)
        if at is not None and at <= first <= at + _LEAP:
            return
        self._leave([partition])
        assert self._consumer is not None
        self._consumer.assign({partition: first})
        self._at[partition] = first

    def _found(
        self,
        partition: Partition,
        run: OffsetRun,
        messages: Sequence[Message],
        wanted: I64,
        gone: list[Gone],
    ) -> list[Message]:
        """The wanted messages of a run; wanted offsets missing between its messages are gone."""
        came = np.asarray(run.offsets, np.int64)
        own = messages[run.first : run.end]
        passed = self._pass(partition, wanted, int(came[-1]) + 1)
        missing = np.setdiff1d(passed, came, assume_unique=True)
        gone += [Gone(partition, at, "it was compacted away") for at in missing.tolist()]
        return [own[index] for index in np.flatnonzero(np.isin(came, passed)).tolist()]

    def _pass(self, partition: Partition, wanted: I64, end: int) -> I64:
        """Advance to `end`. Returns the wanted offsets in between."""
        at = self._at[partition]
        self._at[partition] = max(at, end)
        return wanted[(wanted >= at) & (wanted < end)]

    def _hear(self, message: Message, wanted: Mapping[Partition, I64], gone: list[Gone]) -> None:
        error, topic = message.error(), message.topic()
        assert error is not None
        assert self._consumer is not None
        if error.name() not in EVENTS:
            self.stop()  # the fetched messages are read again
            where = f"topic {topic!r}" if topic else "the topics"
            raise as_ours(error, where, self._consumer.address)
        partition = Partition(topic or "", message.partition() or 0)
        if partition not in self._at:
            return
        if error.name() == "_PARTITION_EOF":
            passed = self._pass(partition, wanted[partition], message.offset() or 0)
            gone += [Gone(partition, at, "it was compacted away") for at in passed.tolist()]
        elif error.name() in OUT_OF_RANGE:
            gone += self._out_of_range(self._consumer, partition, wanted[partition])

    def _out_of_range(
        self, consumer: Consumer, partition: Partition, wanted: I64
    ) -> Iterable[Gone]:
        """The position is out of range: report wanted offsets outside the retained range."""
        left = wanted[wanted >= self._at[partition]]
        self._leave([partition])  # after such an error the client does not read it any more
        try:
            first, end = consumer.bounds(partition)
        except KafkaUnreachable:
            return  # the next `find` gets the same error
        for at in left.tolist():
            if at < first:
                yield Gone(partition, at, "it was removed")
            elif at >= end:
                yield Gone(partition, at, f"the topic ends at {end}: it was cut, or made anew")

    def _leave(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these."""
        gone = [one for one in partitions if self._at.pop(one, None) is not None]
        if gone and self._consumer is not None:
            self._consumer.unassign(gone)
