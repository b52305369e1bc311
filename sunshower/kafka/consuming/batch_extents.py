"""The metadata a batch stores per Kafka partition: {"firstOffset": 5, "lastOffset": 9, …}.

"topicId" is that of the topic the offsets belong to; without it (as of Storm, and of releases that
did not store it) they belong to the topic that there is.

The next batch begins at lastOffset + 1. A batch without records has a lastOffset one below its
firstOffset; Storm sets both to the last offset of the batch before. Between the two there may be
offsets without a record: compacted records and transaction markers.
Storm: org.apache.storm.kafka.spout.trident.KafkaTridentSpoutBatchMetadata
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sunshower.errors import StateMismatch
from sunshower.kafka.consuming.record_batch import MessageBatch
from sunshower.kafka.partitions.ports import Committed, Partition

if TYPE_CHECKING:
    from confluent_kafka import Message


@dataclass(frozen=True)
class Extent:
    """Offsets [first, end) of a partition."""

    first: int
    end: int
    deployment: str | None  # that read it: Storm's topologyId
    count: int | None = None  # records; None: not counted
    checksum: int | None = None  # of offsets, keys and values
    until: int | None = None  # where a bounded job ends in this partition
    run: str | None = None  # the run of that job that determined `until`
    topic_id: str | None = None  # None: not known

    @classmethod
    def of(cls, kept: Any, partition: str) -> Extent:
        """Parse stored metadata. Raises StateMismatch if they are not those of a Kafka batch."""
        found = kept if isinstance(kept, Mapping) else {}
        first, last = found.get("firstOffset"), found.get("lastOffset")
        if not isinstance(first, int) or not isinstance(last, int):
            raise StateMismatch(
                f"what is kept of {partition} is {kept!r:.200}, and not what a batch has of a "
                "partition of Kafka: give the spout another id, or remove the nodes to start over"
            )
        rest = {name: found.get(name) for name in ("count", "checksum", "until", "run")}
        rest["topic_id"] = found.get("topicId")
        return cls(first, last + 1, found.get("topologyId"), **rest)

    def kept(self) -> dict[str, Any]:
        """The metadata to store: the inverse of `of`."""
        found = {
            "firstOffset": self.first,
            "lastOffset": self.end - 1,
            "topologyId": self.deployment,
            "count": self.count,
            "checksum": self.checksum,
            "until": self.until,
            "run": self.run,
            "topicId": self.topic_id,
        }
        return {name: value for name, value in found.items() if value is not None}

    def at(self, offset: int) -> Extent:
        """An empty extent at `offset`."""
        return Extent(offset, offset, self.deployment, topic_id=self.topic_id)

    @property
    def records_max(self) -> int:
        """An upper bound on the number of records; exact if they were counted."""
        return self.end - self.first if self.count is None else self.count

    @property
    def committed(self) -> Committed:
        """The end of the extent as a consumer offset, with Storm's metadata."""
        return Committed(self.end, json.dumps({"topologyId": self.deployment}))


def partition_name(partition: Partition) -> str:
    """Storm's name of a partition: topic@0."""
    return f"{partition.topic}@{partition.number}"


def partition_of(name: str) -> Partition:
    """The inverse of `name_of`."""
    topic, _, number = name.rpartition("@")
    return Partition(topic, int(number))


def checksum(messages: Sequence[Message]) -> int:
    """A CRC-32 of offsets, keys and values with their lengths; null and empty values differ."""
    batch = MessageBatch.of(messages)
    found = zlib.crc32(batch.offsets().tobytes())
    for column in ("key", "value"):
        parts: Any = batch.column(column)
        sizes = np.array([-1 if part is None else len(part) for part in parts], np.int64)
        found = zlib.crc32(b"".join(filter(None, parts)), zlib.crc32(sizes.tobytes(), found))
    return found
