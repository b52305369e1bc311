"""Fetches the messages of a batch, from any offset of any partition, up to the batch's limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.consuming.cursor import Cursor, Fetched, partition_of_message
from sunshower.kafka.consuming.record_batch import MessageBatch
from sunshower.kafka.partitions.ports import Partition
from sunshower.trident.spouts.bounds import Room

if TYPE_CHECKING:
    from confluent_kafka import Message

IsOver = Callable[[Collection[Partition]], bool]

_AT_ONCE = 10_000  # messages in one call of the client
_WAIT_S = 0.05  # the longest wait for one message, so that conditions are checked in between


class BatchFetcher(Cursor):
    """Buffers fetched messages that are not taken yet.

    `lost`: partitions in which the next offset is out of range.
    """

    def __init__(self, consumer: Consumer) -> None:
        super().__init__(consumer)
        self._ends: dict[Partition, int] = {}  # all messages below were fetched
        self._reported: dict[Partition, int] = {}  # the end of the partition, as the broker has it
        self._ahead: list[Message] = []  # fetched, not taken
        self.lost: set[Partition] = set()

    def discard(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._ends.pop(partition, None)
            self._reported.pop(partition, None)
        self.lost -= {*partitions}
        self._ahead = [m for m in self._ahead if partition_of_message(m) not in partitions]

    def take(self, room: Room, until: Mapping[Partition, int]) -> dict[Partition, list[Message]]:
        """Messages in order, until `room` is used up or all that are available have arrived.

        For partitions in `until`, only offsets below that value.
        """
        found: list[Message] = []
        size = room.bytes
        while len(found) < room.records and size > 0 and room.seconds and not self._finished(until):
            if not self._ahead:
                enough = bool(found) and self._at_ends()
                self._fetch(room.records - len(found), 0.0 if enough else room.seconds)
                if not self._ahead and (enough or self.lost):
                    break
                continue
            part = self._ahead[: room.records - len(found)]
            sums = np.cumsum(list(map(len, part)))
            count = max(int(np.searchsorted(sums, size, "right")), 0 if found else 1)
            if not count:
                break
            found += part[:count]
            self._ahead = self._ahead[count:]
            size -= int(sums[count - 1])
        return self._taken(found, until)

    def again(
        self, ranges: Mapping[Partition, range], counts: Mapping[Partition, int], is_over: IsOver
    ) -> dict[Partition, list[Message]]:
        """Read a range of offsets of each partition again: `counts` messages, or all there are.

        Calls `is_over` while nothing arrives, with the partitions whose end is not known. It raises
        if these take too long; if it returns True, the messages that have arrived are returned.
        """
        self.leave([*self.at])
        self.seek({partition: offsets.start for partition, offsets in ranges.items()})
        found: dict[Partition, list[Message]] = {partition: [] for partition in ranges}
        while self.at:
            came = self._fetch(_AT_ONCE, _WAIT_S)
            if not came and is_over([one for one in self.at if not self._is_at_end(one)]):
                self.leave([*self.at])
            for partition, messages in self._by_partition(self._ahead).items():
                offsets = ranges[partition]
                found[partition] += [one for one in messages if (one.offset() or 0) in offsets]
                end = (messages[-1].offset() or 0) + 1
                self._ends[partition] = max(end, self._reported.get(partition, 0))
            self._ahead = []
            for partition in [*self.lost]:
                self._go_on(partition, ranges[partition].start)
            done = [
                one
                for one in self.at
                if len(found[one]) >= counts[one] or self._ends.get(one, 0) >= ranges[one].stop
            ]
            self.leave(done)
        return found

    def _go_on(self, partition: Partition, wanted: int) -> None:
        """Continue at the first retained offset, or at the end if that comes first."""
        first, end = self.consumer.retained(partition)
        self.leave([partition])
        self._ends[partition] = max(first, min(wanted, end))
        self.seek({**self.at, partition: self._ends[partition]})

    def _is_at_end(self, partition: Partition) -> bool:
        return self._reported.get(partition, -1) >= self._ends.get(partition, 0)

    def _fetch(self, limit: int, wait_s: float) -> bool:
        """Append arriving messages to `_ahead`. Returns whether anything arrived."""
        taken = self.consumer.consume(min(limit, _AT_ONCE), 0.0)
        taken = taken or self.consumer.consume(1, min(wait_s, _WAIT_S))
        fetched = Fetched.of(taken)
        self._ahead += fetched.messages
        ends = {one: end for one, end in fetched.ends.items() if one in self.at}
        self._ends |= ends
        self._reported |= ends
        self.lost |= {*fetched.lost} & self.at.keys()
        if fetched.refusal is not None:
            raise fetched.error(self.consumer.address)
        return bool(taken)

    def _at_ends(self) -> bool:
        """Whether every partition was read to its end at least once."""
        return self.at.keys() <= self._ends.keys()

    def _finished(self, until: Mapping[Partition, int]) -> bool:
        """Whether every partition has reached its bound in `until` and nothing is buffered."""
        return not self._ahead and all(
            one in until and max(at, self._ends.get(one, 0)) >= until[one]
            for one, at in self.at.items()
        )

    def _taken(
        self, messages: list[Message], until: Mapping[Partition, int]
    ) -> dict[Partition, list[Message]]:
        """Group messages by partition and advance the positions past them."""
        found = self._by_partition(messages)
        waiting = self._by_partition(self._ahead)
        for partition, at in self.at.items():
            own = found.get(partition, [])
            if own and (own[0].offset() or 0) < at:
                own = [one for one in own if (one.offset() or 0) >= at]
            after = max(at, (own[-1].offset() or 0) + 1) if own else at
            if partition not in waiting:
                after = max(after, self._ends.get(partition, 0))
            end = until.get(partition, after)
            self.at[partition] = min(after, end)
            found[partition] = [m for m in own if (m.offset() or 0) < end] if after > end else own
        return {partition: own for partition, own in sorted(found.items()) if own}

    def _by_partition(self, messages: list[Message]) -> dict[Partition, list[Message]]:
        found: dict[Partition, list[list[Message]]] = {}
        batch = MessageBatch.of(messages)
        for run in batch.runs:
            if run.partition in self.at:
                part = [*batch.messages[run.first : run.end]]
                found.setdefault(run.partition, []).append(part)
        return {one: [*chain.from_iterable(parts)] for one, parts in found.items()}
