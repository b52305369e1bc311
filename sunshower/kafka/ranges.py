"""KafkaRanges: batches that say which offsets they have, for who reads the records himself.

For volumes that are not to pass through Python: Spark reads the ranges, with
sunshower/spark_integration/kafka_rows.py. Nothing is fetched here; the brokers are asked for the
first and the last offset of each partition, of what transactions have committed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from sunshower.errors import IncompleteBatch, KafkaUnreachable
from sunshower.kafka.batches import ASKING_S, REST_S, BatchOptions, KafkaBatches
from sunshower.kafka.extents import Extent, name_of, partition_of
from sunshower.kafka.partitions import Partition
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.partitioned import PartitionedSpout

_LOG = logging.getLogger("sunshower.kafka")
_BOUNDS = Bounds(records=1_000_000)


class OffsetRange(NamedTuple):
    """Offsets [first, end) of a partition. Between them may lie some without a record: marks of
    transactions, and what was compacted away."""

    topic: str
    partition: int
    first: int
    end: int


class KafkaRanges(KafkaBatches, PartitionedSpout):
    """Emits an OffsetRange for each partition that has something new; transactional: a batch that
    is emitted again has the same ranges.

    `options.bounds.records` are offsets, 1 million of one task's share unless it says otherwise;
    bytes nobody knows. A range of which retention has removed a part cannot be emitted again
    (IncompleteBatch); compaction may take records out of one, and nobody would notice. Raises
    ConfigError.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        partitions: Collection[Partition] = (),
        options: BatchOptions | None = None,
        deployment: str | None = None,
    ) -> None:
        super().__init__(
            settings,
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            options=options or BatchOptions(bounds=_BOUNDS),
            deployment=deployment,
        )
        self.emits = OffsetRange
        self._latest: dict[Partition, int] = {}
        self._asked_s: dict[str, float] = {}  # when each was asked last: the next is another one

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        """Where each partition goes on, and how far the batch has room for it."""
        starts = self._starts(last)
        found = self._extents(starts, room)
        while room.seconds and all(extent.end == starts[one].end for one, extent in found.items()):
            if found and self.options.until_end:
                break  # what was there is in batches
            self._clock.sleep(min(room.seconds, REST_S))
            found = self._extents(starts, room)
        for partition, extent in sorted(found.items()):
            self._emit_range(partition, extent, room)
        return {name_of(partition): extent.kept() for partition, extent in found.items()}

    def emit_all_again(self, metadata: Mapping[str, Any], room: Room) -> None:
        """The same ranges. Raises IncompleteBatch for those that are gone, and emits the others."""
        gone = []
        for name, kept in sorted(metadata.items()):
            partition, extent = partition_of(name), Extent.of(kept, name)
            if said := self._missing(partition, extent):
                gone.append(said)
            else:
                self._emit_range(partition, extent, room)
        if gone:
            raise IncompleteBatch("; ".join(gone))

    def _missing(self, partition: Partition, extent: Extent) -> str:
        if extent.first == extent.end:
            return ""
        earliest, latest = self._connect().bounds(partition)
        if earliest <= extent.first and extent.end <= latest:
            return ""
        return (
            f"{partition}, offsets {extent.first} to {extent.end - 1}: the partition has "
            f"{earliest} to {latest - 1} now. Retention has removed them, or the topic was made "
            "anew: keep records until their batches are committed"
        )

    def _end(self, partition: Partition) -> int | None:
        return self._latest.get(partition)

    def _emit_range(self, partition: Partition, extent: Extent, room: Room) -> None:
        self._read[partition] = extent
        if extent.first < extent.end:
            room.emit([OffsetRange(*partition, extent.first, extent.end)])

    def _extents(self, starts: Mapping[Partition, Extent], room: Room) -> dict[Partition, Extent]:
        """What a batch has of these; those of which nobody tells now are left out."""
        found, waiting = dict[Partition, Extent](), dict[Partition, int]()
        until_s = self._clock.now() + ASKING_S
        for partition in sorted(starts, key=lambda one: self._asked_s.get(name_of(one), 0.0)):
            if self._clock.now() >= until_s:
                break
            self._asked_s[name_of(partition)] = self._clock.now()
            try:
                found[partition], waiting[partition] = self._look(partition, starts[partition])
            except KafkaUnreachable as error:
                _LOG.warning("%s is read later: %s", partition, error)
        return {
            one: replace(found[one], end=found[one].end + count)
            for one, count in shares(waiting, room.records).items()
        }

    def _look(self, partition: Partition, start: Extent) -> tuple[Extent, int]:
        """Where a partition goes on, and how many offsets wait there. Raises KafkaUnreachable, and
        FailedBatch for one that has become shorter."""
        earliest, latest = self._connect().bounds(partition)
        self._latest[partition] = latest
        at, until = start.end, start.until
        if not earliest <= at <= latest:  # this batch has nothing of it, and the next goes on
            _, at, until = self._beyond(partition, start)
            latest = at
        end = latest if until is None else min(latest, until)
        return Extent(at, at, self._topology, until=until, run=start.run), max(end - at, 0)


def shares(waiting: Mapping[Partition, int], limit: int) -> dict[Partition, int]:
    """How many offsets each gives: all alike, as far as they have them, and `limit` in all; but
    one at least of each that has some, so that none waits for ever."""
    found, left = dict[Partition, int](), limit
    few_first = sorted(waiting, key=lambda one: (waiting[one], one))
    for place, one in enumerate(few_first):
        found[one] = min(waiting[one], max(left // (len(few_first) - place), 1))
        left -= found[one]
    return found
