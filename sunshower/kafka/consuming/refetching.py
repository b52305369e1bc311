"""Reads failed messages again, for a spout that does not store records until their ack.

A second client reads them: it does not move the spout's position, and fetches nothing while no
message is wanted. It seeks to the first wanted offset of each partition, and reads on as long as
the next wanted one is near. (20,000 messages, 1 % fail once: 0.3 s more than from memory, mostly
for the start of the client; if all fail once, the same time as from memory.)
Storm: org.apache.storm.kafka.spout.KafkaSpout (doSeekRetriableTopicPartitions), which seeks its
only consumer back, and so reads all later messages again, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sunshower.errors import KafkaUnreachable
from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.consuming.cursor import Cursor, Fetched
from sunshower.kafka.consuming.partition_progress import I64
from sunshower.kafka.consuming.record_batch import MessageBatch, OffsetRun
from sunshower.kafka.partitions.ports import Partition

if TYPE_CHECKING:
    from confluent_kafka import Message

_LEAP = 1000  # offsets to read through; a seek is faster beyond that
_FETCH = {  # a small prefetch, refilled soon
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 10,
}
_COMPACTED = "it was compacted away"


class Gone(NamedTuple):
    """A message that is no longer in the topic."""

    partition: Partition
    offset: int
    why: str


class Refetcher:
    """`settings` are those of the spout's client."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **_FETCH}

    @cached_property
    def _cursor(self) -> Cursor:
        """Connects at the first use."""
        return Cursor(Consumer(self._settings))

    def find(self, wanted: Mapping[Partition, I64], limit: int) -> tuple[list[Message], list[Gone]]:
        """The wanted messages that have arrived, up to `limit`, and those that no longer exist.

        `wanted` has ascending offsets. This does not wait: call it again for the others.
        Raises KafkaError for permanent errors.
        """
        cursor = self._cursor
        cursor.seek({one: int(offsets[0]) for one, offsets in wanted.items()}, _LEAP)
        fetched = Fetched.of(cursor.consumer.consume(limit, 0.0))
        if fetched.refusal is not None:
            self.stop()  # the fetched messages are read again
            raise fetched.error(cursor.consumer.address)
        found: list[Message] = []
        gone: list[Gone] = []
        batch = MessageBatch.of(fetched.messages)
        for run in batch.runs:
            if run.partition in cursor.at:
                found += self._found(run, batch.messages, wanted[run.partition], gone)
        for partition in fetched.ends.keys() & cursor.at.keys():
            passed = self._pass(partition, wanted[partition], fetched.ends[partition])
            gone += [Gone(partition, at, _COMPACTED) for at in passed.tolist()]
        for partition in fetched.lost:
            if partition in cursor.at:
                gone += self._out_of_range(partition, wanted[partition])
        cursor.leave([one for one, at in cursor.at.items() if wanted[one][-1] < at])
        return found, gone

    def stop(self) -> None:
        """Stop reading: no message is wanted."""
        if "_cursor" in vars(self):
            self._cursor.seek({})

    def close(self) -> None:
        """Close the client, if there is one."""
        if "_cursor" in vars(self):
            self._cursor.consumer.close()

    def _found(
        self, run: OffsetRun, messages: Sequence[Message], wanted: I64, gone: list[Gone]
    ) -> list[Message]:
        """The wanted messages of a run; wanted offsets missing between its messages are gone."""
        came = np.asarray(run.offsets, np.int64)
        own = messages[run.first : run.end]
        passed = self._pass(run.partition, wanted, int(came[-1]) + 1)
        missing = np.setdiff1d(passed, came, assume_unique=True)
        gone += [Gone(run.partition, at, _COMPACTED) for at in missing.tolist()]
        return [own[index] for index in np.flatnonzero(np.isin(came, passed)).tolist()]

    def _pass(self, partition: Partition, wanted: I64, end: int) -> I64:
        """Advance to `end`. Returns the wanted offsets in between."""
        at = self._cursor.at[partition]
        self._cursor.at[partition] = max(at, end)
        return wanted[(wanted >= at) & (wanted < end)]

    def _out_of_range(self, partition: Partition, wanted: I64) -> Iterable[Gone]:
        """The position is out of range: report wanted offsets outside the retained range."""
        left = wanted[wanted >= self._cursor.at[partition]]
        self._cursor.leave([partition])  # after such an error the client does not read it any more
        try:
            first, end = self._cursor.consumer.retained(partition)
        except KafkaUnreachable:
            return  # the next `find` gets the same error
        for at in left.tolist():
            if at < first:
                yield Gone(partition, at, "it was removed")
            elif at >= end:
                yield Gone(partition, at, f"the topic ends at {end}: it was cut, or recreated")
