"""Decides at which offset a task starts to read a partition: docs/KAFKA.md has the table.

Offsets that retention deleted after the commit are skipped and reported, and so are those that
`behind_max` passes over. Storm: org.apache.storm.kafka.spout.KafkaSpout (doSeek),
FirstPollOffsetStrategy
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sunshower.arguments import Values
from sunshower.errors import BadOffset
from sunshower.kafka.partitions.ports import Committed, Partition, RetainedOffsets


class StartPosition(Enum):
    """Where a task begins to read a partition; see the table in docs/KAFKA.md."""

    EARLIEST = "earliest"
    LATEST = "latest"
    UNCOMMITTED_EARLIEST = "uncommitted earliest"
    UNCOMMITTED_LATEST = "uncommitted latest"
    NONE = "none"
    STORM = "storm"
    STORM_FORCED = "storm, forced"

    @property
    def by_anyone(self) -> bool:
        """Whether it continues at the committed offset of any deployment."""
        return self.value.startswith("uncommitted") or self is StartPosition.NONE

    @property
    def from_end(self) -> bool:
        """Whether it begins at the end if there is no committed offset to continue at."""
        return self in (StartPosition.LATEST, StartPosition.UNCOMMITTED_LATEST, StartPosition.STORM)


_TIME = Values(int, "a whole number", least=0)


@dataclass(frozen=True)
class StartTime:
    """Begin at the first message with this timestamp or a later one: milliseconds since 1970."""

    timestamp_ms: int
    by_anyone = from_end = False

    def __post_init__(self) -> None:
        _TIME.check("StartTime: timestamp_ms", self.timestamp_ms)


Where = StartPosition | StartTime


class Start(NamedTuple):
    """The offset to begin at, and the range [first, end) that is skipped, if any."""

    offset: int
    skipped: tuple[int, int] | None = None

    @property
    def first(self) -> int:
        """The first offset that is read or skipped."""
        return self.skipped[0] if self.skipped else self.offset


def find_start(
    where: Where,
    stored: Committed | None,
    deployment: str,
    retained: RetainedOffsets,
    *,
    stamped: int | None = None,
    behind_max: int | None = None,
) -> Start:
    """The start of a partition. `stamped`: the offset of `StartTime`; None if no message is so
    late."""
    earliest, latest = retained
    if where in (StartPosition.STORM, StartPosition.STORM_FORCED):
        forced = where is StartPosition.STORM_FORCED
        start = storm_start(stored, deployment, earliest if forced else latest, forced, behind_max)
        return start if start.skipped else within(start.offset, retained, where)
    if stored is not None and (where.by_anyone or writer(stored) == deployment):
        offset = stored.offset
    elif isinstance(where, StartTime):
        offset = latest if stamped is None else stamped
    else:
        offset = latest if where.from_end else earliest
    start = within(offset, retained, where)
    if behind_max is not None and latest - start.offset > behind_max:
        return Start(latest - behind_max, (start.first, latest - behind_max))
    return start


def check_start(
    where: Where, partition: Partition, offset: int | None, retained: RetainedOffsets
) -> None:
    """Raise BadOffset for `StartPosition.NONE` unless `offset` is in the partition, or its end.

    Source: org/apache/kafka/clients/consumer/OffsetResetStrategy.java (NONE)
    """
    earliest, latest = retained
    if where is not StartPosition.NONE or (offset is not None and earliest <= offset <= latest):
        return
    problem = "no offset is committed"
    if offset is not None:
        problem = f"offset {offset} was to be read next; retention has removed it, or the topic "
        problem += "was cut or recreated"
    raise BadOffset(
        f"{partition}: {problem}, and first=StartPosition.NONE begins nowhere else. The partition "
        f"has the offsets from {earliest} up to {latest}: commit one of them for the group, or say "
        "where to begin, such as first=StartPosition.UNCOMMITTED_EARLIEST"
    )


def within(offset: int, retained: RetainedOffsets, where: Where) -> Start:
    """`offset` if it is retained; deleted ones before are skipped. An offset beyond the end means
    that the topic was recreated: start as if nothing had been committed, and report what a start
    at the end passes over."""
    earliest, latest = retained
    if offset < earliest:
        return Start(earliest, (offset, earliest))
    if offset > latest:
        if where.from_end and earliest < latest:
            return Start(latest, (earliest, latest))
        return Start(earliest)
    return Start(offset)


def storm_start(
    stored: Committed | None,
    deployment: str,
    wished: int,
    forced: bool = False,
    behind_max: int | None = None,
) -> Start:
    """The rule of Storm's first Kafka spout, STORM above; `wished`: the end, or the start if
    `forced`.

    If the committed offset is too far behind `wished`, it begins there instead. Storm only logs
    that.
    Source: org/apache/storm/kafka/PartitionManager.java (the constructor)
    """
    if stored is None or (forced and writer(stored) != deployment):
        return Start(wished)
    if behind_max is not None and wished - stored.offset > behind_max:
        return Start(wished, (stored.offset, wished))
    return Start(stored.offset)


def writer(committed: Committed) -> str | None:
    """The id of the deployment that wrote the offset, if the metadata contain it."""
    id = committed.fields.get("topologyId")
    return id if isinstance(id, str) else None
