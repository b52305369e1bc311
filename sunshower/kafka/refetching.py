"""Single messages once more, for a spout that keeps no record until it is acked.

A client of its own reads them: that moves nobody's place, and while nothing is wanted it fetches
nothing. It goes to the first that is wanted of each partition, and reads on from there as long as
the next one is not far. (20,000 messages, 1 % fail once: 0.3 s more than from memory, most of it
for the client to begin; where all fail once, as long as from memory.)
Storm: org.apache.storm.kafka.spout.KafkaSpout (doSeekRetriableTopicPartitions), which moves its one
consumer back, and so reads all that comes after once more, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sunshower.errors import KafkaUnreachable
from sunshower.kafka.consumer import Consumer
from sunshower.kafka.lots import Lot, Run, told
from sunshower.kafka.metadata import as_ours
from sunshower.kafka.partitions import Partition
from sunshower.kafka.progress import I64
from sunshower.kafka.reading import EVENTS, OUT_OF_RANGE

if TYPE_CHECKING:
    from confluent_kafka import Message

_LEAP = 1000  # messages to read on for one that is wanted; beyond that a seek is sooner there
_FETCH = {  # little ahead, and soon more of it
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 10,
}


class Gone(NamedTuple):
    """A message that is not there any more."""

    partition: Partition
    offset: int
    why: str


class Refetching:
    """`settings` are those of the spout's own client."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **_FETCH}
        self._consumer: Consumer | None = None  # until something is wanted
        self._at: dict[Partition, int] = {}  # what comes next of each that is read

    def find(self, wanted: Mapping[Partition, I64], limit: int) -> tuple[list[Message], list[Gone]]:
        """Of these offsets, in ascending order, what has come by now: up to `limit` messages, and
        those that will never come. It does not wait: ask again for the others.

        Raises KafkaError for what does not go away by itself.
        """
        consumer = self._consumer = self._consumer or Consumer(self._settings)
        self._leave(self._at.keys() - wanted.keys())
        for partition, offsets in wanted.items():
            self._go_to(partition, int(offsets[0]))
        taken = consumer.consume(limit, 0.0)
        events = told(taken)
        found: list[Message] = []
        gone: list[Gone] = []
        lot = Lot.of([one for one in taken if one.error() is None] if events else taken)
        for run in lot.runs:
            partition = Partition(run.topic, run.partition)
            if partition in self._at:
                found += self._found(partition, run, lot.messages, wanted[partition], gone)
        for message in events:
            self._hear(message, wanted, gone)
        self._leave(one for one in [*self._at] if wanted[one][-1] < self._at[one])
        return found, gone

    def stop(self) -> None:
        """Nothing is wanted any more."""
        self._leave([*self._at])

    def close(self) -> None:
        """The end of its client, if there is one."""
        if self._consumer is not None:
            self._consumer.close()

    def _go_to(self, partition: Partition, first: int) -> None:
        """Read from there, unless that is near."""
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
        run: Run,
        messages: Sequence[Message],
        wanted: I64,
        gone: list[Gone],
    ) -> list[Message]:
        """What is wanted of a run. What is wanted and lies between its messages is gone."""
        came = np.asarray(run.offsets, np.int64)
        own = messages[run.first : run.end]
        passed = self._pass(partition, wanted, int(came[-1]) + 1)
        missing = np.setdiff1d(passed, came, assume_unique=True)
        gone += [Gone(partition, at, "it was compacted away") for at in missing.tolist()]
        return [own[index] for index in np.flatnonzero(np.isin(came, passed)).tolist()]

    def _pass(self, partition: Partition, wanted: I64, end: int) -> I64:
        """Go on at `end`. Returns what was wanted on the way there."""
        at = self._at[partition]
        self._at[partition] = max(at, end)
        return wanted[(wanted >= at) & (wanted < end)]

    def _hear(self, message: Message, wanted: Mapping[Partition, I64], gone: list[Gone]) -> None:
        error, topic = message.error(), message.topic()
        assert error is not None
        assert self._consumer is not None
        if error.name() not in EVENTS:
            self.stop()  # what was taken is read once more
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
        """Nothing is where it was to be read. It begins anew at what is there yet."""
        left = wanted[wanted >= self._at[partition]]
        self._leave([partition])  # after such an error the client reads it no more
        try:
            first, end = consumer.bounds(partition)
        except KafkaUnreachable:
            return  # it is found out again
        for at in left.tolist():
            if at < first:
                yield Gone(partition, at, "it was removed")
            elif at >= end:
                yield Gone(partition, at, f"the topic ends at {end}: it was cut, or made anew")

    def _leave(self, partitions: Iterable[Partition]) -> None:
        """Read these no more."""
        gone = [one for one in partitions if self._at.pop(one, None) is not None]
        if gone and self._consumer is not None:
            self._consumer.unassign(gone)
