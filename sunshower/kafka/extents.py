"""What a batch has of a partition of Kafka, as it is kept: {"firstOffset": 5, "lastOffset": 9, …}.

The next batch begins at lastOffset + 1. A batch without records has a lastOffset right below its
firstOffset; Storm has both on the last offset before. Between the two may lie offsets without a
record: what was compacted away, and transactions' marks.
Storm: org.apache.storm.kafka.spout.trident.KafkaTridentSpoutBatchMetadata
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sunshower.errors import StateMismatch
from sunshower.kafka.lots import Lot
from sunshower.kafka.partitions import Committed, Partition

if TYPE_CHECKING:
    from confluent_kafka import Message


@dataclass(frozen=True)
class Extent:
    """Offsets [first, end) of a partition."""

    first: int
    end: int
    deployment: str | None  # who has read it: Storm's topologyId
    count: int | None = None  # records; None: nobody has counted
    checksum: int | None = None  # of offsets and values
    until: int | None = None  # where the partition's part of a bounded job ends
    run: str | None = None  # which run of that job said so

    @classmethod
    def of(cls, kept: Any, partition: str) -> Extent:
        """Raises StateMismatch for what is none."""
        found = kept if isinstance(kept, Mapping) else {}
        first, last = found.get("firstOffset"), found.get("lastOffset")
        if not isinstance(first, int) or not isinstance(last, int):
            raise StateMismatch(
                f"what is kept of {partition} is {kept!r:.200}, and not what a batch has of a "
                "partition of Kafka: give the spout another id, or remove the nodes to begin anew"
            )
        rest = {name: found.get(name) for name in ("count", "checksum", "until", "run")}
        return cls(first, last + 1, found.get("topologyId"), **rest)

    def kept(self) -> dict[str, Any]:
        """The inverse of `of`."""
        found = {
            "firstOffset": self.first,
            "lastOffset": self.end - 1,
            "topologyId": self.deployment,
            "count": self.count,
            "checksum": self.checksum,
            "until": self.until,
            "run": self.run,
        }
        return {name: value for name, value in found.items() if value is not None}

    def at(self, offset: int) -> Extent:
        """Nothing, at another place."""
        return Extent(offset, offset, self.deployment)

    @property
    def records_max(self) -> int:
        """How many records it may have."""
        return self.end - self.first if self.count is None else self.count

    @property
    def committed(self) -> Committed:
        """As an offset of a consumer's."""
        return Committed(self.end, json.dumps({"topologyId": self.deployment}))


def name_of(partition: Partition) -> str:
    """As Storm calls it: topic@0."""
    return f"{partition.topic}@{partition.number}"


def partition_of(name: str) -> Partition:
    """The inverse of `name_of`."""
    topic, _, number = name.rpartition("@")
    return Partition(topic, int(number))


def checksum(messages: Sequence[Message]) -> int:
    """Of their offsets and values."""
    lot = Lot.of(messages)
    values: Any = lot.column("value")
    parts = b"".join(value for value in values if value is not None)
    return zlib.crc32(parts, zlib.crc32(lot.offsets().tobytes()))
