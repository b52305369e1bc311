"""KafkaRanges: a batch spout that emits offset ranges, for consumers that read the records.

For volumes that should not pass through Python: Spark reads the ranges with
sunshower/spark_integration/tables/kafka_rows.py. This spout fetches no messages; it requests the
first and last offset of each partition, as visible with read_committed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from sunshower.errors import IncompleteBatch, KafkaUnreachable
from sunshower.kafka.exactly_once.batch_spouts import (
    ASKING_S,
    REST_S,
    BatchOptions,
    Extent,
    KafkaBatches,
    partition_name,
    partition_of,
)
from sunshower.kafka.partitions.ports import Partition
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import PartitionedSpout

_LOG = logging.getLogger("sunshower.kafka")
_BOUNDS = Bounds(records=1_000_000)


class OffsetRange(NamedTuple):
    """Offsets [first, end) of a partition. Some may hold no record: transaction markers and
    compacted records."""

    topic: str
    partition: int
    first: int
    end: int
    topic_id: str = ""  # differs if the topic is created again; "": the brokers give none


class KafkaRanges(KafkaBatches, PartitionedSpout):
    """Emits an OffsetRange for each partition with new offsets; transactional: a replayed batch has
    the same ranges.

    `options.bounds.records` limits the offsets of one task's part, by default 1 million; bytes are
    not known. A range that retention has partly deleted cannot be emitted again (IncompleteBatch);
    records removed by compaction are not detected. Raises ConfigError.
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
            options=BatchOptions(bounds=_BOUNDS) if options is None else options,
            deployment=deployment,
        )
        self.emits = OffsetRange
        self._latest: dict[Partition, int] = {}
        self._asked_s: dict[str, float] = {}  # the last request; the least recent one is next

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        """Emit the next range of each partition, within the batch's limits."""
        starts = self._starts(last)
        found = self._extents(starts, room)
        while room.seconds and all(extent.end == starts[one].end for one, extent in found.items()):
            if found and self.options.until_end:
                break  # all offsets up to the end are in batches
            self._clock.sleep(min(room.seconds, REST_S))
            found = self._extents(starts, room)
        begins = {one: extent.at(extent.first) for one, extent in found.items()}
        is_any = any(extent.first < extent.end for extent in found.values())
        present, unread = self._of_present_topics(begins, now=is_any)
        for one, begin in present.items():
            if one not in unread:
                found[one] = replace(found[one], topic_id=begin.topic_id)
            elif begin.topic_id != found[one].topic_id:  # the topic was created again
                found[one] = begin
            else:
                found[one] = replace(found[one], end=found[one].first)
        for partition, extent in sorted(found.items()):
            self._emit_range(partition, extent, room)
        return {partition_name(partition): extent.kept() for partition, extent in found.items()}

    def emit_all_again(self, metadata: Mapping[str, Any], room: Room) -> None:
        """Emit the same ranges. Raises IncompleteBatch for deleted ones, after the others."""
        gone = []
        self._topic_ids({partition_of(name).topic for name in metadata})
        for name, kept in sorted(metadata.items()):
            partition, extent = partition_of(name), Extent.of(kept, name)
            if problem := self._missing(partition, extent):
                gone.append(problem)
            else:
                self._emit_range(partition, extent, room)
        if gone:
            raise IncompleteBatch("; ".join(gone))

    def partitions_at_end(self) -> Mapping[str, float] | None:
        return None  # a partition is in a batch only if its leader has answered

    def _missing(self, partition: Partition, extent: Extent) -> str:
        if extent.first == extent.end:
            return ""
        if problem := self._other_topic(partition, extent):
            return problem
        earliest, latest = self._connect().retained(partition)
        if earliest <= extent.first and extent.end <= latest:
            return ""
        return (
            f"{partition}, offsets {extent.first} to {extent.end - 1}: the partition has "
            f"{earliest} to {latest - 1} now. Retention has removed them, or the topic was "
            "created again: keep records until their batches are committed"
        )

    def _end(self, partition: Partition) -> int | None:
        return self._latest.get(partition)

    def _emit_range(self, partition: Partition, extent: Extent, room: Room) -> None:
        self._read[partition] = extent
        room.partition = partition_name(partition)
        if extent.first < extent.end:
            room.emit([OffsetRange(*partition, extent.first, extent.end, extent.topic_id or "")])

    def _extents(self, starts: Mapping[Partition, Extent], room: Room) -> dict[Partition, Extent]:
        """The extents of a batch; partitions whose broker does not answer are left out."""
        found, waiting = dict[Partition, Extent](), dict[Partition, int]()
        until_s = self._clock.now() + ASKING_S
        for partition in sorted(
            starts, key=lambda one: self._asked_s.get(partition_name(one), 0.0)
        ):
            if self._clock.now() >= until_s:
                break
            self._asked_s[partition_name(partition)] = self._clock.now()
            try:
                found[partition], waiting[partition] = self._look(partition, starts[partition])
            except KafkaUnreachable as error:
                _LOG.warning("%s is read later: %s", partition, error)
        return {
            one: replace(found[one], end=found[one].end + count)
            for one, count in shares(waiting, self.bounds.records).items()
        }

    def _look(self, partition: Partition, start: Extent) -> tuple[Extent, int]:
        """An empty extent at the next offset, and the number of offsets waiting there. Raises
        KafkaUnreachable, and FailedBatch for a partition that has become shorter."""
        earliest, latest = self._connect().retained(partition)
        self._latest[partition] = latest
        if not earliest <= start.end <= latest:  # empty in this batch, the next one continues
            start = self._beyond(partition, start)
            latest = start.end
        end = latest if start.until is None else min(latest, start.until)
        empty = replace(start.at(start.end), until=start.until, run=start.run)
        return empty, max(end - start.end, 0)


def shares(waiting: Mapping[Partition, int], limit: int) -> dict[Partition, int]:
    """Divide `limit` equally over partitions, as far as they have offsets waiting; at least one
    for each that has some, so that none starves."""
    found, left = dict[Partition, int](), limit
    few_first = sorted(waiting, key=lambda one: (waiting[one], one))
    for place, one in enumerate(few_first):
        found[one] = min(waiting[one], max(left // (len(few_first) - place), 1))
        left -= found[one]
    return found
