"""The partitions a task reads, and the ids of their messages: slot << 48 | offset.

A partition's slot is a hash of its name and of the id of its topic, so it is the same after every
restart of a task: the flight recorder of the previous process then identifies the same messages. If
a topic is deleted and created again, its partitions get other slots: messages of the former topic
that are not settled are still processed, under their own ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from sunshower.kafka.consuming.partition_progress import I64, Progress
from sunshower.kafka.partitions.ports import Partition

OFFSET_BITS = 48
_OFFSETS = (1 << OFFSET_BITS) - 1
_SLOTS = 1 << 15  # keeps the id positive
_RESERVED = 1 << 14  # with offset 0, the number of a watermark
_FORMER_MAX = 1000
_FEW = 32  # partitions; with more, the ids are sorted instead of compared with each slot


@dataclass(slots=True)
class ReadPartition:
    """A partition that the task reads."""

    partition: Partition
    slot: int
    progress: Progress
    topic_id: str = ""  # of the topic that its offsets belong to; "": not known
    leader_epoch: int = -1  # of the last message, if the brokers give no ids
    is_former: bool = False  # the topic was created again, and it is not known where to begin there
    paused: bool = False
    metadata: str = ""  # committed with its offsets

    def number(self, offset: int) -> int:
        """The id of the message at `offset`."""
        return self.slot << OFFSET_BITS | offset

    @property
    def numbers(self) -> tuple[int, int]:
        """The range [first, end) of this partition's ids."""
        return self.slot << OFFSET_BITS, (self.slot + 1) << OFFSET_BITS


class ReadPartitions(Mapping[Partition, ReadPartition]):
    """The partitions read by this task, by partition and by message id."""

    def __init__(self) -> None:
        self._by_partition: dict[Partition, ReadPartition] = {}
        self._by_slot: dict[int, ReadPartition] = {}
        self._former: dict[int, ReadPartition] = {}  # of topics that were created again, by slot

    def __getitem__(self, partition: Partition) -> ReadPartition:
        return self._by_partition[partition]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_partition)

    def __len__(self) -> int:
        return len(self._by_partition)

    def take(self, partition: Partition, start: int, topic_id: str = "") -> ReadPartition:
        """Add a partition that is read from `start` on."""
        slot = crc32(f"{partition}{topic_id}".encode()) % _SLOTS
        while slot == _RESERVED or slot in self._by_slot or slot in self._former:
            slot = (slot + 1) % _SLOTS
        place = ReadPartition(partition, slot, Progress(start), topic_id)
        self._by_partition[partition] = self._by_slot[slot] = place
        return place

    def drop(self, partition: Partition) -> ReadPartition:
        """Remove a partition that this task no longer reads."""
        place = self._by_partition.pop(partition)
        del self._by_slot[place.slot]
        return place

    def replace(self, partition: Partition, start: int, topic_id: str) -> ReadPartition:
        """Begin anew in a partition whose topic was created again. Messages of the former topic
        keep their names as long as it is one of the last that were replaced."""
        former = self.drop(partition)
        self._former[former.slot] = former
        while len(self._former) > _FORMER_MAX:
            del self._former[next(iter(self._former))]
        return self.take(partition, start, topic_id)

    def former(self, number: int) -> ReadPartition | None:
        """The partition of a former topic that a message id belongs to, or None."""
        return self._former.get(number >> OFFSET_BITS)

    def acked(self, numbers: I64) -> None:
        """Mark messages as settled; ids of partitions that are not read here are ignored."""
        for place, offsets in self.each(numbers):
            place.progress.ack(offsets)

    def each(self, numbers: I64) -> Iterator[tuple[ReadPartition, I64]]:
        """The offsets of these messages by partition, for partitions that are read here."""
        if not len(numbers):
            return
        slots = numbers >> OFFSET_BITS
        if len(self._by_slot) <= _FEW:  # with four slots, a quarter of the time of a sort
            parts = [(slot, numbers[slots == slot]) for slot in self._by_slot]
        else:
            order = np.sort(numbers)
            found, begins = np.unique(order >> OFFSET_BITS, return_index=True)
            parts = list(zip(found.tolist(), np.split(order, begins[1:]), strict=True))
        for slot, part in parts:
            if len(part) and (place := self._by_slot.get(slot)) is not None:
                yield place, part & _OFFSETS

    def name(self, number: int) -> tuple[Any, ...] | None:
        """The topic, partition and offset of a message id, and the id of the topic if it is known;
        None if the partition is not read here."""
        slot = number >> OFFSET_BITS
        place = self._by_slot.get(slot) or self._former.get(slot)
        if place is None:
            return None
        name = (*place.partition, number & _OFFSETS)
        return (*name, place.topic_id) if place.topic_id else name
