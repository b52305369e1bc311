"""The partitions that one task reads, and the numbers of their messages: slot << 48 | offset.

The slot of a partition is drawn from its name, so that it is the same in every life of a task: what
a dead process has left behind about a message then finds it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from sunshower.kafka.partitions import Partition
from sunshower.kafka.progress import I64, Progress

OFFSET_BITS = 48
_OFFSETS = (1 << OFFSET_BITS) - 1
_SLOTS = 1 << 15  # a number stays positive
_FEW = 32  # partitions, up to which each is looked for alone


@dataclass(slots=True)
class Place:
    """One partition that is read."""

    partition: Partition
    slot: int
    progress: Progress
    paused: bool = False

    def number(self, offset: int) -> int:
        """Of the message at `offset`."""
        return self.slot << OFFSET_BITS | offset

    @property
    def numbers(self) -> tuple[int, int]:
        """The first of its numbers, and the first that is not its own."""
        return self.slot << OFFSET_BITS, (self.slot + 1) << OFFSET_BITS


class Places(Mapping[Partition, Place]):
    """By partition; and by message number."""

    def __init__(self) -> None:
        self._by_partition: dict[Partition, Place] = {}
        self._by_slot: dict[int, Place] = {}

    def __getitem__(self, partition: Partition) -> Place:
        return self._by_partition[partition]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_partition)

    def __len__(self) -> int:
        return len(self._by_partition)

    def take(self, partition: Partition, start: int) -> Place:
        """Read a partition from now on, from `start`."""
        slot = crc32(str(partition).encode()) % _SLOTS
        while slot in self._by_slot:
            slot = (slot + 1) % _SLOTS
        place = Place(partition, slot, Progress(start))
        self._by_partition[partition] = self._by_slot[slot] = place
        return place

    def drop(self, partition: Partition) -> Place:
        """It is somebody else's."""
        place = self._by_partition.pop(partition)
        del self._by_slot[place.slot]
        return place

    def restart(self, place: Place, offset: int) -> None:
        """Nothing of what was read is there any more: go on at `offset`, whatever was before."""
        place.progress = Progress(offset)

    def acked(self, numbers: I64) -> None:
        """These messages are settled; those of partitions that are not read here are ignored."""
        for place, offsets in self.each(numbers):
            place.progress.ack(offsets)

    def each(self, numbers: I64) -> Iterator[tuple[Place, I64]]:
        """The partitions of these messages, those that are read here, each with their offsets."""
        if not len(numbers):
            return
        slots = numbers >> OFFSET_BITS
        if len(self._by_slot) <= _FEW:  # a quarter of the time of a sort, where there are four
            parts = [(slot, numbers[slots == slot]) for slot in self._by_slot]
        else:
            order = np.sort(numbers)
            found, begins = np.unique(order >> OFFSET_BITS, return_index=True)
            parts = list(zip(found.tolist(), np.split(order, begins[1:]), strict=True))
        for slot, part in parts:
            if len(part) and (place := self._by_slot.get(slot)) is not None:
                yield place, part & _OFFSETS

    def name(self, number: int) -> tuple[Partition, int] | None:
        """The partition and the offset of a message."""
        place = self._by_slot.get(number >> OFFSET_BITS)
        return None if place is None else (place.partition, number & _OFFSETS)
